"""Blocks in their order, loops, and what is the same in all lanes."""

from __future__ import annotations

import pytest

from lethe_env.vgpu.ptx.flow import Block, Loop, analyse
from lethe_env.vgpu.ptx.model import UnsupportedError
from lethe_env.vgpu.ptx.parser import parse

from .corpus import NAMES, load, wrapped

LANE = "mov.u32 %r1, %tid.x;"
COUNT = "ld.param.b32 %r2, [count];"


def flow_of(body, module=""):
    return analyse(parse(wrapped(body, module=module)))


def test_straight_code_is_one_block():
    flow = flow_of("mov.b32 %r1, 0; mov.b32 %r2, 1; ret;")
    assert flow.blocks == (Block("", 0, 3, ()),)
    assert flow.loops == ()


def test_both_sides_of_a_branch_come_before_where_they_meet():
    flow = flow_of(
        """
        @%p1 bra then;
        mov.b32 %r3, 0;
        bra.uni join;
        then: mov.b32 %r3, 1;
        join: ret;
        """
    )
    assert {block.label or block.start for block in flow.blocks[1:3]} == {"then", 1}
    first, then, join = (
        next(at for at, block in enumerate(flow.blocks) if block.label == label)
        for label in ("", "then", "join")
    )
    assert first == 0 and join == 3
    assert flow.blocks[0].successors == (then, 3 - then)
    assert flow.blocks[then].successors == (join,)


def test_a_loop_is_contiguous_though_its_exit_lies_in_the_middle():
    flow = flow_of(
        """
        head: setp.eq.s32 %p1, %r2, 0;
        @%p1 bra body;
        bra.uni out;
        last: bra.uni head;
        out: ret;
        body: sub.s32 %r2, %r2, 1;
        bra.uni last;
        """
    )
    assert flow.loops == (Loop(0, 3),)
    assert [block.label for block in flow.blocks[:3]] == ["head", "body", "last"]
    assert flow.blocks[2].successors == (0,)


def test_nested_loops_are_nested_ranges():
    flow = flow_of(
        """
        outer: mov.b32 %r3, 4;
        inner: sub.s32 %r3, %r3, 1;
        setp.ne.s32 %p1, %r3, 0;
        @%p1 bra inner;
        sub.s32 %r2, %r2, 1;
        setp.ne.s32 %p2, %r2, 0;
        @%p2 bra outer;
        ret;
        """
    )
    assert flow.loops == (Loop(0, 3), Loop(1, 2))
    assert flow.blocks[1].successors == (1, 2)
    assert flow.blocks[2].successors == (0, 3)


def test_unreachable_blocks_are_left_out():
    flow = flow_of("bra.uni end; mov.b32 %r1, 0; end: ret;")
    assert [(block.start, block.stop) for block in flow.blocks] == [(0, 1), (2, 3)]


def test_a_guarded_exit_goes_on():
    flow = flow_of("@%p1 ret; mov.b32 %r1, 0; ret;")
    assert flow.blocks[0].successors == (1,)


def test_a_branch_table_has_all_its_targets():
    flow = flow_of("t: .branchtargets a, b, a; brx.idx %r1, t; a: ret; b: ret;")
    assert sorted(flow.blocks[0].successors) == [1, 2]


def test_a_branch_to_the_end_leaves_the_kernel():
    flow = flow_of("@%p1 bra end; mov.b32 %r1, 0; end:")
    assert [block.successors for block in flow.blocks] == [(1,), ()]


def test_a_loop_with_two_ways_in_is_refused():
    body = "@%p1 bra b; a: mov.b32 %r1, 0; b: mov.b32 %r1, 1; @%p2 bra a; ret;"
    with pytest.raises(UnsupportedError, match="more than one way in"):
        flow_of(body)


