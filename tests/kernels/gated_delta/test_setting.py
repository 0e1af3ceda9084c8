"""Tiles and warps: no kernel of the family spills, and all fit into tensor memory."""

import pytest
import torch

from lethe_env.kernels.ahead_of_time import compiled_for
from lethe_env.kernels.gated_delta import gated_delta


@pytest.mark.parametrize(
    ("architecture", "dtype", "widths", "gates"),
    [
        (80, torch.float16, (128, 128), "of channels"),
        (80, torch.bfloat16, (32, 48), "of channels"),
        (90, torch.bfloat16, (128, 128), "of channels"),
        (90, torch.float16, (128, 128), "of heads"),
        (100, torch.float32, (128, 128), "of channels"),
    ],
)
def test_no_kernel_spills(architecture, dtype, widths, gates):
    """What is nearest to it; `benchmarks/experts.py` compiles all dtypes."""
    found = compiled(dtype, architecture, widths=widths, gates=gates)
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


def compiled(dtype, architecture, warps=None, widths=(128, 128), gates="of channels"):
    """What one forward and one backward call compile."""
    key_dim, value_dim = widths
    tokens = [
        torch.empty(1, 65, 1, width, dtype=dtype, requires_grad=True)
        for width in (key_dim, key_dim, value_dim)
    ]
    channels = [(width,) if gates == "of channels" else () for width in (key_dim,) * 2 + widths[1:]]
    gates = [torch.empty(1, 65, 1, *shape, requires_grad=True) for shape in channels]
    with compiled_for(architecture, warps) as found:
        output, _ = gated_delta(*tokens, *gates)
        torch.autograd.grad(output, [*tokens, *gates], torch.empty_like(output))
    return found
