"""Shadows of registers, and the body of a tracking kernel as it grows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..ptx.dataflow import CARRY, destinations
from ..ptx.model import (
    Address,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Register,
    Vector,
)
from .taint import Taint

DEFINED, UNDEFINED = Immediate(0), Immediate(-1)
"""Shadows of values as a whole."""

_SUFFIX = ".undefined"


class Tracker:
    """Writes the instructions that stand before one of the kernel, which they are about."""

    def __init__(self, kernel: Kernel, taint: Taint, mirror_bytes: int) -> None:
        """Begin an empty body.

        Args:
            kernel: The kernel to follow.
            taint: Where undefined values may go in it.
            mirror_bytes: Where the shadow of shared memory begins.
        """
        self.taint = taint
        self.body: list[Instruction] = []
        self._types = {**kernel.registers, CARRY: "pred"}
        self._added = {f"{name}{_SUFFIX}": self._types[name] for name in taint.registers}
        self._mirror_bytes = mirror_bytes
        self._about = Instruction(opcode=())

    def begin(self, instruction: Instruction) -> None:
        """What is written from here on is about this instruction."""
        self._about = instruction

    def keep(self) -> None:
        """Let the instruction itself follow."""
        self._append(self._about)

    def emit(self, opcode: str, *operands: Operand, when: Register | None = None) -> None:
        """Write an instruction for all lanes, or for those in which a predicate holds."""
        self._append(
            Instruction(opcode=tuple(opcode.split(".")), operands=operands, predicate=when)
        )

    def guarded(self, opcode: Sequence[str], *operands: Operand) -> None:
        """Write an instruction under the guard of the one it is about."""
        self._append(replace(self._about, opcode=tuple(opcode), operands=operands))

    def use(self, operand: Operand, type_: str, guarded: bool = True) -> None:
        """Report lanes in which a value of a type is used though it is undefined."""
        shadow = self.shadow(operand)
        if shadow == DEFINED:
            return
        if guarded:
            self.guarded(("use", type_), shadow)
        else:
            self.emit(f"use.{type_}", shadow)

    def use_register(self, name: str, guarded: bool = True) -> None:
        """The same for all of a register."""
        self.use(Register(name), self.bit_type(name), guarded)

    def temporary(self, type_: str) -> Register:
        """A new register."""
        name = f"%track{len(self._added)}"
        self._added[name] = type_
        return Register(name)

    def is_tainted(self, operand: Operand) -> bool:
        """Whether a register or constant may be undefined."""
        return self.shadow(operand) != DEFINED

    def shadow(self, operand: Operand) -> Operand:
        """The shadow of an operand, in the same form; that of an address, in the mirror."""
        match operand:
            case Register(name) if name in self.taint.registers:
                return Register(f"{name}{_SUFFIX}")
            case Register("_"):
                return operand
            case Negated(register):
                return self.shadow(register)
            case Vector(items):
                return Vector(tuple(self.shadow(item) for item in items))
            case Address():
                return replace(operand, offset=operand.offset + self._mirror_bytes)
        return DEFINED

    def target(self, operand: Operand) -> Operand:
        """The shadow of an operand that is written; nowhere, if it is always defined."""
        if isinstance(operand, Vector):
            return Vector(tuple(self.target(item) for item in operand.items))
        shadow = self.shadow(operand)
        return Register("_") if shadow == DEFINED else shadow

    def bit_type(self, name: str) -> str:
        """Type of a register's bits: `pred`, `b16`, `b32` or `b64`."""
        type_ = {**self._types, **self._added}[name]
        return type_ if type_ == "pred" else f"b{type_.lstrip('abcdefghijklmnopqrstuvwxyz')}"

    def flag(self, shadows: Iterable[Operand]) -> Register | None:
        """A predicate that tells if any bit of these is undefined; `None` if none can be."""
        flags = []
        for shadow in shadows:
            if not isinstance(shadow, Register) or shadow.name == "_":
                continue
            type_ = self.bit_type(shadow.name)
            flags.append(shadow if type_ == "pred" else self.temporary("pred"))
            if type_ != "pred":
                self.emit(f"setp.ne.u{type_[1:]}", flags[-1], shadow, DEFINED)
        if not flags:
            return None
        total = flags[0]
        for other in flags[1:]:
            both = self.temporary("pred")
            self.emit("or.pred", both, total, other)
            total = both
        return total

    def set_all(self, name: str, flag: Register | None) -> None:
        """Make a register undefined as a whole where a flag holds, under the guard."""
        shadow = self.shadow(Register(name))
        if shadow == DEFINED:
            return
        type_ = self.bit_type(name)
        if flag is None:
            self.guarded(("mov", type_), shadow, DEFINED)
        elif type_ == "pred":
            self.guarded(("mov", type_), shadow, flag)
        else:
            self.guarded(("selp", type_), shadow, UNDEFINED, DEFINED, flag)

    def add_flag(self, name: str, flag: Operand) -> None:
        """Make a register undefined as a whole, besides, where a flag holds."""
        shadow = self.shadow(Register(name))
        if isinstance(flag, Register) and shadow != DEFINED:
            self.emit(f"mov.{self.bit_type(name)}", shadow, UNDEFINED, when=flag)

    def add_guard(self) -> None:
        """What is written under an undefined guard is undefined."""
        guard = self._about.predicate
        if guard is not None:
            for name in sorted(destinations(self._about)):
                self.add_flag(name, self.shadow(guard))

    def registers(self) -> dict[str, str]:
        """All registers of the tracking kernel with their types."""
        kept = {name: type_ for name, type_ in self._types.items() if name != CARRY}
        return {**kept, **self._added}

    def _append(self, instruction: Instruction) -> None:
        place = self._about.location
        self.body.append(replace(instruction, index=len(self.body), location=place))
