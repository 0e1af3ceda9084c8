"""How `tcgen05.ld` and `tcgen05.st` spread tiles of 16 lanes over the registers of a warp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .emit import Writer
from .values import LANES, Value, constant, constants, vector

_PLACES, _VALUES = vector("ptr"), vector("i32")
_EVERYONE = constant(vector("i1"), 1)


@dataclass(frozen=True, slots=True)
class Fragment:
    """What one repetition of a shape takes."""

    columns: int
    registers: int
    place: Callable[[int, int], tuple[int, int]]
    """Lane, of 16, and column of what a thread has in a register."""

    def offsets(self, number: int) -> list[int]:
        """Where each thread's element of a register lies, counting columns of a warp's lanes."""
        repetition, register = divmod(number, self.registers)
        start = repetition * self.columns
        places = (self.place(thread, register) for thread in range(LANES))
        return [(start + column) * LANES + lane for lane, column in places]


FRAGMENTS: Mapping[str, Fragment] = {
    "16x64b": Fragment(2, 1, lambda thread, _: (thread // 4 + 8 * (thread % 2), thread // 2 % 2)),
    "16x128b": Fragment(4, 2, lambda thread, half: (thread // 4 + 8 * half, thread % 4)),
    "16x256b": Fragment(
        8, 4, lambda thread, n: (thread // 4 + 8 * (n // 2), 2 * (thread % 4) + n % 2)
    ),
}
"""By shape, as the PTX manual draws them."""


def gather(writer: Writer, fragment: Fragment, tile: Value, count: int) -> list[Value]:
    """The registers, from a tile in a buffer: columns of 32 lanes, of which 16 are used."""
    name = f"llvm.masked.gather.v{LANES}i32.v{LANES}p0"
    writer.module.declare(name, _VALUES, [_PLACES, _EVERYONE.type, _VALUES])
    taken = []
    for number in range(count):
        places = _places(writer, fragment, tile, number)
        call = f"call {_VALUES} @{name}({places}, {_EVERYONE}, {constant(_VALUES, 0)})"
        taken.append(writer.op(_VALUES, call))
    return taken


def scatter(writer: Writer, fragment: Fragment, tile: Value, values: Sequence[Value]) -> None:
    """Registers into a tile in a buffer."""
    name = f"llvm.masked.scatter.v{LANES}i32.v{LANES}p0"
    writer.module.declare(name, "void", [_VALUES, _PLACES, _EVERYONE.type])
    for number, value in enumerate(values):
        places = _places(writer, fragment, tile, number)
        writer.line(f"call void @{name}({value}, {places}, {_EVERYONE})")


def _places(writer: Writer, fragment: Fragment, tile: Value, number: int) -> str:
    """Addresses, as an argument of an access."""
    offsets = constants("i64", fragment.offsets(number))
    places = writer.op(_PLACES, f"getelementptr i32, {tile}, {offsets}")
    return f"{_PLACES} align 4 {places.text}"
