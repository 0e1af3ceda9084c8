"""The store: whole files only, damage counts as absence, and the limit holds."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lethe_env.vgpu.store import DEFAULT_LIMIT_MEGABYTES, Store

KILOBYTE = bytes(1024)


def used(folder):
    return {path.name for path in folder.iterdir()}


def test_what_was_put_comes_back(tmp_path):
    store = Store(tmp_path / "new")
    assert store.get("a") is None
    store.put("a", b"one")
    store.put("a", b"two")
    assert Store(tmp_path / "new").get("a") == b"two"


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:-1] + b"?"])
def test_damaged_files_are_missing_files(tmp_path, damage):
    store = Store(tmp_path)
    store.put("a", b"something")
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert store.get("a") is None
    store.put("a", b"again")
    assert store.get("a") == b"again"


def test_the_least_recently_used_go_first(tmp_path):
    store = Store(tmp_path, limit_bytes=1 << 30)
    for name in "abcdefgh":
        store.put(name, KILOBYTE)
    assert store.get("a") == KILOBYTE
    small = Store(tmp_path, limit_bytes=7 * 1024)
    small.sweep()
    left = used(tmp_path)
    assert "a" in left and "h" in left and "b" not in left
    assert 0 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 0.75 * 7 * 1024


def test_within_the_limit_nothing_goes(tmp_path):
    store = Store(tmp_path, limit_bytes=9 * 1024)
    for name in "abcdefgh":
        store.put(name, KILOBYTE)
    store.sweep()
    assert used(tmp_path) == set("abcdefgh")


def test_writing_sweeps_by_itself(tmp_path):
    store = Store(tmp_path, limit_bytes=10 * 1024)
    for number in range(200):
        store.put(str(number), KILOBYTE)
    assert len(used(tmp_path)) < 80


def test_writers_at_once_leave_whole_files_and_nothing_else(tmp_path):
    stores = [Store(tmp_path, limit_bytes=3 * 1024) for _ in range(4)]
    values = {bytes([k]) * 1024 for k in range(4)}

    def write(k):
        for _ in range(40):
            stores[k].put("same", bytes([k]) * 1024)
            stores[k].sweep()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert Store(tmp_path).get("same") in values
    assert used(tmp_path) == {"same"}


def test_what_a_killed_writer_left_goes_in_time(tmp_path):
    store = Store(tmp_path, limit_bytes=0)
    for name, age_seconds in (("fresh", 10), ("old", 7200)):
        path = tmp_path / f".unfinished-{name}"
        path.write_bytes(KILOBYTE)
        os.utime(path, (time.time() - age_seconds,) * 2)
    store.sweep()
    assert used(tmp_path) == {".unfinished-fresh"}


def test_the_limit_comes_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE_MEGABYTES", "0.01")
    store = Store(tmp_path)
    for number in range(20):
        store.put(str(number), KILOBYTE)
    store.sweep()
    assert len(used(tmp_path)) <= 10
    monkeypatch.setenv("LETHE_CACHE_MEGABYTES", "much")
    with pytest.raises(ValueError, match="LETHE_CACHE_MEGABYTES is 'much'"):
        Store(tmp_path)
    assert DEFAULT_LIMIT_MEGABYTES == 1024
