from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from lethe_env.service import worker_process
from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions
from lethe_env.service.worker_process import WorkerLostError, WorkerProcess, worker_environment

from .conftest import DOUBLE, HONEST, candidate
from .processes import alive, eventually, family

OPTIONS = GraderOptions(device="interpreter", cache=None)
ENDLESS = candidate("[None for _ in iter(int, 1)]")

CALLER = f"""
import os
from lethe_env.service.options import GraderOptions
from lethe_env.service import worker_process
from lethe_env.service.worker_process import WorkerProcess
from lethe_env.service.jobs import Job
from lethe_env.tasks.model import ShapeFamily, Task
options = GraderOptions(device="interpreter", cache=None, call_seconds=1000)
worker = WorkerProcess(options, 0)
worker.start()
print("asking", flush=True)
task = Task(id="test/double", source={DOUBLE!r}, family=ShapeFamily(base={{"n": 37}}))
worker.ask(Job(task, {ENDLESS!r}), 1000)
"""


def test_a_worker_that_is_stuck_is_killed_in_time_and_replaced(double):
    worker = WorkerProcess(OPTIONS, 0)
    try:
        assert worker.start()["device"] == "interpreter"
        stuck = worker._process.pid
        os.kill(stuck, signal.SIGSTOP)
        large = replace(double, source=double.source + "#" * (4 << 20))  # beyond any buffer
        with pytest.raises(WorkerLostError, match=r"no answer within 0\.5 seconds"):
            worker.ask(Job(large, HONEST), 0.5)
        assert not alive(stuck)
        worker.start()
        assert worker.ask(Job(double, HONEST), 300).passed
        os.kill(worker._process.pid, signal.SIGKILL)
        with pytest.raises(WorkerLostError, match="ended by signal 9"):
            worker.ask(Job(double, HONEST), 300)
    finally:
        worker.close()


def test_a_worker_that_does_not_come_up_is_lost(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    worker = WorkerProcess(OPTIONS, 0)
    with pytest.raises(WorkerLostError, match="ended with exit code 1"):
        worker.start()


def test_nothing_outlives_a_caller_that_is_killed_in_mid_job():
    caller = subprocess.Popen([sys.executable, "-c", CALLER], stdout=subprocess.PIPE, text=True)
    with caller:
        assert caller.stdout.readline() == "asking\n"
        eventually(lambda: len(family(caller.pid)) >= 4)  # caller, worker, cell server, cell
        processes = family(caller.pid)
        caller.kill()
    eventually(lambda: not any(map(alive, processes)))


@pytest.mark.parametrize(
    ("own", "devices"),
    [
        ({}, [None, None]),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["", ""]),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, ["2", "3", "2"]),
        ({"CUDA_VISIBLE_DEVICES": "", "LETHE_CUDA_VISIBLE_DEVICES": "1, GPU-a"}, ["1", "GPU-a"]),
        ({"CUDA_VISIBLE_DEVICES": "0", "LETHE_CUDA_VISIBLE_DEVICES": "5"}, ["5", "5"]),
    ],
)
def test_workers_take_turns_over_the_gpus_they_were_given(own, devices):
    for number, device in enumerate(devices):
        variables = worker_environment(own, number)
        assert variables.get("CUDA_VISIBLE_DEVICES") == device
        assert variables["OMP_NUM_THREADS"] == "1"


def test_workers_share_the_cores(monkeypatch):
    monkeypatch.setattr(worker_process, "usable_cores", lambda: 8)
    for workers, threads in ((1, "8"), (3, "2"), (8, "1"), (20, "1")):
        assert worker_environment({}, 0, workers)["LETHE_VGPU_THREADS"] == threads
    assert worker_environment({"LETHE_VGPU_THREADS": "5"}, 0, 8)["LETHE_VGPU_THREADS"] == "5"
