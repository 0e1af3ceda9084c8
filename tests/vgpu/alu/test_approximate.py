"""Approximate functions: inside their bounds over dense sweeps, and exact at special values."""

import math

import numpy as np
import pytest

from .exact import BF16, F16, F32, F64, operand_tuples

INF, NAN = math.inf, math.nan
TINY = 2.0**-149
SMALLEST_NORMAL = 2.0**-126


def run(alu, opcode, *columns):
    bits = (np.asarray(column, np.float32).view(np.uint32) for column in columns)
    return alu(opcode, *bits).view(np.float32)


def all_magnitudes(count, signed=True, seed=1):
    """Finite normal numbers spread over every exponent."""
    bits = np.random.default_rng(seed).integers(0x00800000, 0x7F800000, count, dtype=np.uint32)
    if signed:
        bits[::2] |= np.uint32(0x80000000)
    return bits.view(np.float32)


def relative_error(actual, exact):
    return float(np.max(np.abs(actual.astype(np.float64) / exact - 1)))


def absolute_error(actual, exact):
    return float(np.max(np.abs(actual.astype(np.float64) - exact)))


def same(actual, expected):
    """Equal bits, any NaN for a NaN."""
    expected = np.asarray(expected, np.float32)
    nan = np.isnan(expected)
    return np.array_equal(np.isnan(actual), nan) and np.array_equal(
        actual[~nan].view(np.uint32), expected[~nan].view(np.uint32)
    )


def test_power_of_two(alu):
    x = np.concatenate([np.linspace(-126, 127.999, 100_000), np.linspace(-1, 1, 50_000)])
    x = x.astype(np.float32)
    for opcode in ("ex2.approx.f32", "ex2.approx.ftz.f32"):
        assert relative_error(run(alu, opcode, x), np.exp2(x.astype(np.float64))) < 2.0**-23
    low = np.linspace(-151, -126, 5_000).astype(np.float32)
    exact = np.exp2(low.astype(np.float64))
    assert absolute_error(run(alu, "ex2.approx.f32", low), exact) < TINY
    assert not run(alu, "ex2.approx.ftz.f32", low[exact < SMALLEST_NORMAL]).any()


def test_power_of_two_at_special_values(alu):
    x = [0.0, -0.0, 1, -1, 10, -126, 127, 128, 1e30, -152, -1e30, INF, -INF, NAN, TINY, -TINY]
    y = [1, 1, 2, 0.5, 1024, SMALLEST_NORMAL, 2.0**127, INF, INF, 0, 0, INF, 0, NAN, 1, 1]
    assert same(run(alu, "ex2.approx.f32", x), y)
    assert same(run(alu, "ex2.approx.ftz.f32", x), y)
    assert same(run(alu, "ex2.approx.f32", [-149, -130]), [TINY, 2.0**-130])
    assert same(run(alu, "ex2.approx.ftz.f32", [-149, -130]), [0, 0])


def test_logarithm(alu):
    x = all_magnitudes(100_000, signed=False)
    x = x[(x < 0.5) | (x > 2)]
    assert relative_error(run(alu, "lg2.approx.f32", x), np.log2(x.astype(np.float64))) < 2.0**-22
    near = np.linspace(0.5, 2, 100_001).astype(np.float32)
    exact = np.log2(near.astype(np.float64))
    for opcode in ("lg2.approx.f32", "lg2.approx.ftz.f32"):
        assert absolute_error(run(alu, opcode, near), exact) < 2.0**-22
    subnormal = np.arange(1, 1 << 23, 997, dtype=np.uint32).view(np.float32)
    exact = np.log2(subnormal.astype(np.float64))
    assert relative_error(run(alu, "lg2.approx.f32", subnormal), exact) < 2.0**-22
    assert np.array_equal(run(alu, "lg2.approx.ftz.f32", subnormal), np.full_like(subnormal, -INF))


def test_logarithm_at_special_values(alu):
    x = [0.0, -0.0, 1, 2, 0.25, 2.0**127, SMALLEST_NORMAL, INF, -INF, -1, -SMALLEST_NORMAL, NAN]
    y = [-INF, -INF, 0, 1, -2, 127, -126, INF, NAN, NAN, NAN, NAN]
    assert same(run(alu, "lg2.approx.f32", x), y)
    assert same(run(alu, "lg2.approx.ftz.f32", x), y)
    assert same(run(alu, "lg2.approx.f32", [TINY, -TINY]), [-149, NAN])
    assert same(run(alu, "lg2.approx.ftz.f32", [TINY, -TINY]), [-INF, -INF])


