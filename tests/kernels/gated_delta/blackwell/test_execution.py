"""How native stages find what they run on."""

import ctypes

import pytest
import torch
import triton

from lethe_env.kernels.cute_dsl import placeholder
from lethe_env.kernels.gated_delta.blackwell import execution
from lethe_env.vgpu.cute.tensor_arguments import DeviceTensor, tensor_type
from lethe_env.vgpu.memory import AddressSpace

ADDRESS_BYTES = 8


@pytest.mark.parametrize(
    "shape, dtype, name",
    [
        ((5, 64, 128), torch.float16, "Float16"),
        ((1, 64, 64), torch.float32, "Float32"),
        ((7, 128), torch.float32, "Float32"),
    ],
)
def test_tensors_of_a_gpu_are_packed_as_those_of_the_virtual_one(shape, dtype, name):
    """An address, then the length that no kernel was compiled with."""
    tensor = torch.zeros(shape, dtype=dtype)
    type_ = tensor_type("x", placeholder(name, None, *shape[1:]))
    virtual, real = DeviceTensor(type_, tensor, AddressSpace()), execution.as_argument(tensor)
    (theirs,), (ours,) = virtual.__c_pointers__(), real.__c_pointers__()
    packed_bytes = len(virtual._data) - 1
    assert packed_bytes > ADDRESS_BYTES
    assert (
        ctypes.string_at(ours, packed_bytes)[ADDRESS_BYTES:]
        == (ctypes.string_at(theirs, packed_bytes)[ADDRESS_BYTES:])
    )
    assert ctypes.c_uint64.from_address(ours).value == tensor.data_ptr()


def test_another_gpu_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(triton.runtime.driver, "_active", object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    run = execution.executable(lambda values: values, 64)
    with pytest.raises(RuntimeError, match=r"capability 10\.0, and this one has 9\.0; leave out"):
        run(torch.zeros(1))
