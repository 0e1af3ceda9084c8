"""The broker with real workers: shared, killed, asked for nonsense, and gone when it should be."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader

from lethe_env.cell import HarnessError
from lethe_env.cell.protocol import ClosedError, DeadlineError, receive, send
from lethe_env.grading import broken
from lethe_env.service import broker as broker_module
from lethe_env.service import client as client_module
from lethe_env.service import rendezvous
from lethe_env.service.client import Client, brokers, connect, stop_brokers
from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions
from lethe_env.service.wire import SIGN_OF_LIFE, job_to_json

from .conftest import HONEST, NAN_SWALLOWING, WRONG, candidate
from .processes import WAIT_SECONDS, alive, children, eventually, family

pytestmark = pytest.mark.xdist_group("broker")


@pytest.fixture(scope="module")
def meeting_place():
    """A private folder of this module's own, short enough for a socket."""
    folder = tempfile.mkdtemp(prefix="lb-")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder) / "lethe"
        processes = [process for broker in brokers() for process in family(broker["pid"])]
        stop_brokers()
        eventually(lambda: not any(map(alive, processes)))
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def client(meeting_place, tmp_path_factory) -> Client:
    options = GraderOptions(
        device="interpreter", targets=("sm_100",), cache=tmp_path_factory.mktemp("cache")
    )
    return connect(options, workers=2)


def status(client: Client) -> dict:
    path = str(rendezvous.address(client.options))
    (found,) = [broker for broker in brokers() if broker["socket"] == path]
    return found


def slow(number: int) -> str:
    """A right candidate that takes its time, different for every number."""
    return candidate(f"(sum(range(400000)) * 0 + {number} * 0) + x + x")


def ask_in_background(client: Client, jobs: list[Job]):
    seen: list[tuple[int, int]] = []
    answers: list = []
    thread = threading.Thread(
        target=lambda: answers.extend(client.grade_many(jobs, lambda *n: seen.append(n)))
    )
    thread.start()
    return thread, seen, answers


def test_verdicts_are_those_of_a_grader(client, interpreter, double):
    sources = [HONEST, WRONG, NAN_SWALLOWING, "def f(:", "x = '\ud800'", "#" * (1 << 20) + HONEST]
    jobs = [Job(double, source) for source in sources]
    expected = [verdict.to_json() for verdict in interpreter.grade_many(jobs)]
    got = [verdict.to_json() for verdict in client.grade_many(jobs)]
    for verdict in (*expected, *got):
        del verdict["time_s"]
    assert got == expected
    assert [verdict["passed"] for verdict in got] == [True, *[False] * 5]


def test_the_pieces_of_one_batch_are_shared_by_all_clients(client, double):
    before = status(client)["verified"]
    jobs = [Job(double, candidate(f"x * (2 + {i})")) for i in range(6)]
    answers: dict[int, list] = {}

    def ask(rank: int, ours: Client) -> None:
        answers[rank] = ours.grade_many([*jobs[rank:], *jobs[:rank]])

    clients = [client, pickle.loads(pickle.dumps(client)), connect(client.options)]
    ranks = [threading.Thread(target=ask, args=pair) for pair in enumerate(clients)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    assert status(client)["verified"] == before + len(jobs)
    for rank, verdicts in answers.items():
        assert verdicts[len(jobs) - rank :] + verdicts[: len(jobs) - rank] == answers[0]


class Verdicts:
    """A data set whose items are graded where they are loaded."""

    def __init__(self, client: Client, jobs: list[Job]) -> None:
        self.client, self.jobs = client, jobs

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, index: int) -> bool:
        return self.client.grade_many([self.jobs[index]])[0].passed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forking beside threads, from 3.12 on
def test_the_daemonic_workers_of_a_data_loader_can_ask(client, double):
    jobs = [Job(double, HONEST), Job(double, WRONG)]
    loaded = DataLoader(Verdicts(client, jobs), batch_size=None, num_workers=2)
    assert list(loaded) == [True, False]


def test_a_task_at_fault_is_a_void_verdict_that_says_why(client, double, make_task):
    broken = make_task(double.source.replace("x * 2", "x.nothing()"), id="test/broken")
    void, fine = client.grade_many([Job(broken, HONEST), Job(double, HONEST)])
    assert void.errored
    assert "test/broken" in void.findings[0].reason
    assert "the reference fails" in void.findings[0].reason
    assert fine.passed


def test_a_task_too_large_to_be_sent_is_a_void_verdict(client, double, make_task):
    large = make_task(double.source + "#" * (17 << 20), id="test/large")
    void, fine = client.grade_many([Job(large, HONEST), Job(double, HONEST)])
    assert "cannot be sent" in void.findings[0].reason
    assert fine.passed


def test_nonsense_is_answered_or_shown_the_door(client):
    path = str(rendezvous.address(client.options))

    def exchange(raw: bytes | None, message: dict | None = None) -> dict:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(path)
            if message is None:
                channel.sendall(raw)
            else:
                send(channel, message)
            return receive(channel, time.monotonic() + 30)

    assert "nothing is known of 'dance'" in exchange(None, {"op": "dance"})["error"]
    for job in (None, {}, {"task": {}, "source": ""}, {"task": 7}):
        reply = exchange(None, {"op": "grade", "id": 3, "job": job})
        assert reply["id"] == 3
        assert "not a job" in reply["error"]
    for raw in (b"\xff\xff\xff\xff", b"\x02\x00\x00\x00[]", b"\x03\x00\x00\x00\xff\xff\xff"):
        with pytest.raises(ClosedError):
            exchange(raw)
    assert status(client)["running"] == 0


