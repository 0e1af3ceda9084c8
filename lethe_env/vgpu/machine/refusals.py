"""What shows only while a kernel runs and is not implemented: it ends the launch."""

from __future__ import annotations

from collections.abc import Mapping

from .emit import Writer
from .layout import STOPS, Context
from .values import Value

REFUSALS: Mapping[str, str] = {
    "unknown_map": "a tensor map: its kind or element type",
    "ahead": "a second allocation for two blocks before the other one has made its first",
    "alone": "an instruction of two blocks in a block that has no other",
    "elsewhere": "a copy whose mbarrier lies in another block than what it writes",
    "masked": "a tensor-core product that leaves out lanes",
}
"""In words, by names of `layout.STOPS`."""


def refuse(writer: Writer, context: Value, why: str) -> None:
    """End the launch."""
    writer.write(context, Context, "stop", STOPS.index(why))
