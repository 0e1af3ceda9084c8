"""Input families: how floating values are drawn, and how they are kept inside a domain.

A family draws real numbers in float64. A domain then maps them to what the operation takes:
a probability stays a probability, a positive number positive. Last, the values are rounded to
the probe's dtype, so that the candidate and the oracle see the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

LOG_UNIFORM_BINADES = 20
"""Magnitudes run over 2^-20 … 2^20, forty binades; in float16 over 2^-4.7 … 2^4.3, so that a
product of three is no overflow, as it is none in float32."""
LARGE_MEAN = 8192.0
"""With a deviation of 1, float32 keeps no digit of E[x²] − E[x]²: 8192² · 2^-24 = 4. In half types
it is 1/eps, as far as they tell whole numbers apart."""
CORRUPT_SHARE = 0.01
"""Share of elements that the family `non_finite` replaces, at least one a tensor."""
TILE_EDGES = (0, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024)
"""Positions next to the block sizes that kernels commonly use."""

DOMAINS = (
    "real",
    "positive",
    "nonnegative",
    "unit",
    "negative",
    "probability",
    "log_probability",
    "sign",
    "binary",
    "own",
)
FIXED_DOMAINS = ("sign", "binary", "own")
"""Domains into which no foreign value may be written."""


class Draw(NamedTuple):
    """What a family needs to draw one tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    generator: torch.Generator
    position: int
    """Index among the tensors drawn; families treat the first one apart."""


def _normal(draw: Draw) -> torch.Tensor:
    return torch.randn(draw.shape, generator=draw.generator, dtype=torch.float64)


def _signs(draw: Draw) -> torch.Tensor:
    bits = torch.randint(0, 2, draw.shape, generator=draw.generator)
    return bits.double() * 2 - 1


def _cubable_binades(dtype: torch.dtype) -> tuple[float, float]:
    """Binary logarithms of the magnitudes of which products of three stay in range.

    A kernel may round such a product on its way to its own dtype: weights of values, or what a
    gradient has of three inputs. In float16, whose largest number is 65504, no more than that
    could be asked of it; other dtypes take products of six.
    """
    finfo = torch.finfo(dtype)
    return math.log2(finfo.smallest_normal) / 3, math.log2(finfo.max) / 3 - 1


def _large_mean(dtype: torch.dtype) -> float:
    return min(LARGE_MEAN, 1 / torch.finfo(dtype).eps)


def _log_uniform(draw: Draw) -> torch.Tensor:
    uniform = torch.rand(draw.shape, generator=draw.generator, dtype=torch.float64)
    low, high = _cubable_binades(draw.dtype)
    low, high = max(-LOG_UNIFORM_BINADES, low), min(LOG_UNIFORM_BINADES, high)
    return _signs(draw) * torch.exp2(low + (high - low) * uniform)


def _ties(draw: Draw) -> torch.Tensor:
    return torch.randint(-2, 3, draw.shape, generator=draw.generator).double()


def _constant(draw: Draw) -> torch.Tensor:
    # Eighths: their partial sums are exact, so that equal errors of equal terms cannot add up.
    eighths = 1 + int(torch.randint(0, 32, (), generator=draw.generator))
    sign = 1 - 2 * int(torch.randint(0, 2, (), generator=draw.generator))
    return torch.full(draw.shape, sign * eighths / 8, dtype=torch.float64)


def _sparse(draw: Draw) -> torch.Tensor:
    keep = torch.rand(draw.shape, generator=draw.generator) < 0.1
    return torch.where(keep, _normal(draw), torch.zeros((), dtype=torch.float64))


def _zeros(draw: Draw) -> torch.Tensor:
    return torch.zeros(draw.shape, dtype=torch.float64)


def _huge(draw: Draw) -> torch.Tensor:
    _, high = _cubable_binades(draw.dtype)
    return _normal(draw) * min(1e6, 2.0 ** (high - 2))  # few lie beyond four deviations


