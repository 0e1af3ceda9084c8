"""The parameters that stores may go to, and races through whatever way leads there."""

from __future__ import annotations

import pytest
import torch

from lethe_env.vgpu.machine.provenance import accessed_parameters
from lethe_env.vgpu.ptx.parser import parse

PLACE = "add.s64 %d4, %d2, %d21; "


@pytest.mark.parametrize(
    ("body", "written"),
    [
        (PLACE + "ld.global.b32 %r2, [%d1]; st.global.b32 [%d4], %r2;", {1}),
        (PLACE + "st.b32 [%d4], 5;", {1}),
        ("red.global.add.u32 [%d1+4], 1;", {0}),
        ("sub.s64 %d4, %d2, %d1; add.s64 %d4, %d4, %d1; st.global.b32 [%d4], 5;", {0, 1}),
        ("st.shared.b32 [0], 5;", set()),
        ("ld.global.b64 %d4, [%d1]; st.global.b32 [%d4], 5;", None),
        ("mov.b64 %d5, %d4; mov.b64 %d4, %d1; st.global.b32 [%d5], 5;", {0}),
    ],
)
def test_addresses_of_stores_come_from_these_parameters(assembler, body, written):
    assert accessed_parameters(parse(assembler(body, 2))).written == written


@pytest.mark.parametrize(
    ("body", "loaded"),
    [
        (PLACE + "ld.global.b32 %r2, [%d1]; st.global.b32 [%d4], %r2;", {0}),
        ("ld.b32 %r2, [%d2];", {1}),
        ("ld.shared.b32 %r2, [0]; st.global.b32 [%d1], %r2;", set()),
        ("cp.async.ca.shared.global [0], [%d2], 4;", {1}),
        ("ld.global.b64 %d4, [%d1]; ld.global.b32 %r2, [%d4];", None),
    ],
)
def test_addresses_of_loads_come_from_these_parameters(assembler, body, loaded):
    assert accessed_parameters(parse(assembler(body, 2))).loaded == loaded


@pytest.mark.parametrize(
    ("body", "written"),
    [
        ("mov.u64 %d3, counter; st.global.b32 [%d3], 5;", {2}),
        ("st.global.b32 [counter], 5;", {2}),
        ("mov.u64 %d3, counter; ld.global.b32 %r2, [%d3]; st.global.b32 [%d1], %r2;", {0}),
        ("ld.global.b64 %d3, [counter]; st.global.b32 [%d3], 5;", None),
    ],
)
def test_variables_of_the_module_count_after_the_parameters(assembler, body, written):
    text = assembler(body, 2).replace(".visible", ".global .align 8 .b8 counter[8];\n.visible")
    assert accessed_parameters(parse(text)).written == written


ONE_WRITES = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 0; add.s32 %r3, %r1, 1;
add.s64 %d5, %d2, %d21; @%p1 st.global.b32 [%d5], %r3;
add.s64 %d6, %d1, %d21; @!%p1 ld.global.b32 %r4, [%d6];"""


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_tensor_under_two_names_races_with_itself(machine, seed):
    x, other = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    report = machine.assembled(ONE_WRITES, x, x, grid=(2,), seed=seed)
    assert [finding.kind for finding in report.findings] == ["race"]
    assert machine.assembled(ONE_WRITES, x, other, grid=(2,), seed=seed).findings == ()


def test_a_number_that_leads_to_another_tensor_hides_no_race(machine):
    x, y = torch.zeros(32, dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    distance = machine.memory.address(y) - machine.memory.address(x)
    body = """mov.u32 %r2, %ctaid.x; add.s32 %r3, %r1, %r2; add.s64 %d4, %d1, %d2;
    add.s64 %d4, %d4, %d21; st.global.b32 [%d4], %r3;"""
    report = machine.assembled(body, x, distance, y, grid=(2,))
    assert [finding.kind for finding in report.findings] == ["race"]
    assert y.tolist() == list(range(1, 33))
