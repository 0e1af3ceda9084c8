import json
import subprocess
import sys
from dataclasses import replace

import pytest
from datasets import load_dataset

from lethe_env.tasks.catalog import suite
from lethe_env.tasks.model import Task, TaskError
from lethe_env.trl import LetheSpec

from .fakes import TASK


def test_rows_carry_the_prompt_and_the_task(task):
    own = replace(task, id="my/own")
    spec = LetheSpec(tasks=[TASK, own], eval_tasks=TASK)
    rows = list(spec.train_dataset)
    assert [row["task"] for row in rows] == [TASK, "my/own"]
    assert rows[0]["task_json"] == ""
    assert Task.from_json(json.loads(rows[1]["task_json"])) == own
    assert "class Model(" in rows[0]["prompt"][0]["content"]
    assert len(spec.eval_dataset) == 1
    assert LetheSpec(tasks=TASK).eval_dataset is None


def test_the_default_is_the_whole_suite():
    assert set(LetheSpec().train_dataset["task"]) == set(suite())


def test_one_weight_makes_the_choice():
    single = LetheSpec(tasks=TASK, reward="allclose")
    names = [function.__name__ for function in single.reward_funcs]
    assert names == ["contract_reward", "allclose_reward", "floor_reward"]
    assert single.reward_weights == [0.0, 1.0, 0.0]
    assert single.environment_factory is None
    assert LetheSpec(tasks=TASK, multi_turn=True).reward_weights == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"tasks": "softmax/sofmax"}, TaskError, "no task named softmax/sofmax"),
        ({"tasks": TASK, "reward": "speed"}, ValueError, "contract, allclose, floor"),
        ({"tasks": []}, ValueError, "no task"),
        ({"tasks": TASK, "max_turns": 0}, ValueError, "at least one turn"),
    ],
)
def test_wrong_arguments_are_refused_at_once(arguments, error, text):
    with pytest.raises(error, match=text):
        LetheSpec(**arguments)


def test_what_is_saved_loads_as_a_dataset_by_name(tmp_path):
    spec = LetheSpec(tasks=[TASK, "elementwise/relu"], eval_tasks="norm/rms_norm")
    spec.save(tmp_path / "data")
    loaded = load_dataset(str(tmp_path / "data"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"]["task"][:] == [TASK, "elementwise/relu"]
    assert loaded["test"]["prompt"][0] == spec.eval_dataset[0]["prompt"]


def test_a_prompt_of_ones_own():
    spec = LetheSpec(tasks=TASK, prompt=lambda task: f"optimise {task.id}")
    assert spec.train_dataset[0]["prompt"] == f"optimise {TASK}"


def test_the_package_imports_without_torch_and_trl():
    code = "import sys, lethe_env.trl; print([m for m in ('torch', 'trl') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "[]", result.stderr