def _tiny(draw: Draw) -> torch.Tensor:
    low, _ = _cubable_binades(draw.dtype)
    return _normal(draw) * max(1e-6, 2.0**low)


def _subnormal(draw: Draw) -> torch.Tensor:
    finfo = torch.finfo(draw.dtype)
    step = finfo.smallest_normal * finfo.eps
    levels = round(finfo.smallest_normal / step)
    count = torch.randint(1, levels, draw.shape, generator=draw.generator).double()
    return _signs(draw) * count * step


def _signed_zero(draw: Draw) -> torch.Tensor:
    zero = torch.rand(draw.shape, generator=draw.generator) < 0.5
    return torch.where(zero, _signs(draw) * 0.0, _normal(draw))


def _offset(draw: Draw) -> torch.Tensor:
    return _normal(draw) + (_large_mean(draw.dtype) if draw.position == 0 else 0.0)


def _alternating(draw: Draw) -> torch.Tensor:
    values = _normal(draw)
    if draw.position or not draw.shape:
        return values
    parity = torch.arange(draw.shape[-1]) % 2
    return values + (1.0 - 2.0 * parity.double()) * _large_mean(draw.dtype)


def _stagnating(draw: Draw) -> torch.Tensor:
    return 1.0 + torch.rand(draw.shape, generator=draw.generator, dtype=torch.float64)


def _cancelling(axis: int) -> Callable[[Draw], torch.Tensor]:
    """Pairs that sum to zero along one axis of the first tensor, at random distances.

    The exact total is a small remainder while partial sums grow like a random walk, so a
    running total in a half type leaves an error that the exact total cannot hide. Further
    tensors are made equal at the paired places, so that products cancel as well.
    """

    def family(draw: Draw) -> torch.Tensor:
        values = _normal(draw)
        if not draw.shape:
            return values
        axes = [axis if -len(draw.shape) <= axis < len(draw.shape) else 0]
        if draw.position:
            axes = list(range(len(draw.shape)))
        for each in axes:
            values = _paired(values, each, -1.0 if draw.position == 0 else 1.0)
        return values

    return family


def _paired(values: torch.Tensor, axis: int, sign: float) -> torch.Tensor:
    length = values.shape[axis]
    shuffle = torch.Generator().manual_seed(length)  # the same pairs for every tensor of a length
    order = torch.randperm(length, generator=shuffle)
    half = length // 2
    result = values.clone()
    first = values.index_select(axis, order[:half])
    return result.index_copy_(axis, order[half : 2 * half], sign * first)


def _few(*specials: float, row: bool = False) -> Callable[[Draw], torch.Tensor]:
    """One to three special values a tensor, so that something finite is left beside them."""

    def family(draw: Draw) -> torch.Tensor:
        values = _normal(draw)
        count = values.numel()
        if count == 0:
            return values
        edges = [place for place in (*TILE_EDGES, count - 1) if place < count]
        for _ in range(1 + _index(draw, 3)):
            at_edge = _index(draw, 2)
            place = edges[_index(draw, len(edges))] if at_edge else _index(draw, count)
            values.view(-1)[place] = specials[_index(draw, len(specials))]
        if row and values.dim() > 1:
            lines = values.view(-1, values.shape[-1])
            lines[_index(draw, lines.shape[0])] = specials[0]
        return values

    return family


def _many(*specials: float) -> Callable[[Draw], torch.Tensor]:
    """Special values all over, and at half of the first, the last and the tile-edge places."""

    def family(draw: Draw) -> torch.Tensor:
        values = _normal(draw)
        count = values.numel()
        if count == 0:
            return values
        chosen = torch.rand(count, generator=draw.generator) < CORRUPT_SHARE
        edges = torch.tensor([place for place in (*TILE_EDGES, count - 1) if place < count])
        chosen[edges[torch.rand(len(edges), generator=draw.generator) < 0.5]] = True
        chosen[_index(draw, count)] = True
        places = chosen.nonzero().view(-1)
        picks = torch.randint(0, len(specials), places.shape, generator=draw.generator)
        values.view(-1)[places] = torch.tensor(specials, dtype=torch.float64)[picks]
        return values

    return family


