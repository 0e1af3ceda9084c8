"""Cells of sectors, of granules, and of lanes that lie anywhere tell the same story."""

from __future__ import annotations

import pytest
import torch

BLOCK = "mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; add.s32 %r3, %r1, %r2; "


def kinds(report):
    return [finding.kind for finding in report.findings]


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize(("place", "found"), [(0, ["race"]), (100, ["race"]), (128, [])])
def test_a_part_of_a_sector_that_another_block_wrote_whole(machine, seed, place, found):
    x = torch.zeros(40, dtype=torch.int32)
    body = f"""{BLOCK} add.s64 %d3, %d1, %d21; @%p1 st.global.b32 [%d3], 7;
    @!%p1 ld.global.b32 %r4, [%d1+{place}];"""
    assert kinds(machine.assembled(body, x, grid=(2,), seed=seed)) == found


@pytest.mark.parametrize(("step", "found"), [(132, []), (128, []), (124, ["race"])])
def test_rows_that_begin_inside_a_sector(machine, step, found):
    x = torch.zeros(256, dtype=torch.int32)
    body = f"""{BLOCK} mul.wide.u32 %d3, %r2, {step}; add.s64 %d3, %d3, %d1;
    add.s64 %d3, %d3, %d21; st.global.b32 [%d3], %r3;"""
    assert kinds(machine.assembled(body, x, grid=(4,))) == found


def test_a_whole_sector_after_its_parts(machine):
    x = torch.zeros(32, dtype=torch.int32)
    body = f"""{BLOCK} add.s64 %d3, %d1, %d21; setp.eq.s32 %p2, %r1, 31; and.pred %p2, %p1, %p2;
    @%p2 st.global.b32 [%d3], 7; @!%p1 st.global.b32 [%d3], %r3;"""
    (finding,) = machine.assembled(body, x, grid=(2,)).findings
    assert (finding.kind, finding.lanes) == ("race", 1)
    assert finding.address == machine.memory.address(x) + 124


def test_a_spread_sector_is_whole_again_in_the_next_launch(machine):
    x = torch.zeros(32, dtype=torch.int32)
    part = "st.global.b32 [%d1+4], 7;"
    whole = f"{BLOCK} add.s64 %d3, %d1, %d21; @%p1 st.global.b32 [%d3], %r1;"
    for _ in range(2):
        assert machine.assembled(part, x, grid=(1,)).findings == ()
        assert machine.assembled(whole, x, grid=(2,)).findings == ()


@pytest.mark.parametrize("order", ["", "xor.b32 %r5, %r1, 5;", "and.b32 %r5, %r1, 62;"])
@pytest.mark.parametrize(("width", "register"), [("b32", "%r6"), ("v4.b32", "{%r6,%r6,%r6,%r6}")])
def test_warps_that_cross_without_a_barrier(machine, order, width, register):
    """Lanes in order, out of order, and two at one place."""
    bits = 4 if width != "b32" else 2
    body = f"""mov.u32 %r5, %r1; {order} shl.b32 %r5, %r5, {bits}; mov.u32 %r6, 9;
    st.shared.{width} [%r5], {register}; {{barrier}} xor.b32 %r5, %r5, {32 << bits};
    ld.shared.{width} {register.replace("%r6,%r6,%r6,%r6", "%r6,%r7,%r8,%r9")}, [%r5];"""
    clean = machine.assembled(body.replace("{barrier}", "bar.sync 0;"), threads=64)
    assert clean.findings == ()
    report = machine.assembled(body.replace("{barrier}", ""), threads=64)
    assert "barrier" in kinds(report) or "uninitialised_read" in kinds(report)


def test_what_a_scattered_load_reads_before_it_is_written(machine):
    o = torch.zeros(32, dtype=torch.int32)
    body = """shl.b32 %r5, %r1, 2; setp.ne.s32 %p1, %r1, 6; @%p1 st.shared.b32 [%r5], %r1;
    xor.b32 %r5, %r5, 12; ld.shared.b32 %r6, [%r5]; add.s64 %d3, %d1, %d21;
    st.global.b32 [%d3], %r6;"""
    (finding,) = machine.assembled(body, o).findings
    assert (finding.kind, finding.lanes, finding.address) == ("uninitialised_read", 1, 24)
    assert o.tolist() == [k ^ 3 if k ^ 3 != 6 else -1 for k in range(32)]


