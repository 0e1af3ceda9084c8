"""Integer instructions against Python integers."""

import numpy as np
import pytest

from lethe_env.vgpu.ptx.model import UnsupportedError

TYPES = ("s16", "s32", "s64", "u16", "u32", "u64")
DTYPES = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def width(name):
    return int(name[1:])


def patterns(bits, count, seed):
    generator = np.random.default_rng(seed)
    top = 1 << (bits - 1)
    special = [0, 1, 2, 3, 7, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x55 % top]
    pairs = [grid.reshape(-1) for grid in np.meshgrid(*[np.array(special, object)] * 2)]
    values = generator.integers(0, 1 << bits, (2, count), dtype=np.uint64)
    small = generator.integers(0, 1 << (bits // 2), (2, count), dtype=np.uint64)
    values = np.where(generator.random((2, count)) < 0.5, values, small)
    return [
        np.concatenate([pair.astype(np.uint64), value]).astype(DTYPES[bits])
        for pair, value in zip(pairs, values, strict=True)
    ]


def number(bits, name):
    value, size = int(bits), width(name)
    return value - (1 << size) if name[0] == "s" and value >> (size - 1) else value


def expect(function, name, result_bits, *columns):
    rows = zip(*columns, strict=True)
    results = [function(*(number(v, name) for v in row)) % (1 << result_bits) for row in rows]
    return np.array(results, DTYPES[result_bits])


def truncated_quotient(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": lambda a, b: truncated_quotient(a, b) if b else -1,
    "rem": lambda a, b: a - b * truncated_quotient(a, b) if b else a,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("operation", BINARY)
def test_binary(alu, operation, name):
    a, b = patterns(width(name), 300, 1)
    expected = expect(BINARY[operation], name, width(name), a, b)
    assert np.array_equal(alu(f"{operation}.{name}", a, b), expected)


@pytest.mark.parametrize("operation", ["min", "max"])
def test_extrema_that_clamp_at_zero(alu, operation):
    a, b = patterns(32, 300, 1)
    expected = expect(lambda x, y: max(0, BINARY[operation](x, y)), "s32", 32, a, b)
    assert np.array_equal(alu(f"{operation}.relu.s32", a, b), expected)
    with pytest.raises(UnsupportedError, match=r"\.relu needs"):
        alu(f"{operation}.relu.u32", a, b)


@pytest.mark.parametrize("name", TYPES)
def test_high_product_and_multiply_add(alu, name):
    size = width(name)
    a, b = patterns(size, 300, 2)
    c = np.roll(a, 7)
    assert np.array_equal(
        alu(f"mul.hi.{name}", a, b), expect(lambda x, y: x * y >> size, name, size, a, b)
    )
    assert np.array_equal(
        alu(f"mad.lo.{name}", a, b, c), expect(lambda x, y, z: x * y + z, name, size, a, b, c)
    )
    assert np.array_equal(
        alu(f"mad.hi.{name}", a, b, c),
        expect(lambda x, y, z: (x * y >> size) + z, name, size, a, b, c),
    )


@pytest.mark.parametrize("name", ("s16", "s32", "u16", "u32"))
def test_wide_product(alu, name):
    size = width(name)
    a, b = patterns(size, 300, 3)
    product = expect(lambda x, y: x * y, name, 2 * size, a, b)
    assert np.array_equal(alu(f"mul.wide.{name}", a, b), product)
    c = product[::-1].copy()
    total = (product + c).astype(DTYPES[2 * size])
    assert np.array_equal(alu(f"mad.wide.{name}", a, b, c), total)


@pytest.mark.parametrize("name", ("s16", "s32", "s64"))
def test_unary(alu, name):
    a, _ = patterns(width(name), 300, 4)
    assert np.array_equal(alu(f"neg.{name}", a), expect(lambda x: -x, name, width(name), a))
    assert np.array_equal(alu(f"abs.{name}", a), expect(abs, name, width(name), a))


@pytest.mark.parametrize("name", TYPES)
def test_absolute_difference(alu, name):
    a, b = patterns(width(name), 300, 5)
    c = np.roll(b, 3)
    expected = expect(lambda x, y, z: z + abs(x - y), name, width(name), a, b, c)
    assert np.array_equal(alu(f"sad.{name}", a, b, c), expected)


def test_saturating_sum(alu):
    a, b = patterns(32, 300, 6)

    def clamp(value):
        return max(-(1 << 31), min((1 << 31) - 1, value))

    for operation, sign in (("add", 1), ("sub", -1)):
        expected = expect(lambda x, y, s=sign: clamp(x + s * y), "s32", 32, a, b)
        assert np.array_equal(alu(f"{operation}.sat.s32", a, b), expected)


@pytest.mark.parametrize("name", ("u32", "s32", "u64", "s64"))
def test_carry_chains(alu, name):
    size = width(name)
    a, b = patterns(size, 300, 7)
    carry = (np.arange(len(a)) % 2).astype(np.uint8)
    x, y, c = ([int(v) for v in column] for column in (a, b, carry))
    limit = 1 << size
    cases = {
        f"add.cc.{name}": ([p + q for p, q in zip(x, y, strict=True)], (a, b)),
        f"addc.cc.{name}": ([p + q + r for p, q, r in zip(x, y, c, strict=True)], (a, b, carry)),
        f"sub.cc.{name}": ([p - q for p, q in zip(x, y, strict=True)], (a, b)),
        f"subc.cc.{name}": ([p - q - r for p, q, r in zip(x, y, c, strict=True)], (a, b, carry)),
    }
    for opcode, (totals, operands) in cases.items():
        value, carried = alu(opcode, *operands)
        assert [int(v) for v in value] == [total % limit for total in totals], opcode
        assert [int(v) for v in carried] == [int(not 0 <= t < limit) for t in totals], opcode
    assert np.array_equal(alu(f"addc.{name}", a, b, carry), alu(f"addc.cc.{name}", a, b, carry)[0])


@pytest.mark.parametrize("name", ("u32", "s64"))
@pytest.mark.parametrize("half", ("lo", "hi"))
def test_multiply_add_carry(alu, name, half):
    size = width(name)
    a, b = patterns(size, 300, 8)
    c, carry = np.roll(a, 5), (np.arange(len(a)) % 2).astype(np.uint8)
    shift = 0 if half == "lo" else size
    product = expect(lambda x, y: x * y >> shift, name, size, a, b)
    totals = [int(p) + int(q) + int(r) for p, q, r in zip(product, c, carry, strict=True)]
    value, carried = alu(f"madc.{half}.cc.{name}", a, b, c, carry)
    assert [int(v) for v in value] == [total % (1 << size) for total in totals]
    assert [int(v) for v in carried] == [total >> size for total in totals]
    value, carried = alu(f"mad.{half}.cc.{name}", a, b, c)
    totals = [int(p) + int(q) for p, q in zip(product, c, strict=True)]
    assert [int(v) for v in carried] == [total >> size for total in totals]