def _index(draw: Draw, count: int) -> int:
    return int(torch.randint(0, count, (), generator=draw.generator))


FAMILIES: dict[str, Callable[[Draw], torch.Tensor]] = {
    "normal": _normal,
    "log_uniform": _log_uniform,
    "ties": _ties,
    "constant": _constant,
    "sparse": _sparse,
    "zeros": _zeros,
    "huge": _huge,
    "tiny": _tiny,
    "subnormal": _subnormal,
    "signed_zero": _signed_zero,
    "offset": _offset,
    "alternating": _alternating,
    "stagnating": _stagnating,
    "cancelling_last": _cancelling(-1),
    "cancelling_inner": _cancelling(-2),
    "cancelling_first": _cancelling(0),
    "nan": _few(math.nan),
    "positive_infinity": _few(math.inf),
    "negative_infinity": _few(-math.inf),
    "non_finite": _many(math.nan, math.inf, -math.inf),
    "nan_rows": _few(math.nan, row=True),
    "infinite_rows": _few(-math.inf, row=True),
}
"""Name to drawing function. The family `own` is the task's `get_inputs` and not listed."""

NON_FINITE = (
    "nan",
    "positive_infinity",
    "negative_infinity",
    "non_finite",
    "nan_rows",
    "infinite_rows",
)
"""Families that put NaN or infinities into inputs and parameters."""


def into_domain(values: torch.Tensor, domain: str) -> torch.Tensor:
    """Map real float64 values into a domain; NaN stays, infinities where the domain has them."""
    magnitude = values.abs()
    match domain:
        case "real":
            return values
        case "positive":
            return torch.where(magnitude == 0, torch.ones_like(values), magnitude)
        case "nonnegative":
            return magnitude
        case "negative":
            return -torch.where(magnitude == 0, torch.ones_like(values), magnitude)
        case "unit":
            return torch.where(magnitude.isinf(), magnitude, magnitude / (1 + magnitude))
        case "probability":
            return _probabilities(magnitude)
        case "log_probability":
            return _probabilities(magnitude).log()
        case "sign":
            return torch.where(values >= 0, 1.0, -1.0).double()
        case "binary":
            return (values > 0).double()
    raise ValueError(f"no domain named {domain!r}; known: {', '.join(DOMAINS)}")


def _probabilities(magnitude: torch.Tensor) -> torch.Tensor:
    """Rows that sum to one and have no zero, so that their logarithm is finite."""
    if magnitude.dim() == 0:
        return magnitude
    weight = torch.where(
        magnitude.isfinite(), magnitude.clamp(1e-3, 1e3), torch.ones_like(magnitude)
    )
    rows = weight / weight.sum(-1, keepdim=True)
    return torch.where(magnitude.isfinite(), rows, magnitude)


def draw_values(
    family: str, domain: str, shape: Sequence[int], dtype: torch.dtype, seed: int, position: int
) -> torch.Tensor:
    """One tensor of a family inside a domain, rounded to a floating dtype.

    Args:
        family: a key of `FAMILIES`.
        domain: one of `DOMAINS` but `own`.
        shape: the tensor's shape.
        dtype: floating dtype of the result.
        seed: seed of this draw.
        position: index of the tensor among those drawn for one probe.
    """
    generator = torch.Generator().manual_seed(seed * 1009 + position)
    draw = Draw(tuple(shape), dtype, generator, position)
    values = into_domain(FAMILIES[family](draw), domain)
    rounded = values.to(dtype)
    if family in NON_FINITE:
        return rounded
    limit = torch.finfo(dtype).max
    return rounded.clamp(-limit, limit)
