"""What a compiled kernel takes of a Blackwell multiprocessor, read from its PTX and machine code.

Triton says how many columns of tensor memory it wants. A kernel that allocates them itself, as
one in the CuTe DSL does, says so in its PTX only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .ahead_of_time import usage

MOST_COLUMNS = 512
"""Of tensor memory, for all blocks on a multiprocessor; PTX ISA, "Tensor Memory"."""
_COUNTED = re.compile(r"tcgen05\.(alloc|dealloc)\.[^;]*,\s*(%?\w+)\s*;")
_RELINQUISHED = re.compile(r"tcgen05\.relinquish_alloc_permit\.")


@dataclass(frozen=True, slots=True)
class Footprint:
    """What stands in a kernel's text; how often it is run is for the virtual GPU to see."""

    registers: int
    """Of each thread."""
    spilled_bytes: int
    """Of each thread."""
    allocated: tuple[int | None, ...]
    """Columns of each allocation; `None` where a register holds what is no constant."""
    released: tuple[int | None, ...]
    relinquished: int
    """How many times the right to allocate is given up."""

    @property
    def columns(self) -> int:
        """Columns of tensor memory of a block, as far as they are known."""
        return sum(columns or 0 for columns in self.allocated)

    @property
    def faults(self) -> tuple[str, ...]:
        """What keeps it from being one allocation that fits, given back, with no spills."""
        checks = (
            (len(self.allocated) != 1, f"{len(self.allocated)} allocations of tensor memory"),
            (None in self.allocated, "an allocation whose columns are not known beforehand"),
            (
                self.columns > MOST_COLUMNS,
                f"{self.columns} tensor-memory columns, the limit is {MOST_COLUMNS}",
            ),
            (
                self.released != self.allocated,
                f"allocations of {_listed(self.allocated)} columns, releases of "
                f"{_listed(self.released)}",
            ),
            (self.relinquished != 1, f"{self.relinquished} times the right to allocate given up"),
            (self.spilled_bytes > 0, f"{self.spilled_bytes} bytes a thread spilled"),
        )
        return tuple(text for wrong, text in checks if wrong)


def footprint(ptx: str, cubin: bytes) -> Footprint:
    """Read a kernel's footprint.

    Args:
        ptx: Text with one kernel.
        cubin: What was assembled from it.
    """
    found = usage(cubin)
    counts: dict[str, list[int | None]] = {"alloc": [], "dealloc": []}
    for action, operand in _COUNTED.findall(ptx):
        counts[action].append(_constant(ptx, operand))
    return Footprint(
        registers=found.registers,
        spilled_bytes=found.spilled_bytes,
        allocated=tuple(counts["alloc"]),
        released=tuple(counts["dealloc"]),
        relinquished=len(_RELINQUISHED.findall(ptx)),
    )


def _constant(ptx: str, operand: str) -> int | None:
    """The value of a number, or of a register that is set once, to a number."""
    if not operand.startswith("%"):
        return int(operand, 0)
    found = re.findall(rf"(\w+)\.[^;\n]*\s{operand}\s*,\s*(\w+)\s*;", ptx)
    match found:
        case [("mov", number)] if number.isdecimal():
            return int(number)
    return None


def _listed(counts: tuple[int | None, ...]) -> str:
    return " and ".join("?" if count is None else str(count) for count in counts) or "no"
