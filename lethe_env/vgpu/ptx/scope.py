"""Names and what they stand for, block by block."""

from __future__ import annotations

import re

from .lexer import Cursor
from .model import Register, Symbol, UnsupportedError

_SPECIAL = re.compile(
    r"%(?:n?tid|n?ctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]"
    r"|%(?:laneid|n?warpid|n?smid|gridid|clock|clock_hi|clock64|globaltimer|globaltimer_lo"
    r"|globaltimer_hi|cluster_ctarank|cluster_nctarank|is_explicit_cluster|total_smem_size"
    r"|dynamic_smem_size|aggr_smem_size|lanemask_(?:eq|lt|le|gt|ge))"
)

SINK = "_"
"""The destination that drops its value."""


class Scopes:
    """The nested `{…}` of a kernel's body.

    What an inner block declares gets a name of its own, `name.<block number>`, so that the
    kernel's names are flat.
    """

    def __init__(self) -> None:
        self._blocks: list[dict[str, str]] = [{}]
        self._registers: dict[str, str] = {}
        self._opened = 0
        self._resolved: dict[str, Register | Symbol] = {}
        """What `resolve` found since the last declaration."""

    @property
    def depth(self) -> int:
        """How many inner blocks are open."""
        return len(self._blocks) - 1

    @property
    def registers(self) -> dict[str, str]:
        """Types of all registers so far, by flat name."""
        return self._registers

    def open(self, cursor: Cursor) -> None:
        """Enter the block whose `{` was just taken; its labels are known from the start."""
        self._opened += 1
        self._blocks.append({})
        self._declare_labels(cursor)

    def open_body(self, cursor: Cursor) -> None:
        """Enter the kernel's own block, where names stay as they are."""
        self._declare_labels(cursor)

    def close(self) -> None:
        """Leave the innermost block."""
        self._blocks.pop()
        self._resolved.clear()

    def declare(self, name: str) -> str:
        """The flat name of `name`, declared in the innermost block."""
        block = self._blocks[-1]
        if name in block:
            raise UnsupportedError(f"`{name}` declared twice in one block")
        block[name] = f"{name}.{self._opened}" if self.depth else name
        self._resolved.clear()
        return block[name]

    def declare_register(self, name: str, kind: str) -> None:
        """Declare a register of the innermost block."""
        self._registers[self.declare(name)] = kind

    def flat(self, name: str) -> str:
        """The flat name of a declared name; another name as it is."""
        return next((block[name] for block in reversed(self._blocks) if name in block), name)

    def resolve(self, name: str) -> Register | Symbol:
        """What an operand of this name is.

        Raises:
            UnsupportedError: a `%name` that is neither declared nor a special register.
        """
        known = self._resolved.get(name)
        if known is None:
            known = self._resolved[name] = self._resolve(name)
        return known

    def _resolve(self, name: str) -> Register | Symbol:
        flat = self.flat(name)
        if flat in self._registers or name == SINK or _SPECIAL.fullmatch(name):
            return Register(flat)
        if name.startswith("%"):
            raise UnsupportedError(f"the register {name}, which nothing declares,")
        return Symbol(flat)

    def _declare_labels(self, cursor: Cursor) -> None:
        for token, following in cursor.inside_braces():
            if token.kind == "name" and following.text == ":":
                self.declare(token.text)
