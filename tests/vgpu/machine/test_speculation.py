"""Blocks on several threads: the same memory, counts and findings as on one, in any case."""

from __future__ import annotations

import ctypes

import pytest
import torch

from lethe_env.vgpu.machine import program as programs
from lethe_env.vgpu.machine import speculation
from lethe_env.vgpu.machine.independence import meets_only_in_memory, writes_blindly
from lethe_env.vgpu.machine.layout import Barrier, Counters, Fiber, Site
from lethe_env.vgpu.ptx.parser import parse

BLOCKS = 16
LINE = 64
STEAL = speculation.steal
BLOCK = "mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 128; add.s64 %d4, %d1, %d3; "
OWN = "add.s64 %d4, %d4, %d21; "


@pytest.fixture(autouse=True)
def _eager_threads(monkeypatch):
    """Small launches are worth threads, too, and what happened on them is kept."""
    monkeypatch.setattr(speculation, "_LEAST_WORK", 1)
    monkeypatch.setattr(speculation, "_LEAST_BLOCKS", 1)
    monkeypatch.setattr(speculation, "_WRITTEN_BYTES_PER_WORK", 1 << 20)


@pytest.fixture(autouse=True)
def _own_shares(monkeypatch):
    """Blocks are so short that the first thread would run them all."""
    monkeypatch.setattr(speculation, "steal", lambda *arguments: None)


@pytest.fixture
def outcomes(monkeypatch):
    """Whether each launch on several threads was kept."""
    kept: list[bool] = []

    def run_apart(*arguments):
        report = speculation.run_apart(*arguments)
        kept.append(report is not None)
        return report

    monkeypatch.setattr(programs, "run_apart", run_apart)
    return kept


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def run(machine, assembler, body, threads, seed=3, cells=BLOCKS * 32):
    program = programs.compile(assembler(body, 2))
    x, y = torch.arange(cells, dtype=torch.int32), ints(cells)
    report = machine.run(program, [BLOCKS], x, y, threads=threads, seed=seed)
    told = [(f.kind, f.location, f.lanes, f.detail) for f in report.findings]
    return told, dict(report.counts), x.tolist(), y.tolist()


INDEPENDENT = {
    "every block its own row": f"{BLOCK}{OWN} st.global.b32 [%d4], %r2;",
    "in place": f"{BLOCK}{OWN} ld.global.b32 %r3, [%d4]; add.s32 %r3, %r3, %r2; "
    "st.global.b32 [%d4], %r3;",
    "parts of one sector": "mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 4; "
    "add.s64 %d4, %d1, %d3; setp.eq.s32 %p1, %r1, 0; @%p1 st.global.b32 [%d4], %r2;",
    "sums of integers": "red.global.add.u32 [%d1], 3;",
    "what all read": f"ld.global.b32 %r5, [%d2]; {BLOCK}{OWN} st.global.b32 [%d4], %r5;",
    "what all read, and some of it is written beside": f"{BLOCK} ld.global.b32 %r5, [%d1+2044]; "
    "setp.lt.u32 %p1, %r2, 15; add.s64 %d4, %d4, %d21; @%p1 st.global.b32 [%d4], %r5;",
}

