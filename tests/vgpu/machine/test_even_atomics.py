"""Atomic operations of lanes at equal distances: as if each lane had made its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.schedule import block_order

BLOCKS = 6
SEED = 5
HEAD = """mov.u32 %r2, %ctaid.x; shl.b32 %r3, %r2, 5; add.s32 %r3, %r3, %r1;
mul.wide.u32 %d5, %r3, 4; add.s64 %d5, %d5, %d2; ld.global.b32 %r4, [%d5];
"""


def place(distance):
    return f"mul.wide.u32 %d3, %r1, {4 * distance}; add.s64 %d3, %d3, %d1;"


def told(report):
    return [(f.kind, f.lanes, f.address) for f in report.findings]


@pytest.mark.parametrize("distance", [1, 2, 3, 4])
def test_sums_are_rounded_in_the_order_of_the_blocks(machine, distance):
    values = torch.randn(BLOCKS, 32, generator=torch.Generator().manual_seed(1))
    total = torch.zeros(32 * distance)
    body = f"{HEAD} {place(distance)} atom.global.acq_rel.gpu.add.f32 %r5, [%d3], %r4;"
    report = machine.assembled(body, total, values, grid=(BLOCKS,), seed=SEED)
    assert told(report) == []
    expected = np.zeros(32, np.float32)
    for block in block_order(BLOCKS, SEED):
        expected += values[block].numpy()
    assert total[::distance].numpy().tobytes() == expected.tobytes()
    assert sum(total[k::distance].count_nonzero() for k in range(1, distance)) == 0
    sectors = BLOCKS * (31 * 4 * distance // 32 + 1)
    loaded = BLOCKS * 4
    assert report.counts["atomics"] == BLOCKS * 32
    assert report.counts["stored_bytes"] == BLOCKS * 128
    assert report.counts["sectors"] == loaded + sectors


@pytest.mark.parametrize("distance", [1, 4])
@pytest.mark.parametrize("type_", ["s32", "u64"])
def test_what_was_there_is_returned(machine, distance, type_):
    size = int(type_[1:]) // 8
    dtype = {4: torch.int32, 8: torch.int64}[size]
    register, value = {4: ("r", "%r1"), 8: ("d", "%d20")}[size]
    body = f"""mul.wide.u32 %d3, %r1, {size * distance}; add.s64 %d3, %d3, %d1;
    mul.wide.u32 %d4, %r1, {size}; add.s64 %d4, %d4, %d2;
    atom.global.relaxed.gpu.add.{type_} %{register}9, [%d3], {value};
    atom.global.relaxed.gpu.add.{type_} %{register}9, [%d3], {value};
    st.global.b{8 * size} [%d4], %{register}9;"""
    x, y = torch.full((32 * distance,), 100, dtype=dtype), torch.zeros(32, dtype=dtype)
    assert told(machine.assembled(body, x, y)) == []
    assert y.tolist() == [100 + lane for lane in range(32)]
    assert x[::distance].tolist() == [100 + 2 * lane for lane in range(32)]


@pytest.mark.parametrize("distance", [1, 2, 4])
@pytest.mark.parametrize("plain", ["st.global.b32 [%d6], 99;", "ld.global.b32 %r6, [%d6];"])
def test_a_plain_access_by_another_block_is_a_race(machine, distance, plain):
    """It is found there if it comes after atomic operations, and at those that come after it."""
    body = f"""{HEAD} {place(distance)} setp.eq.s32 %p1, %r2, 2; add.s64 %d6, %d1, {8 * distance};
    @!%p1 red.global.add.u32 [%d3], %r4; @%p1 {plain}"""
    for seed in range(8):
        total = torch.zeros(32 * distance, dtype=torch.int32)
        values = torch.ones(BLOCKS, 32, dtype=torch.int32)
        report = machine.assembled(body, total, values, grid=(BLOCKS,), seed=seed)
        assert {f.kind for f in report.findings} == {"race"}
        start = machine.memory.address(total)
        assert {f.address for f in report.findings} == {start + 8 * distance}
        turn = block_order(BLOCKS, seed).tolist().index(2)
        expected = {plain[:2]} if turn else set()
        expected |= {"re"} if turn < BLOCKS - 1 else set()
        assert {f.opcode[:2] for f in report.findings} == expected


def test_atomics_beyond_the_end_and_on_what_nobody_has_written(machine):
    body = f"{HEAD} {place(4)} red.global.add.u32 [%d3], %r4;"
    values = torch.ones(BLOCKS, 32, dtype=torch.int32)
    short = torch.zeros(31 * 4, dtype=torch.int32)
    (finding,) = machine.assembled(body, short, values, grid=(BLOCKS,)).findings
    end = machine.memory.address(short) + 31 * 16
    assert (finding.kind, finding.lanes, finding.address) == ("out_of_bounds", 1, end)
    assert short[::4].tolist() == [BLOCKS] * 31
    fresh = torch.zeros(32 * 4, dtype=torch.int32)
    report = machine.assembled(body, fresh, values, grid=(BLOCKS,), undefined=[fresh])
    assert [(f.kind, f.lanes) for f in report.findings] == [("uninitialised_read", 32)]
