"""Construction, weights, noise, buffers and gradients."""

import pytest
import torch

from lethe_env.cell import ModelRequest
from lethe_env.cell.weights import is_reshaping
from lethe_env.tasks.weights import noise_constants

LINEAR = """
def __init__(self, size):
    super().__init__()
    self.linear = torch.nn.Linear(size, size)
def forward(self, x):
    return self.linear(x)
"""


def seeded(seed, size=4):
    torch.manual_seed(seed)
    return torch.nn.Linear(size, size)


def test_the_seed_makes_equal_constructions_equal(model_of, call):
    x = torch.randn(3, 4)
    observation = call(model_of(LINEAR), x, model=ModelRequest(init_inputs=(4,), seed=11))
    assert torch.equal(observation.outputs[0].data, seeded(11)(x).detach())


def test_weights_are_copied_by_name(model_of, call):
    weights = {"linear.weight": torch.randn(4, 4), "linear.bias": torch.randn(4)}
    request = ModelRequest(init_inputs=(4,), weights=weights, replace=True)
    x = torch.randn(3, 4)
    observation = call(model_of(LINEAR), x, model=request)
    assert observation.weights_matched
    expected = torch.nn.functional.linear(x, weights["linear.weight"], weights["linear.bias"])
    assert torch.equal(observation.outputs[0].data, expected)


RENAMED = """
def __init__(self, size):
    super().__init__()
    self.inner = torch.nn.Linear(size, size)
def forward(self, x):
    return self.inner(x)
"""


def test_other_names_keep_what_the_seed_gave_and_are_not_matched(model_of, call):
    weights = {"linear.weight": torch.randn(4, 4), "linear.bias": torch.randn(4)}
    x, cell = torch.randn(3, 4), model_of(RENAMED)
    kept = call(cell, x, model=ModelRequest(init_inputs=(4,), seed=5, weights=weights))
    assert not kept.weights_matched
    assert torch.equal(kept.outputs[0].data, seeded(5)(x).detach())
    request = ModelRequest(init_inputs=(4,), seed=5, weights=weights, replace=True)
    required = call(cell, x, model=request)
    assert not required.weights_matched
    assert required.outputs == () and required.fault is None


def test_buffers_are_copied_but_never_required(model_of, call):
    cell = model_of("""
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(2))
    def forward(self, x):
        return x * self.scale
    """)
    weights = {"scale": torch.tensor([2.0, 3.0]), "other": torch.ones(1)}
    request = ModelRequest(weights=weights, buffers=frozenset({"scale", "other"}))
    observation = call(cell, torch.ones(2), model=request)
    assert observation.weights_matched
    assert observation.outputs[0].data.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((4, 4), (4, 4), True),
        ((64, 32, 3, 3), (64, 288), True),
        ((8,), (8, 1, 1), True),
        ((), (1,), True),
        ((64, 288), (288, 64), False),
        ((6,), (7,), False),
        ((4, 6), (3, 8), False),
    ],
)
def test_reshaping_merges_neighbours_only(first, second, expected):
    assert is_reshaping(first, second) is expected
    assert is_reshaping(second, first) is expected


def test_parameters_and_init_tensors_have_the_asked_dtype(model_of, call):
    cell = model_of("""
    def __init__(self, start):
        super().__init__()
        self.weight = torch.nn.Parameter(start)
        self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
    def forward(self, x):
        return x * self.weight, self.count
    """)
    request = ModelRequest(init_inputs=(torch.full((2,), 3.0),), dtype="float16")
    weight, count = call(cell, torch.ones(2, dtype=torch.float16), model=request).outputs
    assert weight.data.dtype == torch.float16
    assert weight.data.tolist() == [3.0, 3.0]
    assert count.data.dtype == torch.int64


def test_noise_is_the_same_on_both_sides(model_of, call):
    cell = model_of("""
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(5))
        self.shift = torch.nn.Parameter(torch.zeros(5))
    def forward(self, x):
        return x * self.scale + self.shift
    """)
    reference = torch.nn.LayerNorm(5)
    noise_constants(reference.named_parameters(), 17)
    x = torch.randn(3, 5)
    (output,) = call(cell, x, model=ModelRequest(noise_seed=17)).outputs
    assert torch.equal(output.data, (x * reference.weight + reference.bias).detach())
    assert not torch.equal(output.data, x)


