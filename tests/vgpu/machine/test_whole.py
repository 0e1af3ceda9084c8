"""Rows of a whole warp, and lanes at one place: what is wrong with one lane of them is seen."""

from __future__ import annotations

import pytest
import torch

ROW = "add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21;"
BLOCKS = 3
ROW_OF_BLOCK = f"mov.u32 %r7, %ctaid.x; mul.wide.u32 %d6, %r7, 128; {ROW} " + (
    "add.s64 %d3, %d3, %d6; add.s64 %d4, %d4, %d6;"
)
"""The first block finds the memory of an instruction, and the others know it."""
SHARED_ROW = "and.b32 %r2, %r1, 31; shl.b32 %r3, %r2, 2; shr.u32 %r4, %r1, 5;"


def ints(*shape):
    return torch.zeros(*shape, dtype=torch.int32)


def told(report):
    return [(f.kind, f.lanes) for f in report.findings]


@pytest.mark.parametrize("instruction", ["ld.global.b32 %r2, [%d3];", "st.global.b32 [%d3], %r1;"])
@pytest.mark.parametrize("size", [32, 31, 1])
def test_a_row_that_ends_outside(machine, instruction, size):
    x = ints((BLOCKS - 1) * 32 + size)
    report = machine.assembled(f"{ROW_OF_BLOCK} {instruction}", x, ints(1), grid=(BLOCKS,))
    assert told(report) == ([("out_of_bounds", 32 - size)] if size < 32 else [])
    if size < 32:
        assert report.findings[0].address == machine.memory.address(x) + 4 * len(x)
    stored = [*range(32)] * (BLOCKS - 1) + [*range(size)]
    assert x.tolist() == (stored if "st" in instruction else [0] * len(x))


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("lane", [None, 0, 17, 31])
def test_one_undefined_byte_of_a_row(machine, lane, space):
    x, y = ints(BLOCKS * 32), ints(BLOCKS * 32)
    place = {"global": "%d3", "shared": "%r3"}[space]
    body = f"""{ROW_OF_BLOCK} shl.b32 %r3, %r1, 2; setp.eq.s32 %p1, %r1, {lane or 0};
    setp.eq.s32 %p2, %r7, {-1 if lane is None else 1}; and.pred %p3, %p1, %p2;
    @!%p3 st.{space}.b32 [{place}], 7; ld.{space}.b32 %r2, [{place}]; st.global.b32 [%d4], %r2;"""
    report = machine.assembled(body, x, y, grid=(BLOCKS,), undefined=[x])
    assert told(report) == ([] if lane is None else [("uninitialised_read", 1)])
    assert sum(value == 7 for value in y.tolist()) == BLOCKS * 32 - (lane is not None)


@pytest.mark.parametrize(
    ("step", "found"), [(128, []), (96, [("race", 8)]), (124, [("race", 1)]), (0, [("race", 32)])]
)
def test_rows_of_two_blocks_that_overlap(machine, step, found):
    body = f"""mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, {step}; add.s64 %d3, %d3, %d1;
    add.s64 %d3, %d3, %d21; add.s32 %r3, %r2, 1; st.global.b32 [%d3], %r3;"""
    assert told(machine.assembled(body, ints(64), ints(1), grid=(2,))) == found


@pytest.mark.parametrize(
    ("barrier", "second", "found"),
    [
        ("bar.sync 0;", "st.shared.b32 [%r3], 9;", []),
        ("", "st.shared.b32 [%r3], 9;", [("barrier", 32)]),
        ("", "ld.shared.b32 %r5, [%r3];", [("barrier", 32)]),
        ("", "ld.shared.b32 %r5, [8];", [("barrier", 1)]),
        ("", "ld.shared.b32 %r5, [256];", []),
    ],
)
def test_a_row_of_shared_memory_that_another_warp_uses(machine, barrier, second, found):
    body = f"""{SHARED_ROW} setp.eq.s32 %p1, %r4, 0; add.s32 %r6, %r1, 100;
    @%p1 st.shared.b32 [%r3], 0; @%p1 st.shared.b32 [%r3+256], 0; bar.sync 0;
    @%p1 st.shared.b32 [%r3], %r6; {barrier} @!%p1 {second}"""
    assert told(machine.assembled(body, ints(1), ints(1), threads=64)) == found


@pytest.mark.parametrize(("written", "found"), [(8, []), (4, [("uninitialised_read", 32)])])
def test_one_place_of_shared_memory_for_all_lanes(machine, written, found):
    body = f"""{ROW} mov.b32 %r6, 5; setp.eq.s32 %p1, %r1, 0; setp.ne.s32 %p2, %r1, 3;
    @%p1 st.shared.b32 [{written}], 41; ld.shared.b32 %r6, [8]; @%p2 st.global.b32 [%d4], %r6;"""
    y = ints(32)
    assert told(machine.assembled(body, ints(1), y)) == found
    if not found:
        assert y.tolist() == [0 if lane == 3 else 41 for lane in range(32)]


@pytest.mark.parametrize("guard", ["setp.lt.u32 %p1, %r1, 7;", "setp.ne.s32 %p1, %r1, 0;"])
def test_lanes_at_one_place_leave_the_others_as_they_are(machine, guard):
    body = f"""{ROW} mov.b32 %r6, 5; {guard} @%p1 ld.global.b32 %r6, [%d1+4];
    st.global.b32 [%d4], %r6;"""
    x, y = torch.tensor([1, 77], dtype=torch.int32), ints(32)
    assert told(machine.assembled(body, x, y)) == []
    active = range(7) if "lt" in guard else range(1, 32)
    assert y.tolist() == [77 if lane in active else 5 for lane in range(32)]


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("ld.global.b32 %r2, [%d3];", {"loaded_bytes": 128, "sectors": 4}),
        ("ld.global.b32 %r2, [%d3+4];", {"loaded_bytes": 128, "sectors": 5}),
        ("ld.global.b32 %r2, [%d1];", {"loaded_bytes": 128, "sectors": 1}),
        ("setp.lt.u32 %p1, %r1, 7; @%p1 ld.global.b32 %r2, [%d1];", {"loaded_bytes": 28}),
        ("setp.gt.u32 %p1, %r1, 99; @%p1 ld.global.b32 %r2, [%d3];", {"loaded_bytes": 0}),
        ("st.global.b32 [%d3], %r1;", {"stored_bytes": 128, "sectors": 4}),
        ("setp.eq.s32 %p1, %r1, 0; @%p1 st.shared.b32 [4], 1;", {"shared_bytes": 4}),
        ("st.shared.b32 [%r3], 1; ld.shared.b32 %r2, [4];", {"shared_bytes": 256}),
    ],
)
def test_what_they_count(machine, body, counts):
    x = torch.zeros(64, dtype=torch.int32)
    report = machine.assembled(f"{ROW} shl.b32 %r3, %r1, 2; {body}", x, ints(1))
    start = machine.memory.address(x)
    assert start % 32 == 0
    assert {name: report.counts[name] for name in counts} == counts
    assert report.counts["bank_conflicts"] == 0
