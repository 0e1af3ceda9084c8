"""Programs: objects that other processes load, arguments, counts, messages, subnormals."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl

from lethe_env.vgpu.machine.program import Options, load, translate
from lethe_env.vgpu.machine.program import compile as compile_ptx
from lethe_env.vgpu.memory import AddressSpace
from lethe_env.vgpu.ptx.model import UnsupportedError

BODY = """add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3]; shl.b32 %r3, %r1, 2;
st.shared.b32 [%r3], %r2; bar.sync 0; xor.b32 %r3, %r3, 128; ld.shared.b32 %r2, [%r3];
add.s64 %d4, %d2, %d21; st.global.b32 [%d4], %r2;"""

CHILD = """
import sys, torch
from lethe_env.vgpu.machine.program import Options, load
from lethe_env.vgpu.memory import AddressSpace
program = load(open(sys.argv[1]).read(), open(sys.argv[2], "rb").read())
memory = AddressSpace()
x, o = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
program.run([1], [memory.pointer(x), memory.pointer(o)], memory, Options(shared_bytes=256))
print(o.tolist())
"""


@triton.jit
def printing_kernel(x, o):
    i = tl.arange(0, 32)
    v = tl.load(x + i)
    tl.device_print("value", v)
    tl.store(o + i, v)


@triton.jit
def asserting_kernel(x, o):
    i = tl.arange(0, 32)
    v = tl.load(x + i)
    tl.device_assert(v < 31, "too large")
    tl.store(o + i, v)


def test_an_object_runs_in_another_process(assembler, tmp_path):
    ptx = assembler(BODY, 2, 64)
    (tmp_path / "kernel.ptx").write_text(ptx)
    (tmp_path / "kernel.bin").write_bytes(translate(ptx))
    command = [sys.executable, "-c", CHILD, tmp_path / "kernel.ptx", tmp_path / "kernel.bin"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([k ^ 32 for k in range(64)])


def test_programs_outlive_each_other(assembler):
    memory = AddressSpace()
    for _ in range(3):
        o = torch.zeros(32, dtype=torch.int32)
        body = "add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r1;"
        compile_ptx(assembler(body, 1)).run([1], [memory.pointer(o)], memory)
        assert o.tolist() == list(range(32))


def test_counts(machine):
    x, o = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    counts = machine.assembled(BODY, x, o, threads=64, grid=(3,)).counts
    assert counts["loaded_bytes"] == counts["stored_bytes"] == 3 * 64 * 4
    assert counts["shared_bytes"] == 3 * 2 * 64 * 4
    sectors = [(t.data_ptr() % 32 + 128 * w + 127) // 32 - (t.data_ptr() % 32 + 128 * w) // 32 + 1
               for t in (x, o) for w in (0, 1)]  # fmt: skip
    assert counts["sectors"] == 3 * sum(sectors)
    assert counts["bank_conflicts"] == 0
    assert counts["instructions.synchronisation"] == 3 * 2
    silent = machine.assembled(BODY, x, o, threads=64, grid=(3,), count_memory=False).counts
    assert silent["loaded_bytes"] == 0
    assert silent["warp_instructions"] == counts["warp_instructions"]


@pytest.mark.parametrize(
    ("shift", "vector", "conflicts"),
    [(2, 1, 0), (3, 1, 1), (7, 1, 31), (0, 1, 0), (4, 4, 0), (5, 4, 4), (3, 2, 0), (4, 2, 2)],
)
def test_bank_conflicts(machine, shift, vector, conflicts):
    values = "%r1" if vector == 1 else "{" + ", ".join(["%r1"] * vector) + "}"
    suffix = "b32" if vector == 1 else f"v{vector}.b32"
    body = f"shl.b32 %r3, %r1, {shift}; and.b32 %r3, %r3, -4; st.shared.{suffix} [%r3], {values};"
    assert machine.assembled(body).counts["bank_conflicts"] == conflicts


def _extra_passes(units: list[int], active: list[bool], lanes: int) -> int:
    """Of a warp through the banks, where `lanes` lanes fill them once."""
    extra = 0
    for start in range(0, 32, lanes):
        phase = {units[k] for k in range(start, start + lanes) if active[k]}
        groups = [unit % lanes for unit in phase]
        extra += max((groups.count(group) for group in groups), default=1) - 1
    return extra


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_bank_conflicts_of_any_addresses(machine, vector):
    values = "%r9" if vector == 1 else "{" + ", ".join(["%r9"] * vector) + "}"
    suffix = "b32" if vector == 1 else f"v{vector}.b32"
    body = f"""
