"""The definition of every pure opcode, and the functions that definitions share."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from . import approximate, bitwise, compare, convert, extrema, floating, integer, mixed, shared
from .builder import Builder, Definition
from .opcode import Modifiers

_FLOAT_TYPES = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"))
_INTEGER_DEFINERS = {
    **integer.DEFINERS,
    **bitwise.DEFINERS,
    **compare.DEFINERS,
    **convert.DEFINERS,
}
_FLOAT_DEFINERS = {
    **floating.DEFINERS,
    **extrema.DEFINERS,
    **compare.DEFINERS,
    **convert.DEFINERS,
    "mov": bitwise.move,
}


def function_name(opcode: tuple[str, ...], lanes: int) -> str:
    """The IR name of an opcode's function, without its `@`."""
    return f"alu.{'.'.join(opcode)}.x{lanes}"


@lru_cache(maxsize=4096)
def define(opcode: tuple[str, ...], lanes: int) -> Definition:
    """The function of a pure instruction, from raw register bits to raw register bits.

    Beside PTX's own opcodes there are `mov.b32.pack2`, `mov.b64.pack2`, `mov.b64.pack4` and
    `unpack…` for the vector forms of `mov`, `setp.….dual` for two destinations, and `….single.f16`
    for arithmetic of halves that come and go as `SINGLE`.

    Args:
        opcode: The opcode split at its dots.
        lanes: 32 for divergent code, 1 for warp-uniform code.

    Raises:
        UnsupportedError: If the opcode or one of its modifiers is not implemented.
    """
    code = Modifiers(opcode)
    build = Builder(lanes)
    definer = approximate.definer(opcode)
    if mixed.is_mixed(opcode):
        definer = mixed.arithmetic
    if definer is None:
        floats = not _FLOAT_TYPES.isdisjoint(opcode)
        definer = (_FLOAT_DEFINERS if floats else _INTEGER_DEFINERS).get(opcode[0])
    if definer is None:
        raise code.unsupported("unknown opcode")
    definer(code, build)
    return build.finish(function_name(opcode, lanes))


def prelude(names: Iterable[str], lanes: int) -> str:
    """The IR of the shared functions that definitions for this number of lanes require."""
    return "\n".join(shared.function(name, lanes) for name in sorted(set(names)))
