"""`add`, `sub`, `fma` of 16-bit operands with an f32: `add.rn.f32.bf16`."""

from __future__ import annotations

from collections.abc import Mapping

from . import rounding
from .builder import Builder
from .integer import Definer
from .opcode import SCALARS, Modifiers

_NARROW = ("f16", "bf16")


def is_mixed(opcode: tuple[str, ...]) -> bool:
    """Whether an opcode names an f32 result and then a narrower type."""
    return opcode[0] in DEFINERS and opcode[-2:-1] == ("f32",) and opcode[-1] in _NARROW


def arithmetic(code: Modifiers, build: Builder) -> None:
    """The narrow operands are widened, which is exact, and the f32 sum is rounded once."""
    operation = code.opcode[0]
    narrow = SCALARS[code.type_name(*_NARROW)]
    code.type_name("f32")
    code.choice("rn", default=None if operation == "fma" else "rn")
    saturates = code.flag("sat")
    code.finish()
    if operation == "fma":
        a, b = (rounding.widen(build, build.operand("b16"), narrow) for _ in range(2))
        value = build.intrinsic("fma", a, b, build.floats(build.operand("b32")))
    else:
        a = rounding.widen(build, build.operand("b16"), narrow)
        value = build.binary(f"f{operation}", a, build.floats(build.operand("b32")))
    build.result(build.bits(rounding.saturate(build, value) if saturates else value))


DEFINERS: Mapping[str, Definer] = {"add": arithmetic, "sub": arithmetic, "fma": arithmetic}
