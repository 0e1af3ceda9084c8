"""Triton kernels that load what nobody has written: a fault only if the value is used."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl

from lethe_env.vgpu.machine import program
from lethe_env.vgpu.machine.used_reads import snapshot

N, BLOCK = 201, 256


@triton.jit
def by_scratch(x, scratch, o, n, USE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(scratch + i, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)
    tl.debug_barrier()
    v = tl.load(scratch + i)
    r = tl.where(i < n, v * 2 + 1, 0.0)
    if USE:
        r = v + 1
    tl.store(o + i, r)


@triton.jit
def product(x, y, o, rows, USE: tl.constexpr, SIDE: tl.constexpr):
    r, k = tl.arange(0, SIDE)[:, None], tl.arange(0, SIDE)[None, :]
    d = tl.dot(tl.load(x + r * SIDE + k), tl.load(y + r * SIDE + k))
    if USE:
        tl.store(o + r * SIDE + k, d, mask=r <= rows)
    else:
        tl.store(o + r * SIDE + k, d, mask=r < rows)


@triton.jit
def two_loads(x, y, o, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)  # thrown away
    b = tl.load(y + i)  # kept
    tl.store(o + i, tl.where(i < 0, a, b))
    tl.atomic_add(o + i, 1)


def line_of(function, text):
    lines, first = inspect.getsourcelines(function.fn)
    return first + next(k for k, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("use", [False, True], ids=["discarded", "used"])
@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_loading_beyond_what_was_written_is_a_fault_if_the_value_is_used(machine, kind, use):
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[kind]
    x, scratch, o = (torch.ones(BLOCK, dtype=dtype) for _ in range(3))
    signature = {"x": f"*{kind}", "scratch": f"*{kind}", "o": f"*{kind}", "n": "i32"}
    compiled, shared = machine.triton(by_scratch, signature, {"USE": use, "BLOCK": BLOCK})
    found = machine.run(
        compiled, [1], x, scratch, o, N, undefined=[scratch, o], shared_bytes=shared
    ).findings
    assert o[:N].tolist() == [2.0 if use else 3.0] * N
    if not use:
        assert found == ()
        return
    assert {f.kind for f in found} == {"uninitialised_read"}
    assert {f.location.line for f in found} == {line_of(by_scratch, "tl.load(scratch")}
    assert all(f"line {line_of(by_scratch, 'tl.store(o')} uses" in f.detail for f in found)


@pytest.mark.parametrize("use", [False, True], ids=["discarded", "used"])
def test_rows_of_a_product_are_told_apart(machine, use):
    side, rows = 32, 17
    x, y = torch.ones(side, side).half(), torch.ones(side, side).half()
    o = torch.zeros(side, side)
    signature = {"x": "*fp16", "y": "*fp16", "o": "*fp32", "rows": "i32"}
    compiled, shared = machine.triton(product, signature, {"USE": use, "SIDE": side})
    fill = """setp.lt.s32 %p1, %r1, 17; mul.wide.u32 %d3, %r1, 64; add.s64 %d3, %d3, %d1;
    mov.b32 %r2, 0; AGAIN: @%p1 st.global.b32 [%d3], 0x3C003C00; add.s64 %d3, %d3, 4;
    add.s32 %r2, %r2, 1; setp.lt.s32 %p2, %r2, 16; @%p2 bra AGAIN;"""
    machine.memory.pointer(x)
    machine.memory.mark_undefined(x)
    assert machine.assembled(fill, x).findings == ()
    found = machine.run(compiled, [1], x, y, o, rows, shared_bytes=shared).findings
    assert [f.kind for f in found] == ["uninitialised_read"] * use
    assert o[0].tolist() == [32.0] * side


def test_of_two_loads_the_one_whose_value_is_used_is_told(machine):
    x, y, o = (torch.zeros(BLOCK, dtype=torch.int32) for _ in range(3))
    signature = {"x": "*i32", "y": "*i32", "o": "*i32"}
    compiled, shared = machine.triton(two_loads, signature, {"BLOCK": BLOCK})
    found = machine.run(compiled, [1], x, y, o, undefined=[x, y], shared_bytes=shared).findings
    assert {f.location.line for f in found} == {line_of(two_loads, "# kept")}
    assert o.tolist() == [1] * BLOCK


INCREMENT = """add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3]; add.s32 %r2, %r2, 1;
st.global.b32 [%d3], %r2;"""


def test_repeating_a_launch_leaves_memory_as_one_launch_does(machine):
    x = torch.zeros(32, dtype=torch.int32)
    (found,) = machine.assembled(INCREMENT, x, undefined=[x]).findings
    assert found.kind == "uninitialised_read"
    assert x.tolist() == [1] * 32
    assert machine.assembled(INCREMENT, x).findings == ()


def test_nothing_is_repeated_where_no_load_reaches_what_is_undefined(machine, monkeypatch):
    copied = []
    monkeypatch.setattr(program, "snapshot", lambda *given: copied.append(snapshot(*given)))
    x, o = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    copy = "add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21; ld.global.b32 %r2, [%d3]; "
    machine.assembled(copy + "st.global.b32 [%d4], %r2;", x, o, undefined=[o])
    machine.assembled(copy + "st.global.b32 [%d4], %r2;", x, o, undefined=[x])
    assert [before is None for before in copied] == [True, False]
