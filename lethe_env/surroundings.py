"""Surroundings: where and how a verdict was made, as the verdict tells it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .grader import Grader


def surroundings(grader: Grader, *, tf32: bool, containment: str) -> dict[str, str]:
    """The grader's settings and the versions of what it stands on.

    Args:
        grader: whose verdict it is.
        tf32: whether the candidate declares TF32.
        containment: what confines the candidate's process.
    """
    return {
        "device": grader.device_name,
        "architecture": grader.architecture_name,
        "seed": str(grader.seed),
        "targets": ",".join(grader.targets),
        "declared_precision": "tf32" if tf32 else "float32",
        "containment": containment,
        "torch": torch.__version__,
        "triton": _version("triton"),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
