"""What launches have in common is told apart from what they do not."""

from __future__ import annotations

import pytest
import torch

from lethe_env.vgpu.machine import plan as plans
from lethe_env.vgpu.machine import program as programs
from lethe_env.vgpu.machine import speculation
from lethe_env.vgpu.memory import WINDOW_BITS

SCALED = """
.version 8.4
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 .ptr .global .align 4 a, .param .f32 b) .reqntid 32
{
.reg .b32 %r<4>;
.reg .b64 %d<4>;
ld.param.b64 %d1, [a];
ld.param.b32 %r1, [b];
mov.u32 %r2, %tid.x;
mul.wide.u32 %d2, %r2, 4;
add.s64 %d2, %d1, %d2;
st.global.b32 [%d2], %r1;
ret;
}
"""


@pytest.fixture(scope="module")
def scaled():
    return programs.compile(SCALED)


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (1.0, 2.0), (1, 1.0), (float("nan"), 0.0)])
def test_numbers_are_passed_as_they_are(machine, scaled, numbers):
    out = torch.empty(32)
    for number in (*numbers, *numbers):
        machine.run(scaled, (1,), out, number)
        expected = torch.full((32,), float(number))
        assert torch.equal(out.view(torch.int32), expected.view(torch.int32))


def test_cells_are_as_many_as_memory_needs(machine, scaled):
    arguments = [machine.memory.pointer(torch.zeros(64)), 1.0]
    table, options = machine.memory.table, programs.Options()
    window = arguments[0].address >> WINDOW_BITS
    counts = []
    for size_bytes in (256, 4096, 256):
        table[window, 1] = size_bytes
        counts.append(scaled._plans.find((1,), arguments, table, options).cells[window])
    assert counts == [(64 + 32, 8 + 32), (1024 + 32, 128 + 32), (64 + 32, 8 + 32)]


def test_the_same_launch_is_planned_once(machine, scaled, monkeypatch):
    planned = []
    make = plans._planned
    monkeypatch.setattr(plans, "_planned", lambda *a: planned.append(1) or make(*a))
    out = torch.empty(32)
    for _ in range(3):
        machine.run(scaled, (3,), out, 7.5)
    assert len(planned) == 1
    machine.run(scaled, (4,), out, 7.5)
    assert len(planned) == 2


def test_a_loop_that_runs_longer_than_guessed_is_worth_threads_next_time(
    machine, assembler, monkeypatch
):
    monkeypatch.setattr(speculation, "_LEAST_WORK", 20_000)
    used = []
    monkeypatch.setattr(
        programs, "run_apart", lambda *a: used.append(1) or speculation.run_apart(*a)
    )
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %d3, %r2, 128; add.s64 %d4, %d1, %d3;
    add.s64 %d4, %d4, %d21; mov.b32 %r5, 0; loop: add.s32 %r5, %r5, 1; setp.lt.s32 %p1, %r5, 500;
    @%p1 bra loop; st.global.b32 [%d4], %r5;"""
    program = programs.compile(assembler(body, 1))
    out = torch.zeros(16 * 32, dtype=torch.int32)
    reports = [machine.run(program, (16,), out, threads=2) for _ in range(2)]
    assert used == [1]
    assert reports[0].counts == reports[1].counts
    assert out.tolist() == [500] * len(out)
