"""`clusterlaunchcontrol`: clusters that take the place of others."""

import pytest
import torch

from lethe_env.vgpu.ptx.model import UnsupportedError

from .test_clusters import MEET, at, lines

TRY = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
EVERYWHERE = ".multicast::cluster::all"
WAIT = """
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r20], %r22;
@!%p9 bra wait;
"""
READ = at(4, "ld.shared.v2.b64 {%d7, %d8}, [%r21];")
QUERY = "clusterlaunchcontrol.query_cancel"


def body(wait=WAIT, everywhere=EVERYWHERE):
    """Each block counts up a number for its place, and notes who did so; then it asks for more."""
    return f"""
    mov.u32 %r10, smem;
    mov.u32 %r11, %cluster_ctarank;
    add.s32 %r20, %r10, 64;
    mov.u32 %r21, %r10;
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.u32 %p2, %r11, 0;
    and.pred %p2, %p1, %p2;
    @%p1 mbarrier.init.shared::cta.b64 [%r20], 1;
    fence.mbarrier_init.release.cluster;
    {MEET}
    mov.u32 %r14, %ctaid.x;
    mov.u32 %r15, %ctaid.y;
    mov.u32 %r23, %nctaid.x;
    mad.lo.s32 %r24, %r15, %r23, %r14;
    mov.b32 %r22, 0;
    next:
    mad.lo.s32 %r25, %r15, %r23, %r14;
    mul.wide.u32 %d5, %r25, 4;
    add.s64 %d3, %d1, %d5;
    add.s64 %d4, %d2, %d5;
    @%p1 red.global.add.u32 [%d3], 1;
    @%p1 st.global.b32 [%d4], %r24;
    {MEET}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], 16;
    {MEET}
    {at(3, f"@%p2 {TRY}{everywhere}.b128 [%r21], [%r20];")}
    {wait}
    xor.b32 %r22, %r22, 1;
    {READ}
    {{
    .reg .b128 %answer;
    mov.b128 %answer, {{%d7, %d8}};
    {QUERY}.is_canceled.pred.b128 %p3, %answer;
    {QUERY}.get_first_ctaid::x.b32.b128 %r14, %answer;
    {QUERY}.get_first_ctaid::y.b32.b128 %r15, %answer;
    {QUERY}.get_first_ctaid.v4.b32.b128 {{%r26, %r27, %r28, %r29}}, %answer;
    }}
    add.s32 %r14, %r26, %r11;
    @%p3 bra next;
    {MEET}
    """


def run(machine, text, grid=(6, 2), cluster=(2, 1, 1), **options):
    counts, hosts = (torch.zeros(grid[::-1], dtype=torch.int32) for _ in range(2))
    report = machine.assembled(text, counts, hosts, grid=grid, cluster=cluster, **options)
    return counts, hosts, report


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1)])
def test_every_place_is_taken_once(machine, cluster, early, seed):
    counts, hosts, report = run(machine, body(), cluster=cluster, early=early, seed=seed)
    assert counts.eq(1).all() and not report.findings
    # All are handed out at once where units are early; elsewhere, some begin by themselves.
    blocks = hosts.unique()
    size = cluster[0]
    assert len(blocks) == size if early else size < len(blocks) < counts.numel()
    for host in blocks.tolist():
        assert hosts.flatten()[host] == host, "who takes the place of others has begun"


def test_an_answer_that_is_not_waited_for(machine):
    _, _, report = run(machine, body(wait=""))
    assert lines(report, "uninitialised_read") == {4}


def test_an_answer_that_one_block_does_not_get(machine):
    _, _, report = run(machine, body(everywhere=""))
    assert report.stopped == "deadlock"


@pytest.mark.parametrize(
    "change", [(f"{QUERY}.get_first_ctaid::x", f"{QUERY}.get_first_ctaid::w"), (TRY, TRY[:-7])]
)
def test_what_is_refused(machine, change):
    with pytest.raises(UnsupportedError, match="clusterlaunchcontrol"):
        run(machine, body().replace(*change))
