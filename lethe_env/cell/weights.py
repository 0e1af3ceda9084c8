"""Giving a candidate the reference's weights: by name, and by shape where a corpus does so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul

import torch

Tensors = Mapping[str, torch.Tensor]


def copy_weights(
    model: torch.nn.Module, weights: Tensors, buffers: frozenset[str], *, by_shape: bool = False
) -> bool:
    """Copy the reference's values to the candidate's tensors.

    Names must be equal, and shapes too, or one must come from the other by merging neighbouring
    dimensions. Two shapes that merely have the same element count are likely a transposition;
    copying into one would scramble it, so it counts as not matched.

    Args:
        model: the candidate's module; its tensors are overwritten in place.
        weights: the reference's parameters and buffers by name.
        buffers: the names in `weights` that are buffers.
        by_shape: whether tensors without a partner of that kind find one by their shape, if each
            is the only one of it that is left.

    Returns:
        Whether every reference parameter found a place.
    """
    own = dict(model.named_parameters(remove_duplicate=False))
    own |= dict(model.named_buffers(remove_duplicate=False))
    places = {
        name: name
        for name, value in weights.items()
        if name in own and is_reshaping(value.shape, own[name].shape)
    }
    if by_shape:
        places |= _alone_of_their_shape(
            {name: value for name, value in weights.items() if name not in places},
            {name: value for name, value in own.items() if name not in places},
        )
    with torch.no_grad():
        for name, place in places.items():
            own[place].copy_(weights[name].reshape(own[place].shape))
    return all(name in places or name in buffers for name in weights)


def _alone_of_their_shape(weights: Tensors, own: Tensors) -> dict[str, str]:
    """For each reference tensor the only candidate tensor of its shape, if it is the only one."""
    counts = Counter(tuple(value.shape) for value in weights.values())
    places: dict[tuple[int, ...], list[str]] = {}
    for name, value in own.items():
        places.setdefault(tuple(value.shape), []).append(name)
    return {
        name: found[0]
        for name, value in weights.items()
        if len(found := places.get(tuple(value.shape), [])) == 1 and counts[tuple(value.shape)] == 1
    }


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
