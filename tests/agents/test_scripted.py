"""The scripted policies hand in what the project ships."""

from __future__ import annotations

import pytest

from lethe_env.agents.policy import PolicyError
from lethe_env.agents.scripted import cheater, expert
from lethe_env.kernels.controls import HONEST, RED_TEAM


@pytest.mark.parametrize(("make", "controls"), [(expert, HONEST), (cheater, RED_TEAM)])
def test_every_control_is_handed_in_and_then_again(make, controls):
    policy = make()
    assert set(policy.tasks) == {control.task for control in controls}
    for task in policy.tasks:
        sources = [control.source() for control in controls if control.task == task]
        answers = [policy.act({"task": task}) for _ in range(2 * len(sources))]
        assert answers == sources + sources


def test_a_task_without_a_kernel_is_an_error_that_names_the_others():
    with pytest.raises(PolicyError, match=r"no honest kernel for other/embedding, only for .*relu"):
        expert().act({"task": "other/embedding"})
