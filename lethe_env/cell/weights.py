"""Giving a candidate the reference's weights: by name, never by shape alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

import torch


def copy_weights(
    model: torch.nn.Module, weights: Mapping[str, torch.Tensor], buffers: frozenset[str]
) -> bool:
    """Copy the reference's values to the candidate's tensors of the same name.

    Shapes must be equal, or one must come from the other by merging neighbouring dimensions. Two
    shapes that merely have the same element count are likely a transposition; copying into one
    would scramble it, so it counts as not matched.

    Args:
        model: the candidate's module; its tensors are overwritten in place.
        weights: the reference's parameters and buffers by name.
        buffers: the names in `weights` that are buffers.

    Returns:
        Whether every reference parameter found a place.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    own |= dict(model.named_buffers(remove_duplicate=False))
    matched = True
    with torch.no_grad():
        for name, value in weights.items():
            target = own.get(name)
            if target is not None and is_reshaping(value.shape, target.shape):
                target.copy_(value.reshape(target.shape))
            elif name not in buffers:
                matched = False
    return matched


def is_reshaping(first: Sequence[int], second: Sequence[int]) -> bool:
    """Whether one shape comes from the other by merging neighbouring dimensions.

    >>> is_reshaping((64, 32, 3, 3), (64, 288)), is_reshaping((64, 288), (288, 64))
    (True, False)
    """
    ends, other_ends = _dimension_ends(first), _dimension_ends(second)
    same_count = max(ends, default=1) == max(other_ends, default=1)
    return same_count and (ends <= other_ends or other_ends <= ends)


def _dimension_ends(shape: Sequence[int]) -> set[int]:
    return set(accumulate((size for size in shape if size != 1), mul))
