"""Tasks of a launch run at the same time, in threads that are used again."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from lethe_env.vgpu.machine.crew import run_all


def test_tasks_meet_and_threads_are_used_again():
    seen = []
    for _ in range(3):
        meeting = threading.Barrier(3, timeout=10)

        def task(meeting=meeting):
            meeting.wait()
            seen.append(threading.get_ident())

        run_all([task] * 3)
    assert len(seen) == 9
    assert len(set(seen)) == 3
    assert threading.get_ident() in seen


@pytest.mark.parametrize("position", [0, 1])
def test_what_a_task_raises_is_raised_when_all_are_over(position):
    ended = threading.Event()

    def fail():
        raise ZeroDivisionError("in a task")

    tasks = [fail, lambda: (ended.wait(0.05), ended.set())]
    with pytest.raises(ZeroDivisionError, match="in a task"):
        run_all(tasks[::-1] if position else tasks)
    assert ended.is_set()
    run_all([ended.clear, lambda: None])
    assert not ended.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    run_all([lambda: None] * 2)
    child = os.fork()
    if not child:
        signal.alarm(10)  # ends a child that waits for a thread it does not have
        failed, meeting = 1, threading.Barrier(2, timeout=5)
        try:
            run_all([meeting.wait, meeting.wait])
            failed = 0
        finally:
            os._exit(failed)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
