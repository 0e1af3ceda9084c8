"""Stacks of warps."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys

import pytest

from lethe_env.vgpu.machine.emit import Module
from lethe_env.vgpu.machine.fibers import (
    STACK_BYTES,
    Stacks,
    borrow,
    give_back,
    give_way,
    prepare,
    switch,
)
from lethe_env.vgpu.machine.layout import Context, Fiber
from lethe_env.vgpu.machine.native import NativeCode, compile_object
from lethe_env.vgpu.machine.values import Value

OVERFLOW = """
import ctypes
from lethe_env.vgpu.machine.fibers import Stacks
stacks = Stacks(2)
ctypes.memset(int(stacks.tops.array[1]) - 8, 1, 8)
ctypes.memset(int(stacks.tops.array[{warp}]) - {below}, 1, 8)
"""


def _enter(writer, context, fiber, top):
    prepare(writer, fiber, top, Value("ptr", "@body"))
    slot = writer.field(context, Context, "scheduler_stack")
    stack = writer.read(fiber, Fiber, "stack")
    switch(writer, slot, stack)
    writer.give()


def _body(writer, fiber):
    """Leave the address of the frame, whose distance from a 16-byte boundary is known."""
    frame = writer.op("ptr", "call ptr @llvm.frameaddress.p0(i32 0)")
    writer.store(writer.cast("ptrtoint", frame, "i64"), writer.field(fiber, Fiber, "copies"))
    context = writer.read(fiber, Fiber, "context")
    writer.call("void", give_way(writer.module), context)
    writer.line("unreachable")


def test_a_fiber_begins_on_an_aligned_stack_and_gives_way():
    module = Module()
    module.function("body", "void", [("ptr", "fiber")], _body, 'noinline "frame-pointer"="all"')
    pointers = [("ptr", "context"), ("ptr", "fiber"), ("ptr", "top")]
    module.function("enter", "void", pointers, _enter, linkage="")
    code = NativeCode(compile_object(module.text()))
    stacks, context, fiber = Stacks(1), Context(), Fiber()
    fiber.context = ctypes.addressof(context)
    context.current = ctypes.addressof(fiber)
    enter = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(code.address("enter"))
    enter(ctypes.addressof(context), ctypes.addressof(fiber), int(stacks.tops.array[0]))
    # The frame pointer is pushed right after the return address, at a multiple of 16.
    assert fiber.copies % 16 == 0
    assert 0 < int(stacks.tops.array[0]) - fiber.copies < 256
    assert fiber.stack < fiber.copies


@pytest.mark.parametrize(
    ("warp", "below", "dies"),
    [(1, STACK_BYTES, False), (1, STACK_BYTES + 8, True), (0, STACK_BYTES + mmap.PAGESIZE, True)],
)
def test_the_page_below_a_stack_cannot_be_written(warp, below, dies):
    code = OVERFLOW.format(warp=warp, below=below)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode != 0) == dies


def test_stacks_are_used_again_but_not_twice_at_once():
    stacks = borrow(31)
    assert len(stacks.tops.array) == 31
    give_back(stacks)
    assert borrow(31) is stacks
    assert borrow(31) is not stacks
