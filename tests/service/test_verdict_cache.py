from __future__ import annotations

import os
from dataclasses import replace

import pytest

from lethe_env.cell import Limits
from lethe_env.grading import broken
from lethe_env.service import fingerprint
from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions
from lethe_env.service.verdict_cache import VerdictCache, cache_key

from .fakes import verdict_of

KEY = "ab" + "0" * 62


@pytest.fixture
def job(double):
    return Job(double, "honest \ud800")


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_kept_verdict_is_equal_to_the_fresh_one(tmp_path, job):
    verdict = verdict_of(job)
    for cache in (VerdictCache(tmp_path), VerdictCache(None)):
        assert cache.get(KEY, job) is None
        cache.put(KEY, verdict)
        assert cache.get(KEY, job) == verdict
    assert VerdictCache(tmp_path).get(KEY, job) == verdict
    assert VerdictCache(tmp_path).get("cd" + KEY[2:], job) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"pass", b"fail"),
        lambda data: b"\xff\xfe" + data,
        lambda data: b"[]",
    ],
)
def test_a_damaged_file_is_ignored_and_replaced(tmp_path, job, damage):
    verdict = verdict_of(job)
    VerdictCache(tmp_path).put(KEY, verdict)
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    cache = VerdictCache(tmp_path)
    assert cache.get(KEY, job) is None
    assert files(tmp_path) == []
    cache.put(KEY, verdict)
    assert VerdictCache(tmp_path).get(KEY, job) == verdict


def test_void_verdicts_are_never_kept(tmp_path, job):
    cache = VerdictCache(tmp_path)
    cache.put(KEY, broken(job.task, job.source, "the harness broke"))
    assert cache.get(KEY, job) is None
    assert files(tmp_path) == []


def test_memory_is_bounded_and_what_was_used_last_stays(job):
    cache = VerdictCache(None, memory_verdicts=3)
    for name in "abc":
        cache.put(name * 64, verdict_of(job))
    cache.get("a" * 64, job)
    cache.put("d" * 64, verdict_of(job))
    assert cache.get("b" * 64, job) is None
    assert all(cache.get(name * 64, job) for name in "acd")


def test_the_disk_is_bounded_and_what_was_used_last_stays(tmp_path, job):
    VerdictCache(tmp_path).put(KEY, verdict_of(job))
    (path,) = files(tmp_path)
    os.utime(path, (0, 0))
    size = path.stat().st_size
    limit = 10 * size + size // 2
    for number in range(1, 40):
        cache = VerdictCache(tmp_path, disk_bytes=limit)
        cache.put(f"{number:064d}", verdict_of(job))
        os.utime(tmp_path / "00" / f"{number:064d}.json", (number, number))
        assert VerdictCache(tmp_path, memory_verdicts=0).get(KEY, job) is not None
        assert sum(path.stat().st_size for path in files(tmp_path)) <= limit
    assert len(files(tmp_path)) >= 8


def test_one_cache_trims_what_it_wrote_itself(tmp_path, job):
    cache = VerdictCache(tmp_path, disk_bytes=10_000)
    for number in range(60):
        cache.put(f"{number:064d}", verdict_of(job))
    assert 0 < sum(path.stat().st_size for path in files(tmp_path)) <= 10_000


def test_a_disk_that_takes_nothing_costs_the_file_only(tmp_path, job):
    blocked = tmp_path / "file"
    blocked.write_text("")
    cache = VerdictCache(blocked / "verdicts")
    cache.put(KEY, verdict_of(job))
    assert cache.get(KEY, job) is not None


def test_everything_a_verdict_depends_on_is_in_the_key(double, monkeypatch):
    options = GraderOptions(device="vgpu", cache=None)
    here, job = {"device": "vgpu"}, Job(double, "a")
    base = cache_key(job, options, here)
    others = [
        cache_key(Job(double, "b"), options, here),
        cache_key(Job(replace(double, gradients=True), "a"), options, here),
        cache_key(job, replace(options, seed=1), here),
        cache_key(job, replace(options, limits=Limits(processes=1)), here),
        cache_key(job, options, {"device": "cuda", "hardware": "H200"}),
    ]
    monkeypatch.setattr(
        "lethe_env.service.verdict_cache.code_fingerprint", lambda: "another verifier"
    )
    others.append(cache_key(job, options, here))
    assert base not in others
    assert len(set(others)) == len(others)


def test_the_fingerprint_follows_the_code_that_judges(tmp_path, monkeypatch):
    for name in ("gates/values.py", "vgpu/alu/mma.py", "kernels/controls.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1")
    monkeypatch.setattr(fingerprint, "PACKAGE", tmp_path)
    compute = fingerprint.code_fingerprint.__wrapped__
    first = compute()
    (tmp_path / "kernels/controls.py").write_text("x = 2")
    assert compute() == first
    for name in ("gates/values.py", "vgpu/alu/mma.py"):
        (tmp_path / name).write_text("x = 2")
        assert compute() != first
        first = compute()
    monkeypatch.setattr(fingerprint, "LIBRARIES", ("torch",))
    assert compute() != first


def test_the_fingerprint_covers_the_rooms_behind_their_links():
    walked = {
        os.path.relpath(os.path.join(folder, name), fingerprint.PACKAGE)
        for folder, _, names in os.walk(fingerprint.PACKAGE, followlinks=True)
        for name in names
    }
    assert "gates/values.py" in walked
    assert "tasks/families.py" in walked
