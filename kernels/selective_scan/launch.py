"""Launches of the selective scan's kernels: buffers, grids, and the sums of parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from ..schedule import Schedule
from ..segments import join
from .backward import scan_backward, segment_backward
from .forward import scan_forward, segment_forward


@dataclass(frozen=True, slots=True)
class Scan:
    """The operands of one scan: see `selective_scan` for shapes."""

    x: Tensor
    """What u is read from: u itself, or what the convolution slides over."""
    delta: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    skip: Tensor
    taps: Tensor | None = None
    """Weights of the convolution (channels, taps), contiguous."""
    bias: Tensor | None = None
    softplus: bool = True

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, length, channels, size of the state."""
        return (*self.delta.shape, self.a.shape[1])


def run_forward(
    scan: Scan, schedule: Schedule, *, dtype: torch.dtype, keep: bool
) -> tuple[Tensor, Tensor]:
    """Outputs (batch, length, channels) and, if `keep`, the state before each chunk.

    States are (batch, chunks, channels, state), float32.
    """
    batch, length, channels, state = scan.sizes
    y = scan.delta.new_empty(batch, length, channels, dtype=dtype)
    chunks = triton.cdiv(length, schedule.chunk) if keep else 0
    checkpoint = _float(scan, batch, chunks, channels, state)
    parallel = schedule.segments(length) > 1
    entry = _segment_entries(scan, schedule) if parallel else checkpoint
    scan_forward[_grid(scan, schedule)](
        *(scan.x, scan.delta, scan.a, scan.b, scan.c, scan.skip),
        *_convolution(scan),
        *(entry, y, checkpoint),
        *_strides(scan.x, scan.delta, scan.b, scan.c),
        *(length, channels, state, schedule.segment),
        PARALLEL=parallel,
        KEEP=keep,
        CHUNK=schedule.chunk,
        **_constants(scan, schedule),
    )
    return y, checkpoint


def run_backward(
    scan: Scan, dy: Tensor, checkpoint: Tensor, schedule: Schedule
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of x, delta, a, b, c, skip, and of taps and bias if there are any.

    That of x is the gradient of the convolution's outputs (batch, length, channels) in float32 if
    there is one. All others are in their operands' dtypes.
    """
    batch, length, channels, state = scan.sizes
    segments, blocks = schedule.segments(length), triton.cdiv(channels, schedule.rows)
    grid = _grid(scan, schedule)
    parallel = segments > 1
    convolved = scan.taps is not None
    dx = scan.delta.new_empty(
        batch, length, channels, dtype=torch.float32 if convolved else scan.x.dtype
    )
    ddelta = torch.empty_like(dx, dtype=scan.delta.dtype)
    da = _float(scan, batch, segments, channels, state)
    db, dc = (_float(scan, blocks, batch, length, state) for _ in range(2))
    dskip = _float(scan, batch, segments, channels)
    taps = scan.taps.shape[1] if convolved else 0
    dtaps = _float(scan, batch, segments, channels, taps)
    dbias = torch.empty_like(dskip) if convolved else dskip
    scan_backward[grid](
        *(scan.x, scan.delta, scan.a, scan.b, scan.c, scan.skip),
        *_convolution(scan),
        dy,
        _segment_gradients(scan, dy, schedule) if parallel else checkpoint,
        checkpoint,
        _float(scan, grid[0], schedule.chunk, schedule.rows, schedule.columns),
        *(dx, ddelta, da, db, dc, dskip, dtaps, dbias),
        *_strides(scan.x, scan.delta, scan.b, scan.c, dy),
        *(length, channels, state, schedule.segment),
        PARALLEL=parallel,
        CHUNK=schedule.chunk,
        **_constants(scan, schedule),
    )
    return (
        *(dx, ddelta, da.sum((0, 1)).to(scan.a.dtype)),
        *(db.sum(0).to(scan.b.dtype), dc.sum(0).to(scan.c.dtype)),
        dskip.sum((0, 1)).to(scan.skip.dtype),
        dtaps.sum((0, 1)).to(scan.taps.dtype) if scan.taps is not None else None,
        dbias.sum((0, 1)).to(scan.bias.dtype) if scan.bias is not None else None,
    )


def _segment_entries(scan: Scan, schedule: Schedule) -> Tensor:
    """The state that each segment begins with, (batch, segments, channels, state)."""
    _, length, channels, state = scan.sizes
    decay, inner = _borders(scan, schedule)
    segment_forward[_grid(scan, schedule)](
        *(scan.x, scan.delta, scan.a, scan.b),
        *_convolution(scan),
        *(decay, inner),
        *_strides(scan.x, scan.delta, scan.b),
        *(length, channels, state, schedule.segment),
        **_constants(scan, schedule),
    )
    return join(decay, inner, reverse=False)


def _segment_gradients(scan: Scan, dy: Tensor, schedule: Schedule) -> Tensor:
    """The gradient of the state that leaves each segment, in the shape of `_segment_entries`."""
    _, length, channels, state = scan.sizes
    decay, inner = _borders(scan, schedule)
    segment_backward[_grid(scan, schedule)](
        *(scan.delta, scan.a, scan.c, dy, decay, inner),
        *_strides(scan.delta, scan.c, dy),
        *(length, channels, state, schedule.segment),
        SOFTPLUS=scan.softplus,
        BLOCK=schedule.rows,
        BLOCK_STATE=schedule.columns,
        **schedule.options,
    )
    return join(decay, inner, reverse=True)


def _borders(scan: Scan, schedule: Schedule) -> tuple[Tensor, Tensor]:
    batch, length, channels, state = scan.sizes
    decay, inner = (
        _float(scan, batch, schedule.segments(length), channels, state) for _ in range(2)
    )
    return decay, inner


def _grid(scan: Scan, schedule: Schedule) -> tuple[int]:
    batch, length, channels, _ = scan.sizes
    return (batch * schedule.segments(length) * triton.cdiv(channels, schedule.rows),)


def _convolution(scan: Scan) -> tuple[Tensor, Tensor]:
    """Weights and bias, or operands that no kernel reads where there is no convolution."""
    if scan.taps is None or scan.bias is None:
        return scan.skip, scan.skip
    return scan.taps, scan.bias


def _constants(scan: Scan, schedule: Schedule) -> dict[str, int | bool]:
    taps = 0 if scan.taps is None else scan.taps.shape[1]
    return {
        "SOFTPLUS": scan.softplus,
        "TAPS": taps,
        "BLOCK": schedule.rows,
        "BLOCK_STATE": schedule.columns,
        "BLOCK_TAPS": triton.next_power_of_2(max(1, taps)),
        **schedule.options,
    }


def _strides(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:2]]


def _float(scan: Scan, *shape: int) -> Tensor:
    return scan.delta.new_empty(shape, dtype=torch.float32)
