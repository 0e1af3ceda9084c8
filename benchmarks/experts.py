"""The expert kernels: what they move and issue, what they take of a GPU, how long they run.

Three tables. *Modelled*: one forward and one backward call on the virtual GPU; its counts become a
roofline time on the named GPU (a lower bound, not a measurement), beside the time that the operands
and results alone would take to move once. *Resources*: registers, spills, shared and tensor memory
of every kernel, compiled for every target at 2, 4 and 8 warps; default configurations are marked.
*Measured*, where there is a GPU: times of a forward and a backward call, and of mamba_ssm's
selective scan if it is installed, in one run.

Usage: python benchmarks/experts.py [--gpu A100] [--quick] [--only NAME …] [--json]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
import triton
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lethe_env.kernels.ahead_of_time import ARCHITECTURES, compiled_for
from lethe_env.kernels.fused_block import fused_block
from lethe_env.kernels.gated_delta import gated_delta
from lethe_env.kernels.mimo_scan import mimo_scan
from lethe_env.kernels.rotary_scan import rotary_scan
from lethe_env.kernels.selective_scan import selective_scan
from lethe_env.vgpu.driver import ARCHITECTURES as GPUS
from lethe_env.vgpu.driver import VirtualDriver
from lethe_env.vgpu.session import Session
from lethe_env.vgpu.timing import TARGETS, model

WARPS = (2, 4, 8)


@dataclass(frozen=True)
class Case:
    """One operation at one shape."""

    name: str
    shape: str
    call: Callable[..., Tensor]
    operands: Callable[[], tuple[Tensor, ...]]

    def leaves(self, device: str) -> list[Tensor]:
        """Operands on a device, always the same, each wanting a gradient."""
        torch.manual_seed(0)
        return [tensor.to(device).requires_grad_() for tensor in self.operands()]


def _selective(batch: int, length: int, channels: int, state: int) -> tuple[Tensor, ...]:
    u, delta = (_half(batch, length, channels) for _ in range(2))
    maps = (_half(batch, length, state) for _ in range(2))
    return u, delta, -torch.rand(channels, state), *maps, torch.randn(channels)


def _mimo(
    batch: int, length: int, heads: int, rows: int, state: int, ranks: int
) -> tuple[Tensor, ...]:
    maps = (_half(batch, length, ranks, heads, state) for _ in range(2))
    gates = (torch.rand(batch, length, heads) for _ in range(2))
    weights = (torch.randn(heads, ranks, rows) for _ in range(2))
    return _half(batch, length, heads, rows), *maps, *gates, *weights


def _rotary(batch: int, length: int, heads: int, rows: int, state: int) -> tuple[Tensor, ...]:
    maps = (_half(batch, length, heads, state) for _ in range(2))
    step, rate = torch.rand(batch, length, heads), -torch.rand(heads)
    return _half(batch, length, heads, rows), *maps, step, rate, _half(*step.shape, state // 2)


def _fused(batch: int, length: int, channels: int, state: int, taps: int) -> tuple[Tensor, ...]:
    _, *scan = _selective(batch, length, channels, state)
    convolution = (torch.randn(channels, 1, taps), torch.randn(channels))
    x = _half(batch, length + taps - 1, channels)
    return x, *convolution, *scan, torch.randn(channels)


def _delta(
    batch: int, length: int, heads: int, keys: int, values: int, dtype: torch.dtype = torch.float16
) -> tuple[Tensor, ...]:
    tokens = (batch, length, heads)
    q, k = (F.normalize(torch.randn(*tokens, keys), dim=-1).to(dtype) for _ in range(2))
    v, decay = torch.randn(*tokens, values).to(dtype), -torch.rand(*tokens, keys)
    return q, k, v, decay, torch.rand(*tokens, keys), torch.rand(*tokens, values)


def _delta_outputs(*operands: Tensor) -> Tensor:
    return gated_delta(*operands)[0]


def _half(*shape: int) -> Tensor:
    return torch.randn(*shape).bfloat16()


def cases(large: bool) -> list[Case]:
    """Small shapes for the virtual GPU, usual ones for a real one."""
    batch, length = (4, 2048) if large else (1, 256)
    channels, heads, rows = (2048, 32, 64) if large else (128, 2, 64)
    widths = {
        "selective_scan": (selective_scan, _selective, [(channels, 16), (channels, 64)]),
        "mimo_scan": (mimo_scan, _mimo, [(heads, rows, 64, 4)]),
        "rotary_scan": (rotary_scan, _rotary, [(heads, rows, 64)]),
        "fused_block": (fused_block, _fused, [(channels, 16, 4)]),
        "gated_delta": (_delta_outputs, _delta, [(heads, 128, 128)]),
        "gated_delta float32": (
            *(_delta_outputs, partial(_delta, dtype=torch.float32)),
            [(heads, 128, 128)],
        ),
    }
    return [
        Case(
            name,
            "×".join(map(str, (batch, length, *sizes))),
            call,
            lambda draw=draw, sizes=sizes: draw(batch, length, *sizes),
        )
        for name, (call, draw, shapes) in widths.items()
        for sizes in shapes
    ]


def forward_backward(case: Case, device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The two calls of a case, the second on the graph of the first."""
    leaves = case.leaves(device)
    held: list[Tensor] = []

    def forward() -> None:
        held[:] = [case.call(*leaves)]

    def backward() -> None:
        torch.autograd.grad(held[0], leaves, torch.ones_like(held[0]), retain_graph=True)

    yield "forward", forward
    yield "backward", backward


