"""Tiles and warps: no kernel of the family spills registers, on any target."""

import pytest
import torch

from lethe_env.kernels.ahead_of_time import compiled_for
from lethe_env.kernels.gated_delta import gated_delta


@pytest.mark.parametrize(
    ("architecture", "dtype"), [(80, torch.float16), (90, torch.bfloat16), (100, torch.float32)]
)
def test_no_kernel_spills(architecture, dtype):
    """One dtype a target here; `benchmarks/experts.py` compiles all."""
    tokens = [torch.empty(1, 65, 1, 128, dtype=dtype, requires_grad=True) for _ in range(3)]
    gates = [torch.empty(1, 65, 1, 128, requires_grad=True) for _ in range(3)]
    with compiled_for(architecture) as found:
        output, _ = gated_delta(*tokens, *gates)
        torch.autograd.grad(output, [*tokens, *gates], torch.empty_like(output))
    assert len(found) == 11
    assert {kernel.kernel: kernel.spilled_bytes for kernel in found if kernel.spilled_bytes} == {}
    assert max(kernel.tensor_memory_columns for kernel in found) <= 512
