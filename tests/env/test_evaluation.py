"""`evaluate`: what it takes, what it survives, how it goes on, what it counts."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import replace
from pathlib import Path

import gymnasium
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lethe_env
from lethe_env.env.evaluation import Evaluation, evaluate
from lethe_env.env.samples import Sample
from lethe_env.env.storage import JOURNAL
from lethe_env.gates.speed import Speed
from lethe_env.kernels.controls import RED_TEAM
from lethe_env.service.jobs import Job
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.model import TaskError

from .conftest import GOOD, LUCKY, VOID, WORSE, fake_verdict

RELU, RMS, SUM = "elementwise/relu", "norm/rms_norm", "reduction/sum"


@pytest.fixture
def run(verifier):
    def run(kernels, tasks=RELU, **settings):
        settings.setdefault("verifier", verifier)
        return evaluate(kernels, tasks, progress=False, **settings)

    return run


def statuses(evaluation):
    return [(sample.task, sample.status) for sample in evaluation.samples]


class Scripted:
    """A policy that gives its answers in turn; an exception is raised, a function is called."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.observations = []

    def act(self, observation):
        self.observations.append(observation)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer


# What it takes


def test_one_source(run):
    assert statuses(run(GOOD)) == [(RELU, "pass")]


def test_a_list_is_samples_of_one_task(run):
    evaluation = run([GOOD, LUCKY, VOID, "# nonsense"])
    assert [sample.status for sample in evaluation.samples] == ["pass", "fail", "infra", "fail"]
    assert [sample.number for sample in evaluation.samples] == [0, 1, 2, 3]


def test_a_mapping_names_its_tasks(run):
    evaluation = run({RELU: GOOD, RMS: [LUCKY, GOOD], find_task(SUM): WORSE}, tasks=None)
    assert statuses(evaluation) == [(RELU, "pass"), (RMS, "fail"), (RMS, "pass"), (SUM, "fail")]


def test_a_mapping_keeps_to_the_chosen_tasks(run):
    with pytest.raises(ValueError, match="not among the chosen tasks"):
        run({RMS: GOOD}, tasks=RELU)


def test_a_folder_names_tasks_by_file_or_by_folder(run, tmp_path):
    for name in (
        "elementwise__relu.py",
        "elementwise__relu_v2.py",
        "elementwise/relu/deep/third.py",
        "norm/rms_norm.py",
        "attention__attention_logsumexp_0.py",
        "_helper.py",
        "norm/__init__.py",
    ):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(GOOD)
    evaluation = run(tmp_path, tasks=None)
    counted = {}
    for sample in evaluation.samples:
        counted[sample.task] = counted.get(sample.task, 0) + 1
    assert counted == {RELU: 3, RMS: 1, "attention/attention_logsumexp": 1}
    assert {Path(sample.origin).name for sample in evaluation.samples} >= {"third.py"}
    assert statuses(run(str(tmp_path), tasks=RMS)) == [(RMS, "pass")]


@pytest.mark.parametrize("name", ["elementwise__relu6.py", "softmax.py"])
def test_a_file_that_fits_no_task_is_named(run, tmp_path, name):
    (tmp_path / name).write_text(GOOD)
    with pytest.raises(ValueError, match=f"no task fits {name}"):
        run(tmp_path, tasks=None)


