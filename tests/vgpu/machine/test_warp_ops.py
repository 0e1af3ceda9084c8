"""Shuffles, votes, matches and reductions against their definitions, lane by lane."""

from __future__ import annotations

import pytest
import torch

from lethe_env.vgpu.machine.warp_ops import shuffle_source
from lethe_env.vgpu.ptx.model import UnsupportedError

STORE = "add.s64 %d5, %d1, %d21; st.global.b32 [%d5], {register};"
STORE_PREDICATE = "selp.b32 %r30, 1, 0, %p9; " + STORE.format(register="%r30")


def run(machine, body, lanes=32, **options):
    o = torch.full((lanes,), -7, dtype=torch.int32)
    report = machine.assembled(body, o, threads=lanes, **options)
    assert report.findings == ()
    return [value & 0xFFFFFFFF for value in o.tolist()]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("mode", "by", "clamp"),
    [
        ("bfly", 16, 31),
        ("bfly", 5, 0x181F),
        ("up", 3, 0),
        ("up", 1, 0x1800),
        ("down", 4, 31),
        ("down", 2, 0x1C1F),
        ("idx", 7, 31),
        ("idx", 3, 0x181F),
    ],
)
def test_shuffles(machine, mode, by, clamp, constant):
    moved = "%r2, %r3" if not constant else f"{by}, {clamp}"
    head = f"mov.b32 %r2, {by}; mov.b32 %r3, {clamp}; mul.lo.s32 %r4, %r1, 10;"
    shuffle = f"{head} shfl.sync.{mode}.b32 %r5|%p9, %r4, {moved}, -1;"
    sources = [shuffle_source(mode, lane, by, clamp) for lane in range(32)]
    values = run(machine, shuffle + STORE.format(register="%r5"))
    assert values == [10 * lane for lane, _ in sources]
    assert run(machine, shuffle + STORE_PREDICATE) == [int(inside) for _, inside in sources]


def test_shuffle_sources_by_the_book():
    assert shuffle_source("up", 2, 3, 0) == (2, False)
    assert shuffle_source("up", 9, 3, 0x1800) == (9, False)
    assert shuffle_source("down", 30, 4, 31) == (30, False)
    assert shuffle_source("bfly", 3, 16, 31) == (19, True)
    assert shuffle_source("idx", 20, 5, 0x181F) == (21, True)


def test_a_shuffle_from_a_lane_in_a_register(machine):
    body = "sub.s32 %r2, 31, %r1; mul.lo.s32 %r4, %r1, 3; shfl.sync.idx.b32 %r5, %r4, %r2, 31, -1;"
    assert run(machine, body + STORE.format(register="%r5")) == [3 * (31 - k) for k in range(32)]


@pytest.mark.parametrize(
    ("vote", "expected"),
    [
        ("vote.sync.ballot.b32 %r5, %p1, -1;", 0x1F),
        ("vote.sync.ballot.b32 %r5, !%p1, -1;", 0xFFFFFFE0),
        ("vote.sync.ballot.b32 %r5, %p1, 0x11;", 0x11),
        ("vote.sync.any.pred %p9, %p1, -1; selp.b32 %r5, 1, 0, %p9;", 1),
        ("vote.sync.all.pred %p9, %p1, -1; selp.b32 %r5, 1, 0, %p9;", 0),
        ("vote.sync.all.pred %p9, %p1, 3; selp.b32 %r5, 1, 0, %p9;", 1),
        ("vote.sync.uni.pred %p9, %p1, -1; selp.b32 %r5, 1, 0, %p9;", 0),
        ("vote.sync.uni.pred %p9, %p1, 0xF00; selp.b32 %r5, 1, 0, %p9;", 1),
        ("redux.sync.add.s32 %r5, %r1, -1;", 31 * 16),
        ("redux.sync.min.s32 %r5, %r6, -1;", 0xFFFFFFE5),
        ("redux.sync.max.u32 %r5, %r6, -1;", 0xFFFFFFFF),
        ("redux.sync.max.s32 %r5, %r1, 0xFF;", 7),
        ("redux.sync.xor.b32 %r5, %r1, 7;", 3),
        ("redux.sync.and.b32 %r5, %r1, 0xC;", 2),
        ("redux.sync.or.b32 %r5, %r1, 0xF;", 3),
        ("activemask.b32 %r5;", 0xFFFFFFFF),
        ("elect.sync %r5|%p9, 0xF0; ", 4),
        ("mov.u32 %r5, %ntid.x;", 32),
        ("mov.u32 %r5, %nctaid.y;", 1),
    ],
)
def test_votes_and_reductions(machine, vote, expected):
    head = "setp.lt.s32 %p1, %r1, 5; sub.s32 %r6, 4, %r1;"
    assert run(machine, head + vote + STORE.format(register="%r5")) == [expected] * 32