@pytest.mark.parametrize(
    ("body", "uniform"),
    [
        ("mov.b32 %r3, 7;", True),
        ("mov.u32 %r3, %ctaid.x;", True),
        ("mov.u32 %r3, %nctaid.y;", True),
        ("mov.u32 %r3, %tid.x;", False),
        ("mov.u32 %r3, %laneid;", False),
        ("mov.u32 %r3, %clock;", False),
        ("add.s32 %r3, %r2, 1;", True),
        ("add.s32 %r3, %r2, %r1;", False),
        ("ld.param.b32 %r3, [count];", True),
        ("ld.global.b32 %r3, [data];", False),
        ("ld.shared.b32 %r3, [0];", False),
        ("ld.const.b32 %r3, [table];", True),
        ("ld.const.b32 %r3, [table + 4];", True),
        ("ld.const.b32 %r3, [%r1];", False),
        ("atom.shared.add.u32 %r3, [0], 1;", False),
        ("activemask.b32 %r3;", False),
        ("shfl.sync.idx.b32 %r3, %r1, 0, 31, -1;", True),
        ("shfl.sync.idx.b32 %r3, %r1, %r2, 31, -1;", True),
        ("shfl.sync.idx.b32 %r3, %r1, %r1, 31, -1;", False),
        ("shfl.sync.idx.b32 %r3, %r1, 0, 15, -1;", False),
        ("shfl.sync.idx.b32 %r3, %r1, 0, 31, 255;", False),
        ("shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;", False),
        ("redux.sync.add.s32 %r3, %r1, 0xffffffff;", True),
        ("redux.sync.add.s32 %r3, %r1, %r2;", False),
        ("mov.b32 %r5, -1; redux.sync.add.s32 %r3, %r1, %r5;", True),
        ("mov.b32 %r5, -1; mov.b32 %r5, 1; redux.sync.add.s32 %r3, %r1, %r5;", False),
        ("shr.u32 %r3, %r1, 5;", True),
        ("shr.u32 %r3, %r1, 4;", False),
        ("shl.b32 %r3, %r1, 5;", False),
        ("and.b32 %r3, %r1, 96;", True),
        ("and.b32 %r3, %r1, 97;", False),
        ("bfe.u32 %r3, %r1, 5, 2;", True),
        ("bfe.u32 %r3, %r1, 4, 2;", False),
        ("setp.lt.u32 %p1, %r1, 64; selp.b32 %r3, 1, 0, %p1;", True),
        ("setp.lt.u32 %p1, %r1, 65; selp.b32 %r3, 1, 0, %p1;", False),
        ("setp.gt.s32 %p1, %r1, 31; selp.b32 %r3, 1, 0, %p1;", True),
        ("setp.ge.s32 %p1, %r1, 31; selp.b32 %r3, 1, 0, %p1;", False),
        ("setp.eq.s32 %p1, %r1, 0; selp.b32 %r3, 1, 0, %p1;", False),
        ("setp.eq.s32 %p1, %r2, 0; @%p1 mov.b32 %r3, 1;", True),
        ("setp.eq.s32 %p1, %r1, 0; @%p1 mov.b32 %r3, 1;", False),
        ("setp.eq.s32 %p1, %r1, 0; mov.b32 %r3, 0; @!%p1 mov.b32 %r3, 1;", False),
        ("setp.eq.s32 %p1, %r1, 0; @%p1 shr.u32 %r3, %r1, 5;", False),
        ("setp.eq.s32 %p1, %r2, 0; @%p1 shr.u32 %r3, %r1, 5;", True),
        ("mov.b32 %r3, 1; mov.b32 %r3, %r1;", False),
        ("mov.b32 {%h1, %h2}, %r1; cvt.u32.u16 %r3, %h2;", False),
        ("add.cc.u32 %r5, %r1, 1; addc.u32 %r3, %r2, 0;", False),
        ("add.cc.u32 %r5, %r2, 1; addc.u32 %r3, %r2, 0;", True),
        ("unheard.of %r3, %r2;", False),
    ],
)
def test_which_results_are_uniform(body, uniform):
    flow = flow_of(
        f"{LANE} {COUNT} {body} ret;", module=".const .align 4 .b8 table[8] = {1, 2, 3};"
    )
    assert ("%r3" in flow.uniform) == uniform


def test_a_register_that_varies_in_the_second_turn_is_found():
    flow = flow_of(
        f"""
        {LANE} {COUNT}
        mov.b32 %r3, 0;
        mov.b32 %r4, 0;
        loop: mov.b32 %r5, %r4;
        mov.b32 %r4, %r3;
        mov.b32 %r3, %r1;
        sub.s32 %r2, %r2, 1;
        setp.ne.s32 %p1, %r2, 0;
        @%p1 bra loop;
        ret;
        """
    )
    assert {"%r2", "%p1"} <= flow.uniform
    assert flow.uniform.isdisjoint({"%r3", "%r4", "%r5"})
    assert flow.divergent_branches == frozenset()
    assert flow.partial == frozenset()