def test_buffers_are_restored_between_calls(model_of, call):
    cell = model_of("""
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3)
    def forward(self, x):
        self.norm(x)
        return self.norm.running_mean, self.norm.num_batches_tracked
    """)
    x = torch.randn(8, 3)
    first, second = (call(cell, x).outputs for _ in range(2))
    assert torch.equal(first[0].data, second[0].data)
    assert first[1].data.item() == second[1].data.item() == 1


FUNCTION = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return add(x, x) * weight
    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        assert grad.is_cuda and torch.empty(1, device=x.device).is_cuda
        return add(grad, grad) * weight, (grad * 2 * x).sum()
class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(3.0))
        self.unused = torch.nn.Parameter(torch.ones(2))
    def forward(self, x, y):
        return Scale.apply(x, self.weight), y.detach()
"""


def test_gradients_come_back_by_name(open_cell, call):
    x, y, cotangent = torch.randn(6), torch.randn(6), torch.randn(6)
    observation = call(
        open_cell(FUNCTION), x, y, requires_grad=(True, True), cotangents=(cotangent, None)
    )
    assert observation.fault is None, observation.fault
    gradients = {gradient.path: gradient.data for gradient in observation.gradients}
    assert set(gradients) == {"grad input[0]", "grad weight"}
    assert torch.equal(gradients["grad input[0]"], 6 * cotangent)
    assert torch.equal(gradients["grad weight"], (cotangent * 2 * x).sum())
    assert observation.missing_gradients == ("grad input[1]", "grad unused")
    assert len(observation.launches) == 1, "two equal launches are one record"


def test_without_cotangents_nothing_is_recorded_for_backward(model_of, call):
    cell = model_of("def forward(self, x):\n    return torch.is_grad_enabled(), x.requires_grad")
    grad, required = call(cell, torch.ones(2)).outputs
    assert not grad.data.item() and not required.data.item()


def test_a_failing_backward_is_a_backward_fault(open_cell, call):
    cell = open_cell("""
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2
        @staticmethod
        def backward(ctx, grad):
            raise ValueError("no backward")
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            return Broken.apply(x)
    """)
    observation = call(cell, torch.ones(2), requires_grad=(True,), cotangents=(torch.ones(2),))
    assert (observation.fault.phase, observation.fault.message) == ("backward", "no backward")


def test_an_output_of_another_shape_is_said_before_backward(model_of, call):
    cell = model_of("def forward(self, x):\n    return x * 2")
    observation = call(cell, torch.ones(2), requires_grad=(True,), cotangents=(torch.ones(3),))
    assert observation.fault.kind == "protocol"
    assert "(2,)" in observation.fault.message and "(3,)" in observation.fault.message


PAIR = """
def __init__(self):
    super().__init__()
    self.kernel = torch.nn.Parameter(torch.randn(4, 3))
    self.shift = torch.nn.Parameter(torch.randn(4))
    self.scale = torch.nn.Parameter(torch.ones(4))
def forward(self, x):
    return self.scale * (x @ self.kernel.T) + self.shift
"""


@pytest.mark.parametrize("by_shape", [False, True])
def test_a_corpus_may_match_weights_by_a_shape_that_is_unique(model_of, call, by_shape):
    weights = {"linear.weight": torch.full((4, 3), 2.0), "scale": torch.full((4,), 5.0)}
    weights["linear.bias"] = torch.full((4,), 7.0)
    request = ModelRequest(weights=weights, by_shape=by_shape, seed=3)
    seen = call(model_of(PAIR), torch.ones(1, 3), model=request)
    (output,) = seen.outputs
    assert seen.weights_matched == by_shape
    assert (output.data.tolist() == [[5.0 * 6.0 + 7.0] * 4]) == by_shape


def test_equal_shapes_are_never_told_apart(model_of, call):
    weights = {"gamma": torch.full((4,), 5.0), "beta": torch.full((4,), 7.0)}
    request = ModelRequest(weights=weights, by_shape=True, replace=True)
    assert not call(model_of(PAIR), torch.ones(1, 3), model=request).weights_matched
