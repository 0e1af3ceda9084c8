"""Device functions that several kernels share."""

import triton
import triton.language as tl


@triton.jit
def softplus(x):
    """log(1 + e^x) as PyTorch has it: x itself above 20.

    With s = 1 + e^x rounded, log(s) · e^x / (s − 1) keeps the digits that s has lost, and where s
    is 1 the answer is e^x. No minimum guards the exponential: on hardware it would drop NaN.
    """
    grown = tl.exp(x)
    above_one = 1.0 + grown
    small = above_one == 1.0
    corrected = tl.log(above_one) * (grown / tl.where(small, 1.0, above_one - 1.0))
    return tl.where(x > 20.0, x, tl.where(small, grown, corrected))


@triton.jit
def softplus_slope(x):
    """Derivative of `softplus`."""
    return tl.where(x > 20.0, 1.0, 1.0 / (1.0 + tl.exp(-x)))
