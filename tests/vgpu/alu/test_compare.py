"""Comparisons and selections."""

import itertools
import math

import numpy as np
import pytest

from .exact import F16, F32, FORMATS, operand_tuples

ORDERS = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def float_outcome(name, a, b):
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    if unordered:
        return name.endswith("u") and len(name) == 3
    return ORDERS[name[:2]](a, b)


@pytest.mark.parametrize("name", ("f32", "f64", "f16", "bf16"))
def test_floats(alu, name):
    form = FORMATS[name]
    a, b = operand_tuples(form, 2, 200, 1)
    b = np.where(np.arange(len(a)) % 5 == 0, a, b)
    pairs = [(form.decode(x), form.decode(y)) for x, y in zip(a, b, strict=True)]
    for predicate in (*ORDERS, *(f"{order}u" for order in ORDERS), "num", "nan"):
        expected = [float_outcome(predicate, x, y) for x, y in pairs]
        assert alu(f"setp.{predicate}.{name}", a, b).tolist() == expected, predicate


@pytest.mark.parametrize("name,form", (("f32", F32), ("f16", F16)))
def test_flush_before_comparing(alu, name, form):
    a, b = operand_tuples(form, 2, 100, 2)
    for predicate in ("eq", "lt", "geu"):
        flushed = [[form.decode(form.flush(v)) for v in column] for column in (a, b)]
        expected = [float_outcome(predicate, x, y) for x, y in zip(*flushed, strict=True)]
        assert alu(f"setp.{predicate}.ftz.{name}", a, b).tolist() == expected


@pytest.mark.parametrize("name", ("s16", "u16", "s32", "u32", "s64", "u64"))
def test_integers(alu, name):
    bits = int(name[1:])
    top = 1 << (bits - 1)
    values = [0, 1, 2, top - 1, top, top + 1, 2 * top - 1]
    pairs = list(itertools.product(values, values))
    dtype = {16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    a, b = (np.array(column, dtype) for column in zip(*pairs, strict=True))

    def number(v):
        return v - 2 * top if name[0] == "s" and v >= top else v

    names = dict(ORDERS)
    if name[0] == "u":
        names |= {"lo": ORDERS["lt"], "ls": ORDERS["le"], "hi": ORDERS["gt"], "hs": ORDERS["ge"]}
    for predicate, order in names.items():
        expected = [order(number(x), number(y)) for x, y in pairs]
        assert alu(f"setp.{predicate}.{name}", a, b).tolist() == expected


def test_second_predicate_and_combination(alu):
    a, b = np.array([1, 2, 3, 1, 2, 3], np.uint32), np.full(6, 2, np.uint32)
    c = np.array([0, 0, 0, 1, 1, 1], np.uint8)
    less = (a < b).astype(np.uint8)
    assert all(map(np.array_equal, alu("setp.lt.u32.dual", a, b), (less, 1 - less)))
    for name, combine in (("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)):
        assert np.array_equal(alu(f"setp.lt.{name}.u32", a, b, c), combine(less, c))
        both = alu(f"setp.lt.{name}.u32.dual", a, b, c)
        assert np.array_equal(both[1], combine(1 - less, c))


def test_packed_comparisons_give_one_predicate_per_half(alu):
    a, b = operand_tuples(F16, 2, 200, 4)
    pairs = [c.astype(np.uint32) | c[::-1].astype(np.uint32) << 16 for c in (a, b)]
    for predicate in ("lt", "nan", "geu.ftz"):
        single = alu(f"setp.{predicate}.f16", a, b)
        low, high = alu(f"setp.{predicate}.f16x2.dual", *pairs)
        assert np.array_equal(low, single)
        assert np.array_equal(high, single[::-1])
    other = (np.arange(len(a)) % 2).astype(np.uint8)
    low, high = alu("setp.lt.or.f16x2.dual", *pairs, other)
    single = alu("setp.lt.f16", a, b)
    assert np.array_equal(low, single | other) and np.array_equal(high, single[::-1] | other)


def test_set(alu):
    a, b = operand_tuples(F32, 2, 100, 3)
    outcome = alu("setp.lt.f32", a, b)
    assert np.array_equal(alu("set.lt.u32.f32", a, b), np.where(outcome, 0xFFFFFFFF, 0))
    assert np.array_equal(alu("set.lt.f32.f32", a, b), np.where(outcome, 0x3F800000, 0))
    c = (np.arange(len(a)) % 2).astype(np.uint8)
    assert np.array_equal(alu("set.lt.and.s32.f32", a, b, c), np.where(outcome & c, 0xFFFFFFFF, 0))


def test_selections(alu):
    a, b = np.arange(8, dtype=np.uint32), np.arange(8, 16, dtype=np.uint32)
    p = np.array([0, 1] * 4, np.uint8)
    for name in ("b32", "f32", "s32"):
        assert np.array_equal(alu(f"selp.{name}", a, b, p), np.where(p, a, b))
    nan, subnormal = 0x7FC00000, 0x80000001
    c = np.array([0, 0x80000000, 0x3F800000, 0xBF800000, nan, subnormal, 1, 0xFF800000], np.uint32)
    by_float = np.array([1, 1, 1, 0, 0, 0, 1, 0])
    assert np.array_equal(alu("slct.b32.f32", a, b, c), np.where(by_float, a, b))
    by_float[5] = 1
    assert np.array_equal(alu("slct.ftz.b32.f32", a, b, c), np.where(by_float, a, b))
    assert np.array_equal(alu("slct.u32.s32", a, b, c), np.where(c.view(np.int32) >= 0, a, b))