def test_workers_killed_in_mid_batch_cost_nothing_but_time(client, double):
    before = status(client)
    jobs = [Job(double, slow(i)) for i in range(8)]
    thread, seen, answers = ask_in_background(client, jobs)
    eventually(lambda: len(seen) >= 1)
    workers = children(before["pid"])
    assert workers
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    thread.join(WAIT_SECONDS)
    assert [verdict.passed for verdict in answers] == [True] * len(jobs)
    assert seen == [(i + 1, len(jobs)) for i in range(len(jobs))]
    after = status(client)
    assert after["pid"] == before["pid"]
    assert after["lost"] > before["lost"]


def test_a_broker_killed_in_mid_batch_is_replaced_and_takes_its_workers_along(client, double):
    before = status(client)
    jobs = [Job(double, slow(100 + i)) for i in range(8)]
    thread, seen, answers = ask_in_background(client, [*jobs, *jobs[:3]])
    eventually(lambda: len(seen) >= 1)
    processes = family(before["pid"])
    assert len(processes) > 2
    os.kill(before["pid"], signal.SIGKILL)
    thread.join(WAIT_SECONDS)
    assert [verdict.source for verdict in answers] == [job.source for job in (*jobs, *jobs[:3])]
    assert all(verdict.passed for verdict in answers)
    assert seen == [(i + 1, 11) for i in range(11)]
    assert status(client)["pid"] != before["pid"]
    eventually(lambda: not any(map(alive, processes)))


def test_a_broker_that_hangs_is_given_up_by_name(client, double, monkeypatch):
    process = status(client)["pid"]
    monkeypatch.setattr(client_module, "SILENCE_SECONDS", 0.2)
    os.kill(process, signal.SIGSTOP)
    try:
        thread, _, answers = ask_in_background(client, [Job(double, slow(200))])
        thread.join(WAIT_SECONDS)
    finally:
        os.kill(process, signal.SIGCONT)
    (verdict,) = answers
    assert verdict.errored
    assert f"process {process} says nothing" in verdict.findings[0].reason


def test_a_broker_at_work_gives_signs_of_life(tmp_path, monkeypatch, double):
    monkeypatch.setattr(broker_module, "SIGN_OF_LIFE_SECONDS", 0.01)
    path, job, work = tmp_path / "socket", Job(double, HONEST), Future()
    heard: list[dict] = []

    def ask() -> None:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(path))
            send(channel, {"op": "grade", "id": 5, "job": job_to_json(job)})
            deadline = time.monotonic() + WAIT_SECONDS
            with suppress(DeadlineError):
                heard.extend(receive(channel, deadline) for _ in range(3))
            work.set_result(broken(double, HONEST, "nobody works here"))
            heard.append(client_module._answer(channel, WAIT_SECONDS))
            send(channel, {"op": "stop"})

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=ask)
        thread.start()
        pool = SimpleNamespace(submit=lambda job: work)
        asyncio.run(broker_module.Broker(pool, path, idle_seconds=WAIT_SECONDS).serve(listener))
        thread.join(WAIT_SECONDS)
    assert heard[:3] == [SIGN_OF_LIFE] * 3
    assert heard[3]["id"] == 5


def test_verdicts_outlive_the_broker(client, double):
    (first,) = client.grade_many([Job(double, HONEST)])
    process = status(client)["pid"]
    stop_brokers()
    eventually(lambda: not alive(process))
    (again,) = client.grade_many([Job(double, HONEST)])
    assert again == first
    assert status(client)["verified"] == 0
    assert status(client)["remembered"] == 1


def test_many_starters_start_one_broker_and_nobody_is_nobody(meeting_place, monkeypatch):
    options = GraderOptions(device="interpreter", seed=1, cache=None)
    started = Counter()
    start = client_module._start

    def counting(*arguments):
        started["brokers"] += 1
        start(*arguments)

    monkeypatch.setattr(client_module, "_start", counting)
    starters = [
        threading.Thread(target=connect, args=(options, 1), kwargs={"idle_seconds": 1.0})
        for _ in range(6)
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert started["brokers"] == 1
    path = rendezvous.address(options)
    eventually(lambda: not path.exists())  # without clients it ends itself


def test_a_broker_that_cannot_start_is_an_error_that_names_its_log(meeting_place, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setattr("sys.executable", "/bin/false")
    options = GraderOptions(device="interpreter", seed=2, cache=None)
    with pytest.raises(HarnessError, match=r"could not be started, see .*\.log"):
        connect(options)


def test_a_batch_without_a_broker_is_void_not_an_exception(meeting_place, monkeypatch, double):
    monkeypatch.setattr("sys.executable", "/bin/false")
    client = Client(GraderOptions(device="interpreter", seed=3, cache=None))
    (verdict,) = client.grade_many([Job(double, HONEST)])
    assert verdict.errored
    assert "the broker was lost 3 times in a row" in verdict.findings[0].reason
    assert ".log" in verdict.findings[0].reason
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    (verdict,) = client.grade_many([Job(double, HONEST)])
    assert "No such file" in verdict.findings[0].reason


def test_brokers_are_seen_and_ended_from_the_command_line(client, double):
    from typer.testing import CliRunner

    from lethe_env.cli import app

    client.grade_many([Job(double, HONEST)])
    process = status(client)["pid"]
    shown = CliRunner().invoke(app, ["broker", "status", "--json"])
    assert process in [broker["pid"] for broker in json.loads(shown.stdout)]
    table = CliRunner().invoke(app, ["broker", "status"])
    assert str(process) in table.stdout
    assert "interpreter" in table.stdout
    assert CliRunner().invoke(app, ["broker", "stop"]).exit_code == 0
    eventually(lambda: not alive(process))
    assert json.loads(CliRunner().invoke(app, ["broker", "status", "--json"]).stdout) == []
