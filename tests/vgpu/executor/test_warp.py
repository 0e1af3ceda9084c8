"""Tensor-core products of the executor, against Microsoft's model of the hardware."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from . import warp

LANES = np.arange(32)
GROUP, MEMBER = LANES // 4, LANES % 4


def bits_of(tensor):
    width = 8 * tensor.element_size()
    integers = {8: torch.uint8, 16: torch.int16, 32: torch.int32}[width]
    unsigned = {8: np.uint8, 16: np.uint16, 32: np.uint32}[width]
    return tensor.contiguous().view(integers).numpy().view(unsigned).astype(np.uint64)


def left_fragments(matrix):
    """A's registers, element by element as the ISA's tables list them."""
    bits, per = bits_of(matrix), 4 // matrix.element_size()
    count = matrix.shape[1] * 16 // 32 // per
    registers = [np.zeros(32, np.uint64) for _ in range(count)]
    for element in range(count * per):
        at, part = divmod(element, per)
        row = GROUP + (8 if at % 2 else 0)
        column = MEMBER * per + part + (0 if at < 2 else 4 * per)
        registers[at] |= bits[row, column] << np.uint64(part * 32 // per)
    return registers


def right_fragments(matrix):
    bits, per = bits_of(matrix), 4 // matrix.element_size()
    count = matrix.shape[0] * 8 // 32 // per
    registers = [np.zeros(32, np.uint64) for _ in range(count)]
    for element in range(count * per):
        at, part = divmod(element, per)
        row = MEMBER * per + part + (0 if at < 1 else 4 * per)
        registers[at] |= bits[row, GROUP] << np.uint64(part * 32 // per)
    return registers


def total_fragments(matrix):
    bits = bits_of(matrix)
    return [bits[GROUP + 8 * (at // 2), 2 * MEMBER + at % 2] for at in range(4)]


@pytest.mark.parametrize(
    ("shape", "kind", "dtype"),
    [
        ("m16n8k16", "f16", torch.float16),
        ("m16n8k16", "bf16", torch.bfloat16),
        ("m16n8k8", "f16", torch.float16),
        ("m16n8k8", "tf32", torch.float32),
    ],
)
@pytest.mark.parametrize("spread", [0, 3])
@pytest.mark.parametrize(
    ("capability", "architecture"), [(80, "Ampere"), (90, "Hopper"), (100, "Blackwell")]
)
def test_products_have_the_bits_of_the_model(shape, kind, dtype, spread, capability, architecture):
    from mmasim.nv_ptx.sim import MMA  # builds its C++ part when it is imported

    model = MMA(architecture, f"{shape}.f32.{kind}.{kind}.f32")
    generator = torch.Generator().manual_seed(7)
    depth = int(shape.rsplit("k", 1)[1])
    for _ in range(20):
        scale = 10.0 ** torch.randint(-spread, spread + 1, (16, depth), generator=generator)
        a = (torch.randn(16, depth, generator=generator) * scale).to(dtype)
        b = torch.randn(depth, 8, generator=generator).to(dtype)
        c = torch.randn(16, 8, generator=generator)
        a[0, 0], b[0, 0], a[1, 1] = torch.inf, 0, torch.nan
        fragments = [left_fragments(a), right_fragments(b), total_fragments(c)]
        with np.errstate(invalid="ignore"):
            result = warp.multiply(
                shape, ("f32", kind, kind, "f32"), fragments, capability=capability
            )
        expected = total_fragments(model(a, b, c))
        assert [register.tolist() for register in result] == [
            register.tolist() for register in expected
        ]


@pytest.mark.parametrize("saturates", [False, True])
def test_integer_products_wrap_around_or_saturate(saturates):
    a = torch.full((16, 32), -128, dtype=torch.int8)
    b = torch.arange(-128, 128).to(torch.int8).reshape(32, 8)
    c = torch.full((16, 8), 2**31 - 1, dtype=torch.int32)
    exact = a.long() @ b.long() + c.long()
    assert (exact > 2**31 - 1).any()
    result = warp.multiply(
        "m16n8k32",
        ("s32", "s8", "s8", "s32"),
        [left_fragments(a), right_fragments(b), total_fragments(c)],
        capability=80,
        saturates=saturates,
    )
    if saturates:
        exact = exact.clamp(-(2**31), 2**31 - 1)
    expected = total_fragments(exact.to(torch.int32))
    assert [r.tolist() for r in result] == [r.tolist() for r in expected]


def test_transposed_matrices_swap_rows_and_columns():
    rows = np.arange(64, dtype=np.uint16).reshape(8, 8)
    assert warp.matrix_rows(rows, transposed=False)[5] == 10 | 11 << 16
    assert warp.matrix_rows(rows, transposed=True)[5] == 17 | 25 << 16