DIVERGENT_IN_LOOP = f"""
{LANE} {COUNT}
setp.lt.s32 %p2, %r1, 3;
loop: @%p2 bra then;
mov.b32 %r3, 0;
bra.uni join;
then: mov.b32 %r3, 1;
join: mov.b32 %r4, %r2;
sub.s32 %r2, %r2, 1;
setp.ne.s32 %p1, %r2, 0;
@%p1 bra loop;
ret;
"""


def test_a_divergent_branch_in_a_uniform_loop_leaves_the_loop_uniform():
    flow = flow_of(DIVERGENT_IN_LOOP)
    labels = {flow.blocks[at].label or flow.blocks[at].start for at in flow.partial}
    assert labels == {"then", 4}
    assert flow.divergent_branches == {3, 5}
    assert "%r3" not in flow.uniform
    assert {"%r4", "%r2", "%p1"} <= flow.uniform


def test_a_loop_that_lanes_leave_one_by_one_is_partial():
    flow = flow_of(
        f"""
        {LANE} {COUNT}
        mov.b32 %r3, 0;
        loop: add.s32 %r3, %r3, 1;
        setp.lt.s32 %p1, %r3, %r1;
        @%p1 bra loop;
        mov.b32 %r4, %r2;
        ret;
        """
    )
    assert flow.partial == {1}
    assert "%r3" not in flow.uniform, "lanes leave with different counts"
    assert "%r4" in flow.uniform, "all lanes have met again"
    assert flow.divergent_branches == {5}


def test_a_uniform_branch_among_some_of_the_lanes_is_divergent():
    flow = flow_of(
        f"""
        {LANE} {COUNT}
        setp.lt.s32 %p1, %r1, 3;
        setp.lt.s32 %p2, %r2, 3;
        @!%p1 bra join;
        @%p2 bra join;
        mov.b32 %r3, 1;
        join: ret;
        """
    )
    assert flow.divergent_branches == {4, 5}
    assert "%r3" not in flow.uniform


def test_after_a_divergent_exit_nothing_is_whole():
    flow = flow_of(
        f"""
        {LANE} {COUNT}
        setp.lt.s32 %p1, %r1, 3;
        @%p1 ret;
        mov.b32 %r3, 1;
        ret;
        """
    )
    assert flow.partial == {1}
    assert flow.divergent_branches == {3, 5}
    assert "%r3" not in flow.uniform


def test_a_uniform_exit_takes_all_lanes():
    flow = flow_of(f"{COUNT} setp.lt.s32 %p1, %r2, 3; @%p1 ret; mov.b32 %r3, 1; ret;")
    assert flow.partial == frozenset()
    assert flow.divergent_branches == frozenset()
    assert "%r3" in flow.uniform


def test_lanes_caught_in_an_endless_loop_never_meet_the_others():
    flow = flow_of(
        f"""
        {LANE}
        setp.lt.s32 %p1, %r1, 3;
        @%p1 bra forever;
        mov.b32 %r3, 1;
        ret;
        forever: bra.uni forever;
        """
    )
    assert "%r3" not in flow.uniform
    assert len(flow.partial) == 2


@pytest.mark.parametrize("name", NAMES)
def test_edges_of_real_kernels_go_on_or_back_to_a_header(name):
    kernel, _ = load(name)
    flow = analyse(kernel)
    covered = [index for block in flow.blocks for index in range(block.start, block.stop)]
    assert len(covered) == len(set(covered))
    for at, block in enumerate(flow.blocks):
        for to in block.successors:
            back = any(loop.header == to and loop.header <= at < loop.stop for loop in flow.loops)
            assert to > at or back
    for loop in flow.loops:
        outside = set(range(len(flow.blocks))) - set(range(loop.header, loop.stop))
        entered = {to for at in outside for to in flow.blocks[at].successors}
        assert entered & set(range(loop.header, loop.stop)) == {loop.header}


def test_loops_of_a_real_kernel_are_uniform():
    kernel, _ = load("matmul_fp32")
    flow = analyse(kernel)
    assert len(flow.loops) == 1
    assert flow.divergent_branches == frozenset()
    guards = [i.predicate.name for i in kernel.body if i.opcode[0] == "bra" and i.predicate]
    assert guards and set(guards) <= flow.uniform


def test_branches_of_erf_are_divergent():
    kernel, _ = load("gelu_fp32")
    flow = analyse(kernel)
    guarded = {i.index for i in kernel.body if i.opcode[0] == "bra" and i.predicate}
    assert guarded and guarded <= flow.divergent_branches
