"""How far the native kernels may be from exact arithmetic."""

STEP = 2.0**-20
"""Error of one product instruction, relative to the sum of its terms' absolute values.

A tensor core aligns 16 products and the accumulator to the largest of them, cuts each off at the
25th bit of its fraction, adds, and cuts the sum off at the 23rd bit: less than 17·2⁻²⁵ + 2⁻²³ of
that sum, or 0.66·2⁻²⁰. What is left of 2⁻²⁰ is more than an addition or a multiplication of float32
costs, 2⁻²⁴.
"""
DEPTH = 16
"""Products that an instruction adds."""
HALF = 2.0**-11
"""Relative error of rounding to float16."""
SMALLEST_HALF = 2.0**-25
"""Error of rounding to a subnormal of float16."""


def product_error(magnitude, depth):
    """Of a sum of `depth` products to which float32 numbers are added.

    Every partial sum is at most `magnitude`, the sum of all terms' absolute values.
    """
    return (depth // DEPTH + 1) * STEP * magnitude


def operand_error(value, error):
    """Of a number that is off by `error` already, as a float16 operand."""
    return error + HALF * (value.abs() + error) + SMALLEST_HALF
