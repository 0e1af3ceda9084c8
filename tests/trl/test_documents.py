"""The script in the README does what it says, on a verifier that needs no time."""

from pathlib import Path

import pytest

from lethe_env.trl import use_verifier

PAGE = Path(__file__).parents[2] / "README.md"

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)  # the trainer's own


def test_the_script_trains_and_plots(verifier, tmp_path, monkeypatch):
    script = PAGE.read_text().split("### Train\n\n```python\n")[1].split("```")[0]
    assert len(script.splitlines()) <= 20
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    use_verifier(verifier)
    made: dict = {}
    exec(compile(script.replace('"max_steps": 12', '"max_steps": 2'), str(PAGE), "exec"), made)
    assert made["log"]["rewards/contract_reward/mean"].max() == 1.0
    assert all("class ModelNew" in source for source in verifier.judged)
    assert (tmp_path / "run" / "rewards.png").stat().st_size > 10_000
