"""Generic addresses, indexed branches, calls, and what came with sm_90 and sm_100."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.program import compile as compile_ptx
from lethe_env.vgpu.ptx.model import UnsupportedError

LANES = torch.arange(32, dtype=torch.int32)


def zeros(*shape, dtype=torch.int32):
    return torch.zeros(*shape, dtype=dtype)


MIXED = """add.s64 %d3, %d1, %d21; cvta.shared.u64 %d4, 64; add.s64 %d4, %d4, %d21;
and.b32 %r2, %r1, 1; setp.eq.s32 %p1, %r2, 0; selp.b64 %d5, %d3, %d4, %p1;"""
"""`%d5` is a generic address: even lanes point into the first tensor, odd ones into shared memory
64 bytes from its start."""


def test_generic_stores_and_loads_reach_both_memories(machine):
    x, shared, again = zeros(32), zeros(32), zeros(32)
    body = """add.s32 %r3, %r1, 100; st.b32 [%d5], %r3; bar.sync 0;
    shl.b32 %r4, %r1, 2; mov.b32 %r5, -1; @!%p1 ld.shared.b32 %r5, [%r4+64];
    add.s64 %d6, %d2, %d21; st.global.b32 [%d6], %r5; ld.b32 %r6, [%d5];
    ld.param.b64 %d8, [kernel_param_2]; add.s64 %d7, %d8, %d21; st.b32 [%d7], %r6;"""
    assert machine.assembled(MIXED + body, x, shared, again).findings == ()
    even = LANES % 2 == 0
    assert torch.equal(x, torch.where(even, LANES + 100, 0))
    assert torch.equal(shared, torch.where(even, -1, LANES + 100))
    assert torch.equal(again, LANES + 100)


def test_generic_atomics_reach_both_memories(machine):
    x, old = zeros(32), zeros(32)
    body = """mov.b32 %r3, 7; @!%p1 st.b32 [%d5], %r3; atom.add.u32 %r4, [%d5], %r1;
    ld.b32 %r5, [%d5]; add.s32 %r6, %r5, %r4; add.s64 %d6, %d2, %d21; st.global.b32 [%d6], %r6;"""
    assert machine.assembled(MIXED + body, x, old).findings == ()
    assert torch.equal(x, torch.where(LANES % 2 == 0, LANES, 0))
    assert torch.equal(old, torch.where(LANES % 2 == 0, LANES, LANES + 14))


@pytest.mark.parametrize("of", ["", "::cta", "::cluster"])
def test_spaces_are_told_apart_and_converted_back(machine, of):
    """Every block is a cluster of its own."""
    out = zeros(4, 32)
    tests = "".join(
        f"""isspacep.{space} %p2, %d5; selp.b32 %r3, 1, 0, %p2;
        add.s64 %d6, %d2, %d21; st.global.b32 [%d6+{128 * k}], %r3;"""
        for k, space in enumerate(("global", f"shared{of}", "local"))
    )
    back = f"cvta.to.shared{of}.u64 %d7, %d4; cvt.u32.u64 %r4, %d7; st.global.b32 [%d6+384], %r4;"
    assert machine.assembled(MIXED + tests + back, zeros(32), out).findings == ()
    even = (LANES % 2 == 0).int()
    assert torch.equal(out, torch.stack([even, 1 - even, 0 * even, 64 + 4 * LANES]))


def test_a_generic_access_beyond_shared_memory_is_found(machine):
    body = "cvta.shared.u64 %d3, 4096; ld.b32 %r2, [%d3];"
    (finding,) = machine.assembled(body, zeros(1), shared_bytes=4096, definedness=False).findings
    assert (finding.kind, finding.address, finding.lanes) == ("out_of_bounds", 4096, 32)


def test_a_launch_has_no_other_to_wait_for(machine):
    x = zeros(32)
    body = """griddepcontrol.wait; add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r1;
    griddepcontrol.launch_dependents;"""
    assert machine.assembled(body, x).findings == ()
    assert torch.equal(x, LANES)


TABLE = """and.b32 %r2, %r1, {mask}; mov.b32 %r3, 0;
brx.idx %r2, TARGETS;
TARGETS: .branchtargets ZERO, ONE, TWO, ONE;
ZERO: mov.b32 %r3, 10; bra.uni END;
ONE: mov.b32 %r3, 20; bra.uni END;
TWO: mov.b32 %r3, 30;
END: add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r3;"""


@pytest.mark.parametrize("mask", [3, 0])
def test_an_indexed_branch_sends_each_lane_its_way(machine, mask):
    x = zeros(32)
    assert machine.assembled(TABLE.format(mask=mask), x).findings == ()
    table = torch.tensor([10, 20, 30, 20], dtype=torch.int32)
    assert torch.equal(x, table[(LANES & mask).long()])


def test_an_indexed_branch_of_a_whole_warp(machine):
    x = zeros(64)
    body = TABLE.format(mask=3).replace("and.b32 %r2, %r1, 3", "mov.b32 %r2, %ctaid.x")
    body = body.replace("%d21;", "%d21; mul.wide.u32 %d4, %r2, 128; add.s64 %d3, %d3, %d4;")
    assert machine.assembled(body, x, grid=(2,)).findings == ()
    assert x.tolist() == [10] * 32 + [20] * 32


MODULE = """
.version 8.4
.target sm_80
.address_size 64
.func (.param .b32 result) inner (.param .b32 n)
;
.visible .entry kernel(.param .u64 .ptr .global .align 4 data) .reqntid 32
{{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<8>;
ld.param.b64 %d1, [data]; mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.s64 %d3, %d1, %d2;
setp.gt.s32 %p1, %r1, 7; mov.b32 %r3, -1;
{{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;
{guard} call (r), outer, (a); ld.param.b32 %r2, [r]; }}
{take} mov.b32 %r3, %r2;
st.global.b32 [%d3], %r3;
ret;
}}
.func (.param .b32 result) outer (.param .b32 n)
{{
.reg .b32 %r<8>;
ld.param.b32 %r1, [n];
add.s32 %r1, %r1, 1;
{{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r1;
call.uni (r), inner, (a); ld.param.b32 %r2, [r]; }}
{{ .param .b32 a; .param .b32 r; st.param.b32 [a], %r2;
call.uni (r), {second}, (a); ld.param.b32 %r3, [r]; }}
st.param.b32 [result], %r3;
ret;
}}
.func (.param .b32 result) inner (.param .b32 n)
{{
.reg .pred %p<4>; .reg .b32 %r<8>;
ld.param.b32 %r1, [n];
setp.lt.s32 %p1, %r1, 20;
@%p1 bra SMALL;
st.param.b32 [result], %r1;
ret;
SMALL: mul.lo.s32 %r2, %r1, 3;
st.param.b32 [result], %r2;
ret;
}}
"""


def _called(machine, **parts):
    x = zeros(32)
    program = compile_ptx(MODULE.format(**{"guard": "", "take": "", "second": "inner", **parts}))
    assert machine.run(program, [1], x).findings == ()
    return x


def test_functions_call_functions_and_return_early(machine):
    def inner(n):
        return 3 * n if n < 20 else n

    assert _called(machine).tolist() == [inner(inner(n + 1)) for n in range(32)]


def test_a_guarded_call_is_made_by_some_lanes(machine):
    plain = _called(machine)
    some = _called(machine, guard="@!%p1", take="@!%p1")
    assert torch.equal(some, torch.where(LANES > 7, -1, plain))


def test_recursion_is_refused():
    with pytest.raises(UnsupportedError, match="outer, which calls itself"):
        compile_ptx(MODULE.format(guard="", take="", second="outer"))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrices_are_stored_as_they_are_loaded(machine, count, transposed):
    trans = ".trans" if transposed else ""
    registers = ", ".join(f"%r{k + 10}" for k in range(count))
    head = "".join(f"add.s32 %r{k + 10}, %r2, {1000 * k};" for k in range(count))
    body = f"""mul.lo.s32 %r2, %r1, 0x10001; add.s32 %r2, %r2, 0x400000; {head}
    shl.b32 %r3, %r1, 4;
    stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r3], {{{registers}}};
    bar.warp.sync -1; mul.wide.u32 %d3, %r1, 16; add.s64 %d4, %d1, %d3;
    setp.lt.u32 %p1, %r1, {8 * count};
    @%p1 ld.shared.v4.b32 {{%r4, %r5, %r6, %r7}}, [%r3];
    @%p1 st.global.v4.b32 [%d4], {{%r4, %r5, %r6, %r7}};"""
    x = zeros(count, 8, 4)
    assert machine.assembled(body, x).findings == ()
    stored = x.numpy().view(np.uint16).reshape(count, 8, 8)
    lane = np.arange(32)
    for k in range(count):
        words = lane.astype(np.uint32) * 0x10001 + 0x400000 + 1000 * k
        halves = words.view(np.uint16).reshape(8, 8)  # row r: lanes 4r to 4r + 3
        assert np.array_equal(stored[k], halves.T if transposed else halves)


@pytest.mark.parametrize("nan", ["", ".NaN"])
@pytest.mark.parametrize("magnitude", ["", ".abs"])
@pytest.mark.parametrize("name", ["min", "max"])
def test_floats_are_reduced(machine, name, magnitude, nan):
    x = torch.randn(32, generator=torch.Generator().manual_seed(1))
    x[3], x[9] = float("nan"), -50.0
    out = torch.zeros(32)
    body = f"""add.s64 %d3, %d1, %d21; ld.global.b32 %r2, [%d3];
    redux.sync.{name}{magnitude}{nan}.f32 %r3, %r2, 0xFFFF0FFF;
    add.s64 %d4, %d2, %d21; st.global.b32 [%d4], %r3;"""
    assert machine.assembled(body, x, out).findings == ()
    taking = torch.cat([x[:12], x[16:]])
    values = (taking.abs() if magnitude else taking).tolist()
    wanted = {"min": min, "max": max}[name](v for v in values if v == v)
    if nan:
        assert (out.view(torch.int32) == 0x7FFFFFFF).all()
    else:
        assert out.tolist() == [wanted] * 32


def test_vector_atomics_add_each_element(machine):
    x, old = torch.zeros(2), torch.zeros(64)
    body = """cvt.rn.f32.u32 %r2, %r1; mov.b32 %r3, 0f3F800000;
    atom.global.add.v2.f32 {%r4, %r5}, [%d1], {%r2, %r3};
    mul.wide.u32 %d3, %r1, 8; add.s64 %d4, %d2, %d3; st.global.v2.b32 [%d4], {%r4, %r5};"""
    assert machine.assembled(body, x, old).findings == ()
    assert x.tolist() == [sum(range(32)), 32]
    assert old.view(32, 2)[:, 1].tolist() == list(range(32))


def test_eight_words_at_once(machine):
    x, out = torch.arange(256, dtype=torch.int32), zeros(256)
    registers = ", ".join(f"%r{k}" for k in range(10, 18))
    body = f"""mul.wide.u32 %d3, %r1, 32; add.s64 %d4, %d1, %d3; add.s64 %d5, %d2, %d3;
    ld.global.v8.b32 {{{registers}}}, [%d4]; st.global.v8.b32 [%d5], {{{registers}}};"""
    assert machine.assembled(body, x, out).findings == ()
    assert torch.equal(out, x)


@pytest.mark.parametrize(
    ("reduction", "kind", "expected"),
    [("popc.u32", "b32", 48), ("or.pred", "pred", 1), ("and.pred", "pred", 0)],
)
def test_barriers_count_votes(machine, reduction, kind, expected):
    target = "%r2" if kind == "b32" else "%p2"
    take = "" if kind == "b32" else "selp.b32 %r2, 1, 0, %p2;"
    body = f"""setp.lt.u32 %p1, %r1, 48; bar.red.{reduction} {target}, 1, %p1; {take}
    add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r2;
    setp.lt.u32 %p1, %r1, 999; bar.red.{reduction} {target}, 1, 64, %p1; {take}
    st.global.b32 [%d3+256], %r2;"""
    x = zeros(2, 64)
    assert machine.assembled(body, x, threads=64).findings == ()
    assert set(x[0].tolist()) == {expected}
    assert set(x[1].tolist()) == {64 if kind == "b32" else 1}


def test_a_leader_is_elected(machine):
    body = """elect.sync %r2|%p1, 0xFFFFFFF0; selp.b32 %r3, 1, 0, %p1;
    add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r3; st.global.b32 [%d3+128], %r2;"""
    x = zeros(2, 32)
    assert machine.assembled(body, x).findings == ()
    assert x[0].tolist() == [int(k == 4) for k in range(32)]
    assert x[1].tolist() == [4] * 32


@pytest.mark.parametrize("kind", ["s8", "u8"])
def test_integer_products_saturate_once(machine, kind):
    start = 2**31 - 5 if kind == "u8" else -(2**31) + 5
    x, y = (0x01010101, 0x02020202) if kind == "u8" else (0x01010101, -0x01010102)
    body = f"""mov.b32 %r2, {x}; mov.b32 %r3, {y}; mov.b32 %r4, {start}; mov.b32 %r5, 0;
    mma.sync.aligned.m16n8k32.row.col.satfinite.s32.{kind}.{kind}.s32 {{%r10, %r11, %r12, %r13}},
    {{%r2, %r2, %r2, %r2}}, {{%r3, %r3}}, {{%r4, %r5, %r4, %r5}};
    add.s64 %d3, %d1, %d21; st.global.b32 [%d3], %r10; st.global.b32 [%d3+128], %r11;"""
    out = zeros(2, 32)
    assert machine.assembled(body, out).findings == ()
    extreme, total = (2**31 - 1, 64) if kind == "u8" else (-(2**31), -64)
    assert out[0].tolist() == [extreme] * 32
    assert out[1].tolist() == [total] * 32


def test_refusals_name_the_line(machine):
    with pytest.raises(UnsupportedError, match=r"kernel\.py:1"):
        machine.assembled("mov.b64 %d3, kernel_param_0; ld.param.b64 %d4, [%d3];", zeros(1))
