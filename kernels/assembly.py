"""Candidates made of library modules: one text, as a policy would submit it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path


def assemble(paths: Sequence[Path]) -> str:
    """Join modules, in an order in which each follows what it imports, into one source text.

    Imports of each other and from `__future__` go; each module's own names must be unique.
    """
    return "\n\n".join(_without_relations(path.read_text(encoding="utf-8")) for path in paths)


def _without_relations(source: str) -> str:
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == "__future__"):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "\n".join(lines).strip() + "\n"
