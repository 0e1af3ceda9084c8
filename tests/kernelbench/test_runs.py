"""Runs: KernelBench's files are read and written to the letter, and a run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from lethe_env.cli import app
from lethe_env.kernelbench import command
from lethe_env.kernelbench.analysis import analyse
from lethe_env.kernelbench.evaluation import Settings
from lethe_env.kernelbench.problems import load_level
from lethe_env.kernelbench.run_evaluation import evaluate_run
from lethe_env.kernelbench.runs import RESULTS, TABLE, read_results
from lethe_env.service.options import GraderOptions

from ..env.conftest import GOOD, LUCKY, VOID, WORSE, FakeVerifier
from .conftest import problem

OPTIONS = GraderOptions(device="vgpu")
EXTENSION = "from torch.utils.cpp_extension import load_inline\n"
KERNELS = {(2, 0): GOOD, (2, 1): WORSE, (10, 0): LUCKY, (1, 0): VOID, (3, 0): EXTENSION}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for number in (1, 2, 3, 4, 10):
        path = folder / f"{number}_Double.py"
        path.write_text(problem("return x * 2", sizes="rows, width = 4, 40"))
    return tmp_path / "checkout"


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    for (number, sample), source in KERNELS.items():
        write(folder, number, sample, source)
    write(folder, 2, 0, GOOD, level=2)
    (folder / "generation_config.yaml").write_text("model: none\n")
    return folder


def write(folder: Path, number: int, sample: int, source: str, level: int = 1) -> None:
    name = f"level_{level}_problem_{number}_sample_{sample}_kernel.py"
    (folder / name).write_text(source)


def evaluate(folder, checkout, verifier, **options):
    settings = options.pop("settings", Settings(measure_performance=True))
    dataset = load_level(checkout, 1)
    return evaluate_run(folder, dataset, settings, verifier, OPTIONS, **options)


def rows(folder: Path) -> dict:
    return json.loads((folder / RESULTS).read_text())


def test_the_file_is_as_kernelbench_writes_it(run_folder, checkout):
    evaluate(run_folder, checkout, FakeVerifier())
    text = (run_folder / RESULTS).read_text()
    found = json.loads(text)
    assert text == json.dumps(found, indent=4)
    assert list(found) == ["1", "2", "3", "10"]
    assert [row["sample_id"] for row in found["2"]] == [0, 1]
    for entries in found.values():
        for row in entries:
            keys = ["sample_id", "compiled", "correctness", "metadata", "runtime", "runtime_stats"]
            assert list(row) == keys
            assert (row["runtime"], row["runtime_stats"]) == (-1.0, {})
    assert [row["correctness"] for row in found["2"]] == [True, False]
    assert found["10"][0]["correctness"] is False
    assert found["10"][0]["metadata"]["checks"] == {"contract": False, "kernelbench": True}


def test_pass_at_k_is_written_where_problems_have_several_samples(run_folder, checkout):
    evaluate(run_folder, checkout, FakeVerifier(), pass_at=(1, 2))
    found = json.loads((run_folder / "pass_at_k_results.json").read_text())
    assert list(found) == ["averages", "metadata", "problems"]
    assert found["problems"]["2"] == {
        "total_samples": 2,
        "correct_samples": 1,
        "pass@1": 0.5,
        "pass@2": 1.0,
    }
    assert found["metadata"]["pass@2_count"] == 1
    assert found["averages"]["avg_pass@1"] == 0.25  # of problems 2 and 10; the others have none


def test_the_table_holds_what_both_checks_say(run_folder, checkout):
    evaluate(run_folder, checkout, FakeVerifier())
    table = pyarrow.parquet.read_table(run_folder / TABLE).to_pylist()
    said = {(r["problem_id"], r["sample_id"]): (r["contract"], r["kernelbench"]) for r in table}
    assert said == {
        (1, 0): (None, None),
        (2, 0): (True, True),
        (2, 1): (False, False),
        (3, 0): (None, None),
        (10, 0): (False, True),
    }


def asked(verifier: FakeVerifier) -> set[str]:
    return {job.source for batch in verifier.batches for job in batch}


def test_a_run_goes_on_with_what_is_missing_changed_or_unjudged(run_folder, checkout):
    evaluate(run_folder, checkout, FakeVerifier())
    again = FakeVerifier()
    evaluate(run_folder, checkout, again)
    assert asked(again) == {VOID}
    write(run_folder, 4, 0, f"{GOOD}# new\n")
    write(run_folder, 10, 0, f"{GOOD}# mended\n")
    last = FakeVerifier()
    evaluate(run_folder, checkout, last)
    assert asked(last) == {VOID, f"{GOOD}# new\n", f"{GOOD}# mended\n"}
    assert rows(run_folder)["10"][0]["correctness"] is True
    assert len(rows(run_folder)["10"]) == 1


def test_what_a_crash_left_behind_is_kept(run_folder, checkout, monkeypatch):
    monkeypatch.setattr("lethe_env.kernelbench.run_evaluation.BATCH", 2)

    class Failing(FakeVerifier):
        def grade_many(self, jobs, progress=None):
            if len(self.batches) >= 3:
                raise KeyboardInterrupt
            return super().grade_many(jobs, progress)

    with pytest.raises(KeyboardInterrupt):
        evaluate(run_folder, checkout, Failing())
    assert list(rows(run_folder)) == ["1", "2"]
    assert pyarrow.parquet.read_table(run_folder / TABLE).num_rows == 2
    rest = FakeVerifier()
    evaluate(run_folder, checkout, rest)
    assert asked(rest) == {VOID, WORSE, LUCKY}


def test_results_of_others_are_left_alone(run_folder, checkout, tmp_path):
    theirs = {
        "2": [
            {
                "sample_id": 0,
                "compiled": True,
                "correctness": True,
                "metadata": {"hardware": "H100", "correctness_trials": "(5 / 5)"},
                "runtime": 1.5,
                "runtime_stats": {"mean": 1.5},
            }
        ]
    }
    (run_folder / RESULTS).write_text(json.dumps(theirs, indent=4))
    with pytest.raises(ValueError, match="another program"):
        evaluate(run_folder, checkout, FakeVerifier())
    assert rows(run_folder) == theirs
    evaluate(run_folder, checkout, FakeVerifier(), output=tmp_path / "elsewhere")
    assert list(rows(tmp_path / "elsewhere")) == ["1", "2", "3", "10"]
    with pytest.raises(ValueError, match="settings"):
        evaluate(
            run_folder,
            checkout,
            FakeVerifier(),
            output=tmp_path / "elsewhere",
            settings=Settings(check="kernelbench"),
        )


def test_their_results_are_analysed_with_their_baseline(run_folder, checkout):
    entry = {"compiled": True, "correctness": True, "metadata": {}, "runtime_stats": {}}
    theirs = {
        "2": [{"sample_id": 0, "runtime": 2.0, **entry}],
        "10": [{"sample_id": 0, "runtime": 8.0, **entry}],
    }
    (run_folder / RESULTS).write_text(json.dumps(theirs))
    baseline = {"2_Double.py": 4.0, "10_Double.py": 4.0}
    found = analyse(read_results(run_folder), load_level(checkout, 1), baseline=baseline)
    assert found["contract"] is None
    rule = found["kernelbench"]
    assert (rule["compiled_count"], rule["correct_count"], rule["judged_count"]) == (2, 2, 5)
    assert rule["fast_p"] == {"0.0": 0.4, "0.5": 0.2, "0.8": 0.2, "1.0": 0.2, "1.5": 0.2, "2.0": 0}
    assert rule["geo_mean_speedup"] == pytest.approx(1.0, rel=1e-12)


def test_both_checks_are_analysed_side_by_side(run_folder, checkout):
    results = evaluate(run_folder, checkout, FakeVerifier())
    found = analyse(results, load_level(checkout, 1))
    assert (found["total_count"], found["total_eval"], found["unjudged_count"]) == (5, 4, 2)
    assert (found["contract"]["correct_count"], found["kernelbench"]["correct_count"]) == (1, 2)
    assert found["contract"]["correctness_rate"] == pytest.approx(1 / 3)
    assert found["kernelbench"]["fast_p"]["0.0"] == pytest.approx(2 / 3)


@pytest.fixture
def lethe(monkeypatch, run_folder, checkout):
    monkeypatch.setattr(command, "connect", lambda *_: FakeVerifier())

    def run(name, *arguments, folder=run_folder):
        places = [str(folder), "--level", "1", "--dataset", str(checkout)]
        return CliRunner().invoke(app, ["kernelbench", name, *places, *arguments])

    return run


def test_the_commands_evaluate_and_analyse(lethe):
    done = lethe("eval", "--json")
    assert done.exit_code == 3, done.output  # one could not be judged
    assert json.loads(done.stdout)["contract"]["correct_count"] == 1
    counted = lethe("analyze", "--pass-at", "1,2")
    assert counted.exit_code == 0, counted.output
    assert "avg_pass@2" in counted.stdout
    assert "correctness_rate" in counted.stdout


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("eval", ("--check", "strict"), "strict"),
        ("eval", ("--precision", "fp8"), "fp8"),
        ("eval", ("--trials", "0"), "trial"),
        ("eval", ("--pass-at", "none"), "none"),
        ("analyze", (), "no results"),
        ("analyze", ("--baseline", "nowhere.json"), "nowhere.json"),
    ],
)
def test_wrong_usage_is_one_sentence(lethe, name, arguments, words):
    done = lethe(name, *arguments)
    assert words in str(done.exception)
    assert type(done.exception).__name__ == "UsageError"


def test_a_folder_without_kernels_is_wrong_usage(lethe, tmp_path):
    done = lethe("eval", folder=tmp_path)
    assert "level_1_problem_<number>_sample_<number>_kernel.py" in str(done.exception)


def test_a_run_that_is_not_there_is_said_before_anything_is_read(lethe, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "load_level", lambda *_: pytest.fail("problems were read"))
    done = lethe("eval", folder=tmp_path / "absent")
    assert "no run folder at" in str(done.exception)


def test_problems_come_from_a_table_too(tmp_path, checkout):
    path = tmp_path / "problems.jsonl"
    code = problem("return x * 2")
    lines = [
        {"code": code, "level": level, "name": f"{number}_Double", "problem_id": number}
        for level in (1, 2)
        for number in (7, 3)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    table, folder = load_level(path, 1), load_level(checkout, 1)
    assert table.get_problem_ids() == [3, 7]
    assert table.get_problem_by_id(7).name == "7_Double.py"
    assert folder.get_problem_ids() == [1, 2, 3, 4, 10]
    assert folder.get_problem_by_id(10).path.endswith("level1/10_Double.py")
    with pytest.raises(ValueError, match="99"):
        folder.get_problem_by_id(99)
