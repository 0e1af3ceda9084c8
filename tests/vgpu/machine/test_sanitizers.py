"""What a kernel must not do is found, with its place; what it may do is not."""

from __future__ import annotations

import inspect

import pytest
import torch
import triton
import triton.language as tl

from lethe_env.vgpu.machine.program import compile as compile_ptx


@triton.jit
def copy_kernel(x, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(o + i, v, mask=i < n)


@triton.jit
def total_kernel(x, o, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + tl.program_id(0) * BLOCK + c)
    tl.store(o, tl.load(o) + tl.sum(v, 0))


@triton.jit
def last_block_kernel(x, partial, count, o, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    p = tl.program_id(0)
    tl.store(partial + p, tl.sum(tl.load(x + p * BLOCK + tl.arange(0, BLOCK)), 0))
    if tl.atomic_add(count, 1) == BLOCKS - 1:
        tl.store(o, tl.sum(tl.load(partial + tl.arange(0, BLOCKS)), 0))


@triton.jit
def lock_kernel(x, lock, o, BLOCK: tl.constexpr):
    v = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o, tl.load(o) + v)
    tl.atomic_xchg(lock, 0)


@triton.jit
def max_kernel(x, o, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    tl.store(o + r, tl.max(tl.load(x + r * BLOCK + tl.arange(0, BLOCK)), 0))


def line_of(function, text):
    lines, first = inspect.getsourcelines(function.fn)
    return first + next(k for k, line in enumerate(lines) if text in line)


def kinds(report):
    return sorted(finding.kind for finding in report.findings)


def test_a_load_past_the_end_is_found_with_its_line_and_gives_poison(machine):
    signature = {"x": "*i32", "o": "*i32", "n": "i32"}
    program, _ = machine.triton(copy_kernel, signature, {"BLOCK": 128})
    x = torch.arange(100, dtype=torch.int32)
    o = torch.zeros(128, dtype=torch.int32)
    (finding,) = machine.run(program, [1], x, o, 128).findings
    assert finding.kind == "out_of_bounds"
    assert finding.kernel == "copy_kernel"
    assert finding.opcode.startswith("ld.global")
    assert finding.location.file.endswith("test_sanitizers.py")
    assert finding.location.line == line_of(copy_kernel, "tl.load")
    assert finding.address - machine.memory.address(x) == 400
    assert finding.lanes == 28
    assert o[:100].tolist() == x.tolist()
    assert o[100:].tolist() == [-1] * 28


def test_a_store_before_the_beginning_is_dropped(machine):
    whole = torch.zeros(64, dtype=torch.int32)
    body = "sub.s64 %d3, %d1, 4; add.s64 %d3, %d3, %d21; st.global.b32 [%d3], 5;"
    (finding,) = machine.assembled(body, whole).findings
    assert (finding.kind, finding.lanes) == ("out_of_bounds", 1)
    assert finding.address == machine.memory.address(whole) - 4
    assert whole.tolist() == [5] * 31 + [0] * 33


def test_an_access_that_only_begins_inside_is_out_of_bounds(machine):
    x = torch.zeros(6, dtype=torch.uint8)
    body = "ld.global.b32 %r2, [%d1+4]; st.global.b16 [%d1], 7;"
    (finding,) = machine.assembled(body, x).findings
    assert finding.lanes == 32
    assert x.tolist() == [7, 0, 0, 0, 0, 0]


def test_an_access_that_ends_outside_is_found_after_others_fitted(machine):
    x = torch.zeros(35, dtype=torch.uint8)
    body = """mov.u32 %r2, %ctaid.x; cvt.u64.u32 %d3, %r2; add.s64 %d3, %d3, %d20;
    add.s64 %d3, %d3, %d1; ld.global.b32 %r3, [%d3];"""
    assert machine.assembled(body, x, grid=(1,)).findings == ()
    (finding,) = machine.assembled(body, x, grid=(2,)).findings
    assert finding.lanes == 1
    assert finding.address == machine.memory.address(x) + 32


def test_what_an_earlier_launch_did_is_no_race(machine):
    x = torch.zeros(32, dtype=torch.int32)
    body = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 1; add.s64 %d3, %d1, %d21;
    @%p1 st.global.b32 [%d3], %r1;"""
    load = "add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3];"
    for _ in range(3):
        assert machine.assembled(body, x, grid=(2,)).findings == ()
        assert machine.assembled(load, x, grid=(5,)).findings == ()


def test_a_write_races_with_every_block_that_has_read(machine):
    x = torch.zeros(32, dtype=torch.int32)
    body = """mov.u32 %r2, %ctaid.x; add.s64 %d3, %d1, %d21; ld.global.b32 %r3, [%d3];
    setp.eq.s32 %p1, %r2, 1; add.s32 %r3, %r1, 1; @%p1 st.global.b32 [%d3], %r3;"""
    (finding,) = machine.assembled(body, x, grid=(2,)).findings
    assert (finding.kind, finding.opcode) == ("race", "st.global.b32")
    assert finding.detail.startswith("several blocks")


def test_an_acquire_does_not_order_shared_memory(machine):
    x = torch.zeros(1, dtype=torch.int32)
    body = """atom.acq_rel.gpu.global.add.u32 %r3, [%d1], 1; mov.u32 %r2, %ctaid.x;
    setp.eq.s32 %p1, %r2, 1; mov.u32 %r4, %warpid; @%p1 st.shared.b32 [0], %r4; bar.sync 0;"""
    assert kinds(machine.assembled(body, x, grid=(2,), threads=64)) == ["barrier"]


def test_a_race_names_both_blocks(machine):
    x = torch.zeros(32, dtype=torch.int32)
    body = """mov.u32 %r2, %ctaid.x; add.s64 %d3, %d1, %d21; add.s32 %r3, %r2, %r1;
    setp.ne.s32 %p1, %r2, 0; @%p1 st.global.b32 [%d3], %r3;"""
    (finding,) = machine.assembled(body, x, grid=(3,)).findings
    assert finding.detail.startswith("block (1, 0, 0) accessed")
    assert finding.detail.endswith("in block (2, 0, 0)")


def test_shared_memory_has_an_end(machine):
    (finding,) = machine.assembled(
        "ld.shared.b32 %r2, [64];", shared_bytes=64, definedness=False
    ).findings
    assert (finding.kind, finding.address) == ("out_of_bounds", 64)


def test_lanes_in_two_allocations_are_both_served(machine):
    a = torch.arange(32, dtype=torch.int32)
    b, o = a + 100, torch.zeros(32, dtype=torch.int32)
    body = """and.b32 %r2, %r1, 1; setp.eq.s32 %p1, %r2, 0; selp.b64 %d4, %d1, %d2, %p1;
    add.s64 %d4, %d4, %d21; ld.global.b32 %r3, [%d4];
    add.s64 %d5, %d3, %d21; st.global.b32 [%d5], %r3;"""
    assert machine.assembled(body, a, b, o).findings == ()
    assert o.tolist() == [k if k % 2 == 0 else 100 + k for k in range(32)]


COPY_BYTE = """add.s64 %d3, %d1, %d20; add.s64 %d4, %d2, %d20;
ld.global.b8 %h1, [%d3]; st.global.b8 [%d4], %h1;"""


def test_reads_of_what_nobody_wrote_are_found_by_the_byte(machine):
    x, o = torch.zeros(32, dtype=torch.uint8), torch.zeros(32, dtype=torch.uint8)
    written = "setp.ne.s32 %p1, %r1, 9; add.s64 %d3, %d1, %d20; @%p1 st.global.b8 [%d3], 3;"
    (finding,) = machine.assembled(written + COPY_BYTE, x, o, undefined=[x]).findings
    assert finding.kind == "uninitialised_read"
    assert finding.address == machine.memory.address(x) + 9
    assert finding.lanes == 1


def test_definedness_outlives_the_launch(machine):
    x, o = torch.zeros(32, dtype=torch.uint8), torch.zeros(32, dtype=torch.uint8)
    machine.assembled("add.s64 %d3, %d1, %d20; st.global.b8 [%d3], 3;", x, undefined=[x])
    assert machine.assembled(COPY_BYTE, x, o).findings == ()


def test_shared_memory_that_nobody_wrote_is_poison_and_found(machine):
    o = torch.zeros(32, dtype=torch.int32)
    body = "ld.shared.b32 %r2, [128]; add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r2;"
    (finding,) = machine.assembled(body, o).findings
    assert (finding.kind, finding.lanes) == ("uninitialised_read", 32)
    assert o.tolist() == [-1] * 32


def test_two_blocks_that_add_to_one_place_race(machine):
    signature = {"x": "*fp32", "o": "*fp32", "n": "i32"}
    program, shared = machine.triton(total_kernel, signature, {"BLOCK": 128})
    x, o = torch.ones(512), torch.zeros(1)
    report = machine.run(program, [4], x, o, 512, shared_bytes=shared)
    assert set(kinds(report)) == {"race"}
    assert {f.location.line for f in report.findings} == {line_of(total_kernel, "tl.store")}
    assert machine.run(program, [1], x, o, 512, shared_bytes=shared).findings == ()
    quiet = machine.run(program, [4], x, o, 512, shared_bytes=shared, races=False)
    assert quiet.findings == ()


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_race_is_found_in_any_order_of_blocks(machine, seed):
    x = torch.zeros(8, dtype=torch.int32)
    body = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; setp.eq.s32 %p2, %r1, 0;
    and.pred %p3, %p1, %p2; @%p3 st.global.b32 [%d1], 7;
    @!%p1 ld.global.b32 %r3, [%d1];"""
    assert kinds(machine.assembled(body, x, grid=(2,), seed=seed)) == ["race"]


@pytest.mark.parametrize(("width", "step"), [("b8", 1), ("b16", 2), ("b32", 4)])
def test_neighbours_of_any_width_do_not_race(machine, width, step):
    x = torch.zeros(8, dtype=torch.uint8)
    register = "%h1" if width != "b32" else "%r5"
    body = f"""mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, {step}; add.s64 %d4, %d1, %d3;
    cvt.u16.u32 %h1, %r2; mov.b32 %r5, %r2; add.s16 %h1, %h1, 1; add.s32 %r5, %r5, 1;
    st.global.{width} [%d4], {register};"""
    assert machine.assembled(body, x, grid=(2,)).findings == ()
    assert x[0] == 1
    assert x[step] == 2


@pytest.mark.parametrize("width", ["b8", "b16", "b32", "b64"])
def test_blocks_that_store_to_one_place_race_at_any_width(machine, width):
    x = torch.zeros(8, dtype=torch.uint8)
    register = {"b8": "%h5", "b16": "%h5", "b32": "%r5", "b64": "%d5"}[width]
    body = f"""mov.u32 %r2, %ctaid.x; add.s32 %r5, %r2, 1; cvt.u16.u32 %h5, %r5;
    cvt.u64.u32 %d5, %r5; st.global.{width} [%d1], {register};"""
    assert kinds(machine.assembled(body, x, grid=(2,))) == ["race"]


def test_atomics_do_not_race_with_each_other_but_with_plain_accesses(machine):
    x = torch.zeros(1, dtype=torch.int32)
    assert machine.assembled("red.global.add.u32 [%d1], 1;", x, grid=(3,)).findings == ()
    assert x.item() == 96
    mixed = "red.global.add.u32 [%d1], 1; ld.global.b32 %r2, [%d1];"
    assert "race" in kinds(machine.assembled(mixed, x, grid=(2,)))


def test_the_last_block_may_read_what_the_others_released(machine):
    signature = {"x": "*i32", "partial": "*i32", "count": "*i32", "o": "*i32"}
    constants = {"BLOCK": 128, "BLOCKS": 4}
    program, shared = machine.triton(last_block_kernel, signature, constants)
    x, count = torch.ones(512, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    partial, o = torch.empty(4, dtype=torch.int32), torch.empty(1, dtype=torch.int32)
    report = machine.run(
        program, [4], x, partial, count, o, undefined=[partial, o], shared_bytes=shared, seed=5
    )
    assert report.findings == ()
    assert o.item() == 512


def test_a_flag_hands_data_to_another_block(machine):
    body = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; @%p1 bra FIRST;
    ld.{load}.global.b32 %r3, [%d2]; ld.global.b32 %r4, [%d1]; bra.uni END;
FIRST:
    st.global.b32 [%d1], 7; st.{store}.global.b32 [%d2], 1;
END:"""
    x, flag = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    ordered = body.format(load="acquire.gpu", store="release.gpu")
    assert machine.assembled(ordered, x, flag, grid=(2,)).findings == ()
    plain = body.format(load="weak", store="weak")
    assert kinds(machine.assembled(plain, x, flag, grid=(2,))) == ["race", "race"]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_lock_orders_blocks(machine, threads):
    signature = {"x": "*i32", "lock": "*i32", "o": "*i32"}
    program, shared = machine.triton(lock_kernel, signature, {"BLOCK": 128})
    x, lock = torch.ones(1024, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    o = torch.zeros(1, dtype=torch.int32)
    options = {"shared_bytes": shared, "threads": threads}
    assert machine.run(program, [8], x, lock, o, **options).findings == ()
    assert o.item() == 1024


def test_every_removed_barrier_is_found(machine):
    program, shared = machine.triton(max_kernel, {"x": "*fp32", "o": "*fp32"}, {"BLOCK": 512})
    x, o = torch.randn(2, 512), torch.empty(2)
    assert machine.run(program, [2], x, o, shared_bytes=shared).findings == ()
    barriers = [i for i in program.kernel.body if i.opcode[0] == "bar"]
    assert barriers
    text = _ptx_of(max_kernel)
    places = [k for k in range(len(text)) if text.startswith("bar.sync", k)]
    assert len(places) == len(barriers)
    for place in places:
        end = text.index(";", place) + 1
        broken = compile_ptx(text[:place] + text[end:])
        report = machine.run(broken, [2], x, o, shared_bytes=shared)
        assert "barrier" in kinds(report)
        assert not machine.run(
            broken, [2], x, o, shared_bytes=shared, barriers=False, definedness=False
        ).findings


def _ptx_of(function):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {"x": "*fp32", "o": "*fp32", "BLOCK": "constexpr"}
    attributes = {(k,): [["tt.divisibility", 16]] for k in range(2)}
    source = ASTSource(function, types, {(2,): 512}, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"]


def test_warps_that_store_the_same_value_do_not_conflict(machine):
    body = "st.shared.b32 [0], 5; bar.sync 0; ld.shared.b32 %r2, [0];"
    assert machine.assembled(body, threads=64).findings == ()
    body = "mov.u32 %r2, %warpid; st.shared.b32 [0], %r2; bar.sync 0; ld.shared.b32 %r2, [0];"
    assert kinds(machine.assembled(body, threads=64)) == ["barrier"]


COPY_TILE = """shl.b32 %r2, %r1, 2; add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21;
cp.async.ca.shared.global [%r2], [%d3], 4; cp.async.commit_group; {wait}
bar.sync 0; xor.b32 %r3, %r2, {other}; ld.shared.b32 %r4, [%r3]; st.global.b32 [%d4], %r4;"""


def test_an_asynchronous_copy_must_be_waited_for(machine):
    x, o = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    good = COPY_TILE.format(wait="cp.async.wait_group 0;", other=128)
    assert machine.assembled(good, x, o, threads=64).findings == ()
    assert o.tolist() == [k ^ 32 for k in range(64)]
    late = COPY_TILE.format(wait="cp.async.wait_group 1;", other=128)
    assert kinds(machine.assembled(late, x, o, threads=64)) == [
        "barrier",
        "uninitialised_read",
    ] or (kinds(machine.assembled(late, x, o, threads=64)) == ["uninitialised_read"])
    assert o.tolist() == [-1] * 64
    unmet = good.replace("bar.sync 0;", "")
    assert machine.assembled(unmet, x, o, threads=64).findings != ()


def test_matrix_loads_need_a_barrier(machine):
    body = """shl.b32 %r2, %r1, 2; st.shared.b32 [%r2], %r1; {barrier}
    and.b32 %r3, %r1, 7; shl.b32 %r3, %r3, 4; xor.b32 %r4, %r1, 32; and.b32 %r4, %r4, 32;
    shl.b32 %r4, %r4, 2; add.s32 %r3, %r3, %r4;
    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r5}}, [%r3];"""
    assert machine.assembled(body.format(barrier="bar.sync 0;"), threads=64).findings == ()
    report = machine.assembled(body.format(barrier=""), threads=64)
    assert report.findings != ()
    assert {f.opcode for f in report.findings} <= {
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16",
        "st.shared.b32",
    }


def test_a_deadlock_names_where_each_warp_waits(machine):
    body = "mov.u32 %r2, %warpid; setp.eq.s32 %p1, %r2, 1; @%p1 bra END; bar.sync 0;\nEND:"
    report = machine.assembled(body, threads=64)
    assert report.stopped == "deadlock"
    (finding,) = report.findings
    assert finding.kind == "barrier"
    assert "warp 0 of block (0, 0, 0) waits at barrier 0" in finding.detail
    assert "warp 1 of block (0, 0, 0) has ended" in finding.detail


def test_a_barrier_that_half_a_warp_reaches_is_found(machine):
    body = "setp.lt.s32 %p1, %r1, 16; @%p1 bra END; bar.sync 0;\nEND:"
    (finding,) = machine.assembled(body).findings
    assert (finding.kind, finding.lanes) == ("barrier", 16)


def test_a_finding_is_told_once(machine):
    x = torch.zeros(4, dtype=torch.int32)
    body = "add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3];"
    assert len(machine.assembled(body, x, grid=(5,)).findings) == 1
