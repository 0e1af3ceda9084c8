"""The error that one floating-point operation commits, for each operation of the table.

Errors are absolute and in units of the unit roundoff u of the arithmetic that computes the
operation. They are those of the fast path that a Triton author gets without asking for it:

* `tl.exp` is `ex2.approx(x * log2(e))`: the product's rounding is amplified by |x|.
* `tl.log2` may be `lg2.approx`: absolute error 2**-22 between 0.5 and 2, relative beyond
  (PTX ISA, floating-point instructions). `div.full`, `sqrt.approx`, `rsqrt.approx`: about 2u.
* Triton has no `tanh`, `expm1` or `log1p`: they are written with `exp` and `log`, which leaves an
  absolute error where the result is small.

Names are those of the ATen schema without namespace, trailing underscore and overload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Arguments = Sequence[Any]
Options = Mapping[str, Any]
ErrorRule = Callable[[Tensor, Arguments, Options], Tensor]


def relative(units: float) -> ErrorRule:
    """An error proportional to the result."""
    return lambda out, args, options: units * out.abs()


def _numeric(value: Any, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=like.dtype)


def _near_one(x: Tensor) -> Tensor:
    return ((x > 0.5) & (x < 2.0)).to(torch.float64)


def _sum(out: Tensor, args: Arguments, options: Options) -> Tensor:
    scale = options.get("alpha", 1)
    if scale == 1:
        return out.abs()
    scaled = args[0] if options.get("reversed") else args[1]
    return out.abs() + (scale * _numeric(scaled, out)).abs()


def _reversed_difference(out: Tensor, args: Arguments, options: Options) -> Tensor:
    scale = args[2] if len(args) > 2 else options.get("alpha", 1)
    return _sum(out, args, {"alpha": scale, "reversed": True})


def _erf(out: Tensor, args: Arguments, options: Options) -> Tensor:
    """Abramowitz and Stegun 7.1.26 is in common use: 1.5e-7 off, and as much in evaluating it."""
    return 5 + 2 * out.abs()


def _exp(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return (2 + args[0].abs()) * out.abs()


def _expm1(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return (3 + args[0].abs()) * (out + 1).abs() + out.abs()


def _log(scale: float) -> ErrorRule:
    def error(out: Tensor, args: Arguments, options: Options) -> Tensor:
        return 2 * out.abs() + scale * 4 * _near_one(args[0])

    return error


def _log1p(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return 1 + 2 * out.abs() + 4 * _near_one(1 + args[0])


def _sigmoid(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return out * (2 + (1 - out) * (2 + args[0].abs()))


def _tanh(out: Tensor, args: Arguments, options: Options) -> Tensor:
    sigmoid = (1 + out) / 2
    return 2 * _sigmoid(sigmoid, (2 * args[0],), options) + out.abs()


def _hyperbolic(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return (3 + args[0].abs()) * torch.cosh(args[0])


def _pow(out: Tensor, args: Arguments, options: Options) -> Tensor:
    base, exponent = _numeric(args[0], out), args[1]
    if not isinstance(exponent, Tensor):
        if float(exponent).is_integer() and abs(exponent) <= 4:
            return abs(exponent) * out.abs()
        if abs(exponent) == 0.5:
            return 2 * out.abs()
    exponent = _numeric(exponent, out)
    logarithm = base.abs().log2()
    amplification = exponent.abs() * (3 * logarithm.abs() + 4 * _near_one(base.abs()))
    return out.abs() * (2 + torch.nan_to_num(amplification))


def _xlogy(out: Tensor, args: Arguments, options: Options) -> Tensor:
    factor, argument = _numeric(args[0], out), _numeric(args[1], out)
    return 3 * out.abs() + 4 * factor.abs() * _near_one(argument)


def _remainder(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return 2 * _numeric(args[0], out).abs().expand(out.shape)


def _angle_error(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return 2 * torch.ones_like(out.abs())


def _lgamma(out: Tensor, args: Arguments, options: Options) -> Tensor:
    return 6 * (1 + out.abs())


def _logcumsumexp(out: Tensor, args: Arguments, options: Options) -> Tensor:
    length = max(1, args[0].shape[args[1]] if args[0].dim() else 1)
    largest = args[0].abs().cummax(args[1]).values if args[0].dim() else args[0].abs()
    return math.sqrt(length) + 6 + 2 * out.abs() + largest


def _ctc_loss(out: Tensor, args: Arguments, options: Options) -> Tensor:
    steps = args[0].shape[0]
    return math.sqrt(steps) * (6 + out.abs())


ELEMENTWISE: dict[str, ErrorRule] = {
    **dict.fromkeys(("add", "sub"), _sum),
    "rsub": _reversed_difference,
    **dict.fromkeys(("mul", "square", "ldexp", "leaky_relu", "_prelu_kernel"), relative(1)),
    **dict.fromkeys(("leaky_relu_backward", "deg2rad", "rad2deg", "linspace"), relative(1)),
    **dict.fromkeys(("div", "reciprocal", "sqrt", "rsqrt", "exp2", "hypot"), relative(2)),
    **dict.fromkeys(("erfc", "sin", "cos", "special_ndtr"), relative(2)),
    **dict.fromkeys(("tan", "asin", "acos", "atan", "atan2"), relative(4)),
    **dict.fromkeys(("asinh", "acosh", "atanh", "erfinv", "special_i0e", "i0"), relative(4)),
    "erf": _erf,
    "exp": _exp,
    "expm1": _expm1,
    "log": _log(1.0),
    "log2": _log(1 / math.log(2)),
    "log10": _log(1 / math.log(10)),
    "log1p": _log1p,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "sinh": _hyperbolic,
    "cosh": _hyperbolic,
    "pow": _pow,
    "xlogy": _xlogy,
    "remainder": _remainder,
    "fmod": _remainder,
    "angle": _angle_error,
    "polar": relative(2),
    "lgamma": _lgamma,
    "digamma": _lgamma,
    "logcumsumexp": _logcumsumexp,
    "_ctc_loss": _ctc_loss,
    "_ctc_loss_backward": _ctc_loss,
}

RANGES: dict[str, tuple[float | None, float | None]] = {
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "erfc": (0.0, 2.0),
    "exp": (0.0, None),
    "exp2": (0.0, None),
    "expm1": (-1.0, None),
    "sqrt": (0.0, None),
    "rsqrt": (0.0, None),
}
"""Bounds that a correct result never crosses, so that `log(1 - sigmoid(x))` stays a number."""


_EXACT = """
    abs alias amax amin aminmax arange argmax argmin argsort as_strided_copy as_strided_scatter
    bernoulli bincount bitwise_and bitwise_not bitwise_or bitwise_xor block_diag bucketize cat
    cauchy ceil clamp clamp_max clamp_min clone complex conj_physical constant_pad_nd
    contiguous convert_element_type copy copysign count_nonzero cummax cummin
    _cummax_helper _cummin_helper detach device_put diag_embed diagonal_copy diagonal_scatter
    dropout embedding empty empty_like empty_permuted empty_strided eq equal
    expand_copy exponential eye fill fix flip floor floor_divide frac frexp full full_like gather ge
    geometric gt heaviside hardtanh hardtanh_backward histc im2col imag index index_copy index_fill
    index_select is_same_size isfinite isin isinf isnan isneginf isposinf item kthvalue le lift
    lift_fresh lift_fresh_copy _local_scalar_dense log_normal logical_and logical_not logical_or
    logical_xor lt masked_fill masked_scatter masked_select max max_pool2d_with_indices
    max_pool3d_with_indices max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool3d
    fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d maximum fmax median min
    minimum fmin mode multinomial nan_to_num nanmedian native_dropout ne neg new_empty
    new_empty_strided new_full new_ones new_zeros nextafter nonzero nonzero_static normal one_hot
    ones ones_like permute_copy pixel_shuffle pixel_unshuffle poisson rand rand_like randint
    randint_like randn randn_like random randperm real reflection_pad1d reflection_pad2d
    reflection_pad3d relu repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d _reshape_alias reshape resize resize_as roll round rrelu_with_noise
    scalar_tensor scatter searchsorted select_backward select_copy select_scatter set sgn sign
    signbit slice_backward slice_copy slice_scatter sort split_copy squeeze_copy stack sym_size
    take threshold threshold_backward topk _to_copy transpose_copy tril tril_indices triu
    triu_indices trunc uniform unbind_copy unfold_copy unique_dim _unique2 unique_consecutive
    unsafe_split unsafe_split_with_sizes _unsafe_index _unsafe_masked_index _unsafe_view
    unsqueeze_copy upsample_nearest1d upsample_nearest2d upsample_nearest3d vander view_copy where
    zero zeros zeros_like _assert_async _efficientzerotensor _has_compatible_shallow_copy_type
    _fused_dropout _linalg_check_errors lu_unpack record_stream native_channel_shuffle
"""
EXACT = frozenset(_EXACT.split())
"""Moves, selections, comparisons, factories and draws: no rounding."""

_BACKWARD_STABLE = """
    linalg_inv_ex _linalg_solve_ex linalg_lu_factor_ex linalg_lu linalg_lu_solve
    linalg_cholesky_ex cholesky cholesky_solve cholesky_inverse _linalg_det _linalg_slogdet
    linalg_qr _linalg_svd _linalg_eigh linalg_eig linalg_eigvals linalg_solve_triangular
    triangular_solve linalg_matrix_exp linalg_lstsq linalg_householder_product linalg_pinv
"""
BACKWARD_STABLE = frozenset(_BACKWARD_STABLE.split())
"""Exact for an input a few units away: the input is perturbed, and conditioning does the rest."""

_UNFUSED = """
    logsumexp mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits
    _euclidean_dist special_log_ndtr renorm
"""
UNFUSED = frozenset(_UNFUSED.split())
"""Composites whose intermediate results eager PyTorch itself stores, so a half type rounds them."""
