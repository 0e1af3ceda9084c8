from __future__ import annotations

import threading
import time

import pytest

from lethe_env.cell.device_lock import exclusive


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def overlaps(*holders: tuple[str, str], monkeypatch) -> bool:
    """Whether the second holder gets in while the first is inside."""
    (first, gpu), (second, other_gpu) = holders
    entered = threading.Event()

    def enter() -> None:
        with exclusive(second):
            entered.set()

    thread = threading.Thread(target=enter)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpu)
    with exclusive(first):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", other_gpu)
        thread.start()
        together = entered.wait(0.3)
    assert entered.wait(30)
    thread.join()
    return together


def test_two_timings_on_one_gpu_take_turns(monkeypatch):
    assert not overlaps(("cuda", "1"), ("cuda", "1,0"), monkeypatch=monkeypatch)
    assert not overlaps(("cuda", ""), ("cuda", "0"), monkeypatch=monkeypatch)


def test_other_gpus_and_other_devices_do_not_wait(monkeypatch, own_folder):
    assert overlaps(("cuda", "0"), ("cuda", "1"), monkeypatch=monkeypatch)
    before = set(own_folder.iterdir())
    assert overlaps(("cuda", "0"), ("vgpu", "0"), monkeypatch=monkeypatch)
    assert set(own_folder.iterdir()) == before


def test_the_lock_is_free_again_after_an_exception():
    with pytest.raises(KeyError), exclusive("cuda"):
        raise KeyError
    started = time.monotonic()
    with exclusive("cuda"):
        pass
    assert time.monotonic() - started < 30
