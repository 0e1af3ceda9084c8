"""Gradients as outputs: the reference's own, in order, and only those."""

import torch

from lethe_env.tasks.gradient_task import gradient_task
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import ShapeFamily, Task
from lethe_env.tasks.modules import reference_module
from lethe_env.tasks.probe import Probe

SCALED_PRODUCT = """
import torch
n = 64
class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale))
    def forward(self, x, y):
        return self.scale * x * y
def get_inputs():
    return [torch.randn(n), torch.randn(n)]
def get_init_inputs():
    return [2.0]
"""


def made(**options):
    task = Task(
        id="test/product",
        source=SCALED_PRODUCT,
        family=ShapeFamily(base={"n": 5}),
        domains=("real", "real"),
        gradients=True,
    )
    return gradient_task(task, like=1, dtypes=("float16",), **options)


def test_outputs_are_the_gradients_of_inputs_and_parameters():
    task = made()
    probe = Probe(sizes={"n": 5}, values="ties")  # small integers: every sum is exact
    x, y, given = draw_inputs(task, probe)
    module = reference_module(task, probe)
    with torch.no_grad():
        dx, dy, dscale = module(x, y, given)
    assert torch.equal(dx, given * y * 2) and torch.equal(dy, given * x * 2)
    assert torch.equal(dscale, (given * (x * y)).sum())
    assert not any(gradient.requires_grad for gradient in (dx, dy, dscale))


def test_the_contract_is_that_of_outputs():
    task = made()
    assert (task.id, task.gradients, task.working_dtype) == (
        *("test/product_gradients", False),
        "float16",
    )
    assert task.domains == ("real", "real", "real")
