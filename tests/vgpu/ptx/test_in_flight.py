"""Registers that a unit still fills, by the text of a kernel."""

import pytest

from lethe_env.vgpu.ptx.flow import analyse
from lethe_env.vgpu.ptx.in_flight import RegisterFaults, register_faults
from lethe_env.vgpu.ptx.parser import parse

from .corpus import NAMES, load, wrapped

PRODUCT = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1, %r2, %r3, %r4}, %d1, %d2, 1, 1,
    1, 0, 0;"""
FENCE, COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
LOAD = "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r5];"
PACK = "mov.b64 %d3, {%r1, %r2};"
USE = "add.s32 %r9, %r1, 1;"


def wait(pending):
    return f"wgmma.wait_group.sync.aligned {pending};"


def faults(*lines):
    """Opcodes that touch registers early, and those that lack a fence."""
    kernel = parse(wrapped("\n".join((*lines, "ret;"))))
    found = register_faults(kernel, analyse(kernel))
    return [
        [kernel.body[at].opcode[0] for at in sorted(places)]
        for places in (found.early, found.unfenced)
    ]


@pytest.mark.parametrize(
    ("lines", "early"),
    [
        ((FENCE, PRODUCT, COMMIT, wait(0), USE), []),
        ((FENCE, PRODUCT, COMMIT, USE, wait(0)), ["add"]),
        ((FENCE, PRODUCT, wait(0), USE), ["add"]),
        ((FENCE, PRODUCT, COMMIT, wait(1), USE), ["add"]),
        ((FENCE, PRODUCT, COMMIT, COMMIT, wait(1), USE), []),
        ((FENCE, PRODUCT, COMMIT, PRODUCT, COMMIT, wait(1), USE), ["add"]),
        ((FENCE, PRODUCT, COMMIT, "mov.b32 %r4, 0;", wait(0)), ["mov"]),
        ((FENCE, PRODUCT, COMMIT, "@%p1 bra over;", wait(0), "over:", USE), ["add"]),
        (("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r5];", USE), ["add"]),
        (("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r5];",
          "tcgen05.wait::ld.sync.aligned;", USE), []),
        ((LOAD, PACK, "tcgen05.wait::ld.sync.aligned;", "add.s64 %d4, %d3, 1;"), []),
        ((LOAD, PACK, "add.s64 %d4, %d3, 1;"), ["add"]),
        ((LOAD, PACK, "mov.b64 {%r8, %r9}, %d3;", "add.s32 %r7, %r9, 1;"), ["add"]),
        ((LOAD, "@%p1 mov.b32 %r8, %r1;"), ["mov"]),
        ((LOAD, "mov.b32 %r1, 0;"), ["mov"]),
    ],
)  # fmt: skip
def test_early_uses(lines, early):
    assert faults(*lines)[0] == early


def test_a_loop_carries_what_is_under_way():
    body = ("top:", FENCE, PRODUCT, COMMIT, wait(1), "@%p1 bra top;", USE)
    assert faults(*body)[0] == ["add"]
    assert faults(*body[:-1], wait(0), USE)[0] == []


@pytest.mark.parametrize(
    ("lines", "unfenced"),
    [
        ((PRODUCT, COMMIT, wait(0)), ["wgmma"]),
        ((FENCE, "mov.b32 %r2, 0;", PRODUCT), ["wgmma"]),
        (("mov.b32 %r2, 0;", FENCE, PRODUCT, PRODUCT), []),
        ((FENCE, "mov.b32 %r9, 0;", PRODUCT), []),
    ],
)
def test_products_without_a_fence(lines, unfenced):
    assert faults(*lines)[1] == unfenced


@pytest.mark.parametrize("name", NAMES)
def test_triton_minds_registers(name):
    kernel, _ = load(name)
    assert register_faults(kernel, analyse(kernel)) == RegisterFaults()
