"""Single instructions of the executor, on values whose results the PTX ISA gives."""

from __future__ import annotations

import numpy as np
import pytest

from lethe_env.vgpu.ptx.parser import parse

from ..ptx.corpus import wrapped
from .machine import execute
from .memory import Fault

NAN, INF, NEGATIVE_ZERO = 0x7FFFFFFF, 0x7F800000, 0x80000000
ONE, TWO, HALF = 0x3F800000, 0x40000000, 0x3F000000


def results_of(body, threads=32, register="%r3", **around):
    """What every thread finds in a register after the body."""
    out = np.zeros(threads, np.uint32)
    text = f"""
    mov.u32 %r1, %tid.x;
    ld.param.b64 %d1, [data];
    mad.wide.u32 %d1, %r1, 4, %d1;
    {body}
    st.global.b32 [%d1], {register};
    ret;
    """
    kernel = parse(wrapped(text, entry=f".reqntid {threads}", **around))
    execute(kernel, (1,), [out, 3], 1024)
    return out.tolist()


def result_of(body, **around):
    """The value that all threads have."""
    (value,) = set(results_of(body, **around))
    return value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("add.s32 %r3, -1, 2;", 1),
        ("sub.s32 %r3, 1, 2;", 2**32 - 1),
        ("mul.lo.s32 %r3, 0x10001, 0x10000;", 0x10000),
        ("mul.hi.s32 %r3, -2, 3;", 2**32 - 1),
        ("mul.hi.u32 %r3, -2, 3;", 2),
        ("mul.wide.s32 %d2, -2, 3; cvt.u32.u64 %r3, %d2;", 2**32 - 6),
        ("mad.lo.s32 %r3, 5, 6, 7;", 37),
        (
            "mad.wide.s32 %d2, -1, 4, 0x100000000; shr.u64 %d2, %d2, 4; cvt.u32.u64 %r3, %d2;",
            2**28 - 1,
        ),
        ("div.s32 %r3, -7, 2;", 2**32 - 3),
        ("rem.s32 %r3, -7, 2;", 2**32 - 1),
        ("div.u32 %r3, -7, 2;", 0x7FFFFFFC),
        ("min.s32 %r3, -1, 2;", 2**32 - 1),
        ("min.u32 %r3, -1, 2;", 2),
        ("shl.b32 %r3, 1, 31;", 2**31),
        ("shl.b32 %r3, 1, 32;", 0),
        ("shr.u32 %r3, -1, 40;", 0),
        ("shr.s32 %r3, -8, 1;", 2**32 - 4),
        ("shr.s32 %r3, -8, 99;", 2**32 - 1),
        ("shf.l.wrap.b32 %r3, 0x80000000, 1, 33;", 3),
        ("shf.r.clamp.b32 %r3, 7, 9, 40;", 9),
        ("bfe.u32 %r3, 0x12345678, 8, 8;", 0x56),
        ("bfe.s32 %r3, 0xF00, 8, 4;", 2**32 - 1),
        ("bfe.s32 %r3, 0x80000000, 30, 8;", 2**32 - 2),
        ("bfi.b32 %r3, 0xFF, 0, 4, 4;", 0xF0),
        ("prmt.b32 %r3, 0x33221100, 0x77665544, 0x0415;", 0x00441155),
        ("prmt.b32 %r3, 0x80, 0, 0x8888;", 2**32 - 1),
        ("lop3.b32 %r3, 0xF0, 0xCC, 0xAA, 0xE8;", 0xE8),
        ("popc.b32 %r3, 0xF0F;", 8),
        ("clz.b32 %r3, 0xF0F;", 20),
        ("brev.b32 %r3, 1;", 2**31),
        ("not.b32 %r3, 0;", 2**32 - 1),
        ("add.cc.u32 %r4, -1, 1; addc.u32 %r3, 5, 5;", 11),
        ("sub.cc.u32 %r4, 1, 2; subc.u32 %r3, 5, 5;", 2**32 - 1),
        ("mad.lo.cc.u32 %r4, -1, 2, 5; madc.hi.u32 %r3, -1, 2, 0;", 2),
        ("selp.b32 %r3, 1, 2, !%p1;", 1),
        ("setp.lt.s32 %p1|%p2, 1, 2; selp.b32 %r3, 1, 0, %p2;", 0),
        ("setp.lt.and.s32 %p1, 1, 2, %p3; selp.b32 %r3, 1, 0, %p1;", 0),
        ("setp.lt.and.s32 %p1, 1, 2, !%p3; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.lo.u32 %p1, 1, -1; selp.b32 %r3, 1, 0, %p1;", 1),
        ("mov.b32 {%h1, %h2}, 0x12345678; mov.b32 %r3, {%h2, %h1};", 0x56781234),
        ("mov.u32 %r3, %ntid.x;", 32),
        ("ld.param.b32 %r3, [count];", 3),
        ("cvt.s32.s8 %r3, 0x80;", 2**32 - 128),
        ("cvt.u32.u16 %r3, 0x8000;", 0x8000),
        ("cvt.sat.u8.s32 %r3, 300;", 255),
        ("and.pred %p1, !%p2, !%p3; selp.b32 %r3, 1, 0, %p1;", 1),
    ],
)
def test_integer_instructions(body, value):
    assert result_of(body) == value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("add.f32 %r3, 0f3F800000, 0f3F800000;", TWO),
        ("add.ftz.f32 %r3, 0f00000001, 0f80000000;", 0),
        ("add.f32 %r3, 0f00000001, 0f80000000;", 1),
        ("mul.ftz.f32 %r3, 0f00800000, 0fBF000000;", NEGATIVE_ZERO),
        ("mul.f32 %r3, 0f00800000, 0fBF000000;", 0x80400000),
        ("sub.f32 %r3, 0f7F800000, 0f7F800000;", NAN),
        ("add.f32 %r3, 0fFFC12345, 0f3F800000;", NAN),
        ("fma.rn.f32 %r3, 0f3F800001, 0f3F800001, 0fBF800002;", 0x28800000),
        ("max.f32 %r3, 0f7FC00000, 0f3F800000;", ONE),
        ("max.NaN.f32 %r3, 0f7FC00000, 0f3F800000;", NAN),
        ("max.f32 %r3, 0f80000000, 0f00000000;", 0),
        ("min.f32 %r3, 0f00000000, 0f80000000;", NEGATIVE_ZERO),
        ("min.f32 %r3, 0f7FC00000, 0fFFC00001;", NAN),
        ("min.xorsign.abs.f32 %r3, 0fC0000000, 0f3F800000;", 0xBF800000),
        ("neg.f32 %r3, 0f00000000;", NEGATIVE_ZERO),
        ("abs.f32 %r3, 0fBF800000;", ONE),
        ("abs.ftz.f32 %r3, 0f80000001;", 0),
        ("copysign.f32 %r3, 0f80000000, 0f3F800000;", 0xBF800000),
        ("div.rn.f32 %r3, 0f3F800000, 0f00000000;", INF),
        ("div.full.f32 %r3, 0f3F800000, 0f40000000;", HALF),
        ("rcp.approx.ftz.f32 %r3, 0f00000001;", INF),
        ("sqrt.rn.f32 %r3, 0fBF800000;", NAN),
        ("rsqrt.approx.ftz.f32 %r3, 0f80000000;", 0xFF800000),
        ("ex2.approx.ftz.f32 %r3, 0fFF800000;", 0),
        ("ex2.approx.f32 %r3, 0f3F800000;", TWO),
        ("lg2.approx.ftz.f32 %r3, 0f40000000;", ONE),
        ("sin.approx.f32 %r3, 0f7F800000;", NAN),
        (
            "setp.lt.f32 %p1, 0f7FC00000, 0f0; selp.b32 %r3, 1, 0, %p1;".replace(
                "0f0;", "0f00000000;"
            ),
            0,
        ),
        ("setp.ltu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.ne.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 0),
        ("setp.neu.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.eq.ftz.f32 %p1, 0f00000001, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("setp.nan.f32 %p1, 0f7FC00000, 0f00000000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("cvt.rzi.s32.f32 %r3, 0fBFC00000;", 2**32 - 1),
        ("cvt.rni.s32.f32 %r3, 0f40200000;", 2),
        ("cvt.rzi.s32.f32 %r3, 0f7FC00000;", 0),
        ("cvt.rzi.s32.f32 %r3, 0f7F800000;", 2**31 - 1),
        ("cvt.rzi.u32.f32 %r3, 0fBF800000;", 0),
        ("cvt.rmi.f32.f32 %r3, 0fBF000000;", 0xBF800000),
        ("cvt.rni.f32.f32 %r3, 0fBE800000;", NEGATIVE_ZERO),
        ("cvt.rn.f32.s32 %r3, 16777217;", 0x4B800000),
        ("cvt.rz.f32.u32 %r3, -1;", 0x4F7FFFFF),
        ("cvt.rn.f32.s64 %r3, 0x4000004000000001;", 0x5E800001),
        ("cvt.rn.f16.f32 %h1, 0f477FF000; cvt.u32.u16 %r3, %h1;", 0x7C00),
        ("cvt.rn.bf16.f32 %h1, 0f3F808000; cvt.u32.u16 %r3, %h1;", 0x3F80),
        ("cvt.rn.f16x2.f32 %r3, 0f3F800000, 0f40000000;", 0x3C004000),
        ("mov.b16 %h1, 0x3C00; cvt.f32.f16 %r3, %h1;", ONE),
        ("mov.b16 %h1, 0x3F80; cvt.f32.bf16 %r3, %h1;", ONE),
        ("cvt.rna.tf32.f32 %r3, 0f3F801000;", 0x3F802000),
        ("mov.b16 %h1, 0x3F80; add.rn.f32.bf16 %r3, %h1, 0f3F800000;", TWO),
        ("mov.b16 %h1, 0x3C01; fma.rn.f32.f16 %r3, %h1, %h1, 0f00000000;", 0x3F804008),
        ("mov.b32 %r4, 0x3C003C00; add.f16x2 %r3, %r4, %r4;", 0x40004000),
        ("mov.b32 %r4, 0x3F803F80; fma.rn.bf16x2 %r3, %r4, %r4, %r4;", 0x40004000),
        (
            "mov.b64 %d2, 0x3FF0000000000000; mul.f64 %d2, %d2, 0d4000000000000000;"
            " cvt.rn.f32.f64 %r3, %d2;",
            TWO,
        ),
        ("testp.notanumber.f32 %p1, 0f7FC00000; selp.b32 %r3, 1, 0, %p1;", 1),
        ("add.f32 %r3, 1.0, 0f00000000;", ONE),
    ],
)
def test_floating_instructions(body, value):
    assert result_of(body) == value


