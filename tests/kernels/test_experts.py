"""Resources on every target, no matrix products, and training through each kernel."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import nn

import lethe_env.kernels as kernels
from lethe_env.kernels.ahead_of_time import compiled_for
from lethe_env.kernels.fused_block import fused_block
from lethe_env.kernels.mimo_scan import mimo_scan
from lethe_env.kernels.rotary_scan import rotary_scan
from lethe_env.kernels.selective_scan import selective_scan

from .state_space import OPERATIONS, results, schedule, weights

pytestmark = pytest.mark.xdist_group("state space kernels")
FOLDER = Path(kernels.__file__).parent
ROOMS = ("selective_scan", "mimo_scan", "rotary_scan", "fused_block")


WARPS = (2, 4, 8)
QUICK = (
    *(("selective_scan", 80, 2), ("mimo_scan", 90, 4)),
    *(("fused_block", 100, 8), ("rotary_scan", 100, 2)),
)
BLACKWELL = tuple((name, 100, warps) for name in OPERATIONS for warps in WARPS)


@pytest.mark.parametrize(
    ("name", "architecture", "warps"), [*QUICK, *(case for case in BLACKWELL if case not in QUICK)]
)
def test_no_kernel_needs_tensor_memory_or_spills(name, architecture, warps, request):
    """A few targets and counts of warps; `benchmarks/experts.py` compiles them all."""
    if (name, architecture, warps) not in QUICK and not request.config.getoption("--experts"):
        pytest.skip("compiles for a second or two: pytest --experts")
    operation = OPERATIONS[name]
    with compiled_for(architecture, warps) as found:
        results(operation, operation.draw(1, 33), schedule(chunk=16, segment=32))
    assert {kernel.warps for kernel in found} == {warps}
    assert {kernel.tensor_memory_columns for kernel in found} == {0}
    assert {kernel.spilled_bytes for kernel in found} == {0}


@pytest.mark.parametrize("room", ROOMS)
def test_no_kernel_multiplies_matrices(room):
    for path in (FOLDER / room).glob("*.py"):
        called = {ast.unparse(n.func) for n in ast.walk(tree(path)) if isinstance(n, ast.Call)}
        assert not called & {"tl.dot", "tl.dot_scaled", "tl.atomic_add"}, path.name


def tree(path):
    return ast.parse(path.read_text())


class Model(nn.Module):
    """A sequence model with one kernel between two linear maps."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        sizes = {
            "selective_scan": [6, 6, 4, 4],
            "mimo_scan": [6, 16, 16, 2, 2],
            "rotary_scan": [6, 8, 8, 2, 4],
            "fused_block": [6, 6, 4, 4],
        }[name]
        self.sizes = sizes
        self.embed = nn.Embedding(5, 8)
        self.into = nn.Linear(8, sum(sizes))
        self.out = nn.Linear(6, 5)
        self.rates = nn.Parameter(torch.zeros(2) if name == "rotary_scan" else torch.zeros(6, 4))
        self.skip = nn.Parameter(torch.ones(6))
        self.taps = nn.Parameter(torch.full((6, 1, 3), 0.4))
        self.mix = nn.Parameter(torch.ones(2, 2, 2, 3))

    def forward(self, tokens):
        parts = self.into(self.embed(tokens)).split(self.sizes, -1)
        run = getattr(self, self.name)
        return self.out(run(*parts, plan=schedule()))

    def selective_scan(self, u, delta, B, C, plan):
        return selective_scan(u, delta, -self.rates.exp(), B, C, self.skip, schedule=plan)

    def mimo_scan(self, x, B, C, delta, alpha, plan):
        x, B, C = x.unflatten(-1, (2, 3)), B.unflatten(-1, (2, 2, 4)), C.unflatten(-1, (2, 2, 4))
        y = mimo_scan(x, B, C, delta.sigmoid(), alpha.sigmoid(), *self.mix, schedule=plan)
        return y.flatten(-2)

    def rotary_scan(self, x, B, C, delta, phase, plan):
        x, B, C, phase = (t.unflatten(-1, (2, t.shape[-1] // 2)) for t in (x, B, C, phase))
        y = rotary_scan(x, B, C, delta.sigmoid(), -self.rates.exp(), phase, schedule=plan)
        return y.flatten(-2)

    def fused_block(self, x, delta, B, C, plan):
        x = nn.functional.pad(x, (0, 0, 2, 0))
        scan = (delta, -self.rates.exp(), B, C, self.skip)
        return fused_block(x, self.taps, self.skip, *scan, self.skip, schedule=plan)


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_a_model_learns_through_the_kernel(gpu, name, request):
    """The next token of a sequence that repeats; a few steps, or `--training-steps`."""
    torch.manual_seed(0)
    model = Model(name)
    optimiser = torch.optim.Adam([p for p in model.parameters()], lr=0.03)
    tokens = torch.tensor([0, 1, 2, 3, 4]).repeat(2, 4)[:, :18]
    losses = []
    for _ in range(request.config.getoption("--training-steps")):
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
        optimiser.step()
        losses.append(loss.item())
    print(f"{name}: loss {losses[0]:.3f} at first, {losses[-1]:.4f} at last")
    assert losses[-1] == min(losses) or losses[-1] < losses[0] / 10, losses


@pytest.mark.parametrize(
    ("names", "factor"),
    [(("C", "D"), 1e25), (("x",), 1e20), (("x",), 1e30), (("B", "C", "D"), 1e15)],
)
def test_a_norm_whose_squares_overflow_is_right(gpu, names, factor):
    """Rows up to 1e30, whose squares are no float32, though outputs and gradients are.

    PyTorch's own float32 gradients are wrong here, so the rounding model asks nothing of a kernel.
    Relative to the largest element, a sum over 37 channels and what comes before and after it
    commit fewer than 64 roundings.
    """
    operation = OPERATIONS["fused_block"]
    operands = operation.draw(1, 3)
    for name in names:
        operands[name] = operands[name] * factor
    got = results(operation, operands, schedule())
    wide = [operands[name].double() for name in operands]
    expected = (
        operation.reference.serial(*wide),
        *operation.reference.gradients(*wide, weights(got["y"]).double()),
    )
    for (name, value), exact in zip(got.items(), expected, strict=True):
        error = (value.double() - exact).abs().max() / exact.abs().max()
        assert error < 64 * 2**-24, name
