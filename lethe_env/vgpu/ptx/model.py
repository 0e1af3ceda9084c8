"""PTX as data: kernels, instructions and operands, as the parser gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class UnsupportedError(Exception):
    """A kernel uses something that the virtual GPU does not implement.

    Strict by design: what is not known exactly is never guessed. `opcode` and `location` name the
    first such instruction.
    """

    def __init__(self, message: str, opcode: str = "", location: Location | None = None) -> None:
        where = f" at {location.file}:{location.line}" if location is not None else ""
        super().__init__(f"unsupported by the virtual GPU: {message}{where}")
        self.opcode = opcode
        self.location = location


@dataclass(frozen=True, slots=True)
class Location:
    """A line of the kernel's own source, from `.loc`."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Register:
    """`%r12`, and special registers such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """An integer literal, any sign."""

    value: int


@dataclass(frozen=True, slots=True)
class FloatImmediate:
    """A floating literal by its bits: `0f3F800000` has width 32, `0d…` width 64."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A label, a parameter, a global variable, or a function."""

    name: str


@dataclass(frozen=True, slots=True)
class Vector:
    """`{%r1, %r2}`; also the `(…)` lists of calls."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset]`, with further operands for TMA and mbarrier forms."""

    base: Register | Symbol | Immediate
    offset: int = 0
    further: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Dual:
    """`%p1|%p2`: two destinations, as of `setp` and `shfl`."""

    first: Register
    second: Register


@dataclass(frozen=True, slots=True)
class Negated:
    """`!%p1` as an operand."""

    register: Register


Operand = Register | Immediate | FloatImmediate | Symbol | Vector | Address | Dual | Negated


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction; labels are kept apart in `Kernel.labels`."""

    opcode: tuple[str, ...]
    """The opcode split at its dots: `("add", "rn", "ftz", "f32")`."""
    operands: tuple[Operand, ...] = ()
    predicate: Register | None = None
    negated: bool = False
    """Whether the guard is `@!%p`."""
    location: Location | None = None
    index: int = 0
    """Position in the kernel's body."""
    accessed: tuple[frozenset[str], frozenset[str]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    """What `dataflow` has found out: the registers that it writes, and those that it reads."""

    @property
    def name(self) -> str:
        """The full opcode with its dots."""
        return ".".join(self.opcode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A kernel parameter."""

    name: str
    type: str
    """PTX type without its dot: `u64`, `u32`, `f32`, `b8`."""
    size_bytes: int
    offset_bytes: int
    """Position in the parameter buffer, naturally aligned."""
    pointer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A module-level `.global`, `.const` or `.shared` variable, or a `.local` depot."""

    name: str
    space: str
    size_bytes: int
    align_bytes: int
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One entry point."""

    name: str
    target: str
    """`sm_80`, `sm_90a`, …"""
    parameters: tuple[Parameter, ...]
    registers: Mapping[str, str]
    """Register name to PTX type without its dot: `pred`, `b16`, `b32`, `b64`, `f32`, …"""
    body: tuple[Instruction, ...]
    labels: Mapping[str, int]
    """Label to the index of the instruction it stands before; may equal `len(body)`."""
    threads: int
    """Threads per block, from `.reqntid`."""
    cluster: tuple[int, int, int] | None = None
    """Blocks per cluster along x, y and z, from `.reqnctapercluster`."""
    explicit_cluster: bool = False
    """Whether a launch has to say what clusters it wants, from `.explicitcluster`."""
    variables: Mapping[str, Variable] = field(default_factory=dict)
