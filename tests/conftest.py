"""Shared fixtures: one grader per worker, truths cached for the whole run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LETHE_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"lethe-{os.getuid()}"))

import pytest
import torch

from lethe_env.tasks.model import ShapeFamily, Task

torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--all-architectures",
        action="store_true",
        help="run Triton's language and every honest kernel for sm_80, sm_90 and sm_100",
    )
    parser.addoption(
        "--experts",
        action="store_true",
        help="judge the library's own kernels with all gates, minutes each; compile them further",
    )
    parser.addoption(
        "--fuzz-programs",
        type=int,
        default=0,
        help="how many random PTX programs to compare; by default a few",
    )
    parser.addoption(
        "--training-steps",
        type=int,
        default=5,
        help="how many steps a tiny model takes through each state-space kernel",
    )


@pytest.fixture(scope="session")
def grader():
    from lethe_env.grader import Grader

    with Grader(device="vgpu") as shared:
        yield shared


@pytest.fixture(scope="session")
def interpreter():
    from lethe_env.grader import Grader

    with Grader(device="interpreter", targets=("sm_100",)) as shared:
        yield shared


@pytest.fixture(autouse=True)
def seeded():
    """A test draws the same numbers in every run."""
    torch.manual_seed(0)


@pytest.fixture
def make_task():
    """A task around a source text, with a small family."""

    def make(source: str, **fields) -> Task:
        fields.setdefault("family", ShapeFamily())
        return Task(id=fields.pop("id", "test/task"), source=source, **fields)

    return make


def pytest_collection_modifyitems(items):
    gpu = torch.cuda.is_available()
    skip = pytest.mark.skip(reason="needs an NVIDIA GPU, and this machine has none")
    for item in items:
        if "gpu" in item.keywords and not gpu:
            item.add_marker(skip)
