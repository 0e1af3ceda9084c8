"""The native stages of the gated-delta backward, executed on the virtual GPU.

    python benchmarks/blackwell.py errors --tokens 2048   # how exact K#1 is
    python benchmarks/blackwell.py time --tokens 2048     # modelled time beside Triton's kernels

Modelled time is computed from what a launch does: its bytes, its products and its instructions
(`docs/virtual_gpu.md`, "Modelled time"). It is no measurement, and waiting is not in it: neither
for memory, nor in K#1 for one chunk after the other.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lethe_env.kernels.gated_delta import chunked, gated_delta, stages
from lethe_env.kernels.gated_delta.backward_pass import Backward, in_triton
from lethe_env.kernels.gated_delta.blackwell import natively
from lethe_env.kernels.gated_delta.blackwell.compilation import (
    CHUNK,
    KEYS,
    VALUES,
    compile_reverse_state_scan,
)
from lethe_env.kernels.gated_delta.blackwell.native_stages import (
    ReverseScan,
    Run,
    reverse_state_scan,
)
from lethe_env.kernels.gated_delta.chunks import equal_chunks
from lethe_env.kernels.gated_delta.forward_pass import Scratch
from lethe_env.kernels.gated_delta.setting import Setting, Tokens, setting_for
from lethe_env.vgpu.cute.function import VirtualFunction
from lethe_env.vgpu.driver import VirtualDriver
from lethe_env.vgpu.operations import Operation, OperationLog
from lethe_env.vgpu.session import Session
from lethe_env.vgpu.timing import TARGETS, Counts, ModelledTime, model, model_operation

TARGET = TARGETS["B200"]
STAGES = {
    "output_adjoint_kernel": "dA, Aᵀ dO",
    "reverse_state_scan_kernel": "K#1",
    "transform_adjoint_kernel": "K#2, dv, dw",
    "inter_chunk_kernel": "dq, dk, dg, db",
    "intra_chunk_kernel": "dq, dk, dg, db",
    "token_gradients_kernel": "dq, dk, dg, db",
    "token_serial_gradient_kernel": "NaN and infinity",
}
"""What a kernel of the backward makes, Triton's or native, by what its name has in it. Natively,
K#1 makes Aᵀ dO, and K#2 dA."""
NATIVE_PREFIX = "kernel_cutlass"
"""Of the names that the CuTe DSL gives to kernels."""


Draw = Callable[[int], Tensor]
"""Draws [1, T, 1, width], normal, in float64."""


def drawing(tokens: int) -> tuple[Draw, torch.Generator]:
    """What draws, and what it draws from."""
    generator = torch.Generator().manual_seed(tokens)

    def draw(width: int) -> Tensor:
        return torch.randn(1, tokens, 1, width, generator=generator, dtype=torch.float64)

    return draw, generator


def draw_inputs(draw: Draw, values: int) -> list[Tensor]:
    """q, k, v, g, b and w of a Gated DeltaNet-2 of one head, in float64."""
    q, k = (torch.nn.functional.normalize(draw(KEYS), dim=-1) for _ in range(2))
    gates = -draw(KEYS).abs() / CHUNK, draw(KEYS).sigmoid(), draw(values).sigmoid()
    return [q, k, draw(values), *gates]


def scan_inputs(tokens: int, values: int) -> tuple[list[Tensor], Tensor]:
    """What `stages.reverse_state_scan` gets in the backward of a Gated DeltaNet-2, and A.

    Of one head, in float64.
    """
    draw, generator = drawing(tokens)
    _, final, saved = chunked.chunked_forward(*draw_inputs(draw, values))
    output = chunked.split(draw(values), CHUNK)
    _, local = stages.output_adjoint(output, saved.pairs.attention, saved.scan.updates)
    scan = [
        saved.q * saved.decay.prefix.exp(),
        saved.k * saved.decay.suffix.exp(),
        saved.erase_transformed,
        saved.decay.total,
        output,
        local,
        torch.randn(final.shape, generator=generator, dtype=torch.float64),
    ]
    return scan, saved.pairs.attention


def native_scan(run: Run, given: list[Tensor], attention: Tensor) -> ReverseScan:
    """K#1 of the same on one head, its operands rounded to float16."""
    query, key, erase, total, output, _, final = given
    rows = [x.flatten(0, 3).unsqueeze(1).half() for x in (query, key, erase, output)]
    whole = len(rows[0])
    chunks = equal_chunks(1, whole, CHUNK, output.device)
    gate = torch.empty(whole, 1, KEYS)
    setting = setting_for(Tokens(*rows[:2], rows[3], gate, gate, None), chunks, 1.0)
    pairs = attention[0, 0].unsqueeze(1).half()
    kept = Scratch(
        *rows[:3],
        total.exp()[0, 0].float(),
        pairs,
        torch.empty_like(pairs),
        torch.empty_like(rows[3]),
        torch.empty(setting.state_shape, dtype=torch.float16),
        torch.zeros(setting.grid, dtype=torch.int32),
    )
    return reverse_state_scan(run, kept, rows[3], final.float(), setting)


def print_errors(tokens: int) -> None:
    """K#1 against float64."""
    print(f"K#1, {tokens} tokens, K = {KEYS}: worst error over the largest element of the truth")
    print("| V | dh | dU | dS₀ |\n|---|---|---|---|")
    for values in VALUES:
        print(f"V = {values}: compiling", file=sys.stderr)
        run = VirtualFunction(compile_reverse_state_scan(KEYS, values, True))
        given, attention = scan_inputs(tokens, values)
        exact = stages.reverse_state_scan(*given)
        found = native_scan(run, given, attention)
        errors = [
            float((a.flatten() - b.flatten()).abs().max() / b.abs().max())
            for a, b in zip(found, exact, strict=True)
        ]
        print(f"| {values} |" + "".join(f" {error:.1e} |" for error in errors))
        for finding in run.session.findings:
            print(finding, file=sys.stderr)


