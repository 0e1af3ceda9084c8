"""The pool's bookkeeping, with workers that are no processes."""

from __future__ import annotations

import os
import threading
from dataclasses import replace

import pytest

from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions
from lethe_env.service.pool import Pool

from .fakes import fake_worker
from .processes import eventually

OPTIONS = GraderOptions(device="vgpu", cache=None)


@pytest.fixture
def worker(monkeypatch):
    kind = fake_worker()
    monkeypatch.setattr("lethe_env.service.pool.WorkerProcess", kind)
    return kind


@pytest.fixture
def job(double):
    return lambda source: Job(double, source)


def test_verdicts_come_in_the_order_of_the_jobs_and_progress_counts_them(worker, job):
    sources = [f"{'honest' if i % 3 else 'wrong'} {i}" for i in range(50)]
    seen = []
    with Pool(OPTIONS, 4) as pool:
        verdicts = pool.grade_many(list(map(job, sources)), lambda *n: seen.append(n))
    assert [verdict.source for verdict in verdicts] == sources
    assert [verdict.passed for verdict in verdicts] == ["honest" in s for s in sources]
    assert seen == [(i + 1, 50) for i in range(50)]


def test_an_equal_job_is_judged_once_however_often_and_from_wherever_it_is_asked(worker, job):
    worker.gate.clear()
    answers: dict[int, list] = {}
    with Pool(OPTIONS, 4) as pool:

        def ask(rank):
            answers[rank] = pool.grade_many([job("honest 1"), job("honest 2"), job("honest 1")])

        ranks = [threading.Thread(target=ask, args=(rank,)) for rank in range(5)]
        for rank in ranks:
            rank.start()
        eventually(lambda: pool.counts().shared == 13)
        worker.gate.set()
        for rank in ranks:
            rank.join()
        assert pool.counts().verified == 2
    assert worker.asked == {"honest 1": 1, "honest 2": 1}
    assert all(verdicts == answers[0] for verdicts in answers.values())


def test_a_shared_verdict_carries_the_askers_own_task(worker, double):
    elsewhere = replace(double, origin="a table, row 7")
    worker.gate.clear()
    with Pool(OPTIONS, 1) as pool:
        futures = [pool.submit(Job(task, "honest")) for task in (double, elsewhere)]
        worker.gate.set()
        assert [future.result(30).task["origin"] for future in futures] == ["", "a table, row 7"]
    assert worker.asked == {"honest": 1}


def test_a_remembered_verdict_carries_the_askers_own_task(worker, double):
    elsewhere = replace(double, origin="a table, row 7")
    with Pool(OPTIONS, 1) as pool:
        first = pool.grade_many([Job(double, "honest")])[0]
        second = pool.grade_many([Job(elsewhere, "honest")])[0]
        assert pool.counts().remembered == 1
    assert second.task == elsewhere.to_json()
    assert second == replace(first, task=elsewhere.to_json())


def test_a_lost_worker_costs_one_retry_and_then_the_verdict(worker, job):
    with Pool(OPTIONS, 1) as pool:
        once, always, after = pool.grade_many(
            [job("honest, dies once"), job("dies always"), job("honest")]
        )
        assert pool.counts().lost == 3
    assert once.passed
    assert always.errored
    assert "2 workers were lost on this job" in always.findings[0].reason
    assert "signal 9" in always.findings[0].reason
    assert after.passed
    assert worker.asked["dies always"] == 2


def test_a_void_verdict_is_not_remembered(worker, job):
    with Pool(OPTIONS, 1) as pool:
        for _ in range(2):
            assert pool.grade_many([job("void")])[0].errored
            assert "a bug of ours" in pool.grade_many([job("bug")])[0].findings[0].reason
    assert worker.asked == {"void": 2, "bug": 2}


def test_warm_workers_are_preferred_and_cold_ones_started_for_a_batch(worker, job):
    with Pool(OPTIONS, 8) as pool:
        for i in range(10):
            pool.grade_many([job(f"honest {i}")])
            eventually(lambda: pool._idle == len(pool._threads))
        assert worker.started == 1
        worker.gate.clear()
        futures = [pool.submit(job(f"more {i}")) for i in range(20)]
        eventually(lambda: worker.started == 8)
        worker.gate.set()
        assert all(future.result(30) for future in futures)
        assert pool.counts().workers == 8


def test_what_nobody_waits_for_any_more_is_not_begun(worker, job):
    worker.gate.clear()
    with Pool(OPTIONS, 1) as pool:
        running = pool.submit(job("running"))
        eventually(lambda: worker.asked["running"] == 1)
        dropped, kept = pool.submit(job("dropped")), pool.submit(job("kept"))
        also_dropped, still_wanted = pool.submit(job("both")), pool.submit(job("both"))
        dropped.cancel()
        also_dropped.cancel()
        worker.gate.set()
        assert all(future.result(30) for future in (running, kept, still_wanted))
    assert worker.asked == {"running": 1, "kept": 1, "both": 1}


def test_whoever_waits_when_the_pool_is_closed_is_told_so(worker, job):
    worker.gate.clear()
    pool = Pool(OPTIONS, 1)
    running, waiting = pool.submit(job("running")), pool.submit(job("waiting"))
    eventually(lambda: worker.asked["running"] == 1)
    pool.close()
    assert "closed" in waiting.result(30).findings[0].reason
    assert running.done()
    (late,) = pool.grade_many([job("late")])
    assert late.errored
    pool.close()


def test_progress_that_raises_leaves_no_work_behind(worker, job):
    worker.gate.clear()
    with Pool(OPTIONS, 1) as pool:

        def interrupt(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pool.grade_many([job("at once"), *(job(f"honest {i}") for i in range(20))], interrupt)
        worker.gate.set()
        eventually(lambda: pool.counts().waiting == pool.counts().running == 0)
    assert sum(worker.asked.values()) <= 2  # one may have been under way


def test_a_pool_from_before_a_fork_says_so(worker, job, monkeypatch):
    with Pool(OPTIONS, 1) as pool:
        assert pool.grade_many([job("honest")])[0].passed
        process = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: process + 1)
        with pytest.raises(RuntimeError, match="before a fork"):
            pool.submit(job("honest"))
        pool.close()  # as a forked child would on its way out
        monkeypatch.setattr(os, "getpid", lambda: process)
        assert pool.grade_many([job("honest as before")])[0].passed


def test_a_pool_has_at_least_one_worker():
    with pytest.raises(ValueError, match="at least one worker"):
        Pool(OPTIONS, 0)
    with Pool(OPTIONS) as pool:
        assert 1 <= pool.workers <= len(os.sched_getaffinity(0))
