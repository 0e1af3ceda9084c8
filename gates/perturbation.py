"""RoundingMode: the float64 reference, with each operation off by as much as it may be."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from .coherence import coherent_error, like_signed
from .decompositions import decomposition_of
from .error_sizes import ErrorSize, ErrorSizes, Sizes
from .float64 import Float64Mode
from .operations import BACKWARD_STABLE, ELEMENTWISE, EXACT, RANGES, UNFUSED
from .precision import Precision
from .reductions import REDUCTIONS, Reduction

TF32_UNIT = 2.0**-10
"""Relative error of an input cut to TF32's ten explicit mantissa bits."""


Draw = Callable[[torch.Size], Tensor]


class RoundingMode(Float64Mode):
    """Adds to every floating result an error of the size that a correct kernel may commit.

    Args:
        precision: What the kernel computes in.
        draw: Gives standard normal numbers of a shape, float64: the errors in units of their size.
        sizes: What an earlier run of the same reference found out about its sums.
    """

    def __init__(self, precision: Precision, draw: Draw, sizes: ErrorSizes | None = None) -> None:
        super().__init__()
        self._precision = precision
        self._draw = draw
        self._sizes = ErrorSizes() if sizes is None else sizes
        self._sizes.rewind()
        self._storage_unit = precision.elementwise_unit
        self._fused = 0
        self._shrinking = float(draw(torch.Size(())))
        self.reduction_terms = 1
        self.unmodelled: set[str] = set()

    def observe(self, func: OpOverload, kwargs: Mapping[str, Any]) -> None:
        """A module that itself casts to a narrower type lets the kernel do so from there on."""
        dtype = kwargs.get("dtype")
        if name_of(func) == "_to_copy" and dtype in (torch.float16, torch.bfloat16):
            self._storage_unit = max(self._storage_unit, torch.finfo(dtype).eps / 2)

    def compute(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Carry out one operation, decomposed where it hides several, with its error."""
        name = name_of(func)
        if name in EXACT or torch.Tag.inplace_view in func.tags:
            return self._exact(func, args, kwargs)
        if func._schema.is_mutable and functional_of(func) is not None:
            return self._write(func, args, kwargs)
        if name in ELEMENTWISE:
            out = func(*args, **kwargs)
            error = ELEMENTWISE[name](out, args, kwargs) if _is_inexact(out) else None
            return self._off_by(out, error, RANGES.get(name))
        if name in REDUCTIONS:
            return self._reduced(REDUCTIONS[name], func, args, kwargs)
        if name in BACKWARD_STABLE:
            args = tree_map(self._nearby, tuple(args))
            return self._stored(func(*args, **kwargs))
        if name.startswith("_fft_"):
            return self._transformed(func, args, kwargs)
        decomposition = decomposition_of(func)
        if decomposition is not None:
            return self._decomposed(name, decomposition, args, kwargs)
        out = func(*args, **kwargs)
        if any(_is_inexact(value) for value in _flat(out)):
            self.unmodelled.add(name)
        return tree_map(lambda value: self._relative(value, 1), out)

    def _exact(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        out = func(*args, **kwargs)
        narrowed = self._storage_unit > self._precision.elementwise_unit
        return self._stored(out) if narrowed and name_of(func) == "_to_copy" else out

    def _write(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """An in-place or `out=` operation: its functional form, then a copy into the target."""
        functional = functional_of(func)
        written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        names = [argument.name for argument in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        targets = [given[name] for name in written if name in given]
        inputs = [argument.name for argument in functional._schema.arguments]
        positional = tuple(args[: sum(name in inputs for name in names[: len(args)])])
        options = {name: value for name, value in kwargs.items() if name in inputs}
        with self:
            results = functional(*positional, **options)
        for target, result in zip(_flat(targets), _flat(results), strict=False):
            if target.shape != result.shape and not func._schema.name.endswith("_"):
                target.resize_(result.shape)
            target.copy_(result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _reduced(
        self, rule: Reduction, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        out = func(*args, **kwargs)
        if not any(_is_inexact(value) for value in _flat(out)):
            return out
        terms = rule.terms(args, kwargs, _flat(out))
        longest = int(terms.max()) if isinstance(terms, Tensor) and terms.numel() else terms
        if isinstance(longest, int):
            self.reduction_terms = max(self.reduction_terms, longest)
        if isinstance(terms, int) and terms == 0:
            return out
        question = (func, tuple(value.shape for value in _flat(out) if value is not None))
        sizes = self._sizes.of(
            question, lambda: self._sizes_of(rule, func, args, kwargs, out, terms)
        )
        shrunk = 1 + self._shrinking * TF32_UNIT if self._cuts(rule) else 1.0
        noisy = [
            value if size is None else self._off_by(value, size.at(value)) * shrunk
            for value, size in zip(_flat(out), sizes, strict=True)
        ]
        return noisy[0] if isinstance(out, Tensor) else tuple(noisy)

    def _sizes_of(
        self,
        rule: Reduction,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Any,
        terms: int | Tensor,
    ) -> Sizes:
        """Size of the error of each result of a reduction."""
        growth = torch.as_tensor(terms, dtype=torch.float64).sqrt()
        if rule.coordinates:
            growth = growth + max(max(args[0].shape[2:]), max(_flat(out)[0].shape[2:]))
        magnitudes = out if rule.running_product else _on(torch.abs, func, args, kwargs)
        narrowed = self._tensor_core_error(rule, func, args, kwargs, out)
        coherent = self._coherent(rule, func, args, kwargs, out, magnitudes, terms)
        unit = self._precision.accumulate_unit
        return [
            ErrorSize.found(
                growth * magnitude.abs() + extra / unit + common, value, magnitude.abs()
            )
            if value is not None
            else None
            for value, magnitude, extra, common in zip(
                _flat(out), _flat(magnitudes), narrowed, coherent, strict=True
            )
        ]

    def _coherent(
        self,
        rule: Reduction,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Any,
        magnitudes: Any,
        terms: int | Tensor,
    ) -> list[Tensor | float]:
        """Error of additions that are all rounded the same way, per result, in units."""
        pairs = zip(_flat(out), _flat(magnitudes), strict=True)
        if rule.running_product or not any(
            total is not None and like_signed(total, magnitude) for total, magnitude in pairs
        ):
            return [0.0] * len(_flat(out))
        squares = _flat(_on(lambda value: value.abs().square(), func, args, kwargs))
        weights = _flat(_on(lambda value: torch.ones_like(value.abs()), func, args, kwargs))
        unit = self._precision.accumulate_unit
        return [
            0.0 if total is None else coherent_error(total, square, weight, terms, unit)
            for total, square, weight in zip(_flat(out), squares, weights, strict=True)
        ]

    def _tensor_core_error(
        self,
        rule: Reduction,
        func: OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        out: Any,
    ) -> list[Tensor | float]:
        """Absolute error of cutting both factors to TF32, per result.

        A subnormal number loses as much as the smallest normal one. What all results of a run lose
        alike is drawn once for the run.
        """
        if not self._cuts(rule):
            return [0.0] * len(_flat(out))
        if rule.addend is not None:
            addend = args[rule.addend]
            without = torch.zeros_like(addend) if func is not aten.convolution.default else None
            args = (*args[: rule.addend], without, *args[rule.addend + 1 :])
        smallest = self._precision.smallest_normal
        squares = _on(
            lambda value: torch.where(value == 0, 0.0, value.abs().clamp(min=smallest).square()),
            func,
            args,
            kwargs,
        )
        return [
            TF32_UNIT * (math.sqrt(2) * square.sqrt() + value.abs()) if square is not None else 0.0
            for square, value in zip(_flat(squares), _flat(out), strict=True)
        ]

    def _cuts(self, rule: Reduction) -> bool:
        """Whether tensor cores may cut the factors to TF32.

        They drop bits, so every product shrinks, and a chain of layers shrinks by as much in each.
        """
        return rule.product and self._precision.tf32 and self._precision.dtype is torch.float32

    def _decomposed(
        self,
        name: str,
        decomposition: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """A composite: a fused one keeps its inner results in the accumulator's precision."""
        fused = name not in UNFUSED
        self._fused += fused
        try:
            with self:
                out = decomposition(*args, **kwargs)
        finally:
            self._fused -= fused
        return self._stored(out)

    def _transformed(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A Fourier transform: off by u * log2(N) of the spectrum's root mean square."""
        out = func(*args, **kwargs)
        dims = args[1]
        lengths = max(args[0].numel(), out.numel()) // max(1, _outer(out, dims))
        self.reduction_terms = max(self.reduction_terms, lengths)
        level = out.abs().square().mean(dims, keepdim=True).sqrt().expand(out.shape)
        return self._off_by(out, (1 + math.log2(max(2, lengths))) * level)

    def _nearby(self, value: Any) -> Any:
        """A matrix whose entries are off by u * sqrt(n) of its largest entry."""
        if not _is_inexact(value) or value.dim() < 2:
            return value
        largest = value.abs().amax((-2, -1), keepdim=True).expand(value.shape)
        error = math.sqrt(max(value.shape[-2:])) * largest
        return self._off_by(value, error, stored=False)

    def _relative(self, value: Any, units: float) -> Any:
        return self._off_by(value, units * value.abs()) if _is_inexact(value) else value

    def _stored(self, out: Any) -> Any:
        """Round results to the half type they are stored in."""
        if self._storage_unit == self._precision.accumulate_unit or self._fused:
            return out
        return tree_map(
            lambda v: self._off_by(v, torch.zeros_like(v.abs())) if _is_inexact(v) else v, out
        )

    def _off_by(
        self,
        out: Any,
        error: Tensor | None,
        bounds: tuple[float | None, float | None] | None = None,
        stored: bool = True,
    ) -> Any:
        """`out` with an error of `error` units of the accumulator, and that of its storage."""
        if error is None or not _is_inexact(out):
            return out
        total = self._total(out.abs(), error, stored=stored and not self._fused)
        if out.is_complex():
            noise = torch.complex(self._draw(out.shape), self._draw(out.shape))
        else:
            noise = self._draw(out.shape)
        noisy = out + total * noise
        return noisy if bounds is None or out.is_complex() else noisy.clamp(*bounds)

    def _total(self, size: Tensor, error: Tensor, *, stored: bool) -> Tensor:
        """Size of the error of results of magnitude `size` and of its storage; 0 if not finite."""
        total = self._precision.accumulate_unit * error
        if stored and self._storage_unit > self._precision.accumulate_unit:
            total = total + self._storage_unit * size
        if self._precision.underflows(size, stored=stored):
            total = total + self._precision.underflow(size, stored=stored)
        if _all_finite(total) and _all_finite(size):
            return total
        return torch.where(torch.isfinite(total) & torch.isfinite(size), total, 0.0)


aten = torch.ops.aten


@functools.cache
def name_of(func: OpOverload) -> str:
    """Name of the schema without namespace and the underscore of in-place forms."""
    name = func._schema.name.split("::")[1]
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


@functools.cache
def functional_of(func: OpOverload) -> OpOverload | None:
    """The overload that returns what `func` writes, if PyTorch has one."""
    wanted = [
        (argument.name, str(argument.type))
        for argument in func._schema.arguments
        if not (argument.is_out or (argument.kwarg_only and argument.alias_info))
    ]
    packet = getattr(getattr(torch.ops, func.namespace), name_of(func), None)
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)
        arguments = [(a.name, str(a.type)) for a in candidate._schema.arguments]
        if not candidate._schema.is_mutable and arguments == wanted:
            return candidate
    return None


def _is_inexact(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.float64, torch.complex128)


def _all_finite(magnitudes: Tensor) -> bool:
    return not magnitudes.numel() or bool(magnitudes.amax().isfinite())


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _on(
    change: Callable[[Tensor], Tensor],
    func: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """`func` with every floating argument, and the scalars that scale them, changed."""

    def changed(value: Any) -> Any:
        return change(value) if _is_inexact(value) else value

    scales = {
        name: change(torch.tensor(float(kwargs[name]))).item()
        for name in ("alpha", "beta")
        if name in kwargs
    }
    changed_args = tree_map(changed, tuple(args))
    return func(*changed_args, **{**tree_map(changed, dict(kwargs)), **scales})


def _outer(out: Tensor, dims: Sequence[int]) -> int:
    return out.numel() // max(1, math.prod(out.shape[dim] for dim in dims))
