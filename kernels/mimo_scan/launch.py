"""Launches of the multi-input multi-output scan: buffers, grids, and the sums of parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from ..schedule import Schedule
from ..segments import join
from .backward import scan_backward, segment_backward
from .forward import scan_forward, segment_forward


@dataclass(frozen=True, slots=True)
class Scan:
    """The operands of one scan: see `mimo_scan` for shapes."""

    x: Tensor
    b: Tensor
    c: Tensor
    delta: Tensor
    """Contiguous, as are `alpha` and the weights."""
    alpha: Tensor
    mix_in: Tensor | None = None
    """Without weights there is one rank, and its weights are 1."""
    mix_out: Tensor | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """Batch, length, heads, rows, size of the state, ranks."""
        return (*self.x.shape, self.b.shape[-1], self.b.shape[2])


class Gradients(NamedTuple):
    """Of x in its dtype; of everything else in float32, whatever the operands' dtypes."""

    x: Tensor
    b: Tensor
    c: Tensor
    delta: Tensor
    alpha: Tensor
    mix_in: Tensor
    mix_out: Tensor


def run_forward(scan: Scan, schedule: Schedule, *, keep: bool) -> tuple[Tensor, Tensor]:
    """Outputs in the shape and dtype of x, and, if `keep`, the state before each chunk.

    States are (batch · heads, chunks, rows, state), float32.
    """
    batch, length, heads, rows, state, ranks = scan.sizes
    y = torch.empty(scan.x.shape, dtype=scan.x.dtype, device=scan.x.device)
    chunks = triton.cdiv(length, schedule.chunk) if keep else 0
    checkpoint = _float(scan, batch * heads, chunks, rows, state)
    parallel = schedule.segments(length) > 1
    entry = _segment_entries(scan, schedule) if parallel else checkpoint
    scan_forward[_grid(scan, schedule)](
        *(scan.x, scan.b, scan.c, scan.delta, scan.alpha),
        *_weights(scan),
        *(entry, y, checkpoint),
        *_strides(scan.x, scan.b, scan.c),
        *(length, heads, rows, state, ranks, schedule.segment),
        PARALLEL=parallel,
        KEEP=keep,
        CHUNK=schedule.chunk,
        **_constants(scan, schedule),
    )
    return y, checkpoint


def run_backward(scan: Scan, dy: Tensor, checkpoint: Tensor, schedule: Schedule) -> Gradients:
    """Gradients of every operand; `dy` is contiguous."""
    batch, length, heads, rows, state, ranks = scan.sizes
    segments, blocks = schedule.segments(length), triton.cdiv(rows, schedule.rows)
    grid = _grid(scan, schedule)
    parallel = segments > 1
    dx = torch.empty_like(dy, dtype=scan.x.dtype)
    db, dc = (_float(scan, blocks, batch, length, ranks, heads, state) for _ in range(2))
    ddelta, dalpha = (_float(scan, blocks, batch, length, heads) for _ in range(2))
    dmix_in, dmix_out = (_float(scan, batch, heads, segments, ranks, rows) for _ in range(2))
    scan_backward[grid](
        *(scan.x, scan.b, scan.c, scan.delta, scan.alpha),
        *_weights(scan),
        dy,
        _segment_gradients(scan, dy, schedule) if parallel else checkpoint,
        checkpoint,
        _float(scan, grid[0], schedule.chunk, schedule.rows, schedule.columns),
        *(dx, db, dc, ddelta, dalpha, dmix_in, dmix_out),
        *_strides(scan.x, scan.b, scan.c),
        *(length, heads, rows, state, ranks, schedule.segment),
        PARALLEL=parallel,
        CHUNK=schedule.chunk,
        BLOCK_RANK=triton.next_power_of_2(ranks),
        **_constants(scan, schedule),
    )
    summed = [part.sum(0) for part in (db, dc, ddelta, dalpha)]
    return Gradients(dx, *summed, dmix_in.sum((0, 2)), dmix_out.sum((0, 2)))


def _segment_entries(scan: Scan, schedule: Schedule) -> Tensor:
    """The state that each segment begins with, (batch · heads, segments, rows, state)."""
    _, length, heads, rows, state, ranks = scan.sizes
    decay, inner = _borders(scan, schedule)
    segment_forward[_grid(scan, schedule)](
        *(scan.x, scan.b, scan.delta, scan.alpha, _weights(scan)[0], decay, inner),
        *_strides(scan.x, scan.b),
        *(length, heads, rows, state, ranks, schedule.segment),
        **_constants(scan, schedule),
    )
    return join(decay, inner, reverse=False)


def _segment_gradients(scan: Scan, dy: Tensor, schedule: Schedule) -> Tensor:
    """The gradient of the state that leaves each segment, in the shape of `_segment_entries`."""
    _, length, heads, rows, state, ranks = scan.sizes
    decay, inner = _borders(scan, schedule)
    segment_backward[_grid(scan, schedule)](
        *(scan.c, scan.alpha, _weights(scan)[1], dy, decay, inner),
        *_strides(scan.c),
        *(length, heads, rows, state, ranks, schedule.segment),
        **_constants(scan, schedule),
    )
    return join(decay, inner, reverse=True)


def _borders(scan: Scan, schedule: Schedule) -> tuple[Tensor, Tensor]:
    batch, length, heads, rows, state, _ = scan.sizes
    shape = (batch * heads, schedule.segments(length), rows, state)
    return _float(scan, *shape), _float(scan, *shape)


def _grid(scan: Scan, schedule: Schedule) -> tuple[int]:
    batch, length, heads, rows, _, _ = scan.sizes
    return (batch * heads * schedule.segments(length) * triton.cdiv(rows, schedule.rows),)


def _weights(scan: Scan) -> tuple[Tensor, Tensor]:
    """Weights, or operands that no kernel reads where there are none."""
    if scan.mix_in is None or scan.mix_out is None:
        return scan.alpha, scan.alpha
    return scan.mix_in, scan.mix_out


def _constants(scan: Scan, schedule: Schedule) -> dict[str, int | bool]:
    return {
        "MIX": scan.mix_in is not None,
        "BLOCK": schedule.rows,
        "BLOCK_STATE": schedule.columns,
        **schedule.options,
    }


def _strides(*tensors: Tensor) -> list[int]:
    """Of every dimension but the dense last one."""
    return [stride for tensor in tensors for stride in tensor.stride()[:-1]]


def _float(scan: Scan, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=scan.x.device)
