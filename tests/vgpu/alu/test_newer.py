"""Instructions that came with sm_90 and sm_100, and modes that Triton seldom uses."""

import numpy as np
import pytest

from lethe_env.vgpu.alu import library
from lethe_env.vgpu.ptx.model import UnsupportedError

from .exact import F32, Format, special_bits

BF16, F16 = Format(8, 7), Format(5, 10)


def singles(count, seed=1):
    """Special numbers and random ones."""
    generator = np.random.default_rng(seed)
    special = np.array(special_bits(F32), np.uint32)
    random = generator.integers(0, 2**32, 500, np.uint32)
    return [
        np.concatenate([generator.choice(special, 500), generator.permutation(random)])
        for _ in range(count)
    ]


def pair(low, high):
    return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)


def same(found, wanted):
    """Equal bits, or both NaN."""
    nan = np.isnan(found.view(np.float32)) & np.isnan(wanted.view(np.float32))
    return ((found == wanted) | nan).all()


@pytest.mark.parametrize(
    "opcode", ["add.f32x2", "add.rz.ftz.f32x2", "sub.rn.f32x2", "mul.rp.f32x2", "fma.rn.ftz.f32x2"]
)
def test_pairs_of_singles_are_two_operations(alu, opcode):
    count = 3 if opcode.startswith("fma") else 2
    low, high = singles(count, seed=1), singles(count, seed=2)
    found = alu(opcode, *(pair(a, b) for a, b in zip(low, high, strict=True)))
    plain = opcode.removesuffix("x2")
    assert same(found.astype(np.uint32), alu(plain, *low))
    assert same((found >> np.uint64(32)).astype(np.uint32), alu(plain, *high))


@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_three_operands_are_two_steps(alu, name, nan):
    a, b, c = singles(3)
    two = alu(f"{name}{nan}.f32", alu(f"{name}{nan}.f32", a, b), c)
    assert np.array_equal(alu(f"{name}{nan}.f32.triple", a, b, c), two)
    magnitudes = [x & np.uint32(0x7FFFFFFF) for x in (a, b, c)]
    two = alu(f"{name}{nan}.f32", alu(f"{name}{nan}.f32", *magnitudes[:2]), magnitudes[2])
    assert np.array_equal(alu(f"{name}{nan}.abs.f32.triple", a, b, c), two)


@pytest.mark.parametrize(("name", "form"), [("bf16", BF16), ("f16", F16)])
def test_narrow_operands_are_widened_exactly(alu, name, form):
    generator = np.random.default_rng(3)
    narrow = generator.integers(0, 65536, 1000).astype(np.uint16)
    (wide,) = singles(1)
    as_f32 = np.array([F32.encode(form.decode(bits)) for bits in narrow.tolist()], np.uint32)
    assert same(alu(f"add.rn.f32.{name}", narrow, wide), alu("add.rn.f32", as_f32, wide))
    assert same(alu(f"sub.f32.{name}", narrow, wide), alu("sub.rn.f32", as_f32, wide))
    other = narrow[::-1].copy()
    fused = alu(f"fma.rn.f32.{name}", narrow, other, wide)
    assert same(fused, alu("fma.rn.f32", as_f32, as_f32[::-1].copy(), wide))


@pytest.mark.parametrize("kind", ["u16x2", "s16x2"])
@pytest.mark.parametrize("name", ["add", "min", "max", "max.relu"])
def test_pairs_of_16_bit_integers(alu, name, kind):
    if "relu" in name and kind[0] == "u":
        with pytest.raises(UnsupportedError, match="no such instruction"):
            library.define(("max", "relu", "u16x2"), 32)
        return
    a, b = singles(2)
    dtype = np.int16 if kind[0] == "s" else np.uint16
    x, y = a.view(dtype), b.view(dtype)
    wanted = {
        "add": lambda: x + y,
        "min": lambda: np.minimum(x, y),
        "max": lambda: np.maximum(x, y),
        "max.relu": lambda: np.maximum(np.maximum(x, y), 0),
    }[name]()
    assert np.array_equal(alu(f"{name}.{kind}", a, b), wanted.astype(dtype).view(np.uint32))


PICKS = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}
"""The bytes that each mode picks, highest first, by the selector."""


@pytest.mark.parametrize("mode", PICKS)
def test_modes_of_prmt(alu, mode):
    a, b, c = singles(3)
    source = np.stack([a, b], 1).view(np.uint8)
    expected = [
        sum(int(row[int(digit)]) << (24 - 8 * k) for k, digit in enumerate(PICKS[mode][int(s) & 3]))
        for row, s in zip(source, c, strict=True)
    ]
    assert alu(f"prmt.b32.{mode}", a, b, c).tolist() == expected