DEPENDENT = {
    "one place, other values": "mov.u32 %r2, %ctaid.x; st.global.b32 [%d1], %r2;",
    "one place, the same value": "st.global.b32 [%d1], 7;",
    "the next row is read": f"{BLOCK}{OWN} ld.global.b32 %r3, [%d4+128]; st.global.b32 [%d4], %r2;",
    "a sum that is read": "red.global.add.u32 [%d1], 3; ld.global.b32 %r3, [%d1];",
    "a sum over what was stored": "mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 5; "
    "@%p1 st.global.b32 [%d1], 9; @!%p1 red.global.add.u32 [%d1], 3;",
    "outside": f"{BLOCK} st.global.b32 [%d1+1000000], %r2; {OWN} st.global.b32 [%d4], %r2;",
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_blocks_that_do_not_meet_run_on_threads(machine, assembler, outcomes, name):
    body = INDEPENDENT[name].replace("[%d4+128]", "[%d4]")
    assert run(machine, assembler, body, 3) == run(machine, assembler, body, 1)
    assert outcomes == [True]


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_that_meet_do_as_on_one_thread(machine, assembler, outcomes, name, seed):
    body = DEPENDENT[name]
    assert run(machine, assembler, body, 3, seed) == run(machine, assembler, body, 1, seed)
    assert outcomes == [False]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", INDEPENDENT | DEPENDENT)
def test_a_thread_that_is_free_runs_the_blocks_of_others(
    machine, assembler, monkeypatch, order, name
):
    """One runs them all, before the others begin, and does as it would alone."""
    ran = []

    def in_turn(tasks):
        for task in tasks[::order]:
            task()

    def steal(worker, shares, work):
        STEAL(worker, shares, work)
        ran.append(int(worker.executions.sum()))

    monkeypatch.setattr(speculation, "run_all", in_turn)
    monkeypatch.setattr(speculation, "steal", steal)
    body = {**INDEPENDENT, **DEPENDENT}[name].replace("[%d4+128]", "[%d4]")
    assert run(machine, assembler, body, 3) == run(machine, assembler, body, 1)
    assert ran[0]
    assert ran[1:] == [0, 0]


def test_blocks_that_have_met_are_not_tried_again(machine, assembler, outcomes):
    program = programs.compile(assembler("st.global.b32 [%d1], 7;", 1))
    for _ in range(3):
        machine.run(program, [BLOCKS], ints(8), threads=2)
    assert outcomes == [False]


def test_two_blocks_that_meet_are_found_wherever_they_run(machine, assembler, outcomes):
    """One reads, one writes, at a place that no other block touches."""
    body = """mov.u32 %r2, %ctaid.x; ld.global.b32 %r3, [%d2]; setp.eq.s32 %p1, %r2, 0;
    setp.eq.s32 %p2, %r2, %r3; @%p1 ld.global.b32 %r4, [%d1+68]; setp.eq.s32 %p3, %r1, 0;
    and.pred %p2, %p2, %p3; @%p2 st.global.b32 [%d1+68], %r2;"""
    text = assembler(body, 2)
    native = programs.translate(text)
    for second in range(1, BLOCKS):
        program = programs.load(text, native)
        x, chosen = ints(64), torch.full((1,), second, dtype=torch.int32)
        report = machine.run(program, [BLOCKS], x, chosen, threads=4, seed=second)
        assert [finding.kind for finding in report.findings] == ["race"]
    assert outcomes == [False] * (BLOCKS - 1)


def test_memory_that_was_undefined_is_undefined_again(machine, assembler, outcomes):
    """What block 0 reads, all write: whether it is written depends on the order."""
    body = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; @%p1 ld.global.b32 %r3, [%d1];
    @!%p1 st.global.b32 [%d1], 7; setp.eq.s32 %p2, %r3, 5; and.pred %p2, %p2, %p1;
    @%p2 st.global.b32 [%d1+4], 5;"""
    program = programs.compile(assembler(body, 1))
    found = []
    for threads in (1, 4):
        x = ints(8)
        report = machine.run(program, [BLOCKS], x, undefined=[x], threads=threads)
        found.append([finding.kind for finding in report.findings])
    assert found[0] == found[1]
    assert "uninitialised_read" in found[0]
    assert outcomes == [False]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("st.global.b32 [%d1], 7;", True),
        ("red.global.add.f32 [%d1], %r1;", False),
        ("red.global.add.noftz.bf16 [%d1], %h1;", False),
        ("red.global.max.s32 [%d1], %r1;", True),
        ("red.global.max.s32 [%d1], %r1; red.global.max.u32 [%d1], %r1;", False),
        ("red.global.add.s32 [%d1], %r1; red.global.add.u32 [%d2], %r1;", True),
        ("red.global.max.s32 [%d1], %r1; red.global.add.u32 [%d1], %r1;", False),
        ("red.global.inc.u32 [%d1], %r1;", False),
        ("atom.global.add.u32 %r2, [%d1], %r1;", True),
        ("atom.add.u32 %r2, [%d1], %r1; st.global.b32 [%d1], %r2;", False),
        ("atom.global.exch.b32 %r2, [%d1], %r1;", False),
        ("atom.global.cas.b32 %r2, [%d1], %r1, %r1;", False),
        ("atom.shared.exch.b32 %r2, [%r1], %r1; st.global.b32 [%d1], %r2;", True),
        ("ld.volatile.global.b32 %r2, [%d1];", False),
        ("ld.acquire.gpu.global.b32 %r2, [%d1];", False),
        ("st.relaxed.gpu.global.b32 [%d1], %r1;", False),
        ("mov.u64 %d3, %clock64; st.global.b64 [%d1], %d3;", False),
    ],
)
def test_which_kernels_may_run_on_threads(assembler, body, answer):
    assert meets_only_in_memory(parse(assembler(body, 2))) is answer


def test_threads_are_not_woken_for_little_or_where_saving_takes_longer(monkeypatch):
    monkeypatch.undo()
    table = torch.zeros(3, 4, dtype=torch.int64).numpy()
    table[:, 1] = 1 << 20
    cells = {1: ((1 << 18) + 32, (1 << 15) + 32)}
    count, saved = speculation.worthwhile_threads, frozenset(cells)
    assert count(1 << 20, 1000, cells, saved, table, 4) == 4
    assert count(1 << 10, 1000, cells, saved, table, 4) == 1
    assert count(1 << 20, 8, cells, saved, table, 4) == 2
    assert count(1 << 20, 1000, cells, saved, table, 1) == 1
    table[:, 1] = 1 << 25
    assert count(1 << 18, 1000, cells, saved, table, 4) == 1
    table[:, 1] = 1 << 27
    assert count(1 << 24, 1000, cells, saved, table, 4) == 1
    monkeypatch.setattr(speculation, "_MOST_CELL_BYTES", 1 << 31)
    assert count(1 << 24, 1000, cells, frozenset(), table, 4) == 4


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("st.global.b32 [%d1], %r1;", True),
        ("atom.shared.exch.b32 %r2, [%r1], %r1; st.global.b32 [%d1], %r2;", True),
        ("red.global.add.u32 [%d1], %r1;", False),
        ("atom.add.u32 %r2, [%d1], %r1;", False),
        ("st.global.b32 [%d1], %r1; trap;", False),
    ],
)
def test_which_kernels_do_not_care_what_they_overwrite(assembler, body, answer):
    assert writes_blindly(parse(assembler(body, 2))) is answer


@pytest.mark.parametrize(("body", "saved"), [
    (f"{BLOCK}{OWN} ld.global.b32 %r3, [%d4+128]; st.global.b32 [%d4], %r2;", [1]),
    (f"ld.global.b32 %r3, [%d2]; {BLOCK}{OWN} st.global.b32 [%d1], %r3;", [0]),
    ("red.global.add.u32 [%d1], 3; ld.global.b32 %r3, [%d1];", [1]),
])  # fmt: skip
def test_only_what_is_loaded_is_saved(machine, assembler, monkeypatch, body, saved):
    """What is repeated writes the rest anew: with `DEPENDENT` kernels, too, memory is the same."""
    counts, keep = [], speculation._saved

    def count(table, windows):
        counts.append(len(windows))
        return keep(table, windows)

    monkeypatch.setattr(speculation, "_saved", count)
    run(machine, assembler, body, 3)
    assert counts == saved


def test_threads_share_no_line_of_the_cache(machine, assembler):
    body = f"""{BLOCK}{OWN} shl.b32 %r3, %r1, 2; st.shared.b32 [%r3], %r2; bar.sync 0;
    ld.shared.b32 %r4, [%r3]; st.global.b32 [%d4], %r4;"""
    program = programs.compile(assembler(body, 1))
    machine.run(program, [BLOCKS], ints(BLOCKS * 32), threads=2, shared_bytes=128)
    first, second = (written(worker.context) for worker in program.idle.popitem()[1])
    assert {start % LINE for start, _ in first + second} == {0}
    assert not lines(first) & lines(second)


def lines(pieces):
    """Numbers of the lines of a cache on which pieces of memory lie."""
    return {k for start, size in pieces for k in range(start // LINE, -(-(start + size) // LINE))}


def written(context):
    """Where the native code of a thread writes all the time, and how many bytes."""
    window = context.shared_window
    return [
        (ctypes.addressof(context), ctypes.sizeof(context)),
        (context.counters, ctypes.sizeof(Counters)),
        (context.executions, 8),
        (context.sites, ctypes.sizeof(Site)),
        (context.fibers, ctypes.sizeof(Fiber)),
        (context.barriers, ctypes.sizeof(Barrier)),
        *((start, window.size) for start in (window.host, window.defined, window.shadow)),
    ]