def test_shuffles_keep_their_own_value_out_of_range():
    assert results_of("shfl.sync.down.b32 %r3, %r1, 30, 31, -1;")[:3] == [30, 31, 2]
    assert results_of("shfl.sync.up.b32 %r3|%p1, %r1, 2, 0, -1;")[:4] == [0, 1, 0, 1]
    assert results_of("shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;")[:4] == [1, 0, 3, 2]
    assert results_of("shfl.sync.idx.b32 %r3, %r1, 3, 0x181F, -1;")[::8] == [3, 11, 19, 27]


def test_votes_and_reductions_see_the_whole_warp():
    assert result_of("setp.lt.u32 %p1, %r1, 3; vote.sync.ballot.b32 %r3, %p1, -1;") == 7
    assert result_of("redux.sync.add.s32 %r3, %r1, -1;") == 496
    assert results_of("and.b32 %r4, %r1, 32; redux.sync.max.u32 %r3, %r1, -1;", threads=64)[
        ::32
    ] == [
        31,
        63,
    ]


def test_lanes_meet_again_after_a_branch_into_higher_code():
    body = """
    setp.lt.u32 %p1, %r1, 5;
    mov.b32 %r4, 1;
    @%p1 bra far;
    join: shfl.sync.bfly.b32 %r3, %r4, 1, 31, -1;
    bra.uni end;
    far: mov.b32 %r4, 2;
    bra.uni join;
    end:
    """
    assert results_of(body)[:7] == [2, 2, 2, 2, 1, 2, 1]


