"""Noise for constant initial values, so that a dropped bias or scale shows."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

import torch

_RUNNING_MEAN, _RUNNING_VARIANCE = "running_mean", "running_var"
_SPREAD = 0.25
_LEAST_VARIANCE = 0.05


def noise_constants(named_tensors: Iterable[tuple[str, torch.Tensor]], noise_seed: int) -> None:
    """Add seeded noise, in place, to every floating tensor whose elements are all equal.

    What is added depends on the seed, on the constant, on the shape and on how many tensors of
    the same constant and shape came before, never on the name: two modules that declare the same
    parameters in the same order under other names stay equal. A constant c becomes
    c * (1 + u) + v with u and v uniform in [-0.25, 0.25); a running variance stays positive.

    Args:
        named_tensors: parameters and buffers of one module, in order of declaration. Of buffers
            only `running_mean` and `running_var` are touched; parameters are recognised by type.
        noise_seed: the seed.
    """
    seen: Counter[tuple[float, tuple[int, ...]]] = Counter()
    with torch.no_grad():
        for name, tensor in named_tensors:
            role = name.rpartition(".")[2]
            eligible = isinstance(tensor, torch.nn.Parameter) or role in (
                _RUNNING_MEAN,
                _RUNNING_VARIANCE,
            )
            if not eligible or not tensor.is_floating_point() or not _is_constant(tensor):
                continue
            key = (float(tensor.flatten()[0]), tuple(tensor.shape))
            noise = _noise(noise_seed, key, seen[key])
            seen[key] += 1
            value = key[0] * (1 + noise[0]) + noise[1]
            if role == _RUNNING_VARIANCE:
                value = value.clamp_min(_LEAST_VARIANCE)
            tensor.copy_(value.to(tensor.dtype))


def _is_constant(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and bool((tensor == tensor.flatten()[0]).all())


def _noise(seed: int, key: tuple[float, tuple[int, ...]], ordinal: int) -> torch.Tensor:
    text = f"{seed} {key[0]!r} {key[1]} {ordinal}"
    digest = hashlib.sha256(text.encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    uniform = torch.rand((2, *key[1]), generator=generator, dtype=torch.float64)
    return _SPREAD * (2 * uniform - 1)