add.s64 %d3, %d1, %d21;
ld.global.b32 %r2, [%d3];
setp.lt.s32 %p1, %r2, 0;
and.b32 %r3, %r2, 2047;
mul.lo.s32 %r3, %r3, {4 * vector};
@!%p1 ld.shared.{suffix} {values}, [%r3];
"""
    generator = torch.Generator().manual_seed(vector)
    for limit in (4, 64, 2048):
        x = torch.randint(0, limit, (32,), generator=generator, dtype=torch.int32)
        x[torch.rand(32, generator=generator) < 0.2] |= -(2**31)
        counts = machine.assembled(body, x, x.clone(), shared_bytes=2048 * 16).counts
        units = (x & 2047).tolist()
        expected = _extra_passes(units, (x >= 0).tolist(), 32 // vector)
        assert counts["bank_conflicts"] == expected


def test_bank_conflicts_of_an_instruction_that_changes_its_pattern(machine):
    """Every block has a row of words; some differ by their place, or by who is active, only."""
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 128; add.s64 %d3, %d3, %d1;
    add.s64 %d3, %d3, %d21; ld.global.b32 %r3, [%d3]; setp.ge.s32 %p1, %r3, 0;
    and.b32 %r4, %r3, 1023; shl.b32 %r4, %r4, 2; @%p1 st.shared.b32 [%r4], %r1;"""
    lanes = torch.arange(32, dtype=torch.int32)
    triple, double = 3 * lanes, 2 * lanes
    few = torch.where(lanes < 9, double, double | -(2**31))
    rows = [double, triple, double, double + 5, few, double, few + 1, 31 * lanes]
    expected = sum(_extra_passes((row & 1023).tolist(), (row >= 0).tolist(), 32) for row in rows)
    counts = machine.assembled(body, torch.stack(rows), grid=(len(rows),)).counts
    assert counts["bank_conflicts"] == expected


def test_a_launch_knows_nothing_of_the_last_one(machine):
    """Neither what was found and counted, nor what shared memory held."""
    x, o = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    body = """add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3]; shl.b32 %r4, %r1, 2;
    xor.b32 %r4, %r4, 8; setp.eq.s32 %p1, %r2, 0; @%p1 st.shared.b32 [%r4], %r1;
    ld.shared.b32 %r5, [%r4]; add.s64 %d4, %d2, %d21; st.global.b32 [%d4], %r5;"""
    outcomes = []
    for missing in (0, 3, 0, 3, 32):
        x[:] = torch.arange(32) < missing
        report = machine.assembled(body, x, o)
        told = [(finding.kind, finding.lanes) for finding in report.findings]
        assert told == ([("uninitialised_read", missing)] if missing else [])
        assert o.tolist() == [-1] * missing + list(range(missing, 32))
        outcomes.append(dict(report.counts))
    assert outcomes[0] == outcomes[2]
    assert outcomes[1] == outcomes[3]


