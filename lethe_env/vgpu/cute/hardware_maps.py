"""Tensor maps as the DSL's host code writes them, turned into the virtual GPU's own form.

The DSL fills in the 128 bytes itself instead of asking a driver, so their bits matter here. NVIDIA
does not document them; where each field lies was found by compiling host functions for tensors of
known type, shape, strides, tile and swizzle, and looking at what they wrote. In words of 32 bits,
with dimensions from the innermost on:

| words | bits | what |
|---|---|---|
| 0–1 | all | address of the first element |
| 2 | 0–3 | 2 |
| | 4–6 | rank less one |
| | 7–10 | element type, by PTX's number |
| | 13–14 | swizzle: none, 32, 64 or 128 bytes |
| | 18, 21 | always set; set for tensors of 128 kB and more: for caches |
| 3–6 | all | strides of all dimensions but the innermost, in units of 16 bytes |
| 7 | all | zero: upper bits of strides |
| 8–12 | all | lengths, each less one |
| 13 | 0–23 | zero: steps between elements, less one |
| 13–14 | 24 and up | lengths of a tile, each less one, in 8 bits |

The other words are padding. What has a bit set elsewhere is refused.
"""

from __future__ import annotations

import struct

from ..machine.tensor_maps import MAP_BYTES, encode
from ..ptx.model import UnsupportedError

_WORDS = struct.Struct("<Q14I")
_KIND, _CACHE_BITS = 2, 1 << 18 | 1 << 21
_STRIDE_UNIT_BYTES = 16
_RANKS = 5


def converted(data: bytes) -> tuple[bytes, int]:
    """The map in the virtual GPU's form, and the address in it.

    Args:
        data: what a kernel gets as its parameter.

    Raises:
        UnsupportedError: a bit that no known field has.
    """
    if len(data) != MAP_BYTES:
        raise ValueError(f"a tensor map has {MAP_BYTES} bytes, not {len(data)}")
    address, form, *words = _WORDS.unpack_from(data)
    strides, zero, lengths, last = words[:4], words[4], words[5:10], words[10:]
    rank = (form >> 4 & 7) + 1
    known = _KIND | (rank - 1) << 4 | form & (0xF << 7 | 3 << 13) | _CACHE_BITS
    tiles = (last[0] | last[1] << 32) >> 24
    if form | _CACHE_BITS != known or zero or last[0] & 0xFFFFFF or rank > _RANKS:
        raise UnsupportedError(f"a tensor map of the form {form:#x}, {last[0]:#x}")
    return (
        encode(
            address,
            form >> 7 & 0xF,
            [length + 1 for length in lengths[:rank]],
            [stride * _STRIDE_UNIT_BYTES for stride in strides[: rank - 1]],
            [(tiles >> 8 * k & 0xFF) + 1 for k in range(rank)],
            form >> 13 & 3,
            nan_fill=False,
        ),
        address,
    )
