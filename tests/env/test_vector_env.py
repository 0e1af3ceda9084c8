"""Many environments at once agree with one at a time."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

from lethe_env.env import kernel_env
from lethe_env.env.vector_env import KernelVectorEnv

from .conftest import GOOD, LUCKY, VOID, WORSE

ID = "lethe_env/Kernel-v0"
TASKS = ["elementwise", "norm/rms_norm"]
SCRIPT = [[WORSE, GOOD, VOID, b"no text"], [GOOD, LUCKY, LUCKY, "\ud800"], [LUCKY, GOOD, "", WORSE]]


@pytest.fixture
def make(verifier):
    def make(num_envs, **settings):
        settings = {"tasks": TASKS, "verifier": verifier, **settings}
        return gymnasium.make_vec(ID, num_envs=num_envs, **settings)

    return make


def single(verifier, seed, actions, turns):
    """The same episode, one environment, started again as soon as it ends."""
    env = gymnasium.make(ID, tasks=TASKS, verifier=verifier, max_turns=turns)
    over = False
    rows = [env.reset(seed=seed)]
    for action in actions:
        if over:
            observation, info = env.reset()
            rows.append((observation, 0.0, False, False, info))
            over = False
        else:
            rows.append(env.step(action))
            over = rows[-1][2]
    return rows


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_vector_and_single_agree(make, verifier, turns):
    env = DictInfoToList(make(4, max_turns=turns))
    expected = [single(verifier, 7 + i, [row[i] for row in SCRIPT], turns) for i in range(4)]
    observations, infos = env.reset(seed=7)
    for i in range(4):
        assert pick(observations, i) == expected[i][0][0]
        assert infos[i] == expected[i][0][1]
    for number, actions in enumerate(SCRIPT, start=1):
        observations, rewards, terminated, truncated, infos = env.step(tuple(actions))
        assert observations in env.observation_space
        for i in range(4):
            observation, reward, over, _, info = expected[i][number]
            assert pick(observations, i) == observation
            assert (rewards[i], terminated[i], truncated[i]) == (reward, over, False)
            assert infos[i] == info


def pick(observations, i):
    return {key: values[i] for key, values in observations.items()}


def test_one_step_is_one_batch(make, verifier):
    env = make(4)
    assert isinstance(env.unwrapped, KernelVectorEnv)
    env.reset(seed=0)
    env.step((GOOD, LUCKY, None, WORSE))
    assert [len(batch) for batch in verifier.batches] == [3]


def test_one_broker_serves_all(verifier, monkeypatch):
    asked = []
    monkeypatch.setattr(kernel_env, "connect", lambda *_: asked.append(1) or verifier)
    env = gymnasium.make_vec(ID, num_envs=3, tasks=TASKS)
    env.reset(seed=0)
    env.step((GOOD,) * 3)
    env.close()
    assert (len(asked), verifier.closed, verifier.graded) == (1, 1, 3)


def test_statistics_of_gymnasium_count_episodes(make):
    env = RecordEpisodeStatistics(make(2, max_turns=2))
    env.reset(seed=0)
    env.step((WORSE, GOOD))
    *_, infos = env.step((LUCKY, GOOD))
    assert infos["_episode"].tolist() == [True, False]
    assert infos["episode"]["r"][0] == pytest.approx(infos["verdict_reward"][0], abs=1e-6)


def test_without_autoreset_episodes_are_reset_by_mask(make):
    env = make(2, autoreset_mode=AutoresetMode.DISABLED, max_turns=3)
    env.reset(seed=0)
    before, _, terminated, *_ = env.step((GOOD, WORSE))
    assert terminated.tolist() == [True, False]
    with pytest.raises(ResetNeeded):
        env.step((GOOD, GOOD))
    after, infos = env.reset(options={"reset_mask": terminated})
    assert after["turn"].tolist() == [0, 1]
    assert after["feedback"][1] == before["feedback"][1] != ""
    assert infos["_task"].tolist() == [True, False]
    assert env.step((WORSE, LUCKY))[0]["turn"].tolist() == [1, 2]


def test_seeds_and_tasks_are_given_to_each(make):
    env = make(3)
    one, _ = env.reset(seed=[4, 4, 5])
    assert one["task"][0] == one["task"][1]
    named, _ = env.reset(options={"task": "norm/rms_norm"})
    assert named["task"] == ("norm/rms_norm",) * 3


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda env: env.reset(seed=[1]), "1 seeds for 2"),
        (lambda env: (env.reset(), env.step((GOOD,))), "1 actions for 2"),
        (lambda env: env.reset(options={"reset_mask": np.array([True, False])}), "first reset"),
    ],
)
def test_wrong_calls_are_named(make, call, words):
    with pytest.raises(ValueError, match=words):
        call(make(2))


def test_gymnasiums_own_vectors_work_too(make):
    env = make(2, vectorization_mode="sync")
    observations, _ = env.reset(seed=3)
    assert len(observations["prompt"]) == 2
    assert env.step((GOOD, LUCKY))[1][0] > 0.5
    env.close()


def test_tables_of_all(make):
    env = make(2, render_mode="ansi")
    env.reset(seed=0)
    env.step((GOOD, LUCKY))
    one, two = env.render()
    assert "accepts" in one and "rejects (EXC-01)" in two