@pytest.mark.parametrize("name,function", (("sin", np.sin), ("cos", np.cos)))
def test_circular_functions(alu, name, function):
    near = np.linspace(-2 * np.pi, 2 * np.pi, 200_001).astype(np.float32)
    far = np.linspace(-100 * np.pi, 100 * np.pi, 200_001).astype(np.float32)
    for modifier in ("", ".ftz"):
        opcode = f"{name}.approx{modifier}.f32"
        assert absolute_error(run(alu, opcode, near), function(near.astype(float))) < 2.0**-20.5
        assert absolute_error(run(alu, opcode, far), function(far.astype(float))) < 2.0**-14.7
    anywhere = run(alu, f"{name}.approx.f32", all_magnitudes(10_000))
    assert np.all(np.abs(anywhere) <= 1)


def test_circular_functions_at_special_values(alu):
    x = [0.0, -0.0, INF, -INF, NAN, TINY, -TINY]
    assert same(run(alu, "sin.approx.f32", x), [0.0, -0.0, NAN, NAN, NAN, TINY, -TINY])
    assert same(run(alu, "sin.approx.ftz.f32", x), [0.0, -0.0, NAN, NAN, NAN, 0.0, -0.0])
    assert same(run(alu, "cos.approx.ftz.f32", x), [1, 1, NAN, NAN, NAN, 1, 1])


def test_hyperbolic_tangent(alu):
    x = np.concatenate([np.linspace(-10, 10, 100_000), np.logspace(-30, 1, 50_000)])
    x = x.astype(np.float32)
    actual = run(alu, "tanh.approx.f32", x)
    assert relative_error(actual, np.tanh(x.astype(np.float64))) < 2.0**-11
    special = [0.0, -0.0, INF, -INF, NAN, 50, -50, TINY]
    expected = [0.0, -0.0, 1, -1, NAN, 1, -1, TINY]
    assert same(run(alu, "tanh.approx.f32", special), expected)


def test_reciprocals_and_roots(alu):
    x = all_magnitudes(100_000)
    x = x[np.abs(x) < 2.0**126]
    positive = np.abs(x)
    wide = positive.astype(np.float64)
    for ftz in ("", ".ftz"):
        assert relative_error(run(alu, f"rcp.approx{ftz}.f32", x), 1 / x.astype(float)) < 2.0**-23
        assert relative_error(run(alu, f"rsqrt.approx{ftz}.f32", positive), wide**-0.5) < 2.0**-22.9
        assert relative_error(run(alu, f"sqrt.approx{ftz}.f32", positive), wide**0.5) < 2.0**-23
    special = [0.0, -0.0, INF, -INF, NAN, TINY, -TINY, 2.0**127, -1]
    table = {
        "rcp.approx.f32": [INF, -INF, 0.0, -0.0, NAN, INF, -INF, 2.0**-127, -1],
        "rcp.approx.ftz.f32": [INF, -INF, 0.0, -0.0, NAN, INF, -INF, 0.0, -1],
        "sqrt.approx.f32": [0.0, -0.0, INF, NAN, NAN, math.sqrt(TINY), NAN, 2**63.5, NAN],
        "sqrt.approx.ftz.f32": [0.0, -0.0, INF, NAN, NAN, 0.0, -0.0, 2**63.5, NAN],
        "rsqrt.approx.f32": [INF, -INF, 0.0, NAN, NAN, TINY**-0.5, NAN, 2**-63.5, NAN],
        "rsqrt.approx.ftz.f32": [INF, -INF, 0.0, NAN, NAN, INF, -INF, 2**-63.5, NAN],
    }
    for opcode, expected in table.items():
        assert same(run(alu, opcode, special), expected), opcode


def test_division(alu):
    a, b = all_magnitudes(50_000, seed=2), all_magnitudes(50_000, seed=3)
    quotient = a.astype(np.float64) / b
    within = (np.abs(quotient) > SMALLEST_NORMAL) & (np.abs(quotient) < 2.0**127)
    for kind in ("full", "full.ftz", "approx", "approx.ftz"):
        usable = within & (np.abs(b) <= 2.0**126) if "approx" in kind else within
        actual = run(alu, f"div.{kind}.f32", a, b)[usable]
        assert relative_error(actual, quotient[usable]) < 2.0**-22, kind


