"""The environment: Gymnasium's rules, episodes, rewards, what it tells."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import gymnasium
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

from lethe_env.env import kernel_env
from lethe_env.env.kernel_env import KernelEnv
from lethe_env.kernels.controls import HONEST
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.model import TaskError

from .conftest import GOOD, LUCKY, VOID, WORSE

ID = "lethe_env/Kernel-v0"
RELU = "elementwise/relu"


@pytest.fixture
def make(verifier):
    def make(id=ID, **settings):
        settings.setdefault("tasks", RELU)
        return gymnasium.make(id, verifier=verifier, **settings)

    return make


@pytest.mark.parametrize("id", [ID, "lethe_env/KernelTimed-v0"])
@pytest.mark.parametrize("max_turns", [1, 3])
def test_gymnasium_finds_nothing_wrong(make, id, max_turns):
    check_env(make(id, tasks=["softmax", RELU], max_turns=max_turns))


def test_gymnasium_finds_nothing_wrong_while_it_watches_every_step(make):
    env = make(disable_env_checker=False, max_turns=2, render_mode="ansi")
    env.reset(seed=1)
    env.step(LUCKY)
    env.step("")
    assert RELU in env.render()
    env.close()
    env.close()


def test_it_is_reached_by_the_name_that_imports_it():
    code = f"import gymnasium; print(gymnasium.make('lethe_env:{ID}', tasks={RELU!r}).spec.id)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == ID, done.stderr


def test_importing_the_package_stays_light():
    code = (
        "import sys, lethe_env; print([m for m in ('torch', 'triton', 'pandas', 'rich', 'typer',"
        " 'lethe_env.env.kernel_env') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_the_first_observation_is_the_task(make):
    env = make(max_turns=3)
    observation, info = env.reset(options={"task": RELU})
    task = find_task(RELU)
    assert observation["task"] == info["task"] == RELU
    assert observation["reference"] == task.source
    assert task.source.strip() in observation["prompt"]
    assert (observation["feedback"], observation["turn"], observation["turns_left"]) == ("", 0, 3)


def test_the_seed_picks_the_task_and_options_name_it(make):
    env = make(tasks=None)
    seen = {seed: env.reset(seed=seed)[0]["task"] for seed in range(12)}
    assert len(set(seen.values())) > 6
    assert env.reset(seed=5)[0]["task"] == seen[5]
    assert env.reset(seed=5, options={"task": "norm/rms_norm"})[0]["task"] == "norm/rms_norm"


@pytest.mark.parametrize(
    ("options", "words"),
    [({"task": "norm/rms_norm"}, "has no task"), ({"tusk": RELU}, "unknown options tusk")],
)
def test_wrong_options_are_named(make, options, words):
    with pytest.raises(ValueError, match=words):
        make().reset(options=options)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"tasks": "elementwise/reloo"}, TaskError, "reloo"),
        ({"tasks": []}, TaskError, "no task was chosen"),
        ({"reward": "alclose"}, ValueError, "known: contract, allclose, floor"),
        ({"max_turns": 0}, ValueError, "at least one turn"),
        ({"render_mode": "rgb"}, ValueError, "known: ansi, human"),
    ],
)
def test_wrong_arguments_are_named(verifier, settings, error, words):
    with pytest.raises(error, match=words):
        KernelEnv(**{"tasks": RELU, "verifier": verifier, **settings})


def test_one_turn_is_one_step(make):
    env = make()
    env.reset()
    _, reward, terminated, truncated, info = env.step(LUCKY)
    assert (terminated, truncated, info["status"]) == (True, False, "fail")
    assert 0 < reward < 1
    with pytest.raises(ResetNeeded):
        env.step(LUCKY)


def test_it_has_to_be_reset_first(make):
    with pytest.raises(ResetNeeded):
        make().step(GOOD)


def test_a_solved_task_ends_the_episode_early(make):
    env = make(max_turns=5)
    env.reset()
    assert env.step(WORSE)[2:4] == (False, False)
    observation, _, terminated, truncated, info = env.step(GOOD)
    assert (terminated, truncated, info["status"]) == (True, False, "pass")
    assert (observation["turn"], observation["turns_left"]) == (2, 3)


@pytest.mark.parametrize("sources", [[WORSE, LUCKY, WORSE], [LUCKY, WORSE, GOOD], [VOID, WORSE]])
def test_the_return_is_the_reward_of_the_best_verdict(make, sources):
    env = make(max_turns=len(sources))
    env.reset()
    steps = [env.step(source) for source in sources]
    best = max(step[4]["verdict_reward"] for step in steps)
    assert sum(step[1] for step in steps) == pytest.approx(best)
    assert best > 0


def test_the_return_holds_where_rewards_are_negative(make):
    values = iter([-3.0, -1.0, -2.0])
    env = make(max_turns=3, reward=lambda verdict: next(values))
    env.reset()
    assert [env.step(WORSE)[1] for _ in range(3)] == [-3.0, 2.0, 0.0]


def test_only_an_outer_limit_truncates(make):
    env = RecordEpisodeStatistics(TimeLimit(make(max_turns=5), max_episode_steps=2))
    env.reset()
    env.step(WORSE)
    *_, terminated, truncated, info = env.step(LUCKY)
    assert (terminated, truncated) == (False, True)
    assert info["episode"]["r"] == pytest.approx(info["verdict_reward"], abs=1e-6)


def test_feedback_names_the_gate_and_hides_the_seed(make):
    env = make(max_turns=2)
    env.reset()
    observation, *_ = env.step(LUCKY)
    assert "EXC-01" in observation["feedback"] and "some NaN" in observation["feedback"]
    assert "424242" not in observation["feedback"] and "3.25" not in observation["feedback"]


@pytest.mark.parametrize(
    "action", [None, b"import triton", 3, ["x"], "a\ud800b", "x" * (2**20 + 1)]
)
def test_an_action_outside_the_space_fails_every_gate(make, verifier, action):
    env = make()
    env.reset()
    observation, reward, terminated, _, info = env.step(action)
    assert (reward, terminated, info["status"]) == (0.0, True, "fail")
    assert set(info["gates"].values()) == {"fail"}
    assert "the action" in observation["feedback"]
    assert verifier.graded == 0
    json.dumps(env.unwrapped.verdict.to_json())


def test_a_broken_harness_is_no_evidence(make):
    env = make(max_turns=2)
    env.reset()
    observation, reward, terminated, _, info = env.step(VOID)
    assert (reward, terminated, info["status"]) == (0.0, False, "infra")
    assert set(info["gates"].values()) == {"error"}
    assert "was not judged" in observation["feedback"]


def test_a_reward_that_declines_is_no_evidence_either(make):
    env = make(reward=lambda verdict: None)
    env.reset()
    _, reward, _, _, info = env.step(GOOD)
    assert (reward, info["status"]) == (0.0, "infra")


def test_a_reward_that_is_not_finite_is_named(make):
    env = make(reward=lambda verdict: math.nan)
    env.reset()
    with pytest.raises(ValueError, match="finite"):
        env.step(GOOD)


@pytest.mark.parametrize(("reward", "pays"), [("contract", False), ("allclose", True)])
def test_the_reward_is_chosen_by_name(make, reward, pays):
    env = make(reward=reward)
    env.reset()
    lucky = env.step(LUCKY)[1]
    env.reset()
    assert (lucky == env.step(GOOD)[1]) == pays


def test_info_is_plain_and_without_times(make):
    env = make()
    env.reset()
    info = env.step(LUCKY)[4]
    assert json.loads(json.dumps(info, allow_nan=False)) == info
    assert not [key for key in info if "time" in key]
    assert (info["allclose"], info["gates"]["EXC-01"], info["rejected_by"]) == (
        "pass",
        "fail",
        ["EXC-01"],
    )


def test_the_timed_environment_tells_times(make):
    env = make("lethe_env/KernelTimed-v0")
    assert env.spec.nondeterministic
    env.reset()
    info = env.step(GOOD)[4]
    assert info["time_s"] == {"probes": 0.25}
    assert (info["speedup"], info["speed_kind"]) == (4.0, "modelled")


def test_a_person_sees_the_table_on_standard_error(make, capsys):
    env = make(render_mode="human")
    env.reset()
    env.step(LUCKY)
    assert env.render() is None
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "EXC-01" in printed.err and "contract: rejects (EXC-01)" in printed.err


def test_text_is_rendered_without_terminal_codes(make):
    env = make(render_mode="ansi")
    env.reset()
    assert env.render() == "no verdict yet"
    env.step(GOOD)
    assert "contract: accepts" in env.render()
    assert "\x1b" not in env.render()


def test_without_a_verifier_the_broker_is_asked_late_and_left(verifier, monkeypatch):
    asked = []

    def connect(options, workers):
        asked.append((options.device, workers))
        return verifier

    monkeypatch.setattr(kernel_env, "connect", connect)
    env = KernelEnv(RELU, device="vgpu", workers=3, max_turns=2)
    env.reset()
    assert asked == []
    env.step(WORSE)
    env.step(GOOD)
    assert asked == [("vgpu", 3)]
    env.close()
    env.close()
    assert verifier.closed == 1


def test_a_given_verifier_stays_open(make, verifier):
    make().close()
    assert verifier.closed == 0


def test_tasks_can_be_files_and_objects(verifier, tmp_path):
    file = tmp_path / "23_ReLU.py"
    file.write_text(find_task(RELU).source)
    env = KernelEnv([str(file), find_task("norm/rms_norm")], verifier=verifier)
    assert [task.id for task in env.tasks] == ["23_ReLU", "norm/rms_norm"]


class GraderVerifier:
    """The real grader behind the verifier's interface."""

    def __init__(self, grader) -> None:
        self.grader = grader

    def grade_many(self, jobs, progress=None):
        return [self.grader.grade(job.task, job.source) for job in jobs]

    def close(self) -> None:
        """The session's grader is not ours to close."""


@pytest.mark.xdist_group("elementwise/relu")
def test_a_real_kernel_solves_a_real_task(grader, monkeypatch):
    monkeypatch.setattr(grader, "targets", ())  # what RES-02 says is not asked here
    env = gymnasium.make(ID, tasks=RELU, max_turns=2, verifier=GraderVerifier(grader))
    env.reset(seed=0)
    trick = (
        "import torch\n\nclass ModelNew(torch.nn.Module):\n  def forward(self, x):\n    return y\n"
    )
    observation, first, terminated, _, info = env.step(trick)
    assert (terminated, info["status"], first) == (False, "fail", 0.0)
    assert "NameError: name 'y' is not defined, at line 5 `return y`" in observation["feedback"]
    honest = next(control for control in HONEST if control.name == "relu")
    _, second, terminated, _, info = env.step(honest.source())
    assert (terminated, info["status"], info["kernel"]) == (True, "pass", "triton")
    assert second > 0.5