def test_a_loop_counts_for_every_thread():
    body = """
    mov.b32 %r3, 0;
    loop: add.s32 %r3, %r3, 2;
    setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra loop;
    """
    assert results_of(body)[:6] == [2, 2, 2, 4, 4, 6]


def test_a_branch_table_sends_each_thread_its_way():
    body = """
    table: .branchtargets even, odd;
    and.b32 %r4, %r1, 1;
    brx.idx %r4, table;
    odd: mov.b32 %r3, 5;
    bra.uni end;
    even: mov.b32 %r3, 6;
    end:
    """
    assert results_of(body)[:4] == [6, 5, 6, 5]


def test_a_guarded_load_keeps_the_register():
    body = "mov.b32 %r3, 9; setp.lt.u32 %p1, %r1, 2; @%p1 ld.global.b32 %r3, [%d1];"
    assert results_of(body)[:4] == [0, 0, 9, 9]


def test_shared_memory_passes_values_at_a_barrier():
    body = """
    shl.b32 %r4, %r1, 2;
    st.shared.b32 [%r4], %r1;
    bar.sync 0;
    xor.b32 %r4, %r4, 252;
    ld.shared.b32 %r3, [%r4];
    """
    assert results_of(body, threads=64) == list(range(63, -1, -1))


def test_local_memory_is_each_threads_own():
    body = """
    .local .align 4 .b8 depot[8];
    mov.b64 %d2, depot;
    st.local.b32 [%d2+4], %r1;
    ld.local.b32 %r3, [%d2+4];
    """
    assert results_of(body) == list(range(32))


