"""Directed float64 arithmetic against exact fractions."""

import math

import numpy as np
import pytest

from ..executor.directed import directed
from .exact import F64, special_bits

OPERANDS = {"add": 2, "sub": 2, "mul": 2, "div": 2, "rcp": 1, "sqrt": 1, "fma": 3}


def operands(count):
    """Special numbers against each other, and random ones of all sizes."""
    special = np.array(special_bits(F64), np.uint64)
    generator = np.random.default_rng(7)
    columns = [generator.choice(special, 400) for _ in range(count)]
    random = [
        np.concatenate([
            generator.integers(0, 2**64, 400, np.uint64),
            generator.normal(size=400).view(np.uint64),
            (generator.normal(size=200) * 2.0**-540).view(np.uint64),
        ])
        for _ in range(count)
    ]  # fmt: skip
    return [np.concatenate(pair) for pair in zip(columns, random, strict=True)]


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", OPERANDS)
def test_results_are_exactly_rounded(alu, name, mode):
    columns = operands(OPERANDS[name])
    found = alu(f"{name}.{mode}.f64", *columns).view(np.float64).tolist()
    rows = zip(*(column.view(np.float64).tolist() for column in columns), strict=True)
    for value, row in zip(found, rows, strict=True):
        wanted = directed(name, mode, *row)
        if math.isnan(wanted):
            assert math.isnan(value), row
        else:
            assert (value, math.copysign(1, value)) == (wanted, math.copysign(1, wanted)), row


def test_the_mode_does_not_outlive_the_instruction(alu):
    one, third = (np.array([x], np.float64).view(np.uint64) for x in (1.0, 3.0))
    before = alu("div.rn.f64", one, third)
    alu("div.rp.f64", one, third)
    assert alu("div.rn.f64", one, third) == before
