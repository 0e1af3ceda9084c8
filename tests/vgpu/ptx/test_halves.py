"""Packed arithmetic without the halves that nobody reads."""

import pytest

from lethe_env.vgpu.ptx.halves import without_dead_halves
from lethe_env.vgpu.ptx.parser import parse

from .corpus import wrapped

ADD = "add.f16x2 %r3, %r1, %r2;"
FUSE = "fma.rn.relu.bf16x2 %r4, %r3, %r3, %r1;"
LOWER, UPPER, BOTH = ("mov.b32 {" + names + "}, %r3;" for names in ("%h1, _", "_, %h1", "%h1, %h2"))


def cut(*lines):
    """The opcodes that are cut to the lower half."""
    kernel = parse(wrapped("\n".join((*lines, "ret;"))))
    pairs = zip(kernel.body, without_dead_halves(kernel).body, strict=True)
    return [new.name for old, new in pairs if new.opcode != old.opcode]


@pytest.mark.parametrize(
    ("lines", "opcodes"),
    [
        ((ADD,), ["add.f16"]),
        ((ADD, LOWER), ["add.f16"]),
        ((ADD, "cvt.u16.u32 %h1, %r3;"), ["add.f16"]),
        ((ADD, UPPER), []),
        ((ADD, BOTH), []),
        ((ADD, "st.global.b32 [%d1], %r3;"), []),
        ((ADD, "mov.b32 %r5, %r3;"), []),
        ((ADD, "cvt.f32.f16 %r5, %r3;"), []),
        ((ADD, "@%p1 mov.b32 {%h1, _}, %r3;"), ["add.f16"]),
        ((ADD, LOWER, FUSE), ["add.f16", "fma.rn.relu.bf16"]),
        ((ADD, LOWER, FUSE, "mov.b64 %d1, {%r4, %r5};"), []),
        (("cvt.rn.f16x2.f32 %r3, %r1, %r2;", LOWER), []),
        (("set.lt.f16x2.f16x2 %r3, %r1, %r2;", LOWER), []),
    ],
)
def test_what_is_read(lines, opcodes):
    assert cut(*lines) == opcodes


def test_a_total_of_a_loop():
    loop = ("top:", "add.f16x2 %r3, %r3, %r1;", "@%p1 bra top;")
    assert cut(*loop, LOWER) == ["add.f16"]
    assert cut(*loop, UPPER) == []
