"""States at the borders of segments, from what each segment did on its own."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_JOINED = 256
"""Elements of the state that one program joins."""


def join(decay: Tensor, inner: Tensor, *, reverse: bool) -> Tensor:
    """The state with which each segment is entered, from the left or, in reverse, the right.

    Args:
        decay: By what a state is multiplied over each segment, (sequences, segments, …).
        inner: The state that each segment ends with when entered with zero, in the same shape.
        reverse: Whether time runs from the last segment to the first.

    Returns:
        float32 tensor of that shape.
    """
    border = torch.empty_like(inner)
    sequences, segments = inner.shape[:2]
    plane = inner[0, 0].numel()
    join_segments[(sequences * triton.cdiv(plane, _JOINED),)](
        decay, inner, border, segments, plane, BLOCK=_JOINED, REVERSE=reverse, num_warps=2
    )
    return border


@triton.jit(do_not_specialize=["segments", "plane"])
def join_segments(
    decay, inner, border, segments, plane, BLOCK: tl.constexpr, REVERSE: tl.constexpr
):
    """X_{s+1} = A_s X_s + E_s from X_0 = 0, with A the decay over a segment and E its own state."""
    blocks = tl.cdiv(plane, BLOCK)
    program = tl.program_id(0)
    element = (program % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    sequence = (program // blocks).to(tl.int64)
    inside = element < plane
    state = tl.zeros((BLOCK,), tl.float32)
    for step in range(segments):
        piece = segments - 1 - step if REVERSE else step
        at = (sequence * segments + piece) * plane + element
        tl.store(border + at, state, mask=inside)
        fade = tl.load(decay + at, mask=inside, other=0.0)
        state = fade * state + tl.load(inner + at, mask=inside, other=0.0)