@pytest.mark.parametrize(("barrier", "found"), [("bar.sync 0;", []), ("", ["barrier"])])
def test_epochs_begin_again_before_their_numbers_run_out(machine, assembler, barrier, found):
    body = f"""shl.b32 %r3, %r1, 2; st.shared.b32 [%r3], %r1; {barrier} xor.b32 %r3, %r3, 128;
    setp.lt.u32 %p1, %r1, 32; @!%p1 st.shared.b32 [%r3], 7;"""
    program = compile_ptx(assembler(body, 1, 64))
    x = torch.zeros(1, dtype=torch.int32)
    epochs = []
    for start in (None, (1 << 24) - 1, 1 << 24):
        for worker in [w for workers in program.idle.values() for w in workers]:
            worker.context.epoch = start
        report = machine.run(program, [3], x, shared_bytes=256)
        assert [finding.kind for finding in report.findings] == found
        ((worker,),) = program.idle.values()
        epochs.append(worker.context.epoch)
    assert epochs[2] < epochs[0] + 3 < 20


def test_strided_loads_touch_a_sector_each(machine):
    x = torch.zeros(1024, dtype=torch.int32)
    body = "mul.lo.s64 %d3, %d20, 128; add.s64 %d3, %d1, %d3; ld.global.b32 %r2, [%d3];"
    assert machine.assembled(body, x).counts["sectors"] == 32
    body = "sub.s64 %d3, 124, %d21; add.s64 %d3, %d1, %d3; ld.global.b32 %r2, [%d3];"
    start = x.data_ptr() % 32
    expected = (start + 127) // 32 - start // 32 + 1
    assert machine.assembled(body, x).counts["sectors"] == expected


def test_a_sector_that_several_lanes_touch_counts_once(machine):
    x = torch.zeros(1024, dtype=torch.int32)
    body = """and.b32 %r2, %r1, 1; mul.wide.u32 %d3, %r2, 512; add.s64 %d3, %d1, %d3;
    ld.global.b32 %r2, [%d3];"""
    assert machine.assembled(body, x).counts["sectors"] == 2


def test_prints_are_kept(machine):
    program, shared = machine.triton(printing_kernel, {"x": "*i32", "o": "*i32"}, {}, num_warps=1)
    x, o = torch.arange(32, dtype=torch.int32) * 3, torch.zeros(32, dtype=torch.int32)
    report = machine.run(program, [1], x, o, shared_bytes=shared)
    assert report.findings == ()
    assert len(report.messages) == 32
    assert "value" in report.messages[7]
    assert report.messages[7].strip().endswith("21")
    assert torch.equal(x, o)


def test_a_failed_assertion_ends_the_launch(machine):
    types = {"x": "*i32", "o": "*i32"}
    program, shared = machine.triton(asserting_kernel, types, {}, num_warps=1, debug=True)
    x, o = torch.arange(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    report = machine.run(program, [1], x - 1, o, shared_bytes=shared)
    assert (report.stopped, report.messages) == ("", ())
    report = machine.run(program, [1], x, o, shared_bytes=shared)
    assert report.stopped == "assert"
    assert "too large" in report.messages[0]
    assert "thread 31" in report.messages[0]


def test_subnormals_are_kept_whatever_the_thread_had_set(machine):
    x, o = torch.tensor([2.0**-140] * 32), torch.zeros(32)
    body = """add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21; ld.global.b32 %r2, [%d3];
    add.rn.f32 %r3, %r2, %r2; st.global.b32 [%d4], %r3;"""
    torch.set_flush_denormal(True)
    try:
        machine.assembled(body, x, o)
    finally:
        torch.set_flush_denormal(False)
    assert o.tolist() == [2.0**-139] * 32


def test_too_many_arguments_are_refused(assembler):
    memory = AddressSpace()
    with pytest.raises(ValueError, match="takes 1 arguments, 2 were given"):
        compile_ptx(assembler("", 1)).run([1], [1, 2], memory, Options())


def test_a_block_that_is_no_number_of_warps_is_refused(assembler):
    with pytest.raises(UnsupportedError, match="48 threads"):
        translate(assembler("", 1, 48))


def test_missing_arguments_are_null(assembler):
    memory = AddressSpace()
    ptx = assembler("st.global.b64 [%d1], %d2;", 2)
    o = torch.full((1,), 9)
    program = load(ptx, translate(ptx))
    assert program.run([1], [memory.pointer(o)], memory).findings == ()
    assert o.item() == 0
