"""Channels to multiples of what TMA takes: zeros, which leave all sums as they are."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..backward_pass import Backward, PackedGradients
from ..forward_pass import Scratch
from ..setting import Setting, Tokens


def fits(s: Setting, step: int) -> bool:
    """Whether key and value channels are multiples of the step."""
    return s.key_dim % step == s.value_dim % step == 0


def run_widened(
    backward: Backward,
    step: int,
    tokens: Tokens,
    setting: Setting,
    scratch: Scratch,
    grad_output: Tensor,
    grad_final: Tensor | None,
) -> PackedGradients:
    """Run a backward on copies with more channels, and cut its results.

    Args:
        backward: What takes multiples of the step.
        step: Of channels.
        tokens: Like what follows, as `backward_pass.run_backward` takes it.
    """
    t, s = tokens, setting
    keys, values = (-(-width // step) * step for width in (s.key_dim, s.value_dim))
    found = backward(
        Tokens(
            *(_wider(x, keys) for x in (t.q, t.k)),
            _wider(t.v, values),
            *(_wider(x, keys) for x in (t.g, t.b)),
            _wider(t.w, values),
        ),
        replace(s, key_dim=keys, value_dim=values),
        _kept(scratch, keys, values),
        _wider(grad_output, values),
        None if grad_final is None else _state(grad_final, keys, values),
    )
    return _cut(found, s)


def _kept(kept: Scratch, keys: int, values: int) -> Scratch:
    names = ("query_decayed", "key_decayed", "erase_transformed", "chunk_decay")
    return kept._replace(
        **{name: _wider(getattr(kept, name), keys) for name in names},
        updates=_wider(kept.updates, values),
        states=_state(kept.states, keys, values),
    )


def _cut(found: PackedGradients, s: Setting) -> PackedGradients:
    names = {name: s.key_dim for name in "qkgb"} | {name: s.value_dim for name in "vw"}
    cut = {name: getattr(found, name)[..., :width] for name, width in names.items()}
    cut["initial"] = found.initial[..., : s.key_dim, : s.value_dim]
    return PackedGradients(**{name: x.contiguous() for name, x in cut.items()})


def _wider(x: Tensor | None, width: int) -> Tensor | None:
    """[…, …, D] → […, …, width]; gates with one value a head, and stubs, as they are."""
    if x is None or x.dim() < 3:
        return x
    return torch.nn.functional.pad(x, (0, width - x.shape[-1]))


def _state(states: Tensor, keys: int, values: int) -> Tensor:
    beyond = 0, values - states.shape[-1], 0, keys - states.shape[-2]
    return torch.nn.functional.pad(states, beyond)
