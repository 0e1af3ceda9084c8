"""Runs from a corpus to a ledger, with interruptions."""

from __future__ import annotations

import signal
import threading
from collections import Counter

import pytest

from lethe_env.audit.bench import LocalBench
from lethe_env.audit.corpora import Unusable
from lethe_env.audit.journal import FILE_NAME, read_outcomes
from lethe_env.audit.ledger import Ledger
from lethe_env.audit.presets import open_corpus
from lethe_env.audit.records import CorpusError
from lethe_env.audit.row import Recorded, Stage
from lethe_env.audit.run import Plan, Stop, run, stopped_by_signals, unique
from lethe_env.audit.synthetic import write_synthetic

from .fakes import KnownJudge, row

EVERYTHING = Plan()


def audit(folder, items, judge, plan=EVERYTHING, stop=None, report=None):
    stop = stop or Stop()
    bench = LocalBench(workers=2, judge=judge)
    complaints = []
    with Ledger(folder, {"corpus": "x"}, complaints.append) as ledger:
        try:
            return run(plan.items(items), bench, ledger, plan, stop, report or (lambda o: None))
        finally:
            bench.close()


def outcomes(folder):
    def refuse(unread):
        raise AssertionError(str(unread))

    return list(read_outcomes(folder / FILE_NAME, refuse))


def test_every_row_is_judged_once_and_no_more_are_held_than_there_is_room_for(tmp_path):
    taken = []
    judge = KnownJudge()

    def corpus():
        for number in range(50):
            taken.append(number)
            assert len(taken) - len(judge.asked) <= 4, "the corpus is read ahead of the work"
            yield row(number)

    assert audit(tmp_path, corpus(), judge)
    assert {o.id for o in outcomes(tmp_path)} == {f"row{n}" for n in range(50)}
    assert set(judge.asked.values()) == {1}
    assert judge.most_at_once <= 3


def test_a_known_corpus_gives_its_table_though_it_is_interrupted_three_times(tmp_path):
    known = write_synthetic(tmp_path / "corpus.jsonl")
    truth = {}
    for each in known:
        truth[f"{each.id} (time 2)" if each.id in truth else each.id] = (each.stage, each.passed)
    judge = KnownJudge(known)
    folder = tmp_path / "out"
    for patience in (20, 50, 30, 10_000):
        stop, seen = Stop(), Counter()

        def report(outcome, stop=stop, seen=seen, patience=patience):
            seen["rows"] += 1
            if seen["rows"] == patience:
                stop.ask()

        corpus = open_corpus(str(tmp_path / "corpus.jsonl"))
        finished = audit(folder, corpus, judge, stop=stop, report=report)
        assert finished is (patience == 10_000)
        with (folder / FILE_NAME).open("ab") as journal:  # as a crash would leave it
            journal.write(b'{"id": "cut o' if not finished else b"")
    found = [o for o in read_outcomes(folder / FILE_NAME, lambda unread: None)]
    assert len(found) == 200
    assert {o.id: (o.stage, o.passed) for o in found} == truth
    assert max(judge.asked.values()) == 1, "nothing is judged twice"


def test_asked_once_a_run_finishes_what_is_under_way(tmp_path):
    gate, stop = threading.Event(), Stop()
    judge = KnownJudge(gate=gate)
    said = []
    timer = threading.Timer(0.5, gate.set)

    def corpus():
        yield row(0)
        yield row(1)
        signal.raise_signal(signal.SIGINT)
        timer.start()
        yield row(2)
        raise AssertionError("a row was taken after the run was stopped")

    before = signal.getsignal(signal.SIGINT)
    with stopped_by_signals(stop, said.append):
        assert not audit(tmp_path, corpus(), judge, stop=stop)
    assert signal.getsignal(signal.SIGINT) is before
    assert {o.id for o in outcomes(tmp_path)} >= {"row0", "row1"}
    assert said == ["finishing the rows under way; once more stops at once"]


def test_asked_twice_it_drops_them_and_goes_on_later(tmp_path):
    stop, said = Stop(), []
    judge = KnownJudge(gate=threading.Event())

    def corpus():
        yield row(0)
        yield row(1)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        yield row(2)

    with stopped_by_signals(stop, said.append):
        assert not audit(tmp_path, corpus(), judge, stop=stop)
    assert outcomes(tmp_path) == [] and len(said) == 2
    assert audit(tmp_path, map(row, range(3)), KnownJudge())
    assert len(outcomes(tmp_path)) == 3


def test_what_was_judged_is_kept_when_the_corpus_breaks(tmp_path):
    def corpus():
        yield row(0)
        raise CorpusError("the file ends here")

    with pytest.raises(CorpusError):
        audit(tmp_path, corpus(), KnownJudge())
    assert [o.id for o in outcomes(tmp_path)] == ["row0"]


def test_rows_that_are_not_judged_say_why(tmp_path):
    items = [
        row(0, recorded_verdict=Recorded.REJECTED),
        row(1, recorded_verdict=Recorded.ACCEPTED),
        row(1),
        Unusable("row9", "not JSON"),
        row(2),
    ]
    judge = KnownJudge()
    audit(tmp_path, items, judge, Plan(accepted_only=True))
    found = {o.id: (o.stage, o.reason) for o in outcomes(tmp_path)}
    assert found["row0"] == (Stage.NOT_ACCEPTED, "the source system rejected it")
    assert found["row1 (time 2)"][0] is Stage.SKIPPED
    assert found["row9"] == (Stage.SKIPPED, "not JSON")
    assert set(judge.asked) == {"row1", "row2"}


def test_a_sample_depends_on_the_seed_alone_and_a_larger_one_holds_it():
    def drawn(size, seed, numbers):
        return [item.id for item in Plan(sample=size, seed=seed).items(map(row, numbers))]

    small, large = drawn(10, 0, range(300)), drawn(60, 0, range(300))
    assert large[:10] == small == drawn(10, 0, reversed(range(300)))
    assert drawn(10, 1, range(300)) != small
    assert len(drawn(500, 0, range(300))) == 300


def test_each_row_is_as_likely_as_any_other():
    counts = Counter(
        item.id
        for seed in range(200)
        for item in Plan(sample=5, seed=seed).items(map(row, range(20)))
    )
    # 200 draws of 5 from 20: 50 each, standard deviation 6.1; five of those either way.
    assert len(counts) == 20 and all(20 <= count <= 80 for count in counts.values())


def test_an_id_that_is_taken_again_gets_one_of_its_own():
    ids = [item.id for item in unique([row(1), row(1), row(2), row(1)])]
    assert ids == ["row1", "row1 (time 2)", "row2", "row1 (time 3)"]