def test_atomics_give_the_old_value_to_one_thread_after_the_other():
    body = "mov.b32 %r4, 8; atom.shared.add.u32 %r3, [%r4], 2;"
    assert results_of(body) == list(range(0, 64, 2))
    body = "atom.shared.cas.b32 %r3, [0], 0, 5;"
    assert results_of(body)[:3] == [0, 5, 5]


def test_short_loads_are_extended_by_their_type():
    store = "st.shared.b8 [0], 0x80; bar.sync 0;"
    assert result_of(f"{store} ld.shared.s8 %r3, [0];") == 2**32 - 128
    assert result_of(f"{store} ld.shared.u8 %r3, [0];") == 128


def test_asynchronous_copies_fill_up_with_zeros():
    body = """
    st.global.b32 [%d1], 7;
    shl.b32 %r4, %r1, 2;
    and.b32 %r5, %r4, 4;
    cp.async.ca.shared.global [%r4], [%d1], 4, %r5;
    cp.async.commit_group;
    cp.async.wait_group 0;
    ld.shared.b32 %r3, [%r4];
    """
    assert results_of(body)[:4] == [0, 7, 0, 7]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.b32 %r3, [%d1+4];", "bytes 128 to 132 of 128"),
        ("ld.global.b32 %r3, [%d1+2];", "no multiple of 4"),
        ("ld.global.b32 %r3, [64];", "in no allocation"),
        ("ld.shared.b32 %r3, [1024];", "of 1024"),
        ("trap;", "trap in thread 0"),
        (
            "setp.lt.u32 %p1, %r1, 3; @%p1 bra out; bar.sync 1; out: bar.sync 0;",
            "deadlock",
        ),
    ],
)
def test_faults(body, message):
    with pytest.raises(Fault, match=message):
        results_of(body)


@pytest.mark.parametrize(
    "body",
    [
        "add.unheard.f32 %r3, %r1, %r1;",
        "mul.rn.f32.bf16x2 %r3, %r1, %r1;",
        "dp4a.u32.u32 %r3, %r1, %r1, %r1;",
        "add.sat.s32 %r3, %r1, %r1;",
        "cvt.rn.e4m3x2.f32 %h1, %r1, %r1;",
        "mov.u32 %r3, %clock;",
        "ld.surprise.b32 %r3, [0];",
        "tex.1d.f32 %r3, [0];",
    ],
)
def test_unknown_instructions_are_refused(body):
    with pytest.raises(NotImplementedError):
        results_of(body)
