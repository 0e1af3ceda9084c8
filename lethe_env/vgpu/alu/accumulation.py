"""How the tensor cores of an architecture add up the floating-point products of `mma.sync`.

The numbers are those of MMA-Sim's models, which its authors validated on hardware.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..ptx.model import UnsupportedError

_TARGET = re.compile(r"sm_(\d+)[af]?")
_FIRST_OF_HOPPER = 90


@dataclass(frozen=True, slots=True)
class Accumulation:
    """One sum at a time: of the products of some elements of a row, and of the accumulator."""

    name: str
    row_bytes: int
    """Of a row of A, and of a column of B, whose products are one sum."""
    fraction_bits: int
    """That products and accumulator keep below the largest exponent among them."""
    zero_exponent: int
    """With which zeros count in sums that are truncated to f32."""
    half_zero_exponent: int
    """The same in sums that are rounded to f16."""

    @property
    def registers(self) -> int:
        """Of a column of B, whose products are one sum."""
        return self.row_bytes // 16


AMPERE = Accumulation("ampere", 16, 24, -132, -20)
"""Of sm_80 to sm_89: K is summed in steps of 8 elements of 16 bits, or 4 of TF32."""
HOPPER = Accumulation("hopper", 32, 25, -133, -21)
"""Of sm_90 and above: in steps of 16 or 8; Blackwell sums as Hopper does."""


def accumulation_of(target: str) -> Accumulation:
    """What a `.target` directive stands for, such as `sm_80` or `sm_90a`.

    Raises:
        UnsupportedError: It names no architecture.
    """
    found = _TARGET.fullmatch(target)
    if found is None:
        raise UnsupportedError(f"mma.sync for the target `{target}`")
    return HOPPER if int(found[1]) >= _FIRST_OF_HOPPER else AMPERE
