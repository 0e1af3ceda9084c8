"""The experiment from start to end, with a verifier that reads, and once with the real one."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from lethe_env.agents.compare.chat_student import ChatStudent
from lethe_env.agents.compare.experiment import compare
from lethe_env.agents.compare.grammar_student import GrammarStudent
from lethe_env.agents.compare.ledger import NO_SOURCE, Ledger
from lethe_env.agents.compare.tables import broken_gates, curve, rates, samples
from lethe_env.agents.compare.training import Settings
from lethe_env.agents.grammar import sentences, write
from lethe_env.agents.grammar.catalog import problem_for
from lethe_env.cli import app
from lethe_env.service import client
from lethe_env.tasks.catalog import find_task

RELU = "elementwise/relu"
SENTENCES = [write(sentence) for sentence in sentences(problem_for(RELU))]
FILES = {"report.md", "curves.png", "summary.json", "completions.parquet", "candidates.parquet"}


@pytest.fixture
def ledger(reader):
    return Ledger(reader, GrammarStudent([RELU], seed=0))


def record(ledger, *texts, step=0):
    return ledger.record("allclose", step, [find_task(RELU)] * len(texts), list(texts))


def test_a_text_is_graded_once_and_a_batch_is_recorded_once(ledger, reader):
    first = record(ledger, SENTENCES[0], SENTENCES[1], SENTENCES[0])
    assert record(ledger, SENTENCES[0], SENTENCES[1], SENTENCES[0]) == first
    record(ledger, SENTENCES[1], step=1)
    assert len(reader.seen) == 2
    assert len(ledger.rows) == 4


def test_a_completion_that_is_no_sentence_earns_nothing(ledger, reader):
    (candidate,) = record(ledger, "layout=assumed")
    assert (candidate.contract_reward, candidate.allclose_reward) == (0.0, 0.0)
    assert candidate.rejected_by == (NO_SOURCE,)
    assert reader.seen == []


def test_a_broken_harness_voids_both_rewards_and_is_asked_again(ledger, reader):
    source = problem_for(RELU).render(next(sentences(problem_for(RELU))))
    reader.void.add(source)
    (candidate,) = record(ledger, SENTENCES[0])
    assert (candidate.contract_reward, candidate.allclose_reward) == (None, None)
    assert rates(ledger.rows).judged == 0
    reader.void.clear()
    (candidate,) = record(ledger, SENTENCES[0], step=1)
    assert candidate.contract_accepts
    assert (rates(ledger.rows).judged, rates(ledger.rows).void) == (1, 1)


LEARNING = pytest.mark.xdist_group("compare")
"""Tests that look at one and the same experiment."""


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    from .conftest import Reader

    folder = tmp_path_factory.mktemp("compare") / "report"
    student = GrammarStudent([RELU, "reduction/sum"], seed=0)
    tasks = [find_task(RELU), find_task("reduction/sum")]
    settings = Settings(steps=16, generations=8, samples=16)
    phases = []

    def report(phase, done, total):
        phases.append((phase, done, total))

    return compare(student, tasks, Reader(), settings, folder, report), folder, phases


@LEARNING
def test_both_runs_begin_alike_and_each_learns_what_it_is_paid_for(trained):
    results, _, _ = trained
    first = {
        arm: [row.candidate.digest for row in results.rows if row.policy == arm and row.step == 0]
        for arm in ("allclose", "contract")
    }
    assert first["allclose"] == first["contract"]
    by_policy = {name: rates(samples(results, name)) for name in ("untrained", *first)}
    assert by_policy["allclose"].allclose > by_policy["untrained"].allclose
    assert by_policy["contract"].contract > by_policy["untrained"].contract + 0.3
    assert by_policy["allclose"].contract < by_policy["contract"].contract - 0.3
    assert len(curve(results, "allclose")) == results.settings.steps


@LEARNING
def test_the_report_is_complete_and_agrees_with_its_data(trained):
    results, folder, _ = trained
    assert {path.name for path in folder.iterdir()} == FILES
    assert list(folder.parent.iterdir()) == [folder]
    summary = json.loads((folder / "summary.json").read_text())
    rows = pyarrow.parquet.read_table(folder / "completions.parquet").to_pylist()
    mine = [row for row in rows if row["policy"] == "allclose" and row["step"] is None]
    share = sum(row["contract_accepts"] for row in mine) / len(mine)
    assert summary["samples"]["allclose"]["contract"] == share
    assert f"contract {share:.0%}" in (folder / "report.md").read_text()
    known = pyarrow.parquet.read_table(folder / "candidates.parquet").to_pylist()
    assert {row["completion"] for row in rows if row["task"] == RELU} <= set(SENTENCES)
    assert {row["candidate"] for row in rows} == {row["candidate"] for row in known}
    gates = broken_gates(samples(results, "allclose"))
    assert gates == summary["samples"]["allclose"]["broken_gates"]
    assert set(gates) <= {"CMP-02", "CMP-03", "EXC-01"}


@LEARNING
def test_progress_reaches_the_last_step(trained):
    _, _, phases = trained
    last = {phase: (done, total) for phase, done, total in phases}
    assert ("training on contract", 16, 16) in phases
    assert all(done == total for done, total in last.values()), last


def test_an_interrupted_run_leaves_nothing(tmp_path, reader, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(reader, "grade_many", interrupted)
    student = GrammarStudent([RELU], seed=0)
    with pytest.raises(KeyboardInterrupt):
        compare(student, [find_task(RELU)], reader, Settings(steps=1), tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.xdist_group(RELU)
def test_the_real_grader_decides(tmp_path, grader):
    student = GrammarStudent([RELU], seed=0)
    settings = Settings(steps=1, generations=2, samples=1)
    results = compare(student, [find_task(RELU)], grader, settings, tmp_path / "report")
    assert len(results.rows) == 2 + 2 + 3
    for row in results.rows:
        masked = ", mask=mask).to" in row.candidate.source
        assert row.candidate.allclose_accepts == masked
        assert ("CMP-02" in row.candidate.rejected_by) == ("autograd" not in row.candidate.source)


@pytest.mark.parametrize(
    "template", [None, "{% for m in messages %}{{ m['content'] }}{% endfor %}"]
)
def test_a_language_model_takes_the_place_of_the_grammar(
    tmp_path, reader, language_model, tokenizer, template
):
    tokenizer.chat_template = template
    for part in (language_model, tokenizer):
        part.save_pretrained(tmp_path / "model")
    student = ChatStudent(str(tmp_path / "model"), seed=0, max_completion_tokens=4)
    settings = Settings(steps=1, generations=2, samples=1)
    results = compare(student, [find_task(RELU)], reader, settings, tmp_path / "report")
    assert len(results.rows) == 2 + 2 + 3
    assert {row.candidate.rejected_by for row in results.rows} == {(NO_SOURCE,)}
    assert reader.seen == []
    answer = "Sure.\n```python\nclass ModelNew: pass\n```"
    for completion in (answer, [{"role": "assistant", "content": answer}]):
        assert student.source(find_task(RELU), completion) == "class ModelNew: pass\n"


def command(*arguments):
    return CliRunner().invoke(app, ["compare", *arguments])


def test_the_command_writes_a_report_and_prints_the_rates(tmp_path, reader, monkeypatch):
    monkeypatch.setattr(client, "connect", lambda options, workers: reader)
    out = tmp_path / "deep" / "report"
    wanted = ["--steps", "1", "--generations", "2", "--samples", "1", "--tasks", RELU]
    result = command("--out", str(out), *wanted)
    assert result.exit_code == 0, result.output
    assert "trained on allclose" in result.output
    assert {path.name for path in out.iterdir()} == FILES


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tasks", "conv/conv2d"], "the grammar has no sentence for conv/conv2d"),
        (["--tasks", ","], "at least one task"),
        (["--model", "no/such/model"], "cannot load no/such/model"),
        (["--out", "."], "exists"),
    ],
)
def test_wrong_usage_is_said_before_any_work(tmp_path, arguments, complaint, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("COLUMNS", "200")
    result = command("--out", str(tmp_path / "report"), *arguments)
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.replace("│", " ").split())
