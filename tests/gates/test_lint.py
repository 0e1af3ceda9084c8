import pytest

from lethe_env.gates.lint import lint
from lethe_env.gates.oracle import Oracle
from lethe_env.tasks.model import ShapeFamily

SOURCE = """
import torch
n, m = 64, 16
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(16))
    def forward(self, x, y):
        return {body}
def get_inputs():
    return [torch.randn(n, m), torch.randn(n, m)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def problems(make_task):
    def run(body):
        family = ShapeFamily(base={"n": 33}, long={"n": 99})
        task = make_task(SOURCE.format(body=body), family=family)
        return lint(task, Oracle(cache_directory=None)).problems

    return run


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("(x - x) + 0 * (y + self.bias)", "zeros would pass CMP-01"),
        ("x + 0 * (y + self.bias)", "the input itself would pass CMP-01"),
        ("torch.ones_like(x) + 0 * (x + y + self.bias)", "a constant would pass CMP-01"),
        ("x + self.bias", "input 1 does not matter: other values of it would pass"),
        ("x + y", "parameter bias does not matter: dropping it would pass"),
        ("x + y + self.bias[0, 0]", "the reference fails: IndexError"),
    ],
)
def test_a_vacuous_task_is_named(problems, body, problem):
    assert any(found.startswith(problem) for found in problems(body)), problems(body)


def test_a_sound_task_has_no_problem(problems):
    assert problems("x * y + self.bias") == ()
