"""How native stages find what they run on."""

import ctypes

import pytest
import torch
import triton

from lethe_env.kernels.cute_dsl import load, placeholder
from lethe_env.kernels.gated_delta.blackwell import execution
from lethe_env.vgpu.cute.tensor_arguments import DeviceTensor, tensor_type
from lethe_env.vgpu.memory import AddressSpace

ADDRESS_BYTES = 8


@pytest.mark.parametrize(
    "shape, known, dtype, name",
    [
        ((5, 64, 128), (None, 64, 128), torch.float16, "Float16"),
        ((9, 3, 24), (None, None, 24), torch.float16, "Float16"),
        ((9, 1), (None, None), torch.float32, "Float32"),
        ((7, 128), (None, 128), torch.float32, "Float32"),
        ((3,), (None,), torch.int64, "Int64"),
    ],
)
def test_tensors_of_a_gpu_are_packed_as_those_of_the_virtual_one(shape, known, dtype, name):
    """An address, then lengths and strides that no kernel was compiled with."""
    tensor, given = torch.zeros(shape, dtype=dtype), placeholder(name, *known)
    virtual = DeviceTensor(tensor_type("x", given), tensor, AddressSpace())
    real = execution.as_argument(given, tensor)
    (theirs,), (ours,) = virtual.__c_pointers__(), real.__c_pointers__()
    packed_bytes = len(virtual._data) - 1
    assert packed_bytes > ADDRESS_BYTES
    assert (
        ctypes.string_at(ours, packed_bytes)[ADDRESS_BYTES:]
        == (ctypes.string_at(theirs, packed_bytes)[ADDRESS_BYTES:])
    )
    assert ctypes.c_uint64.from_address(ours).value == tensor.data_ptr()


@pytest.mark.parametrize("name, value", [("Int32", 3), ("Float32", 0.125)])
def test_numbers_have_the_type_that_a_function_was_compiled_with(name, value):
    number = getattr(load("cutlass"), name)
    found = execution.as_argument(number(1), value)
    assert isinstance(found, number)
    assert found.value == value


def test_another_gpu_is_told_what_to_do(monkeypatch):
    monkeypatch.setattr(triton.runtime.driver, "_active", object())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(execution, "_COMPILED", {})
    run = execution.executable(lambda values: values, 64)
    with pytest.raises(RuntimeError, match=r"capability 10\.0, and this one has 9\.0; leave out"):
        run(torch.zeros(1))
