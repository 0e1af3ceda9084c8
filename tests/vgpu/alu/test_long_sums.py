"""Sums of the tensor cores of sm_90 and sm_100, bit by bit against MMA-Sim."""

import numpy as np
import pytest
import torch
from mmasim.arithmetic import fdpa

from lethe_env.vgpu.alu import long_sums

from ..machine.matrices import TORCH
from .conftest import run_definition

OUTPUTS = 512
SIGNED = {8: torch.uint8, 16: torch.int16, 32: torch.int32}


def as_torch(raw, source):
    """Elements from their bits."""
    bits = long_sums.FACTORS[source].bits
    signed = torch.from_numpy(raw.astype(f"u{bits // 8}").view(f"i{bits // 8}"))
    return signed.view(SIGNED[bits]).view(TORCH[source.partition(".")[0]])


def usual_factors(random, shape, source):
    """Bits of elements of moderate size, and zeros."""
    values = random.standard_normal(shape) * 2.0 ** random.integers(-8, 8, shape)
    values[random.random(shape) < 0.1] = 0
    kind = TORCH[source.partition(".")[0]]
    raw = torch.from_numpy(values).float().to(kind).view(SIGNED[long_sums.FACTORS[source].bits])
    return raw.numpy().astype(np.uint64)


def accumulators(random, wide):
    start = (random.standard_normal(OUTPUTS) * 2.0 ** random.integers(-30, 30, OUTPUTS)).astype(
        "f4"
    )
    start[::7] = 0
    if wide:
        some = start[::5]
        start[::5] = random.integers(0, 2**32, len(some), dtype=np.uint32).view("f4")
    return start


def as_floats(raw, source):
    """What the machine makes of 16 bytes of elements."""
    bits = long_sums.FACTORS[source].bits
    count = 128 // bits
    definition = long_sums.define_values(source, count)
    (values,) = run_definition(definition, "", count, [raw.ravel() & (2**bits - 1)])
    return values.reshape(raw.shape)


@pytest.mark.parametrize("wide", [False, True], ids=["usual", "wide"])
@pytest.mark.parametrize("source", [n for n, f in long_sums.FACTORS.items() if not f.integer])
def test_sums(source, wide):
    factor = long_sums.FACTORS[source]
    random = np.random.default_rng(5)
    shape = (2, OUTPUTS, factor.depth)
    if wide:
        raw = random.integers(0, 2**factor.bits, shape, dtype=np.uint64)
    else:
        raw = usual_factors(random, shape, source)
    start = accumulators(random, wide)
    if source.endswith(".half"):
        start = torch.from_numpy(start).half().float().numpy()
    values = as_floats(raw, source)
    exponents, odd = run_definition(
        long_sums.define_exponents(source), "", long_sums.ROWS, [values.ravel()]
    )
    assert wide or not odd.any()
    exponents = exponents.reshape(shape)
    sides = [[part[:, k] for side in range(2) for part in (values[side], exponents[side])]
             for k in range(factor.depth)]  # fmt: skip
    operands = [start.view("u4"), *(part for parts in sides for part in parts)]
    (found,) = run_definition(long_sums.define_sum(source, wide), "", long_sums.ROWS, operands)
    kind = source.partition(".")[0]
    bits, rounding, zero, addend = 25, "RZ-FP32", -133, torch.from_numpy(start)
    if source.endswith(".short"):
        bits, rounding = 13, "RZ-E8M13"
    if source.endswith(".half"):
        rounding, zero, addend = "RNE-FP16", -21, addend.half()
    model = fdpa.MMA_T_FDPA(bits, rounding, factor.depth, zero, kind, kind)
    left, right = (as_torch(side, source) for side in raw)
    expected = model.dpa(left, right, addend).float()
    nan = expected.isnan().numpy()
    np.testing.assert_array_equal(found.view("f4")[~nan], expected.numpy()[~nan])
    np.testing.assert_array_equal(found[nan], 0x7FFFFFFF)


def test_the_largest_products_do_not_overflow():
    """Sixteen products just below 4, of one sign, and an accumulator of their exponent."""
    largest = np.full((1, 16), np.float16(2 - 2**-10).view("u2"), np.uint64)
    values = as_floats(np.repeat(largest, long_sums.ROWS, 0), "f16")
    zeros = np.zeros(long_sums.ROWS, np.uint32)
    terms = [part for k in range(16) for part in (values[:, k], zeros, values[:, k], zeros)]
    start = np.full(long_sums.ROWS, np.float32(2 - 2**-23).view("u4"))
    (found,) = run_definition(
        long_sums.define_sum("f16", wide=False), "", long_sums.ROWS, [start, *terms]
    )
    exact = 16 * (2 - 2**-10) ** 2 + 2 - 2**-23
    expected = np.float32(exact)
    if float(expected) > exact:
        expected = np.nextafter(expected, np.float32(0))
    assert (found.view("f4") == expected).all()


def test_a_wide_element_is_told():
    """Of every vector, only what f32 cannot multiply safely is uncommon."""
    values = np.zeros(long_sums.ROWS, np.float32)
    values[:6] = 2.0**60, -(2.0**61), 2.0**-50, 2.0**-51, np.inf, np.nan
    definition = long_sums.define_exponents("tf32")
    _, odd = run_definition(definition, "", long_sums.ROWS, [values.view("u4")])
    assert odd.astype(bool)[:6].tolist() == [True, True, False, True, True, True]
    assert not odd[6:].any()
