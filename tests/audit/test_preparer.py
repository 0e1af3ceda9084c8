"""References that run, fail, hang, or end the process in which they are looked at."""

from __future__ import annotations

import time

import pytest

from lethe_env.audit.preparation import Prepared, prepare
from lethe_env.audit.preparer import Preparer

GOOD = """
import torch
n = 1 << 22
class Model(torch.nn.Module):
    def __init__(self, k):
        super().__init__()
    def forward(self, x, mask):
        return torch.softmax(x, -1) * mask
def get_inputs():
    return [torch.randn(8, n), torch.ones(n, dtype=torch.int64)]
def get_init_inputs():
    return [3]
"""
ENDS = GOOD + "\nimport os\nos._exit(3)\n"
HANGS = GOOD + "\nwhile True: pass\n"
INTEGERS = GOOD.replace("randn(8, n)", "ones(8, n, dtype=torch.int32)").replace("softmax", "cumsum")


@pytest.fixture(scope="module")
def preparer():
    made = Preparer()
    yield made
    made.close()


def test_a_reference_becomes_a_task_at_sizes_that_fit():
    found = prepare(GOOD)
    assert found.problem == "" and found.op_class == "softmax"
    assert found.native_shapes == ((8, 1 << 22), (1 << 22,))
    assert found.task.family.base["n"] < 1 << 17
    assert prepare(GOOD).task.digest == found.task.digest
    assert Prepared.from_json(found.to_json()) == found


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("def broken(:", "the reference does not run: "),
        ("x = 1", "defines no Model"),
        (
            GOOD.replace(
                "torch.softmax(x, -1)", "x.cumsum(-1)[:, -1:] + torch.rand(1 << 22)"
            ).replace("* mask", ""),
            "too large",
        ),
        ("import a_package_that_nobody_has", "ModuleNotFoundError"),
        (GOOD.replace("torch.softmax(x, -1)", "x.nonsense()"), "no attribute 'nonsense'"),
        (INTEGERS, "no floating-point tensor"),
        (GOOD.replace("return [3]", "return 1 / 0"), "ZeroDivisionError"),
    ],
)
def test_a_reference_that_does_not_run_says_why(source, problem):
    found = prepare(source)
    assert found.task is None and problem in found.problem


def test_what_ends_or_holds_up_the_process_harms_no_other(preparer, monkeypatch):
    assert preparer.prepare(GOOD).op_class == "softmax"
    assert preparer.prepare(ENDS).problem == "the reference ended the process that ran it"
    assert preparer.prepare(GOOD.replace("softmax", "cumsum")).op_class == "scan"
    monkeypatch.setattr(preparer, "_seconds", 1.0)
    assert preparer.prepare(HANGS).problem == "the reference did not finish within 1 seconds"


def test_a_reference_is_looked_at_once(preparer):
    started = time.perf_counter()
    first = preparer.prepare(ENDS)
    assert preparer.prepare(ENDS) is first
    assert time.perf_counter() - started < 30
