import inspect
import pickle

import pytest
from transformers.utils import get_json_schema

from lethe_env.reward import RewardShape
from lethe_env.trl import KernelToolEnv, LetheSpec, RewardFunction, Scorer, use_verifier

from .fakes import TASK, source

SHAPE = RewardShape()


@pytest.fixture
def env(verifier):
    env = KernelToolEnv(max_turns=3, scorer=Scorer(verifier))
    env.reset(task=TASK, prompt=[{"role": "user", "content": "x"}])
    return env


def test_a_model_is_shown_one_tool_and_nothing_else(env):
    public = [n for n, _ in inspect.getmembers(type(env), inspect.isfunction) if n[0] != "_"]
    assert sorted(public) == ["get_reward", "reset", "submit_kernel"]
    schema = get_json_schema(env.submit_kernel)["function"]
    assert schema["name"] == "submit_kernel"
    assert schema["parameters"]["properties"]["source"]["type"] == "string"


def test_the_best_attempt_counts_and_the_report_names_the_gate(env):
    assert env.get_reward() == 0.0
    assert "CMP-01" in env.submit_kernel(source("CMP-01"))
    first = env.get_reward()
    assert "Attempt 2 of 3" in env.submit_kernel(source())
    assert 0.0 < first < env.get_reward() == SHAPE.solved
    env.submit_kernel(source("CMP-01", "CMP-02"))
    assert env.get_reward() == SHAPE.solved


def test_the_budget_ends_judging_and_a_reset_renews_it(env, verifier):
    for turn in range(3):
        env.submit_kernel(source(str(turn), "CMP-01"))
    report = env.submit_kernel(source())
    assert "All 3 attempts are spent" in report
    assert env.get_reward() < SHAPE.solved
    assert "3 attempts" in env.reset(task=TASK)
    env.submit_kernel(source())
    assert env.get_reward() == SHAPE.solved
    assert len(verifier.judged) == 4


@pytest.mark.parametrize("bad", ["", "no code", None, 7, ["x"], {"a": 1}, "\ud800 class ModelNew"])
def test_a_bad_submission_is_an_attempt_worth_nothing(env, bad):
    assert env.submit_kernel(bad).startswith("Not judged")
    assert env.get_reward() == 0.0


def test_a_broken_harness_is_none_here_and_in_the_reward_functions(env, verifier):
    functions = [RewardFunction(name, scorer=Scorer(verifier)) for name in ("contract", "floor")]
    other = KernelToolEnv(scorer=Scorer(verifier))
    other.reset(task=TASK)
    other.submit_kernel(source("CMP-01"))
    verifier.void = True
    assert "broke down" in env.submit_kernel(source())
    assert env.get_reward() is None
    batch = [[{"role": "assistant", "content": "done"}]] * 3
    scores = [f(completions=batch, environments=[env, other, object()]) for f in functions]
    assert [column[0] for column in scores] == [None, None]
    assert [column[2] for column in scores] == [None, None]
    assert scores[0][1] == other.get_reward()


def test_an_unknown_task_voids_the_episode_and_no_column_is_refused(env):
    env.reset(task="no/such")
    assert "broke down" in env.submit_kernel(source())
    assert env.get_reward() is None
    with pytest.raises(ValueError, match="no column 'task'"):
        env.reset(prompt="x")


def test_the_factory_of_a_specification_pickles(verifier):
    spec = LetheSpec(tasks=TASK, reward="allclose", multi_turn=True, max_turns=2)
    use_verifier(verifier)
    env = pickle.loads(pickle.dumps(spec.environment_factory))()
    env.reset(**spec.train_dataset[0])
    env.submit_kernel(source("EXC-01"))
    assert env.get_reward() == SHAPE.solved