@pytest.mark.parametrize(("mask", "lanes"), [("setp.lt.s32 %p1, %r1, 11;", range(11)),
                                             ("setp.ge.s32 %p1, %r1, 11;", range(11, 32)),
                                             ("setp.ne.s32 %p1, %r1, 4;", {*range(32)} - {4}),
                                             ("setp.eq.s32 %p1, %r1, 0;", [0])])  # fmt: skip
def test_lanes_that_are_off_move_nothing(machine, mask, lanes):
    x = torch.arange(32, dtype=torch.int32) + 100
    o = torch.zeros(32, dtype=torch.int32)
    body = f"""{mask} mov.u32 %r4, 5; add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21;
    @%p1 ld.global.b32 %r4, [%d3]; @%p1 st.global.b32 [%d4], %r4;"""
    report = machine.assembled(body, x, o)
    assert report.findings == ()
    assert report.counts["loaded_bytes"] == report.counts["stored_bytes"] == 4 * len(lanes)
    assert o.tolist() == [100 + k if k in lanes else 0 for k in range(32)]


def test_all_lanes_at_one_place(machine):
    x, o = torch.tensor([3, 4], dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    body = """ld.global.b32 %r4, [%d1+4]; add.s64 %d4, %d2, %d21; st.global.b32 [%d4], %r4;
    st.global.b32 [%d2+8], %r1;"""
    report = machine.assembled(body, x, o)
    assert report.findings == ()
    assert o.tolist() == [4, 4, 31] + [4] * 29
    assert report.counts["loaded_bytes"] == 128


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("width", ["b32", "v4.b32"])
def test_a_row_that_begins_inside_a_sector_and_one_that_fills_sectors(machine, seed, width):
    """Blocks 0 and 2 only make the instruction find its window: the first access is special."""
    x = torch.zeros(1024, dtype=torch.int32)
    bits, values = (2, "%r3") if width == "b32" else (4, "{%r3,%r3,%r3,%r3}")
    body = f"""{BLOCK} mul.wide.u32 %d3, %r1, {1 << bits}; add.s64 %d3, %d3, %d1;
    mul.wide.u32 %d4, %r2, 512; add.s64 %d4, %d4, 1024; setp.eq.s32 %p2, %r2, 1;
    selp.b64 %d4, {{first}}, %d4, %p2; setp.eq.s32 %p3, %r2, 3; selp.b64 %d4, 0, %d4, %p3;
    add.s64 %d3, %d3, %d4; st.global.{width} [%d3], {values};"""
    inside = body.replace("{first}", str(1 << bits))
    assert kinds(machine.assembled(inside, x, grid=(4,), seed=seed)) == ["race"]
    beside = body.replace("{first}", str(32 << bits))
    assert kinds(machine.assembled(beside, x, grid=(4,), seed=seed)) == []


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize(
    ("place", "found"), [(0, {"race"}), (128, set()), (132, set()), (224, set()), (256, {"race"})]
)
def test_what_lies_between_atomic_operations_is_of_no_concern(machine, seed, place, found):
    """Blocks 0 and 2 add to eight words, 256 bytes apart; the others store in a sector."""
    x = torch.zeros(1024, dtype=torch.int32)
    body = f"""mov.u32 %r2, %ctaid.x; and.b32 %r3, %r2, 1; setp.eq.s32 %p1, %r3, 0;
    and.b32 %r4, %r1, 7; mul.wide.u32 %d3, %r4, 256; add.s64 %d3, %d3, %d1;
    @%p1 red.global.add.u32 [%d3], 1; setp.eq.s32 %p2, %r2, 1; setp.lt.u32 %p3, %r1, 8;
    and.pred %p2, %p2, %p3; add.s64 %d4, %d1, %d21; @%p2 st.global.b32 [%d4+{place}], %r1;"""
    assert set(kinds(machine.assembled(body, x, grid=(4,), seed=seed))) == found
