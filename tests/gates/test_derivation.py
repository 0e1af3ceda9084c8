"""What is charged, and what is not: the rules of fairness about non-finite values."""

from __future__ import annotations

import pytest
import torch

from lethe_env.gates.annihilation import PaddingCounts, ZeroAnnihilates
from lethe_env.gates.derivation import compute_truth
from lethe_env.tasks.catalog import suite
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.model import ShapeFamily
from lethe_env.tasks.modules import reference_module
from lethe_env.tasks.probe import Probe

NAN = float("nan")


def truth_of(task, **fields):
    probe = Probe(sizes=dict(task.family.base), **fields)
    return compute_truth(task, probe, tf32=False, samples=4)


def source(body: str) -> str:
    return f"""
import torch
n = 64
class Model(torch.nn.Module):
    def forward(self, x):
        return {body}
def get_inputs():
    return [torch.randn(n, n)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("product", [torch.mm, torch.matmul])
def test_an_exact_zero_wins_over_nan_only_where_all_of_it_is_hidden(product):
    left = torch.tensor([[0.0, 2.0], [1.0, 2.0]])
    right = torch.tensor([[NAN, 1.0], [3.0, 1.0]])
    with ZeroAnnihilates():
        out = product(left, right)
    assert out[0].tolist() == [6.0, 2.0]
    assert out[1, 0].isnan()
    assert out[1, 1] == 3.0


def test_a_visible_infinity_stays_infinite_beside_a_hidden_nan():
    left = torch.tensor([[0.0, 2.0, 0.5], [0.0, -1.0, 1.0]])
    right = torch.tensor([[NAN], [float("inf")], [1.0]])
    with ZeroAnnihilates():
        out = torch.mm(left, right)
    assert out.flatten().tolist() == [float("inf"), float("-inf")]
    with ZeroAnnihilates():
        both = torch.mm(torch.tensor([[1.0, -1.0]]), torch.full((2, 1), float("inf")))
    assert both.isnan().all()


def test_hidden_keys_are_not_charged_and_visible_ones_are():
    (tensor,) = truth_of(suite()["attention/causal_attention"], values="nan").outputs
    assert tensor.values.isnan().any()
    assert not tensor.charged.all()
    charged_nan = tensor.charged & tensor.values.isnan()
    assert charged_nan.any()


def test_an_elementwise_zero_hides_nothing(make_task):
    task = make_task(source("x * 0"), family=ShapeFamily(base={"n": 33}))
    (tensor,) = truth_of(task, values="nan").outputs
    assert tensor.values.isnan().any()
    assert tensor.charged.all()


def test_where_the_two_precisions_disagree_about_finiteness_nothing_is_charged(make_task):
    task = make_task(source("x * 1e35"), family=ShapeFamily(base={"n": 33}))
    (tensor,) = truth_of(task, values="huge").outputs
    overflown = tensor.working.isinf()
    assert overflown.any()
    assert not overflown.all()
    assert torch.equal(tensor.charged, ~overflown)


def test_a_probe_that_the_reference_cannot_take_is_an_error_and_not_a_crash(make_task):
    task = make_task(source("x.reshape(8, 8)"), family=ShapeFamily(base={"n": 33}))
    truth = truth_of(task)
    assert "RuntimeError" in truth.error
    assert truth.outputs == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_the_half_reference_itself_returns_is_never_a_fault(dtype):
    (tensor,) = truth_of(suite()["norm/batch_norm"], dtype=dtype, values="normal").outputs
    error = (tensor.working.double() - tensor.values).abs()
    assert (error <= tensor.allowed).all()


def test_flushing_a_subnormal_costs_nothing_in_values_and_everything_in_the_strict_bound(make_task):
    task = make_task(source("x * 1"), family=ShapeFamily(base={"n": 33}))
    (tensor,) = truth_of(task, values="subnormal").outputs
    assert (tensor.values.abs() <= tensor.allowed).all()
    assert (tensor.values.abs() > tensor.allowed_subnormal).any()


def test_a_truth_comes_back_from_the_disk_as_it_was(tmp_path):
    from lethe_env.gates.oracle import Oracle

    task = suite()["reduction/absmax_and_mean"]
    probe = Probe(sizes=dict(task.family.base), values="nan")
    first = Oracle(cache_directory=tmp_path).truth(task, probe, tf32=False)
    (file,) = tmp_path.rglob("*.pt")
    again = Oracle(cache_directory=tmp_path).truth(task, probe, tf32=False)
    for one, two in zip(first.outputs, again.outputs, strict=True):
        assert one.path == two.path and one.dtype == two.dtype
        assert torch.equal(one.values.nan_to_num(7), two.values.nan_to_num(7))
        assert torch.equal(one.charged, two.charged)
    file.write_bytes(b"torn")
    mended = Oracle(cache_directory=tmp_path).truth(task, probe, tf32=False)
    assert torch.equal(mended.outputs[0].charged, first.outputs[0].charged)


@pytest.mark.parametrize("state", ["weight", "weight.data", "total"])
def test_a_reference_that_changes_its_state_starts_every_run_afresh(make_task, state):
    """Parameters that a run only reads are shared between runs, others are not."""
    text = source("self.step(x)").replace(
        "    def forward",
        f"""    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n), requires_grad=False)
        self.total = torch.ones(n)
    def step(self, x):
        out = x + self.weight + self.total
        self.{state} += 1000
        return out
    def forward""",
    )
    task = make_task(text, family=ShapeFamily(base={"n": 33}))
    truth = truth_of(task, values="zeros")
    assert not truth.error
    (tensor,) = truth.outputs
    assert (tensor.values == 2).all()
    assert (tensor.allowed < 1e-5).all()


def gathered(x: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
    """A transposed convolution as a gather: zeros between and around the entries count."""
    (size,), (stride,) = layer.kernel_size, layer.stride
    spread = torch.zeros(*x.shape[:-1], (x.shape[-1] - 1) * stride + 1)
    spread[..., ::stride] = x
    windows = torch.nn.functional.pad(spread, (size - 1, size - 1)).unfold(-1, size, 1)
    kernel = layer.weight.flip(-1)
    terms = windows[:, :, None] * kernel[None, :, :, None]
    return terms.sum((1, -1)) + layer.bias[:, None]


def multiplied(x: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
    """A convolution in which zeros of the padding are multiplied as well."""
    (size,), (padding,) = layer.kernel_size, layer.padding
    windows = torch.nn.functional.pad(x, (padding, padding)).unfold(-1, size, 1)
    terms = windows[:, None] * layer.weight[None, :, :, None]
    return terms.sum((2, -1)) + layer.bias[:, None]


def skipped(x: torch.Tensor, layer: torch.nn.Module) -> torch.Tensor:
    """A convolution that goes through the entries that are there and through no others."""
    (size,), (stride,), (padding,) = layer.kernel_size, layer.stride, layer.padding
    transposed = isinstance(layer, torch.nn.ConvTranspose1d)
    out = torch.zeros_like(layer(x)) + layer.bias[:, None]
    for tap in range(size):
        for place in range(out.shape[-1]):
            offset = place - tap if transposed else place * stride - padding + tap
            entry = offset // stride if transposed else offset
            if (transposed and offset % stride) or not 0 <= entry < x.shape[-1]:
                continue
            weight = layer.weight[..., tap].T if transposed else layer.weight[..., tap]
            out[..., place] += (x[:, None, :, entry] * weight).sum(-1)
    return out


LAYERS = {
    "convolution": (torch.nn.Conv1d(3, 16, 5, padding=2), (multiplied, skipped)),
    "transposed": (torch.nn.ConvTranspose1d(3, 16, 4, stride=2), (gathered, skipped)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_what_a_broken_weight_meets_in_the_padding_is_not_charged(make_task, name):
    layer, ways = LAYERS[name]
    text = source("self.layer(x[None, :3])").replace(
        "    def forward",
        f"""    def __init__(self):
        super().__init__()
        self.layer = torch.nn.{layer}
    def forward""",
    )
    task = make_task(text, family=ShapeFamily(base={"n": 33}))
    probe = Probe(sizes={"n": 33}, values="normal", weights="corrupted")
    (tensor,) = compute_truth(task, probe, tf32=False, samples=2).outputs
    with torch.no_grad():
        layer.load_state_dict(reference_module(task, probe).layer.state_dict())
        (x,) = draw_inputs(task, probe)
        for way in ways:
            out = way(x[None, :3], layer)
            assert torch.equal(out.isnan()[tensor.charged], tensor.values.isnan()[tensor.charged])
    assert (tensor.charged & tensor.values.isnan()).any()
    assert (tensor.charged & tensor.values.isfinite()).any()
    assert not tensor.charged.all()


def test_padding_that_is_not_there_does_not_count():
    weight = torch.ones(2, 1, 3)
    weight[0, 0, 2] = NAN
    x = torch.ones(1, 1, 8)
    with PaddingCounts():
        bare = torch.nn.functional.conv1d(x, weight)
        padded = torch.nn.functional.conv1d(x, weight, padding=2)
    assert bare[0, 1].isfinite().all() and bare[0, 0].isnan().all()
    assert padded[0, 1].isfinite().all() and padded[0, 0].isnan().all()


@pytest.mark.parametrize("layout", ["transposed", "expanded"])
def test_a_layout_that_the_reference_cannot_take_is_not_charged(make_task, layout):
    """The reference meets the strides that the candidate meets."""
    task = make_task(source("x.view(-1)"), family=ShapeFamily(base={"n": 33}))
    assert "view size is not compatible" in truth_of(task, layout=layout).error
    task = make_task(source("x.reshape(-1)"), family=ShapeFamily(base={"n": 33}))
    assert not truth_of(task, layout=layout).error
