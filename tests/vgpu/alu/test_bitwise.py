"""Bit instructions against loops over single bits."""

import numpy as np
import pytest

DTYPES = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def words(bits, count, seed):
    values = np.random.default_rng(seed).integers(0, 1 << bits, count, dtype=np.uint64)
    values[:6] = [0, 1, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1, 0x0F0F]
    return values.astype(DTYPES[bits])


def amounts(count, seed):
    """Shift amounts and field positions around every boundary."""
    values = np.random.default_rng(seed).integers(0, 80, count, dtype=np.uint64)
    values[:8] = [0, 31, 32, 33, 63, 64, 255, (1 << 32) - 1]
    return values.astype(np.uint32)


def rows(function, *columns):
    return [function(*(int(value) for value in row)) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("bits", (16, 32, 64))
def test_logic(alu, bits):
    a, b = words(bits, 100, 1), words(bits, 100, 2)[::-1].copy()
    assert np.array_equal(alu(f"and.b{bits}", a, b), a & b)
    assert np.array_equal(alu(f"or.b{bits}", a, b), a | b)
    assert np.array_equal(alu(f"xor.b{bits}", a, b), a ^ b)
    assert np.array_equal(alu(f"not.b{bits}", a), ~a)
    assert np.array_equal(alu(f"cnot.b{bits}", a), (a == 0).astype(a.dtype))


def test_logic_of_predicates(alu):
    a, b = np.array([0, 0, 1, 1], np.uint8), np.array([0, 1, 0, 1], np.uint8)
    assert np.array_equal(alu("and.pred", a, b), a & b)
    assert np.array_equal(alu("or.pred", a, b), a | b)
    assert np.array_equal(alu("xor.pred", a, b), a ^ b)
    assert np.array_equal(alu("not.pred", a), 1 - a)


@pytest.mark.parametrize("bits", (16, 32, 64))
def test_shifts_clamp(alu, bits):
    a, n = np.repeat(words(bits, 40, 3), 80), np.tile(amounts(80, 4), 40)
    limit = 1 << bits

    def arithmetic(x, k):
        return (x - limit if x >> (bits - 1) else x) >> k

    assert rows(lambda x, k: (x << min(k, 64)) % limit, a, n) == alu(f"shl.b{bits}", a, n).tolist()
    for name in (f"u{bits}", f"b{bits}"):
        assert rows(lambda x, k: x >> k, a, n) == alu(f"shr.{name}", a, n).tolist()
    assert rows(lambda x, k: arithmetic(x, k) % limit, a, n) == alu(f"shr.s{bits}", a, n).tolist()


@pytest.mark.parametrize("mode", ("wrap", "clamp"))
def test_funnel_shift(alu, mode):
    a, b, n = words(32, 300, 5), words(32, 300, 6)[::-1].copy(), amounts(300, 7)

    def count(k):
        return k % 32 if mode == "wrap" else min(k, 32)

    left = rows(lambda x, y, k: ((y << 32 | x) << count(k) >> 32) % (1 << 32), a, b, n)
    right = rows(lambda x, y, k: (y << 32 | x) >> count(k) & 0xFFFFFFFF, a, b, n)
    assert left == alu(f"shf.l.{mode}.b32", a, b, n).tolist()
    assert right == alu(f"shf.r.{mode}.b32", a, b, n).tolist()


def test_lookup_3(alu):
    a, b, c = (words(32, 256, seed) for seed in (8, 9, 10))
    table = np.arange(256, dtype=np.uint32)

    def lookup(x, y, z, t):
        bits = ((x >> i & 1) << 2 | (y >> i & 1) << 1 | z >> i & 1 for i in range(32))
        return sum((t >> row & 1) << i for i, row in enumerate(bits))

    assert rows(lookup, a, b, c, table) == alu("lop3.b32", a, b, c, table).tolist()


def test_permute_bytes(alu):
    a, b, selectors = (words(32, 500, seed) for seed in (11, 12, 13))

    def permute(x, y, s):
        pair, result = y << 32 | x, 0
        for position in range(4):
            selector = s >> 4 * position & 15
            byte = pair >> 8 * (selector & 7) & 255
            if selector & 8:
                byte = 255 if byte & 128 else 0
            result |= byte << 8 * position
        return result

    assert rows(permute, a, b, selectors) == alu("prmt.b32", a, b, selectors).tolist()


@pytest.mark.parametrize("name", ("u32", "s32", "u64", "s64"))
def test_extract_field(alu, name):
    bits = int(name[1:])
    a, position, length = words(bits, 2000, 14), amounts(2000, 15), amounts(2000, 16)[::-1].copy()

    def extract(x, p, n):
        p, n = p & 255, n & 255
        sign = 0 if name[0] == "u" or n == 0 else x >> min(p + n - 1, bits - 1) & 1
        picked = (x >> (p + i) & 1 if i < n and p + i < bits else sign for i in range(bits))
        return sum(bit << i for i, bit in enumerate(picked))

    assert rows(extract, a, position, length) == alu(f"bfe.{name}", a, position, length).tolist()


@pytest.mark.parametrize("bits", (32, 64))
def test_insert_field(alu, bits):
    a, b = words(bits, 2000, 17), words(bits, 2000, 18)[::-1].copy()
    position, length = amounts(2000, 19), amounts(2000, 20)[::-1].copy()

    def insert(x, y, p, n):
        for i in range(n & 255):
            at = (p & 255) + i
            if at < bits and i < bits:
                y = y & ~(1 << at) | (x >> i & 1) << at
        return y

    assert (
        rows(insert, a, b, position, length) == alu(f"bfi.b{bits}", a, b, position, length).tolist()
    )


@pytest.mark.parametrize("bits", (32, 64))
def test_counting(alu, bits):
    a = words(bits, 300, 21) >> DTYPES[bits](3)
    a = np.concatenate([a, words(bits, 300, 22)])
    assert rows(lambda x: x.bit_count(), a) == alu(f"popc.b{bits}", a).tolist()
    assert rows(lambda x: bits - x.bit_length(), a) == alu(f"clz.b{bits}", a).tolist()
    reverse = rows(lambda x: int(f"{x:0{bits}b}"[::-1], 2), a)
    assert reverse == alu(f"brev.b{bits}", a).tolist()


@pytest.mark.parametrize("bits", (32, 64))
def test_find_leading(alu, bits):
    a = np.concatenate([words(bits, 300, 23), words(bits, 60, 24) >> DTYPES[bits](20)])
    none = (1 << 32) - 1

    def leading(x, signed):
        if signed and x >> (bits - 1):
            x ^= (1 << bits) - 1
        return x.bit_length() - 1 if x else none

    for kind in "us":
        expected = rows(lambda x, k=kind: leading(x, k == "s"), a)
        assert expected == alu(f"bfind.{kind}{bits}", a).tolist()
        shifts = [none if e == none else bits - 1 - e for e in expected]
        assert shifts == alu(f"bfind.shiftamt.{kind}{bits}", a).tolist()


def test_moves(alu):
    low, high = words(16, 50, 25), words(16, 50, 26)
    whole = low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)
    assert np.array_equal(alu("mov.b32.pack2", low, high), whole)
    assert all(map(np.array_equal, alu("mov.b32.unpack2", whole), (low, high)))
    a, b = words(32, 50, 27), words(32, 50, 28)
    pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    assert np.array_equal(alu("mov.b64.pack2", a, b), pair)
    assert all(map(np.array_equal, alu("mov.b64.unpack2", pair), (a, b)))
    quarters = alu("mov.b64.unpack4", pair)
    assert np.array_equal(alu("mov.b64.pack4", *quarters), pair)
    assert np.array_equal(quarters[2], (b & np.uint32(0xFFFF)).astype(np.uint16))
    for name in ("f32", "u32", "b32"):
        assert np.array_equal(alu(f"mov.{name}", a), a)
