import threading
from dataclasses import replace

import pytest

from lethe_env.service.jobs import Job
from lethe_env.service.options import GraderOptions
from lethe_env.trl.scoring import OPTIONS_VARIABLE, Scorer, default_options

from .fakes import source


@pytest.fixture
def scorer(verifier):
    return Scorer(verifier)


@pytest.fixture
def jobs(task):
    return [Job(task, source(name)) for name in ("a", "b", "a")]


def test_equal_jobs_are_verified_once_for_all_readers(scorer, verifier, jobs):
    first = scorer.verdicts(jobs, "contract")
    second = scorer.verdicts(jobs, "allclose")
    assert verifier.judged == [jobs[0].source, jobs[1].source]
    assert [v.source for v in first] == [job.source for job in jobs]
    assert second == first


def test_threads_that_ask_at_once_share_one_verification(scorer, verifier, jobs):
    verifier.gate.clear()
    answers: list[list] = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(scorer.verdicts(jobs, name)))
        for name in ("contract", "allclose", "floor")
    ]
    for thread in threads:
        thread.start()
    verifier.gate.set()
    for thread in threads:
        thread.join(10)
    assert len(verifier.batches) == 1
    assert answers[0] == answers[1] == answers[2] != []


def test_a_void_verdict_reaches_every_reader_and_is_then_tried_again(scorer, verifier, jobs):
    verifier.void = True
    readers = ("contract", "allclose")
    assert [v.errored for name in readers for v in scorer.verdicts(jobs, name)] == [True] * 6
    assert len(verifier.batches) == 1
    verifier.void = False
    assert [v.errored for name in readers for v in scorer.verdicts(jobs, name)] == [False] * 6
    assert len(verifier.batches) == 2


def test_a_broken_verifier_voids_the_batch_and_says_so(scorer, verifier, jobs, caplog):
    verifier.broken = True
    assert all(v.errored for v in scorer.verdicts(jobs, "contract"))
    assert "the broker is gone" in caplog.text
    verifier.broken = False
    assert not any(v.errored for v in scorer.verdicts(jobs, "contract"))


def test_an_interrupt_ends_the_run_but_leaves_nobody_waiting(scorer, verifier, jobs, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(verifier, "grade_many", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scorer.verdicts(jobs, "contract")
    assert all(v.errored for v in scorer.verdicts(jobs, "allclose"))


def test_a_verifier_that_miscounts_voids_the_batch(scorer, verifier, jobs, monkeypatch):
    monkeypatch.setattr(verifier, "grade_many", lambda jobs: [])
    assert all(v.errored for v in scorer.verdicts(jobs, "contract"))


def test_memory_is_bounded_but_holds_a_whole_batch(verifier, task):
    scorer = Scorer(verifier, capacity=2)
    batch = [Job(task, source(str(number))) for number in range(5)]
    scorer.verdicts(batch, "contract")
    scorer.verdicts(batch, "allclose")
    assert len(verifier.judged) == 5
    scorer.verdicts([Job(task, source("new"))], "contract")
    scorer.verdicts(batch[:1], "contract")
    assert len(verifier.judged) == 7


def test_a_batch_is_reported_once(scorer):
    batch, other = ["a"], ["a"]
    assert [scorer.report_once(item) for item in (batch, batch, other, batch)] == [
        True,
        False,
        True,
        True,
    ]


def test_options_come_from_the_environment(monkeypatch):
    monkeypatch.setenv(OPTIONS_VARIABLE, '{"device": "vgpu", "targets": ["sm_90"], "seed": 7}')
    options = default_options()
    assert options == replace(GraderOptions(), device="vgpu", targets=("sm_90",), seed=7)
    for text in ("vgpu", "[]", '{"gpu": 1}', '{"targets": 3}'):
        monkeypatch.setenv(OPTIONS_VARIABLE, text)
        with pytest.raises(ValueError, match="LETHE_GRADER="):
            default_options()
