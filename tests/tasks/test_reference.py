import pytest
import torch

from lethe_env.tasks.model import TaskError
from lethe_env.tasks.reference import load_reference, size_constants

SOURCE = """
import torch
rows, width = 4, 8
total = rows * width
scale: int = 3
depth = 2 * 3 + 2**4 // 5
half = 0.5
nothing = 4 // 0 if False else 1

class Model(torch.nn.Module):
    def __init__(self, features, bias=width):
        super().__init__()
        self.linear = torch.nn.Linear(features, bias)

    def forward(self, x):
        return self.linear(x)

def get_inputs():
    return [torch.randn(rows, width), total]

def get_init_inputs():
    return [width]
"""


def test_literals_and_arithmetic_on_literals_are_sizes():
    assert size_constants(SOURCE) == {"rows": 4, "width": 8, "scale": 3, "depth": 9}


def test_rebinding_reaches_derived_values_and_default_arguments():
    reference = load_reference(SOURCE, {"width": 5})
    tensor, total = reference.get_inputs()
    assert tensor.shape == (4, 5)
    assert total == 20
    assert reference.build().linear.weight.shape == (5, 5)


def test_an_expression_is_rebound_as_a_whole():
    reference = load_reference(
        SOURCE.replace("rows, width = 4, 8", "rows, width = 2 * 2, 2**3"), {"width": 5}
    )
    assert reference.get_inputs()[0].shape == (4, 5)


def test_two_builds_have_equal_weights_and_leave_the_generator_alone():
    reference = load_reference(SOURCE, {})
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    first, second = reference.build(), reference.build()
    assert torch.equal(first.linear.weight, second.linear.weight)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:", "not Python"),
        ("import no_such_module", "fails at import: ModuleNotFoundError"),
        ("x = 1", "defines no Model"),
    ],
)
def test_a_broken_reference_is_the_tasks_fault(source, message):
    with pytest.raises(TaskError, match=message):
        load_reference(source, {})


def test_an_unknown_size_is_named():
    with pytest.raises(TaskError, match="no module-level integer constant named height"):
        load_reference(SOURCE, {"height": 3})


def test_a_failing_constructor_is_the_tasks_fault():
    source = SOURCE.replace("super().__init__()", "raise OSError('disk')")
    with pytest.raises(TaskError, match="Model of the reference fails: OSError: disk"):
        load_reference(source, {}).build()
