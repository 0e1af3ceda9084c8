"""A cheap task: doubling a vector on the interpreter, a verdict in a tenth of a second."""

from __future__ import annotations

import pytest

from lethe_env.tasks.model import ShapeFamily, Task

from ..doubling import DOUBLE

MODEL_NEW = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return {}
"""


def candidate(expression: str) -> str:
    return MODEL_NEW.format(expression)


HONEST = candidate("x + x")
WRONG = candidate("x * 2.01")
NAN_SWALLOWING = candidate("torch.nan_to_num(x * 2)")


@pytest.fixture(scope="session")
def double() -> Task:
    family = ShapeFamily(base={"n": 37}, vary={"n": (1, 33)}, long={"n": 99})
    return Task(id="test/double", source=DOUBLE, op_class="elementwise", family=family)