def modelled(case: Case, gpu: str) -> list[dict[str, Any]]:
    """One row for each direction: times in microseconds on `gpu`, bytes of all its launches."""
    architecture = next(number for number, name in GPUS.items() if name == gpu)
    session = Session(sanitize=False)
    VirtualDriver(session, architecture=architecture).activate()
    target, rows = TARGETS[gpu], []
    leaves = case.leaves("cpu")
    operand_bytes = sum(tensor.nbytes for tensor in leaves)
    output_bytes = leaves[0].nbytes  # of its size, but for the taps in front
    for direction, call in forward_backward(case, "cpu"):
        session.counts.clear()
        call()
        needed_bytes = output_bytes + operand_bytes * (2 if direction == "backward" else 1)
        times = [model(counts, target) for _, counts in session.counts]
        slowest = max(times, key=lambda time: time.total_us)
        rows.append(
            {
                **{"kernel": case.name, "shape": case.shape, "direction": direction},
                "launches": len(times),
                "modelled_us": sum(time.total_us for time in times),
                "limited_by": slowest.limited_by,
                "moved_bytes": sum(counts.footprint_bytes for _, counts in session.counts),
                "needed_bytes": needed_bytes,
                "roofline_us": needed_bytes / (target.memory_gb_per_s * 1e3),
            }
        )
    return rows


def resources(case: Case, warps: tuple[int | None, ...]) -> list[dict[str, Any]]:
    """One row per kernel, target and count of warps; `None` is the default."""
    rows = []
    for architecture in ARCHITECTURES:
        for count in warps:
            with compiled_for(architecture, count) as found:
                for _, call in forward_backward(case, "cpu"):
                    call()
            rows += [
                {"operation": case.name, "default": count is None, **asdict(kernel)}
                for kernel in dict.fromkeys(found)
            ]
    return rows


def measured(case: Case) -> list[dict[str, Any]]:
    """Median milliseconds on this machine's GPU."""
    rows = []
    for direction, call in forward_backward(case, "cuda"):
        rows.append(
            {
                **{"kernel": case.name, "shape": case.shape, "direction": direction},
                "ms": triton.testing.do_bench(call, return_mode="median"),
            }
        )
    return rows


def _mamba_ssm() -> list[Case]:
    """mamba_ssm's selective scan at the same shapes, if it is installed."""
    if importlib.util.find_spec("mamba_ssm") is None:
        return []
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    def call(u: Tensor, delta: Tensor, rates: Tensor, *maps: Tensor) -> Tensor:
        b, c, skip = maps
        along = (tensor.transpose(1, 2).contiguous() for tensor in (u, delta, b, c))
        u, delta, b, c = along
        result: Tensor = selective_scan_fn(u, delta, rates, b, c, skip, delta_softplus=True)
        return result

    return [
        Case(f"mamba_ssm {case.name}", case.shape, call, case.operands)
        for case in cases(large=True)
        if case.name == "selective_scan"
    ]


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print rows as a table."""
    if not rows:
        return
    table = Table(*rows[0], title=title, show_edge=False)
    for row in rows:
        cells = (f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values())
        table.add_row(*cells)
    Console(width=160).print(table)


def main() -> None:
    """Parse arguments, model, compile, measure, print."""
    parser = argparse.ArgumentParser(description="The expert kernels in figures.")
    parser.add_argument("--gpu", default="A100", choices=sorted(TARGETS), help="for the model")
    parser.add_argument("--quick", action="store_true", help="default warps only")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    chosen = [
        case for case in cases(large=False) if not arguments.only or case.name in arguments.only
    ]
    tables: dict[str, list[dict[str, Any]]] = {"modelled": [], "resources": [], "measured": []}
    if torch.cuda.is_available():
        for case in (*cases(large=True), *_mamba_ssm()):
            tables["measured"] += measured(case)
    warps = (None,) if arguments.quick else (None, *WARPS)
    for case in chosen:
        print(f"{case.name} {case.shape}", file=sys.stderr)
        tables["resources"] += resources(case, warps)
        tables["modelled"] += modelled(case, arguments.gpu)
    if arguments.json:
        print(json.dumps(tables, indent=2))
        return
    show(f"modelled on {TARGETS[arguments.gpu].name}", tables["modelled"])
    show("resources", tables["resources"])
    show("measured on this machine's GPU", tables["measured"])


if __name__ == "__main__":
    main()
