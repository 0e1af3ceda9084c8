"""8-bit floats against torch's formats and exact fractions."""

import numpy as np
import pytest
import torch

from lethe_env.vgpu.alu import library
from lethe_env.vgpu.ptx.model import UnsupportedError

from .exact import F32, Format

TYPES = {"e4m3x2": torch.float8_e4m3fn, "e5m2x2": torch.float8_e5m2}
LARGEST = {"e4m3x2": 448.0, "e5m2x2": 57344.0}


def narrow_values(name, bits):
    """The float32 numbers behind bytes."""
    return torch.from_numpy(bits.astype(np.uint8)).view(TYPES[name]).float().numpy()


def nearest(name, value):
    """The byte of the nearest finite number, ties to the even byte."""
    if np.isnan(value):
        return 0x7F
    candidates = np.arange(128, dtype=np.uint8)
    numbers = narrow_values(name, candidates).astype(np.float64)
    candidates = candidates[np.isfinite(numbers)]
    numbers = numbers[np.isfinite(numbers)]
    distance = np.abs(numbers - min(abs(float(value)), LARGEST[name]))
    best = candidates[distance == distance.min()]
    byte = next(int(b) for b in best if len(best) == 1 or b % 2 == 0)
    return byte | (0x80 if np.signbit(value) else 0)


@pytest.mark.parametrize("name", TYPES)
def test_every_byte_is_widened_exactly(alu, name):
    low, high = np.arange(256, dtype=np.uint16), np.arange(256, dtype=np.uint16)[::-1]
    found = alu(f"cvt.rn.f16x2.{name}", low | high << 8)
    for part, bits in ((found & 0xFFFF, low), (found >> 16, high)):
        values = part.astype(np.uint16).view(np.float16).astype(np.float32)
        wanted = narrow_values(name, bits)
        assert np.array_equal(values, wanted, equal_nan=True)
        assert np.array_equal(np.signbit(values), np.signbit(wanted) & ~np.isnan(wanted))
        assert set(part[np.isnan(wanted)].tolist()) == {0x7FFF}


def inputs(name):
    """Every number, the middles between neighbours, their own neighbours, and beyond."""
    numbers = narrow_values(name, np.arange(128))
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    edges = np.concatenate([numbers, middles])
    around = [edges, np.nextafter(edges, np.float32(1e30)), np.nextafter(edges, np.float32(-1))]
    beyond = [460.0, 464.0, 465.0, 480.0, 61440.0, 65536.0, 1e30, np.inf, np.nan, 1e-40, 2.0**-18]
    positive = np.concatenate([*around, np.array(beyond)]).astype(np.float32)
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("name", TYPES)
def test_float32_is_rounded_once_and_kept_finite(alu, name):
    values = inputs(name)
    bits = values.view(np.uint32)
    found = alu(f"cvt.rn.satfinite.{name}.f32", bits, bits[::-1].copy())
    expected = np.array([nearest(name, value) for value in values])
    assert np.array_equal(found >> 8, expected)
    assert np.array_equal(found & 0xFF, expected[::-1])


@pytest.mark.parametrize("name", TYPES)
def test_halves_are_rounded_once(alu, name):
    halves = np.arange(0, 65536, 37, dtype=np.uint32)
    found = alu(f"cvt.rn.satfinite.{name}.f16x2", halves | halves[::-1] << 16)
    values = halves.astype(np.uint16).view(np.float16).astype(np.float32)
    expected = np.array([nearest(name, value) for value in values])
    assert np.array_equal(found & 0xFF, expected)
    assert np.array_equal(found >> 8, expected[::-1])


def test_relu_clamps_at_zero(alu):
    values = np.array([-3.0, -0.0, 2.0, np.nan], np.float32).view(np.uint32)
    assert alu("cvt.rn.satfinite.relu.e4m3x2.f32", values, values).tolist() == [
        0, 0, 0x4040, 0x7F7F
    ]  # fmt: skip


@pytest.mark.parametrize(
    "opcode", ["cvt.rn.e4m3x2.f32", "cvt.rz.satfinite.e4m3x2.f32", "cvt.rn.satfinite.e3m4x2.f32"]
)
def test_other_forms_are_refused(opcode):
    with pytest.raises(UnsupportedError, match="cvt"):
        library.define(tuple(opcode.split(".")), 32)


@pytest.mark.parametrize("opcode", ["cvt.bf16.f16", "cvt.rn.bf16.f16"])
def test_f16_becomes_bf16_by_one_rounding(alu, opcode):
    halves = np.arange(0, 65536, 13, dtype=np.uint16)
    form = Format(8, 7)
    values = halves.view(np.float16).astype(np.float32).view(np.uint32)
    expected = [form.encode(F32.decode(bits)) for bits in values.tolist()]
    assert alu(opcode, halves).tolist() == expected
