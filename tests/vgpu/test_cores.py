"""How many threads the virtual GPU takes."""

from __future__ import annotations

import pytest

from lethe_env.vgpu import cores
from lethe_env.vgpu.session import Session


@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 6), ("150000 100000", 1), ("400000 100000", 4), ("", 6)]
)
def test_a_quota_leaves_fewer_cores(monkeypatch, tmp_path, quota, expected):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda process: set(range(6)))
    monkeypatch.setattr(cores, "_QUOTA", tmp_path / "cpu.max")
    if quota:
        (tmp_path / "cpu.max").write_text(quota)
    monkeypatch.delenv(cores.THREADS_VARIABLE, raising=False)
    assert cores.usable_cores() == expected
    assert Session().threads == expected


def test_the_environment_says_how_many_threads(monkeypatch):
    monkeypatch.setenv(cores.THREADS_VARIABLE, "3")
    assert Session().threads == 3
    assert Session(threads=1).threads == 1
    for wrong in ("0", "-1", "many"):
        monkeypatch.setenv(cores.THREADS_VARIABLE, wrong)
        with pytest.raises(ValueError, match="LETHE_VGPU_THREADS must be a number of threads"):
            Session()
