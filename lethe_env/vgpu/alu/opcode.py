"""The modifiers of one opcode, each of which must be understood."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ptx.model import UnsupportedError


@dataclass(frozen=True, slots=True)
class Scalar:
    """A PTX fundamental type: `s32`, `f16`, `b64`, `pred`."""

    name: str
    kind: str
    """`s`, `u`, `b`, `f`, `bf` or `pred`."""
    bits: int

    @property
    def signed(self) -> bool:
        """Whether comparisons, shifts and extensions of this type are signed."""
        return self.kind == "s"

    @property
    def floating(self) -> bool:
        """Whether the bits are a floating-point number."""
        return self.kind in ("f", "bf")

    @property
    def register(self) -> str:
        """The register type that holds it: 8-bit values live in 16-bit registers."""
        return "pred" if self.kind == "pred" else f"b{max(self.bits, 16)}"


SCALARS: Mapping[str, Scalar] = {
    "pred": Scalar("pred", "pred", 1),
    "bf16": Scalar("bf16", "bf", 16),
    **{
        f"{kind}{bits}": Scalar(f"{kind}{bits}", kind, bits)
        for kind in "sub"
        for bits in (8, 16, 32, 64)
    },
    **{f"f{bits}": Scalar(f"f{bits}", "f", bits) for bits in (16, 32, 64)},
}


class Modifiers:
    """Consumes the parts of an opcode; what is left over is an error.

    Args:
        opcode: The opcode split at its dots.
    """

    def __init__(self, opcode: tuple[str, ...]) -> None:
        self.opcode = opcode
        self._rest = list(opcode[1:])

    @property
    def name(self) -> str:
        """The full opcode with its dots."""
        return ".".join(self.opcode)

    @property
    def last(self) -> str:
        """The last part that is left, empty if there is none."""
        return self._rest[-1] if self._rest else ""

    def unsupported(self, reason: str) -> UnsupportedError:
        """The error to raise for this opcode."""
        return UnsupportedError(f"{self.name}: {reason}", opcode=self.name)

    def flag(self, modifier: str) -> bool:
        """Whether the modifier is present; consumes it."""
        if modifier in self._rest:
            self._rest.remove(modifier)
            return True
        return False

    def choice(self, *modifiers: str, default: str | None = None) -> str:
        """The one present of several modifiers, or the default.

        Raises:
            UnsupportedError: If none is present and there is no default.
        """
        for modifier in modifiers:
            if self.flag(modifier):
                return modifier
        if default is None:
            raise self.unsupported(f"expected one of .{', .'.join(modifiers)}")
        return default

    def type_name(self, *allowed: str) -> str:
        """The last part of what is left, which must be one of `allowed`; consumes it."""
        if self.last not in allowed:
            raise self.unsupported(f"expected one of the types .{', .'.join(allowed)}")
        return self._rest.pop()

    def scalar(self, *allowed: str) -> Scalar:
        """`type_name` as a scalar type."""
        return SCALARS[self.type_name(*allowed)]

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            UnsupportedError: If a modifier was not consumed.
        """
        if self._rest:
            raise self.unsupported(f"unknown modifier .{self._rest[0]}")
