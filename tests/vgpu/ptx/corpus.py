"""PTX texts of the project's kernels, as Triton 3.7 prints them with little blocks."""

from __future__ import annotations

from pathlib import Path

from lethe_env.vgpu.ptx.model import Kernel
from lethe_env.vgpu.ptx.parser import parse

_FOLDER = Path(__file__).parent / "data"

NAMES = sorted(path.stem for path in _FOLDER.glob("*.ptx"))


def text_of(name: str) -> str:
    """The PTX text of this name."""
    return (_FOLDER / f"{name}.ptx").read_text()


def load(name: str) -> tuple[Kernel, int]:
    """The kernel of this name and its shared memory in bytes."""
    text = text_of(name)
    return parse(text), int(text.split(maxsplit=3)[2])


def wrapped(body: str, *, module: str = "", entry: str = ".reqntid 32") -> str:
    """A kernel around a body, with a pointer and an integer for parameters."""
    return f"""
.version 8.7
.target sm_80
.address_size 64
{module}
.visible .entry k(
    .param .u64 .ptr .global .align 1 data,
    .param .u32 count
)
{entry}
{{
    .reg .pred %p<9>;
    .reg .b16 %h<9>;
    .reg .b32 %r<20>;
    .reg .b64 %d<9>;
{body}
}}
"""
