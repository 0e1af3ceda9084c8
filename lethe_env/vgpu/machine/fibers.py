"""Warps as fibers: each has its own stack and gives way when it waits.

The switch saves what the platform's calling convention makes the callee keep, changes the stack
pointer, and restores the same from the other stack.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import threading
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from ..alu.processor import has
from ..ptx.model import UnsupportedError
from .buffer import Buffer
from .emit import Module, Writer
from .layout import Context, Fiber
from .values import Value

STACK_BYTES = 1 << 23
"""Stack of one warp, without its guard page."""

_Entry = TypeVar("_Entry")

_GUARD_BYTES = mmap.PAGESIZE
_PROT_NONE = 0

_SWITCH = {
    "x86_64": (
        "leaq -128(%rsp), %rsp; pushq %rbp; pushq %rbx; leaq .Lback${:uid}(%rip), %rax; "
        "pushq %rax; movq %rsp, (%rdi); movq %rsi, %rsp; popq %rax; jmpq *%rax; "
        ".Lback${:uid}: popq %rbx; popq %rbp; leaq 128(%rsp), %rsp"
    ),
    "aarch64": (
        "stp x29, x30, [sp, #-160]!; stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; "
        "stp x23, x24, [sp, #48]; stp x25, x26, [sp, #64]; stp x27, x28, [sp, #80]; "
        "stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; "
        "stp d14, d15, [sp, #144]; mov x9, sp; str x9, [x0]; mov sp, x1; "
        "ldp x19, x20, [sp, #16]; ldp x21, x22, [sp, #32]; ldp x23, x24, [sp, #48]; "
        "ldp x25, x26, [sp, #64]; ldp x27, x28, [sp, #80]; ldp d8, d9, [sp, #96]; "
        "ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]; "
        "ldp x29, x30, [sp], #160; ret"
    ),
}
"""Save here, leave the stack pointer in `slot`, go on from `stack`.

On x86-64 within the function that switches, which has 128 bytes below its stack pointer, and by a
jump: a return that goes elsewhere than its call came from is foreseen by no processor, nor are the
returns after it. On aarch64 a function of its own.
"""

_CLOBBERED = (
    *("rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"),
    *("dirflag", "fpsr", "flags", "memory"),
    *(f"xmm{number}" for number in range(16)),
)
"""On x86-64, what other code may change before it comes back; the switch itself saves the rest."""
_ALSO_CLOBBERED = (
    *(f"xmm{number}" for number in range(16, 32)),
    *(f"k{number}" for number in range(8)),
)
"""Where the processor has AVX-512."""

_START = {
    "x86_64": "popq %rdi; popq %rax; callq *%rax; ud2",
    "aarch64": "mov x0, x19; blr x20; brk #1",
}
"""Where a new fiber begins: calls a function that never returns with the fiber as argument."""

_IMAGE = {
    # Words from the new stack pointer up: where `_START` finds what, and the frame's size. When all
    # is taken off, x86-64 wants the stack 16-byte aligned.
    "x86_64": {"start": 0, "fiber": 1, "function": 2, "words": 3},
    "aarch64": {"fiber": 2, "function": 3, "start": 1, "words": 20},
}


_KEPT_STACKS = 4
_LOCK = threading.Lock()


class Stacks:
    """Stacks for the warps of a block, with an inaccessible page below each."""

    def __init__(self, warps: int) -> None:
        step = STACK_BYTES + _GUARD_BYTES
        self._memory = mmap.mmap(-1, warps * step + _GUARD_BYTES)
        holder = ctypes.c_char.from_buffer(self._memory)
        start = -(-ctypes.addressof(holder) // _GUARD_BYTES) * _GUARD_BYTES
        tops = [start + (warp + 1) * step for warp in range(warps)]
        self.tops = Buffer.of(np.array(tops, np.uint64))
        """Address just above each stack, uint64 `[warps]`."""
        self._holder = holder
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for top in tops:
            guard = ctypes.c_void_p(top - step)
            if protect(guard, ctypes.c_size_t(_GUARD_BYTES), _PROT_NONE) != 0:
                raise OSError(ctypes.get_errno(), "cannot protect the page below a warp's stack")


_FREE: list[Stacks] = []


def borrow(warps: int) -> Stacks:
    """Stacks that no launch uses at the moment; what is in them is old."""
    with _LOCK:
        for position, stacks in enumerate(_FREE):
            if len(stacks.tops.array) >= warps:
                return _FREE.pop(position)
    return Stacks(warps)


def give_back(stacks: Stacks) -> None:
    """Keep stacks for a later launch, the largest few."""
    with _LOCK:
        _FREE.append(stacks)
        _FREE.sort(key=lambda kept: len(kept.tops.array))
        del _FREE[:-_KEPT_STACKS]


def switch(writer: Writer, slot: Value, stack: Value) -> None:
    """Go on where another stack was left, until something switches to this one.

    Args:
        writer: Where to write.
        slot: Where to leave this stack's pointer.
        stack: Pointer of the other.
    """
    assembly = _for_this_machine(_SWITCH)
    if platform.machine() in ("x86_64", "AMD64"):
        writer.line(_in_line(assembly, slot, stack))
        return
    name = "fiber.switch"
    writer.module.add_text(name, _naked(name, "ptr %slot, ptr %stack", assembly))
    writer.call("void", name, slot, stack)


def _in_line(assembly: str, slot: Value, stack: Value) -> str:
    names = _CLOBBERED + (_ALSO_CLOBBERED if has("avx512f") else ())
    clobbered = ",".join(f"~{{{name}}}" for name in names)
    constraints = f"={{rdi}},={{rsi}},0,1,{clobbered}"
    return f'call {{ptr, ptr}} asm sideeffect "{assembly}", "{constraints}"({slot}, {stack})'


def give_way(module: Module) -> str:
    """The function `give_way(ptr context)`: back to the scheduler until it resumes this warp."""

    def build(writer: Writer, context: Value) -> None:
        fiber = writer.read(context, Context, "current")
        slot = writer.field(fiber, Fiber, "stack")
        scheduler = writer.read(context, Context, "scheduler_stack")
        switch(writer, slot, scheduler)
        writer.give()

    return module.function("fiber.give_way", "void", [("ptr", "context")], build)


def prepare(writer: Writer, fiber: Value, top: Value, function: Value) -> None:
    """Make a fiber ready to begin.

    Args:
        writer: Where to write.
        fiber: The `Fiber`.
        top: Address just above its stack, 16-byte aligned.
        function: Called with the fiber; must not return.
    """
    module = writer.module
    module.add_text("fiber.start", _naked("fiber.start", "", _for_this_machine(_START)))
    image = _for_this_machine(_IMAGE)
    stack = writer.at(top, -8 * image["words"])
    for name, value in (
        ("function", function),
        ("fiber", fiber),
        ("start", Value("ptr", "@fiber.start")),
    ):
        writer.store(value, writer.item(stack, "i64", image[name]))
    writer.write(fiber, Fiber, "stack", stack)


def _naked(name: str, parameters: str, assembly: str) -> str:
    escaped = assembly.replace("$", "$$")
    lines = [
        f"define internal void @{name}({parameters}) naked noinline {{",
        f'  call void asm sideeffect "{escaped}", "~{{memory}}"()',
        "  unreachable",
        "}",
    ]
    return "\n".join(lines)


def _for_this_machine(table: Mapping[str, _Entry]) -> _Entry:
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    if machine not in table:
        raise UnsupportedError(f"no fiber switch is written for {machine} processors")
    return table[machine]