def test_elect_picks_one_lane(machine):
    expected = [int(lane == 4) for lane in range(32)]
    assert run(machine, "elect.sync %r5|%p9, 0xF0;" + STORE_PREDICATE) == expected


@pytest.mark.parametrize(
    ("register", "expected"),
    [
        ("%laneid", [k % 32 for k in range(64)]),
        ("%warpid", [k // 32 for k in range(64)]),
        ("%tid.x", list(range(64))),
        ("%tid.y", [0] * 64),
        ("%lanemask_lt", [(1 << k % 32) - 1 for k in range(64)]),
        ("%lanemask_ge", [(-1 << k % 32) & 0xFFFFFFFF for k in range(64)]),
        ("%lanemask_gt", [(-2 << k % 32) & 0xFFFFFFFF for k in range(64)]),
        ("%cluster_ctarank", [0] * 64),
        ("%cluster_nctarank", [1] * 64),
        ("%cluster_ctaid.x", [0] * 64),
        ("%cluster_nctaid.y", [1] * 64),
    ],
)
def test_special_registers(machine, register, expected):
    body = f"mov.u32 %r5, {register};" + STORE.format(register="%r5")
    assert run(machine, body, lanes=64) == expected


def test_every_block_is_a_cluster_of_its_own(machine):
    out = torch.zeros(2, 3, dtype=torch.int32)
    body = """mov.u32 %r2, %ctaid.x; mul.wide.u32 %d4, %r2, 8; add.s64 %d5, %d1, %d4;
    mov.u32 %r3, %clusterid.x; mov.u32 %r4, %nclusterid.x; setp.eq.u32 %p1, %r1, 0;
    @%p1 st.global.b32 [%d5], %r3; @%p1 st.global.b32 [%d5+4], %r4;"""
    assert machine.assembled(body, out, grid=(3,)).findings == ()
    assert out.flatten().tolist() == [0, 3, 1, 3, 2, 3]


def test_match(machine):
    head = "and.b32 %r2, %r1, 3;"
    body = head + "match.any.sync.b32 %r5, %r2, -1;" + STORE.format(register="%r5")
    assert run(machine, body) == [0x11111111 << (k % 4) for k in range(32)]
    body = head + "match.all.sync.b32 %r5|%p9, %r2, -1;" + STORE.format(register="%r5")
    assert run(machine, body) == [0] * 32
    body = head + "match.all.sync.b32 %r5|%p9, %r2, 0x11;" + STORE_PREDICATE
    assert run(machine, body) == [1] * 32


def test_decimal_literals_are_rounded_to_single(machine):
    body = "mov.f32 %r2, 0.1;" + STORE.format(register="%r2")
    assert run(machine, body) == [0x3DCCCCCD] * 32


def test_a_conversion_into_a_wider_register_extends_the_sign(machine):
    body = "sub.s32 %r3, 4, %r1; cvt.s16.s32 %r2, %r3;" + STORE.format(register="%r2")
    assert run(machine, body) == [(4 - k) & 0xFFFFFFFF for k in range(32)]
    body = "sub.s32 %r3, 4, %r1; cvt.u16.u32 %r2, %r3;" + STORE.format(register="%r2")
    assert run(machine, body) == [(4 - k) & 0xFFFF for k in range(32)]


def test_lanes_leave_a_loop_one_by_one_and_meet_again(machine):
    body = """mov.b32 %r2, 0; mov.b32 %r3, 0;
AGAIN:
    add.s32 %r2, %r2, %r1; add.s32 %r3, %r3, 1; setp.le.s32 %p1, %r3, %r1; @%p1 bra AGAIN;
    and.b32 %r4, %r1, 1; setp.eq.s32 %p2, %r4, 0; @%p2 bra EVEN;
    add.s32 %r2, %r2, 1000; bra.uni JOIN;
EVEN:
    add.s32 %r2, %r2, 5;
JOIN:
    activemask.b32 %r6; setp.eq.s32 %p3, %r6, -1; @!%p3 mov.b32 %r2, -1;"""
    expected = [k * (k + 1) + (1000 if k % 2 else 5) for k in range(32)]
    assert run(machine, body + STORE.format(register="%r2")) == expected


def test_lanes_that_exit_early_do_nothing_more(machine):
    body = "setp.lt.s32 %p1, %r1, 10; @%p1 exit; mov.b32 %r2, 1;" + STORE.format(register="%r2")
    assert run(machine, body) == [0xFFFFFFF9] * 10 + [1] * 22


def test_a_divergent_inner_loop_in_a_uniform_outer_one(machine):
    body = """mov.b32 %r2, 0; mov.b32 %r7, 0;
OUTER:
    mov.b32 %r3, %r1;
INNER:
    setp.le.s32 %p1, %r3, 0; @%p1 bra DONE;
    add.s32 %r2, %r2, 1; sub.s32 %r3, %r3, 1; bra.uni INNER;
DONE:
    add.s32 %r7, %r7, 1; setp.lt.s32 %p2, %r7, 3; @%p2 bra OUTER;"""
    assert run(machine, body + STORE.format(register="%r2")) == [3 * k for k in range(32)]


def test_named_barriers_count_threads(machine):
    body = """mov.u32 %r2, %warpid; setp.eq.s32 %p1, %r2, 0; shl.b32 %r3, %r1, 2;
    @%p1 bra FIRST;
    st.shared.b32 [%r3+-128], %r1; bar.arrive 3, 64; bra.uni END;
FIRST:
    bar.sync 3, 64; ld.shared.b32 %r4, [%r3]; add.s64 %d5, %d1, %d21; st.global.b32 [%d5], %r4;
END:"""
    o = torch.zeros(32, dtype=torch.int32)
    assert machine.assembled(body, o, threads=64).findings == ()
    assert o.tolist() == list(range(32, 64))


def test_a_trap_ends_the_launch(machine):
    o = torch.zeros(32, dtype=torch.int32)
    body = "setp.eq.s32 %p1, %r1, 3; @%p1 trap; st.global.b32 [%d1], 1;"
    assert machine.assembled(body, o, grid=(3,)).stopped == "trap"


@pytest.mark.parametrize(
    "instruction",
    [
        "bar.red.xor.pred %p2, 0, %p1;",
        "shfl.up.b32 %r2, %r1, 1, 0;",
        "atom.global.max.f32 %r2, [%d1], %r1;",
        "fence.proxy.alias;",
        "ld.global.nonsense.b32 %r2, [%d1];",
        "mov.u32 %r2, %smemsize;",
        "mbarrier.init.shared::cluster.b64 [%r1], 1;",
        "mbarrier.arrive.noComplete.shared.b64 %d2, [%r1], 1;",
        "tcgen05.shift.cta_group::1.down [%r1];",
        "tcgen05.ld.sync.aligned.16x64b.x1.pack::16b.b32 {%r2}, [%r1];",
        "tcgen05.mma.cta_group::2.kind::f16 [%r1], %d1, %d2, %r2, %p1;",
        "tcgen05.mma.cta_group::1.kind::f16 [%r1], %d1, %d2, %r2, %p1;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%r2, %r3, %r4, %r5}, %d1, %d2, 1, -1, 1, 0, 0;",
    ],
)
def test_what_is_not_known_is_refused(machine, instruction):
    with pytest.raises(UnsupportedError):
        machine.assembled(instruction, torch.zeros(32))
