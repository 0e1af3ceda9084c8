"""Parts that the sources of several problems share, and the choices behind them."""

from __future__ import annotations

from .model import Choice, Sentence

HEADER = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

LAYOUT = Choice("layout", ("contiguous", "assumed"))
"""Copy strided inputs first, or take it that there are none."""
GRADIENT = Choice("gradient", ("function", "none"))
"""Wrap the kernel in an autograd function, or leave the forward pass alone."""
TOTAL = Choice("total", ("float32", "input"))
"""The type in which terms are added up."""
ROW = Choice("row", ("loop_1024", "loop_4096", "block_2048"))
"""Walk a row in blocks of 1,024 or of 4,096, or take it that 2,048 is enough for every row."""


def contiguous(sentence: Sentence, name: str = "x") -> str:
    """The statement that makes an input contiguous, or nothing."""
    return f"    {name} = {name}.contiguous()\n" if sentence["layout"] == "contiguous" else ""


def row_block(sentence: Sentence) -> str:
    """The block size of a kernel that works on rows."""
    return sentence["row"].partition("_")[2]


def loops(sentence: Sentence) -> bool:
    """Whether a row is walked in a loop."""
    return sentence["row"].startswith("loop")


def indent(text: str, levels: int = 1) -> str:
    """A block of statements, moved to the right by four spaces a level."""
    return "".join(f"{'    ' * levels}{line}" for line in text.splitlines(keepends=True))


def sweep(sentence: Sentence, body: str) -> str:
    """Statements over one row: in a loop over its blocks, or once.

    Args:
        sentence: takes `row`.
        body: statements that read `columns` and `mask`.
    """
    if loops(sentence):
        loop = "for start in range(0, width, BLOCK):\n"
        return loop + indent("columns = start + lanes\nmask = columns < width\n" + body)
    return "columns = lanes\nmask = columns < width\n" + body
