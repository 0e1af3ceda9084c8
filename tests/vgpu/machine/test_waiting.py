"""Threads that wait for others in loops: all that a GPU would hold go on, and deadlocks end."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl

from lethe_env.vgpu.ptx.flow import analyse
from lethe_env.vgpu.ptx.parser import parse
from lethe_env.vgpu.ptx.polling import polling

from ..ptx.corpus import wrapped


@triton.jit
def lock_kernel(lock, total, order):
    p = tl.program_id(0)
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    seen = tl.load(total)
    tl.store(total, seen + 1)
    tl.store(order + p, seen)
    tl.atomic_xchg(lock, 0)


@triton.jit
def barrier_kernel(x, out, arrived, N: tl.constexpr, BLOCKS: tl.constexpr):
    """Every block writes its part, waits for all, and reads that of its neighbour."""
    p = tl.program_id(0)
    i = tl.arange(0, N)
    tl.store(x + p * N + i, p * N + i)
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < BLOCKS:
        pass
    neighbour = (p + 1) % BLOCKS
    tl.store(out + p * N + i, tl.load(x + neighbour * N + i))


@triton.jit
def ticket_kernel(turn, out):
    p = tl.program_id(0)
    while tl.load(turn, volatile=True) != tl.num_programs(0) - 1 - p:
        pass
    tl.store(out + p, tl.load(turn, volatile=True))
    tl.atomic_add(turn, 1)


@triton.jit
def search_kernel(x, out, n):
    i = 0
    while tl.load(x + i) != 7:
        i += 1
    tl.store(out, i)


@triton.jit
def sum_kernel(x, out, n, N: tl.constexpr):
    total = tl.zeros((N,), tl.int32)
    for start in range(0, n, N):
        total += tl.load(x + start + tl.arange(0, N))
    tl.atomic_add(out, tl.sum(total, 0))


def line_of(function, text):
    lines, first = inspect.getsourcelines(function.fn)
    return first + next(k for k, line in enumerate(lines) if text in line)


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_lock_is_taken_by_one_block_after_the_other(machine, seed):
    names = {"lock": "*i32", "total": "*i32", "order": "*i32"}
    program, shared = machine.triton(lock_kernel, names, {})
    lock, total, order = ints(1), ints(1), ints(50)
    report = machine.run(program, [50], lock, total, order, shared_bytes=shared, seed=seed)
    assert (report.findings, report.stopped) == ((), "")
    assert total.item() == 50
    assert sorted(order.tolist()) == list(range(50))


BLOCKS, N = 24, 64


def wait_for_all(machine, blocks, **options):
    names = {"x": "*i32", "out": "*i32", "arrived": "*i32"}
    program, shared = machine.triton(barrier_kernel, names, {"N": N, "BLOCKS": BLOCKS})
    x, out, arrived = ints(BLOCKS, N), ints(BLOCKS, N), ints(1)
    report = machine.run(program, [blocks], x, out, arrived, shared_bytes=shared, **options)
    return report, x, out


@pytest.mark.parametrize("options", [{}, {"seed": 5}, {"threads": 2}])
def test_blocks_meet_at_a_barrier_of_the_grid(machine, options):
    report, x, out = wait_for_all(machine, BLOCKS, **options)
    assert (report.findings, report.stopped) == ((), "")
    assert torch.equal(out, x.roll(-1, 0))


def test_a_block_that_never_comes_is_a_deadlock_with_its_line(machine):
    report, _, _ = wait_for_all(machine, BLOCKS - 1)
    assert report.stopped == "deadlock"
    (finding,) = [f for f in report.findings if f.detail.startswith("deadlock")]
    assert finding.kind == "barrier"
    assert finding.opcode == "ld.global.gpu.acquire.b32"
    assert finding.location.line == line_of(barrier_kernel, "while")
    assert "of block (0, 0, 0) polls in a loop" in finding.detail
    assert finding.detail.endswith("more warps")


def test_more_blocks_than_a_gpu_holds_do_not_meet(machine):
    """Each takes all the shared memory of a multiprocessor, and 108 of them wait for the rest."""
    body = """red.release.gpu.global.add.u32 [%d1], 1;
LOOP: ld.acquire.gpu.global.b32 %r2, [%d1]; setp.lt.s32 %p1, %r2, {threads}; @%p1 bra LOOP;"""
    for blocks, stop in ((108, ""), (109, "deadlock")):
        counter = ints(1)
        report = machine.assembled(
            body.format(threads=32 * blocks), counter, grid=(blocks,), shared_bytes=160 << 10
        )
        assert report.stopped == stop


def test_volatile_loads_take_turns(machine):
    names = {"turn": "*i32", "out": "*i32"}
    program, shared = machine.triton(ticket_kernel, names, {}, num_warps=1)
    turn, out = ints(1), ints(9)
    report = machine.run(program, [9], turn, out, shared_bytes=shared)
    assert report.stopped == ""
    assert out.tolist() == list(range(9))[::-1]


def test_warps_of_a_block_wait_for_each_other_through_shared_memory(machine):
    body = """mov.u32 %r2, %warpid; setp.ne.s32 %p1, %r2, 0; mov.b32 %r5, 0;
    st.shared.b32 [0], %r5; bar.sync 0; @%p1 bra PRODUCE;
WAIT: ld.volatile.shared.b32 %r3, [0]; setp.eq.s32 %p2, %r3, 0; @%p2 bra WAIT;
    add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r3; bra.uni END;
PRODUCE: mov.b32 %r4, 42; st.volatile.shared.b32 [0], %r4;
END:"""
    out = ints(32)
    report = machine.assembled(body, out, threads=64)
    assert report.stopped == ""
    assert out.tolist() == [42] * 32


def test_a_search_ends_where_it_finds(machine):
    program, shared = machine.triton(search_kernel, {"x": "*i32", "out": "*i32", "n": "i32"}, {})
    x, out = ints(50_000), ints(1)
    x[49_999] = 7
    report = machine.run(program, [1], x, out, 3, shared_bytes=shared)
    assert (report.findings, report.stopped) == ((), "")
    assert out.item() == 49_999


def test_plain_loops_are_not_slowed_down(machine):
    names = {"x": "*i32", "out": "*i32", "n": "i32"}
    program, _ = machine.triton(sum_kernel, names, {"N": 128})
    waits = polling(program.kernel, analyse(program.kernel))
    assert program.flow.loops
    assert not waits.loops


def test_loops_on_shared_memory_concern_one_block():
    loop = "L: ld{}.b32 %r1, [{}]; setp.eq.s32 %p1, %r1, 0; @%p1 bra L; ret;"
    for space, place, across in ((".shared", "0", False), (".global", "%d1", True)):
        kernel = parse(wrapped(loop.format(space, place)))
        found = polling(kernel, analyse(kernel))
        assert [item.read for item in found.loops.values()] == [0]
        assert found.across_blocks == across
