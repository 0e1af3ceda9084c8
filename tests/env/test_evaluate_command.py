"""`lethe evaluate`, with a verifier that is quick."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from lethe_env.cli import app
from lethe_env.command_line import UsageError
from lethe_env.env import evaluation

from .conftest import GOOD, LUCKY, VOID


@pytest.fixture
def lethe(verifier, monkeypatch):
    """Runs the command; what it connects to is the fake."""
    monkeypatch.setattr(evaluation, "connect", lambda options, workers: connected(options, workers))
    asked = []

    def connected(options, workers):
        asked.append((options.device, options.targets, options.seed, workers))
        return verifier

    def run(*arguments):
        return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])

    run.asked = asked
    return run


@pytest.fixture
def kernels(tmp_path):
    folder = tmp_path / "kernels"
    (folder / "norm" / "rms_norm").mkdir(parents=True)
    (folder / "elementwise__relu.py").write_text(GOOD)
    (folder / "norm" / "rms_norm" / "first.py").write_text(LUCKY)
    return folder


def test_a_folder_is_counted(lethe, kernels, verifier):
    done = lethe(kernels, "--device", "vgpu", "--targets", "sm_90", "--seed", 5, "--workers", 3)
    assert done.exit_code == 0, done.output
    assert lethe.asked == [("vgpu", ("sm_90",), 5, 3)]
    assert "2 on 2 tasks: 1 pass, 1 fail" in done.stdout
    assert "50.0 % of what allclose accepts (EXC-01 1)" in done.stdout
    assert verifier.closed == 1


def test_json_is_the_summary(lethe, kernels):
    done = lethe(kernels, "--task", "norm", "--json")
    assert json.loads(done.stdout)["gate_pass_rates"]["EXC-01"] == 0
    assert json.loads(done.stdout)["samples"] == 1


def test_samples_and_plot_are_written_and_reused(lethe, kernels, verifier, tmp_path):
    out = tmp_path / "out"
    first = lethe(kernels, "--output", out, "--plot", tmp_path / "rates.png", "--json")
    again = lethe(kernels, "--output", out, "--json")
    assert json.loads(first.stdout) == json.loads(again.stdout)
    assert verifier.graded == 2
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in out.iterdir()} == {
        "journal.jsonl",
        "samples.parquet",
        "summary.json",
    }


def test_what_could_not_be_judged_shows_in_the_exit_code(lethe, kernels):
    (kernels / "elementwise__relu_2.py").write_text(VOID)
    assert lethe(kernels).exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "nowhere.py"),
        (["--device", "tpu"], "no device named tpu"),
        (["--targets", "sm_1"], "no target named sm_1"),
    ],
)
def test_wrong_usage_is_named(lethe, kernels, arguments, words):
    where = [] if arguments[0].endswith(".py") else [kernels]
    done = lethe(*where, *arguments)
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)
