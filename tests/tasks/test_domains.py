import pytest

from lethe_env.tasks.domains import domains
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import TaskError
from lethe_env.tasks.probe import Probe

SOURCE = """
import torch
n = 6
class Model(torch.nn.Module):
    def forward(self, x, *rest):
        return {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("inputs", "body", "expected"),
    [
        ("torch.randn(n, n)", "x * 2", "real"),
        ("torch.rand(n, n)", "x.relu()", "real"),  # KernelBench's habit, not a need
        ("torch.rand(n, n)", "x.log()", "unit"),
        ("torch.rand(n, n) + 3", "x.sqrt()", "positive"),
        ("-torch.rand(n, n) - 1", "(-x).log()", "negative"),
        ("torch.rand(n, n).softmax(-1)", "x * 2", "probability"),
        ("torch.randn(n, n).log_softmax(-1)", "x * 2", "log_probability"),
        ("torch.randint(0, 2, (n, n)).float() * 2 - 1", "x * 2", "sign"),
        ("torch.randint(0, 2, (n, n)).float()", "x * 2", "binary"),
        ("torch.randint(0, n, (n,))", "x * 2", "own"),
        ("torch.randn(n, n).tril()", "x * 2", "own"),
        ("torch.ones(n, n)", "x * 2", "own"),
    ],
)
def test_a_domain_is_inferred_from_the_tasks_own_inputs(make_task, inputs, body, expected):
    assert domains(make_task(SOURCE.format(inputs=inputs, body=body))) == (expected,)


def test_a_declared_domain_wins_and_plain_values_have_none(make_task):
    source = SOURCE.format(inputs="3, torch.randn(n)", body="rest[0] * x")
    assert domains(make_task(source, domains=("positive",))) == (None, "positive")


def test_an_unknown_declared_domain_is_the_tasks_fault(make_task):
    source = SOURCE.format(inputs="torch.randn(n)", body="x")
    with pytest.raises(TaskError, match="no domain named 'odd'"):
        domains(make_task(source, domains=("odd",)))


def test_integer_targets_stay_integers_in_range(make_task):
    source = SOURCE.format(inputs="torch.randint(0, n, (50,))", body="x")
    for family in ("normal", "huge", "nan"):
        (drawn,) = draw_inputs(make_task(source), Probe(values=family, dtype="float16"))
        assert not drawn.is_floating_point()
        assert drawn.min() >= 0 and drawn.max() < 6


def test_an_input_that_cannot_be_handed_over_is_the_tasks_fault(make_task):
    source = SOURCE.format(inputs="torch.randn(n), object()", body="x")
    with pytest.raises(TaskError, match="get_inputs returns a object"):
        draw_inputs(make_task(source), Probe())