def test_a_file_is_a_source(run, tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text(LUCKY)
    assert [s.status for s in run(file).samples] == [s.status for s in run(str(file)).samples]
    assert run(file).samples[0].origin == str(file)


def test_a_policy_sees_the_observation(run):
    policy = Scripted(GOOD, LUCKY, GOOD, WORSE)
    evaluation = run(policy, tasks=[RELU, RMS], n=2)
    assert statuses(evaluation) == [(RELU, "pass"), (RELU, "fail"), (RMS, "pass"), (RMS, "fail")]
    assert [seen["task"] for seen in policy.observations] == [RELU, RELU, RMS, RMS]
    assert find_task(RELU).source.strip() in policy.observations[0]["prompt"]


def test_a_policy_has_several_turns_and_the_best_counts(run):
    policy = Scripted(WORSE, LUCKY, WORSE)
    evaluation = run(policy, max_turns=3)
    (sample,) = evaluation.samples
    assert (sample.status, sample.turns, sample.source) == ("fail", 3, LUCKY)
    assert "EXC-01" in policy.observations[1]["feedback"]
    assert [seen["turns_left"] for seen in policy.observations] == [3, 2, 1]


def test_a_solved_task_takes_no_further_turn(run):
    (sample,) = run(Scripted(LUCKY, GOOD, WORSE), max_turns=3).samples
    assert (sample.status, sample.turns) == ("pass", 2)


def test_a_policy_may_be_asked_for_a_batch(run):
    class Batched(Scripted):
        def act_many(self, observations):
            self.asked = len(observations)
            return [GOOD] * len(observations)

    policy = Batched()
    assert run(policy, n=5).pass_rate == 1
    assert (policy.asked, policy.observations) == (5, [])


def test_a_batch_that_fails_is_asked_one_by_one(run):
    class Batched(Scripted):
        def act_many(self, observations):
            return [GOOD]

    assert [s.status for s in run(Batched(GOOD, LUCKY), n=2).samples] == ["pass", "fail"]


class Pipeline:
    """What a text-generation pipeline looks like from outside."""

    task = "text-generation"

    def __init__(self, *texts, chat=True) -> None:
        self.texts = list(texts)
        self.tokenizer = type("Tokenizer", (), {"chat_template": "x" if chat else None})
        self.prompts = []

    def __call__(self, prompts, return_full_text):
        assert return_full_text is False
        self.prompts += prompts
        return [[{"generated_text": self.texts.pop(0)}] for _ in prompts]


def test_a_pipeline_is_a_policy(run):
    pipeline = Pipeline(f"Sure:\n```python\n{GOOD}class ModelNew: pass\n```", "I cannot.")
    assert [s.status for s in run(pipeline, n=2).samples] == ["pass", "fail"]
    assert pipeline.prompts[0][0]["role"] == "user"


def test_a_pipeline_without_a_chat_template_gets_text(run):
    pipeline = Pipeline(f"{GOOD}class ModelNew: pass", chat=False)
    assert run(pipeline).pass_rate == 1
    assert isinstance(pipeline.prompts[0], str)


@pytest.mark.parametrize(
    ("kernels", "settings", "error", "words"),
    [
        (GOOD, {"tasks": None}, ValueError, "tasks are chosen, and a source names none"),
        (GOOD, {"n": 3}, ValueError, "drawn from a policy"),
        ([], {}, ValueError, "no kernel to evaluate"),
        (Scripted(), {"n": 0}, ValueError, "n is 0"),
        (GOOD, {"batch": 0}, ValueError, "batch is 0"),
        (3.5, {}, TypeError, "cannot evaluate float"),
        ({"norm/rms": GOOD}, {"tasks": None}, TaskError, "no task named norm/rms"),
        ("kernels/relu.py", {}, FileNotFoundError, "kernels/relu.py"),
    ],
)
def test_wrong_arguments_are_named(run, kernels, settings, error, words):
    with pytest.raises(error, match=words):
        run(kernels, **settings)


# What it survives


def endless():
    threading.Event().wait()


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_whatever_a_policy_does_is_a_row(run):
    policy = Scripted(
        RuntimeError("out\nof ideas"),
        endless,
        None,
        b"bytes",
        "\ud800",
        Unspeakable(),
        SystemExit(3),
        GOOD,
    )
    evaluation = run(policy, n=8, act_seconds=0.2)
    assert [sample.status for sample in evaluation.samples] == [
        "policy_error",
        "policy_timeout",
        *["fail"] * 3,
        *["policy_error"] * 2,
        "pass",
    ]
    reasons = [sample.reason for sample in evaluation.samples]
    assert reasons[0] == "RuntimeError: out of ideas"
    assert "did not answer within 0.2 s" in reasons[1]
    assert "bytes, not text" in reasons[3] and "surrogate" in reasons[4]
    assert reasons[5] == "Unspeakable"
    assert evaluation.pass_rate == 1 / 8
    json.dumps([sample.to_json() for sample in evaluation.samples])


def test_a_policy_that_fails_later_keeps_its_first_verdict(run):
    (sample,) = run(Scripted(LUCKY, ValueError("tired")), max_turns=3).samples
    assert (sample.status, sample.reason, sample.turns) == ("policy_error", "ValueError: tired", 1)
    assert sample.verdict.failed_gates == ("EXC-01",)


def test_a_file_that_is_no_utf8_is_a_row(run, tmp_path):
    (tmp_path / "elementwise__relu.py").write_bytes(b"x = '\xff'\n")
    (sample,) = run(tmp_path).samples
    assert (sample.status, "surrogate" in sample.reason) == ("fail", True)


def test_a_verifier_that_breaks_costs_its_batch(run, verifier):
    grade_many, calls = verifier.grade_many, iter([True, False])

    def broken(jobs, progress=None):
        if next(calls):
            raise ConnectionError("the broker is gone")
        return grade_many(jobs, progress)

    verifier.grade_many = broken
    evaluation = run([GOOD, GOOD, GOOD], batch=2)
    assert [sample.status for sample in evaluation.samples] == ["infra", "infra", "pass"]
    assert "the broker is gone" in evaluation.samples[0].reason
    assert (evaluation.pass_rate, evaluation.infra) == (1.0, 2)


def test_a_batch_is_graded_together(run, verifier):
    run([GOOD] * 5, batch=2)
    assert [len(batch) for batch in verifier.batches] == [2, 2, 1]


# How it goes on


def test_it_goes_on_where_it_stopped(run, verifier, tmp_path):
    class Stopped(BaseException):
        pass

    grade_many = verifier.grade_many

    def stop(jobs, progress=None):
        if verifier.graded >= 4:
            raise Stopped
        return grade_many(jobs, progress)

    verifier.grade_many = stop
    sources = [GOOD, LUCKY, WORSE, GOOD, LUCKY, GOOD]
    with pytest.raises(Stopped):
        run(sources, folder=tmp_path, batch=2)
    with (tmp_path / JOURNAL).open("a") as journal:
        journal.write('{"key": "cut off in mid-')
    verifier.grade_many = grade_many
    evaluation = run(sources, folder=tmp_path, batch=2)
    assert verifier.graded == 6
    assert evaluation == run(sources)
    before = verifier.graded
    assert run(sources, folder=tmp_path) == evaluation
    assert verifier.graded == before


def test_it_asks_a_policy_only_for_what_is_missing(run, tmp_path):
    run(Scripted(GOOD, LUCKY), n=2, folder=tmp_path)
    policy = Scripted(WORSE)
    evaluation = run(policy, n=3, folder=tmp_path)
    assert [sample.source for sample in evaluation.samples] == [GOOD, LUCKY, WORSE]


def test_what_the_harness_failed_to_judge_is_tried_again(run, verifier, tmp_path):
    run([VOID, GOOD], folder=tmp_path)
    run([VOID, GOOD], folder=tmp_path)
    assert [job.source for batch in verifier.batches for job in batch] == [VOID, GOOD, VOID]


def test_a_changed_kernel_is_graded_again(run, tmp_path):
    run([GOOD], folder=tmp_path)
    assert run([LUCKY], folder=tmp_path).samples[0].status == "fail"


def test_a_folder_of_another_evaluation_is_refused(run, tmp_path):
    run(Scripted(GOOD), folder=tmp_path)
    with pytest.raises(ValueError, match="holds another evaluation"):
        run(Scripted(GOOD), folder=tmp_path, max_turns=2)


def test_two_evaluations_do_not_share_a_folder_at_once(run, tmp_path):
    class Nested:
        def act(self, observation):
            run(Scripted(GOOD), folder=tmp_path)

    (sample,) = run(Nested(), folder=tmp_path).samples
    assert "another evaluation is writing" in sample.reason


# What it counts


def test_rates(run):
    evaluation = run(
        {RELU: [GOOD, LUCKY, VOID, "# nonsense"], RMS: [GOOD, WORSE], SUM: LUCKY}, tasks=None
    )
    assert evaluation.infra == 1
    assert evaluation.pass_rate == pytest.approx(2 / 6)
    assert evaluation.allclose_rate == pytest.approx(4 / 6)
    assert evaluation.false_accept_rate == pytest.approx(2 / 4)
    assert [sample.task for sample in evaluation.false_accepts] == [RELU, SUM]
    assert evaluation.false_accept_gates() == {"EXC-01": 2}
    gates = evaluation.gate_pass_rates()
    assert gates["EXC-01"] == pytest.approx(2 / 6)
    assert gates["ORD-02"] == pytest.approx(4 / 6)
    assert evaluation.op_class_pass_rates() == {
        "elementwise": pytest.approx(1 / 3),
        "norm": 0.5,
        "reduction": 0.0,
    }
    assert evaluation.pass_at(1) == pytest.approx((1 / 3 + 1 / 2 + 0) / 3)
    assert evaluation.pass_at(2) == pytest.approx((2 / 3 + 1) / 2)
    assert evaluation.pass_at(4) is None


def test_nothing_judged_is_no_rate(run):
    evaluation = run([VOID])
    assert evaluation.pass_rate is None and evaluation.pass_at(1) is None
    assert evaluation.fast(1) is None and evaluation.false_accept_rate is None
    json.dumps(evaluation.summary(), allow_nan=False)


def sample_of(task, passed, speedup=None):
    verdict = replace(fake_verdict(Job(find_task(task), GOOD if passed else LUCKY)), speed=None)
    if speedup is not None:
        speed = Speed(kind="modelled", target="A100", probe="x", candidate_us=1.0, eager_us=speedup)
        verdict = replace(verdict, speed=speed)
    return Sample(
        task=task,
        op_class=task.partition("/")[0],
        task_digest="",
        number=0,
        source="",
        status="pass" if passed else "fail",
        verdict=verdict,
    )


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_pass_at_k_is_the_share_of_subsets_with_a_pass(passed, k):
    from itertools import combinations

    evaluation = Evaluation(tuple(sample_of(RELU, each) for each in passed))
    subsets = list(combinations(passed, k))
    expected = sum(any(subset) for subset in subsets) / len(subsets) if subsets else None
    found = evaluation.pass_at(k)
    assert found == expected or math.isclose(found, expected)


def test_fast_counts_only_what_passes():
    evaluation = Evaluation(
        (
            sample_of(RELU, True, 3.0),
            sample_of(RELU, True, 1.0),
            sample_of(RELU, False, 9.0),
            sample_of(RMS, True),
        )
    )
    assert evaluation.fast(0) == 0.5
    assert evaluation.fast(1) == 0.25
    assert evaluation.fast(3) == 0.0
    assert evaluation.speed_kinds() == ("modelled",)


def test_it_is_saved_and_read_back(run, tmp_path):
    evaluation = run([GOOD, LUCKY, VOID, WORSE])
    evaluation.save(tmp_path / "out")
    assert Evaluation.load(tmp_path / "out") == evaluation
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["status"] == {"pass": 1, "fail": 2, "infra": 1}
    with pytest.raises(FileNotFoundError, match="no evaluation"):
        Evaluation.load(tmp_path)


def test_an_empty_evaluation_is_saved_too(tmp_path):
    assert Evaluation.load(Evaluation(()).save(tmp_path)) == Evaluation(())


def test_a_data_frame_has_a_row_a_sample_and_a_column_a_gate(run):
    frame = run([GOOD, LUCKY]).to_pandas()
    assert frame["EXC-01"].tolist() == ["pass", "fail"]
    assert frame["false_accept"].tolist() == [False, True]
    assert frame["rejected_by"].tolist() == [[], ["EXC-01"]]


def test_a_plot_shows_every_gate_and_class(run, tmp_path):
    figure = run({RELU: [GOOD, LUCKY], RMS: WORSE}, tasks=None).plot()
    labels = [text.get_text() for axes in figure.axes for text in axes.get_yticklabels()]
    assert {"EXC-01", "elementwise", "norm", "contract accepts", "pass@1"} <= set(labels)
    figure.savefig(tmp_path / "plot.png")


# Its other doors


def test_the_environment_evaluates_without_unwrapping(verifier):
    env = gymnasium.make("lethe_env/Kernel-v0", tasks=[RELU, RMS], verifier=verifier, max_turns=2)
    evaluation = env.evaluate(Scripted(LUCKY, GOOD, GOOD), progress=False)
    assert statuses(evaluation) == [(RELU, "pass"), (RMS, "pass")]
    assert env.evaluate({RMS: WORSE}, progress=False).pass_rate == 0


def test_the_package_evaluates():
    assert lethe_env.evaluate is evaluate
    assert lethe_env.Evaluation is Evaluation
    with pytest.raises(AttributeError, match="no attribute 'evaluation_of'"):
        lethe_env.evaluation_of  # noqa: B018


def test_a_bar_is_shown_on_standard_error(verifier, capsys):
    evaluate(GOOD, RELU, verifier=verifier)
    assert capsys.readouterr().out == ""


@pytest.mark.xdist_group("elementwise/relu")
def test_a_real_trick_is_a_false_accept(grader, monkeypatch):
    class Verifier:
        def grade_many(self, jobs, progress=None):
            return [grader.grade(job.task, job.source) for job in jobs]

        def close(self):
            """The session's grader is not ours to close."""

    monkeypatch.setattr(grader, "targets", ())  # what RES-02 says is not asked here
    trick = next(control for control in RED_TEAM if control.name == "nan_swallow_relu")
    evaluation = evaluate(trick.path, RELU, verifier=Verifier(), progress=False)
    assert [Path(sample.origin).stem for sample in evaluation.false_accepts] == [trick.name]
    assert evaluation.gate_pass_rates()["EXC-01"] == 0
    assert evaluation.gate_pass_rates()["RES-02"] is None
