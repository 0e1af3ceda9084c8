"""f64 arithmetic in a rounding direction, by the processor's own rounding mode.

Each operation is a function that nothing is moved into or out of: it sets the mode, computes, and
sets the mode back to nearest, which is what all other code is compiled for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .builder import Builder, Value

_MODES = {"rz": 0, "rp": 2, "rm": 3}
"""Numbers by which LLVM sets a rounding mode; 1 is to nearest."""

_OPERANDS = {"fadd": 2, "fsub": 2, "fmul": 2, "fdiv": 2, "fma": 3, "sqrt": 1}


def apply(build: Builder, operation: str, mode: str, *operands: Value) -> Value:
    """`fadd`, `fsub`, `fmul`, `fdiv`, `fma` or `sqrt` of f64, rounded by `rz`, `rm` or `rp`."""
    return build.shared(f"directed.{operation}.{mode}", *operands)


def _definer(operation: str, mode: str) -> Callable[[Builder], None]:
    def define(build: Builder) -> None:
        operands = [build.parameter("double") for _ in range(_OPERANDS[operation])]
        build.line(f"call void @llvm.set.rounding(i32 {_MODES[mode]}) strictfp")
        result = build.constrained(operation, *operands)
        build.line("call void @llvm.set.rounding(i32 1) strictfp")
        build.returns(result)

    return define


FUNCTIONS: Mapping[str, Callable[[Builder], None]] = {
    f"directed.{operation}.{mode}": _definer(operation, mode)
    for operation in _OPERANDS
    for mode in _MODES
}
"""By the names that `Builder.shared` takes."""
