"""Functions that kernels have in common, compiled once: memory, barriers, tensor-core products.

A kernel's own object refers to them by name, so a process links them before its first kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

from ..ptx.parser import parse
from . import clashes
from .emit import Module
from .lowering import WARP
from .native import Effort, NativeCode, compile_object, define_symbol
from .translation import translate_kernel

_HEAD = re.compile(r"define internal (?P<result>[^@]+) @(?P<name>[^(]+)\((?P<parameters>.*)\) .*\{")
_PARAMETER_NAME = re.compile(r" %\w+")

_SHAPES = (
    *("b8", "v2.b8", "v4.b8", "b16", "v2.b16", "v4.b16"),
    *("b32", "v2.b32", "v4.b32", "b64", "v2.b64"),
)
_COPIES = (4, 8, 16)
_ATOMICS = ("add.f32", "add.noftz.f16", "add.u32", "add.s32", "add.u64", "max.s32", "min.s32")
_SHARED_ATOMICS = ("add.u32",)
PRODUCTS = (
    ("m16n8k16.row.col.f32.f16.f16.f32", 4, 4, 2),
    ("m16n8k16.row.col.f32.bf16.bf16.f32", 4, 4, 2),
    ("m16n8k8.row.col.f32.tf32.tf32.f32", 4, 4, 2),
)
"""Shapes and types with the registers of the result, the left and the right factor."""

_KERNEL = """
.version 8.7
.target sm_80
.address_size 64
.visible .entry sample(.param .u64 .ptr .global .align 1 sample_param_0) .reqntid 64
{{
.reg .pred %p<2>;
.reg .b16 %h<8>;
.reg .b32 %r<16>;
.reg .b64 %d<8>;
ld.param.b64 %d1, [sample_param_0];
mov.u32 %r1, %tid.x;
{body}
ret;
}}
"""


@cache
def text() -> str:
    """LLVM IR of the functions, each visible from outside."""
    module = _module()
    return visible(module.declarations, _independent(module.functions))


def visible(declarations: Mapping[str, str], functions: Mapping[str, str]) -> str:
    """A module's text in which the functions that are calls of their own can be called by all."""
    bodies = (
        body.replace("define internal", "define") if "noinline" in body else body
        for body in functions.values()
    )
    return "\n\n".join([*declarations.values(), *bodies]) + "\n"


@cache
def declarations() -> Mapping[str, str]:
    """By name, how a kernel's module declares each of the functions."""
    return declared(_independent(_module().functions))


def declared(functions: Mapping[str, str]) -> Mapping[str, str]:
    """By name, how another module declares each of the functions that `visible` shows."""
    found = {}
    for name, body in functions.items():
        head = _HEAD.match(body)
        if head is not None and "noinline" in head[0]:
            types = _PARAMETER_NAME.sub("", head["parameters"])
            found[name] = f"declare {head['result']} @{head['name']}({types})"
    return found


def compile_shared() -> bytes:
    """The object that `link` takes."""
    return compile_object(text(), Effort.MUCH)


def link(object_bytes: bytes) -> None:
    """Make the functions known to all kernels that this process loads from now on."""
    code = NativeCode(object_bytes)
    _LINKED.append(code)
    for name in declarations():
        _ADDRESSES[name] = code.address(name)
        define_symbol(name, _ADDRESSES[name])


def address(name: str) -> int:
    """Address of one of the functions in this process.

    Raises:
        KeyError: they have not been linked.
    """
    return _ADDRESSES[name]


def is_linked() -> bool:
    """Whether this process has the functions."""
    return bool(_LINKED)


def ensure_linked() -> None:
    """Compile and link the functions unless this process has them."""
    if not _LINKED:
        link(compile_shared())


_LINKED: list[NativeCode] = []
_ADDRESSES: dict[str, int] = {}


@cache
def _module() -> Module:
    module = translate_kernel(parse(_KERNEL.format(body="\n".join(_instructions())))).module
    clashes.write_finder(module)
    return module


def _independent(functions: Mapping[str, str]) -> dict[str, str]:
    """The functions that do not reach the kernel's own code."""
    dependent = {WARP}
    while True:
        pattern = re.compile("@(?:" + "|".join(map(re.escape, dependent)) + r")(?![\w.])")
        found = {name for name, body in functions.items() if pattern.search(body)} | dependent
        if found == dependent:
            return {name: body for name, body in functions.items() if name not in dependent}
        dependent = found


def _instructions() -> Iterator[str]:
    """One use of everything that is shared."""
    for shape in _SHAPES:
        bits = shape.split(".b")[-1] if "." in shape else shape[1:]
        kind = {"8": "h", "16": "h", "32": "r", "64": "d"}[bits]
        count = int(shape[1]) if shape[0] == "v" else 1
        names = ", ".join(f"%{kind}{2 + position}" for position in range(count))
        items = f"{{{names}}}" if count > 1 else names
        for space, place in (("global", "%d1"), ("shared", "%r1")):
            yield f"ld.{space}.{shape} {items}, [{place}];"
            yield f"st.{space}.{shape} [{place}], {items};"
    for size in _COPIES:
        yield f"cp.async.ca.shared.global [%r1], [%d1], {size};"
    yield "cp.async.wait_all;"
    yield "bar.sync 0;"
    yield "shfl.sync.idx.b32 %r2, %r3, %r1, 31, -1;"
    for atomic in _ATOMICS:
        kind = {"16": "h", "32": "r", "64": "d"}[atomic[-2:]]
        yield f"atom.global.gpu.acq_rel.{atomic} %{kind}2, [%d1], %{kind}3;"
    yield from (f"atom.shared.{atomic} %r2, [%r1], %r3;" for atomic in _SHARED_ATOMICS)
    for product, *counts in PRODUCTS:
        result, left, right = ("{" + ", ".join(f"%r{k}" for k in range(n)) + "}" for n in counts)
        yield f"mma.sync.aligned.{product} {result}, {left}, {right}, {result};"
