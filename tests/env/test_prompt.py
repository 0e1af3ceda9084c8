"""The prompt tells the task and its contract, and no input."""

from __future__ import annotations

import re
from dataclasses import replace

from lethe_env.env.prompt import CLAIMS, task_messages, task_prompt
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.tasks.catalog import find_task, suite


def test_every_gate_has_a_claim():
    assert set(CLAIMS) == set(GATE_NAMES)


def test_the_reference_is_in_the_prompt_of_every_task():
    for task in suite().values():
        assert task.source.strip() in task_prompt(task)
        assert "ModelNew" in task_prompt(task)


def test_no_size_of_the_shape_family_is_told():
    for task in suite().values():
        told = task_prompt(task).replace(task.source.strip(), "")
        numbers = {int(n) for n in re.findall(r"(?<![\w-])\d+(?!\w)", told)}
        assert not numbers & set(task.family.base.values()), task.id


def test_what_a_task_waives_is_not_asked_for():
    task = find_task("elementwise/relu")
    assert "CMP-02" in task_prompt(task)
    assert "CMP-02" not in task_prompt(replace(task, gradients=False))
    assert "EXC-01" not in task_prompt(replace(task, waived={"EXC-01": "a reason"}))
    assert "TF32" in task_prompt(replace(task, allow_tf32=True))


def test_messages_are_a_fresh_chat():
    task = find_task("elementwise/relu")
    first, second = task_messages(task), task_messages(task)
    assert first == second == [{"role": "user", "content": task_prompt(task)}]
    assert first is not second and first[0] is not second[0]
