"""Tiles and warps: no kernel of the family spills, and all fit into tensor memory."""

import pytest
import torch

from lethe_env.kernels.ahead_of_time import compiled_for
from lethe_env.kernels.gated_delta import gated_delta


@pytest.mark.parametrize(
    ("architecture", "dtype"), [(80, torch.float16), (90, torch.bfloat16), (100, torch.float32)]
)
def test_no_kernel_spills(architecture, dtype):
    """One dtype a target here; `benchmarks/experts.py` compiles all."""
    found = compiled(dtype, architecture)
    assert len(found) == 12
    assert {kernel.kernel: kernel.spilled_bytes for kernel in found if kernel.spilled_bytes} == {}
    if dtype is torch.float32:
        assert {kernel.tensor_memory_columns for kernel in found} == {0}


@pytest.mark.parametrize("warps", [2, 4, 8])
def test_results_in_tensor_memory_fit(warps, request):
    """Products of two warps stay in registers; of more, the scans hold two states at once."""
    if not request.config.getoption("--experts"):
        pytest.skip("compiles for ten seconds: pytest --experts")
    columns = {k.kernel: k.tensor_memory_columns for k in compiled(torch.float16, 100, warps)}
    assert len(columns) == 12
    assert max(columns.values()) == (0 if warps == 2 else 256)


def compiled(dtype, architecture, warps=None):
    """What one forward and one backward call compile, for K = V = 128."""
    tokens = [torch.empty(1, 65, 1, 128, dtype=dtype, requires_grad=True) for _ in range(3)]
    gates = [torch.empty(1, 65, 1, 128, requires_grad=True) for _ in range(3)]
    with compiled_for(architecture, warps) as found:
        output, _ = gated_delta(*tokens, *gates)
        torch.autograd.grad(output, [*tokens, *gates], torch.empty_like(output))
    return found