@dataclass(frozen=True)
class Work:
    """What the backward of one head did."""

    launches: tuple[tuple[str, Counts], ...]
    operations: tuple[Operation, ...]
    """Of torch, between the kernels."""


def backward_work(
    tokens: int, values: int, choose: Callable[[Setting], Backward], session: Session
) -> Work:
    """Run forward and backward with float16 operands; what the backward did."""
    q, k, v, *gates = draw_inputs(drawing(tokens)[0], values)
    leaves = [x.half().requires_grad_() for x in (q, k, v)]
    leaves += [x.float().requires_grad_() for x in gates]
    results = gated_delta(*leaves, backward=choose)
    gradients = [torch.ones_like(x) for x in results]
    session.counts.clear()
    with OperationLog() as log:
        torch.autograd.grad(results, leaves, gradients)
    return Work(tuple(session.counts), tuple(log.operations))


def scaled(counts: Counts, heads: int) -> Counts:
    """The same launch over so many heads, which do the same side by side."""
    return replace(
        counts,
        blocks=counts.blocks * heads,
        warps=counts.warps * heads,
        instructions=_times(counts.instructions, heads),
        loaded_bytes=counts.loaded_bytes * heads,
        stored_bytes=counts.stored_bytes * heads,
        sectors=counts.sectors * heads,
        footprint_bytes=counts.footprint_bytes * heads,
        bank_conflicts=counts.bank_conflicts * heads,
        mma_operations=_times(counts.mma_operations, heads),
    )


def _times(amounts: Mapping[str, int], factor: int) -> Mapping[str, int]:
    return {name: amount * factor for name, amount in amounts.items()}


@dataclass(frozen=True)
class Stage:
    """Launches for one stage of the backward."""

    native: tuple[ModelledTime, ...] = ()
    triton: tuple[ModelledTime, ...] = ()

    @property
    def native_us(self) -> float:
        """Of the native kernels."""
        return sum((time.total_us for time in self.native), 0.0)

    @property
    def total_us(self) -> float:
        """Of all."""
        return self.native_us + sum(time.total_us for time in self.triton)

    @property
    def limited_by(self) -> str:
        """What limits the launches, native ones first."""
        return ", ".join(time.limited_by for time in (*self.native, *self.triton))


def by_stage(launches: Iterable[tuple[str, Counts]], heads: int) -> dict[str, Stage]:
    """Modelled times by the stage that a launch belongs to; of stages that need none as well."""
    found: dict[str, Stage] = {stage: Stage() for stage in STAGES.values()}
    for name, counts in launches:
        time = model(scaled(counts, heads), TARGET)
        (stage,) = (stage for kernel, stage in STAGES.items() if kernel in name)
        before = found[stage]
        if name.startswith(NATIVE_PREFIX):
            found[stage] = replace(before, native=(*before.native, time))
        else:
            found[stage] = replace(before, triton=(*before.triton, time))
    return found


def print_times(tokens: int, heads: int) -> None:
    """Stage by stage, Triton's backward beside the native one."""
    session = Session(sanitize=False)
    VirtualDriver(session, architecture=100).activate()
    print(f"Modelled µs on a {TARGET.name}, {tokens} tokens, B·H = {heads}, K = {KEYS}; no clock")
    print(
        "| V | stage | Triton | limited by | native | of it native kernels | limited by "
        "| Triton / native |\n|---|---|---|---|---|---|---|---|"
    )
    for values in VALUES:
        print(f"V = {values}: compiling, running", file=sys.stderr)
        ours, theirs = (
            backward_work(tokens, values, choose, session) for choose in (natively, in_triton)
        )
        native, triton = (by_stage(work.launches, heads) for work in (ours, theirs))
        for stage in triton:
            _print_row(values, stage, triton[stage], native[stage])
        total = [sum(x.total_us for x in found.values()) for found in (triton, native)]
        only = sum((x.native_us for x in native.values()), 0.0)
        print(_row(values, "all kernels", total[0], "", total[1], only, "", total[0] / total[1]))
        around = operations_us(ours.operations, heads) - operations_us(theirs.operations, heads)
        count = len(ours.operations) - len(theirs.operations)
        total[1] += around
        name = f"with {count} torch operations around"
        print(_row(values, name, total[0], "", total[1], only, "", total[0] / total[1]))


def _print_row(values: int, stage: str, triton: Stage, native: Stage) -> None:
    ratio = triton.total_us / native.total_us if native.total_us else math.inf
    print(_row(values, stage, triton.total_us, triton.limited_by, native.total_us,
               native.native_us, native.limited_by, ratio))  # fmt: skip


def _row(values: int, *cells: str | float) -> str:
    *told, _ = (f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in cells)
    return f"| {values} | " + " | ".join((*told, f"{cells[-1]:.2f}")) + " |"


def operations_us(operations: Iterable[Operation], heads: int) -> float:
    """Modelled time of torch operations, over so many heads."""
    return sum(
        model_operation(one.bytes * heads, _times(one.operations, heads), TARGET).total_us
        for one in operations
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("errors", "time"), nargs="?", default="errors")
    parser.add_argument("--tokens", type=int, default=2048, help="of the sequence")
    parser.add_argument("--heads", type=int, default=128, help="that the model prices; one is run")
    arguments = parser.parse_args()
    if arguments.what == "errors":
        print_errors(arguments.tokens)
    else:
        print_times(arguments.tokens, arguments.heads)


if __name__ == "__main__":
    main()
