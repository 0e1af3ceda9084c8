"""How tensors are packed for host functions, and held to what these were compiled for."""

import ctypes
import struct

import pytest
import torch

from lethe_env.vgpu.cute.tensor_arguments import DeviceTensor, Extent, TensorType
from lethe_env.vgpu.memory import AddressSpace

ROWS = TensorType(
    name="rows",
    element="float16",
    shape=(Extent(None, 32, 8), Extent(64), Extent(None, 32)),
    strides=(Extent(None, 64, 64), Extent(1), Extent(None, 64)),
    align_bytes=16,
)


def rows(count=16, batch=3):
    return torch.zeros(batch, count, 64, dtype=torch.float16).permute(1, 2, 0)


def test_an_address_is_followed_by_what_was_not_known():
    memory, tensor = AddressSpace(), rows()
    argument = DeviceTensor(ROWS, tensor, memory)
    (place,) = argument.__c_pointers__()
    form = struct.Struct("@Qiiqq")
    address, *sizes = form.unpack(ctypes.string_at(place, form.size))
    assert sizes == [16, 3, 64, 1024]
    assert address == memory.address(tensor) == argument.pointer.address
    assert address != tensor.data_ptr()


def test_a_stride_along_a_length_of_one_is_not_looked_at():
    one = TensorType("one", "float32", (Extent(1), Extent(4)), (Extent(4), Extent(1)), 4)
    one.check(torch.zeros(4).as_strided((1, 4), (9, 1)))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (rows().float(), "rows is float32; the kernel was compiled for float16"),
        (rows(12), r"shape \(12, 64, 3\); .* for \(a multiple of 8, 64, any\)"),
        (rows()[0], r"the shape \(64, 3\)"),
        (rows().contiguous(), r"strides \(192, 3, 1\); .* for \(a multiple of 64, 1, any\)"),
    ],
)
def test_other_tensors_are_refused(tensor, message):
    with pytest.raises(ValueError, match=message):
        ROWS.check(tensor)


def test_lengths_that_do_not_fit_their_width():
    assert Extent(None, 32).admits(2**31 - 1)
    assert not Extent(None, 32).admits(2**31)
    assert Extent(None, 64).admits(2**31)