def test_division_at_special_values(alu):
    a = [1, -1, 0.0, INF, INF, 1, NAN, 1, -3, INF, TINY, 2.0**127, 1]
    b = [0.0, 0.0, 0.0, INF, 2, -INF, 1, 2.0**127, 2.0**127, 2.0**127, 1, 2.0**127, -(2.0**127)]
    full = [
        INF,
        -INF,
        NAN,
        NAN,
        INF,
        -0.0,
        NAN,
        2.0**-127,
        -3 * 2.0**-127,
        INF,
        TINY,
        1,
        -(2.0**-127),
    ]
    approximate = [INF, -INF, NAN, NAN, INF, -0.0, NAN, 0.0, -0.0, NAN, TINY, 0.0, -0.0]
    flushed = [INF, -INF, NAN, NAN, INF, -0.0, NAN, 0.0, -3 * 2.0**-127, INF, 0.0, 1, -0.0]
    assert same(run(alu, "div.full.f32", a, b), full)
    assert same(run(alu, "div.approx.f32", a, b), approximate)
    assert same(run(alu, "div.full.ftz.f32", a, b), flushed)


@pytest.mark.parametrize("name,form,bound", (("f16", F16, -9.9), ("bf16", BF16, -7)))
def test_narrow_functions(alu, name, form, bound):
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = np.array([float(form.decode(b)) for b in bits])
    ftz = ".ftz" if name == "bf16" else ""
    with np.errstate(over="ignore", under="ignore"):
        exact = {"ex2": np.exp2(values), "tanh": np.tanh(values)}
    smallest = float(form.decode(form.smallest_normal))
    largest = float(form.decode(form.infinity - 1))
    for function, expected in exact.items():
        opcode = f"{function}.approx{ftz if function == 'ex2' else ''}.{name}"
        actual = alu(opcode, bits)
        got = np.array([float(form.decode(b)) for b in actual])
        usable = (np.abs(expected) >= smallest) & (np.abs(expected) <= largest)
        assert np.max(np.abs(got[usable] / expected[usable] - 1)) < 2.0**bound, opcode
        assert np.array_equal(actual == form.nan, np.isnan(values)), opcode
        single = actual.astype(np.uint32)
        pairs = bits.astype(np.uint32) | bits[::-1].astype(np.uint32) << 16
        assert np.array_equal(alu(f"{opcode}x2", pairs), single | single[::-1] << 16)


def test_double_precision_starts(alu):
    bits = np.random.default_rng(5).integers(2 << 52, 2044 << 52, 20_000, dtype=np.uint64)
    values = bits.view(np.float64)
    for opcode, exact in (
        ("rcp.approx.ftz.f64", 1 / values),
        ("rsqrt.approx.ftz.f64", values**-0.5),
    ):
        actual = alu(opcode, bits)
        assert not (actual & np.uint64(0xFFFFFFFF)).any()
        assert np.max(np.abs(actual.view(np.float64) / exact - 1)) < 2.0**-19
    assert (
        np.max(np.abs(alu("rsqrt.approx.f64", bits).view(np.float64) * values**0.5 - 1)) < 2.0**-50
    )
    special = np.array([0.0, -0.0, INF, -INF, 2.0**-1074, -(2.0**-1074), NAN]).view(np.uint64)
    special[-1] = F64.infinity + (1 << 32)
    nan = np.uint64(0x7FFFFFFF00000000).view(np.float64)
    for opcode, expected in (
        ("rcp.approx.ftz.f64", [INF, -INF, 0.0, -0.0, INF, -INF, nan]),
        ("rsqrt.approx.ftz.f64", [INF, -INF, 0.0, nan, INF, -INF, nan]),
    ):
        assert np.array_equal(alu(opcode, special), np.array(expected).view(np.uint64)), opcode


def test_flushing_applies_to_operands_and_results(alu):
    (a,) = operand_tuples(F32, 1, 2_000, 6)
    for name in ("ex2", "lg2", "sin", "cos", "rsqrt", "sqrt", "rcp"):
        flushed = np.array([F32.flush(bits) for bits in a], np.uint32)
        plain = alu(f"{name}.approx.f32", flushed)
        expected = np.array([F32.flush(bits) for bits in plain], np.uint32)
        actual = alu(f"{name}.approx.ftz.f32", a)
        assert same(actual.view(np.float32), expected.view(np.float32)), name
