"""Tensor maps as the DSL's host code writes them."""

import ctypes
import struct

import pytest
import torch

from lethe_env.kernels.cute_dsl import compile_host, placeholder
from lethe_env.vgpu.cute.function import VirtualFunction
from lethe_env.vgpu.cute.hardware_maps import converted
from lethe_env.vgpu.machine.tensor_maps import TensorMap
from lethe_env.vgpu.ptx.model import UnsupportedError

CASES = [
    ("Float16", (40, 96), (16, 32)),
    ("Float32", (7, 24, 12), (2, 8, 4)),
    ("Int32", (3, 5, 9, 16), (1, 2, 3, 8)),
    ("Uint8", (3, 4, 5, 6, 32), (2, 1, 2, 2, 16)),
    ("BFloat16", (600, 256), (64, 8)),
]
"""Element type, and shapes of a tensor and a tile in it."""


@pytest.mark.parametrize(("dtype", "shape", "tile"), CASES, ids=str)
def test_a_tile_comes_as_the_map_describes_it(dsl, dtype, shape, tile):
    from .kernels import load_tile

    element = getattr(torch, dtype.lower())
    length = int(torch.tensor(tile).prod())
    function = VirtualFunction(
        compile_host(load_tile(tile), placeholder(dtype, *shape), placeholder(dtype, length))
    )
    tensor = torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(0)).to(element)
    out = torch.zeros(length, dtype=element)
    function(tensor, out)
    # The tile after the first along every dimension; outside the tensor there are zeros.
    padded = torch.zeros([2 * length for length in tile], dtype=element)
    part = tensor[tuple(slice(2 * length) for length in tile)]
    padded[tuple(map(slice, part.shape))] = part
    expected = padded[tuple(slice(length, 2 * length) for length in tile)]
    assert torch.equal(out, expected.flatten())
    assert function.session.findings == []


def words(**changes):
    """The map of a float16 tensor [9, 64], rows 256 bytes apart, in tiles [8, 32]."""
    given = {
        "address": 0x123450, "form": 0x46312, "strides": (16, 0, 0, 0), "upper": 0,
        "lengths": (63, 8, 0, 0, 0), "tile": (31 << 24, 7, 0),
    } | changes  # fmt: skip
    data = struct.pack(
        "<QI4II5I3I", given["address"], given["form"], *given["strides"], given["upper"],
        *given["lengths"], *given["tile"],
    )  # fmt: skip
    return data.ljust(128, b"\xab")


def test_fields():
    data, address = converted(words())
    found = TensorMap.from_buffer_copy(data)
    assert address == found.global_address == 0x123450
    assert (found.rank, found.elemtype, found.swizzle_mode) == (1, 6, 3)
    assert (found.global_dim[:2], found.global_stride[0]) == ([64, 9], 256)
    assert found.box_dim[:2] == [32, 8]
    assert ctypes.sizeof(found) == len(data) == 128


@pytest.mark.parametrize(
    "changes",
    [
        {"form": 0x46311}, {"form": 0x46B12}, {"form": 0x4E312}, {"form": 0x1046312},
        {"form": 0x46372}, {"upper": 1}, {"tile": (31 << 24 | 1, 7, 0)},
    ],
    ids=str,
)  # fmt: skip
def test_bits_that_no_known_field_has_are_refused(changes):
    with pytest.raises(UnsupportedError, match="a tensor map of the form"):
        converted(words(**changes))
