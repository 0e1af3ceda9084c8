"""Clusters of blocks: how they begin, meet, and see each other's shared memory."""

import pytest
import torch

PAIR = (2, 1, 1)
MEET = """
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
"""
HEAD = """
mov.u32 %r10, smem;
mov.u32 %r11, %cluster_ctarank;
mov.u32 %r13, %cluster_nctarank;
add.s32 %r12, %r11, 1;
rem.u32 %r12, %r12, %r13;
mov.u32 %r14, %ctaid.x;
shl.b32 %r6, %r1, 2;
add.s32 %r15, %r10, %r6;
mapa.shared::cluster.u32 %r16, %r15, %r12;
mad.lo.s32 %r17, %r14, 1000, %r1;
mul.wide.u32 %d6, %r14, 128;
add.s64 %d6, %d6, %d21;
add.s64 %d6, %d6, %d1;
"""
"""`%r11` is the rank, `%r12` the next one; `%r15` and `%r16` a word of the lane in the own memory
and in the next block's; `%r17` a number of the thread; `%d6` its place in the output.
"""


def at(line, text):
    """An instruction on a line of its own."""
    return f"\n.loc 1 {line} 0\n{text}\n.loc 1 1 0\n"


def run(machine, body, blocks=2, cluster=PAIR, threads=32, **options):
    out = torch.full((blocks, threads), -1, dtype=torch.int32)
    report = machine.assembled(HEAD + body, out, grid=(blocks,), cluster=cluster, threads=threads,
                               **options)  # fmt: skip
    return out, report


def lines(report, kind="barrier"):
    return {f.location.line for f in report.findings if f.kind == kind}


SEEDS = pytest.mark.parametrize("seed", [None, 1, 2, 3])
NUMBERS = 1000 * torch.arange(4)[:, None] + torch.arange(32)
NEXT = NUMBERS.view(2, 2, 32).flip(1).reshape(4, 32)
"""What the other block of a pair holds."""

STORE = at(2, "st.shared.b32 [%r15], %r17;")
LOAD = at(3, "ld.shared::cluster.b32 %r18, [%r16];")
GENERIC = """
cvta.shared.u64 %d8, %d7;
mapa.u64 %d9, %d8, %r12;
""" + at(3, "ld.b32 %r18, [%d9];")
GIVE = "st.global.b32 [%d6], %r18;"


@SEEDS
def test_blocks_read_from_each_other(machine, seed):
    out, report = run(machine, STORE + MEET + LOAD + MEET + GIVE, blocks=4, seed=seed)
    assert torch.equal(out, NEXT.int()) and not report.findings


def test_generic_addresses_lead_to_other_blocks(machine):
    body = STORE + MEET + "cvt.u64.u32 %d7, %r15;" + GENERIC + MEET + GIVE
    out, report = run(machine, body, blocks=4)
    assert torch.equal(out, NEXT.int()) and not report.findings


@SEEDS
def test_blocks_write_to_each_other(machine, seed):
    store = at(2, "st.shared::cluster.b32 [%r16], %r17;")
    load = at(3, "ld.shared.b32 %r18, [%r15];")
    out, report = run(machine, store + MEET + load + GIVE, blocks=4, seed=seed)
    assert torch.equal(out, NEXT.int()) and not report.findings
    _, report = run(machine, "st.shared.b32 [%r15], 7;" + store + MEET + load + GIVE, seed=seed)
    assert lines(report) and lines(report) <= {1, 2}


@SEEDS
def test_a_missing_barrier_of_the_cluster(machine, seed):
    """A barrier of the block in its place orders nothing between blocks."""
    _, report = run(machine, STORE + "bar.sync 0;" + LOAD + MEET + GIVE, seed=seed)
    assert 3 in lines(report) and lines(report) <= {2, 3}
    assert any("of rank" in f.detail for f in report.findings)


@SEEDS
def test_memory_that_goes_before_it_is_read(machine, seed):
    """A block must not end while another may read from it."""
    _, report = run(machine, STORE + MEET + LOAD + GIVE, seed=seed)
    assert lines(report) == {3}
    (finding,) = report.findings
    assert "may have ended before this access" in finding.detail


@SEEDS
def test_a_store_that_a_late_reader_sees(machine, seed):
    again = at(4, "st.shared.b32 [%r15], 5;")
    own = "ld.shared.b32 %r19, [%r15];"
    for reads in (LOAD, LOAD + own, own + LOAD):
        _, report = run(machine, STORE + MEET + reads + "bar.sync 0;" + again + MEET, seed=seed)
        assert lines(report) and lines(report) <= {3, 4}
    ordered = STORE + MEET + LOAD + own + MEET + again + GIVE
    assert not run(machine, ordered, seed=seed)[1].findings


def test_a_store_to_what_two_blocks_have_read(machine):
    """A block's own read must not hide that of the owner; the last to arrive goes on first."""
    body = f"""
    mapa.shared::cluster.u32 %r16, %r15, 1;
    setp.eq.u32 %p1, %r11, 1;
    setp.eq.u32 %p2, %r11, 0;
    @!%p1 bra meet;
    {STORE}
    meet:
    {MEET}
    @%p1 ld.shared.b32 %r18, [%r15];
    @%p2 ld.shared::cluster.b32 %r18, [%r16];
    {at(3, "@%p2 st.shared::cluster.b32 [%r16], 7;")}
    {MEET}
    """
    _, report = run(machine, body)
    (finding,) = report.findings
    assert finding.location.line == 3 and "several blocks of the cluster" in finding.detail


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("add.s32 %r16, %r16, 4096;", "out_of_bounds"),
        ("mapa.shared::cluster.u32 %r16, %r15, 2;", "out_of_bounds"),
        ("add.s32 %r16, %r16, 2048;", "uninitialised_read"),
    ],
)
def test_accesses_to_other_blocks_are_checked(machine, body, kind):
    _, report = run(machine, STORE + MEET + body + LOAD + MEET)
    assert lines(report, kind) == {3}


def test_shared_memory_of_the_block_is_its_own(machine):
    """An address of another block leads nowhere without `::cluster`."""
    load = LOAD.replace("::cluster", "::cta")
    _, report = run(machine, STORE + MEET + load + MEET)
    assert lines(report, "out_of_bounds") == {3}


@SEEDS
def test_atomic_operations_of_several_blocks(machine, seed):
    body = f"""
    mapa.shared::cluster.u32 %r16, %r10, 0;
    mov.b32 %r20, 0;
    st.shared.b32 [%r10], %r20;
    {MEET}
    {at(2, "red.relaxed.cluster.shared::cluster.add.u32 [%r16], %r17;")}
    atom.shared::cluster.add.u32 %r21, [%r16], 1;
    {MEET}
    ld.shared.b32 %r18, [%r10];
    {GIVE}
    """
    out, report = run(machine, body, blocks=4, seed=seed)
    total = NUMBERS.view(2, -1).sum(1) + 64
    assert not report.findings
    assert [out[0, 0], out[2, 0]] == total.tolist() and not out[1].any()


def test_a_read_beside_an_atomic_operation(machine):
    body = f"""
    mapa.shared::cluster.u32 %r16, %r10, 0;
    st.shared.b32 [%r10], 0;
    {MEET}
    {at(2, "red.shared::cluster.add.u32 [%r16], 1;")}
    {at(3, "ld.shared::cluster.b32 %r18, [%r16];")}
    {MEET}
    """
    assert lines(run(machine, body)[1]) & {2, 3}


def test_special_registers(machine):
    """Of a grid of 4 by 6 blocks in clusters of 2 by 3."""
    names = ["cluster_ctarank", "cluster_nctarank"] + [
        f"{name}.{axis}" for name in ("cluster_ctaid", "cluster_nctaid", "clusterid", "nclusterid")
        for axis in "xyz"
    ]  # fmt: skip
    stores = "\n".join(
        f"mov.u32 %r5, %{name}; st.global.b32 [%d4+{4 * k}], %r5;" for k, name in enumerate(names)
    )
    body = f"""
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.y;
    mad.lo.s32 %r2, %r3, 4, %r2;
    mul.wide.u32 %d4, %r2, {4 * (len(names) + 1)};
    add.s64 %d4, %d4, %d1;
    {stores}
    mov.pred %p1, %is_explicit_cluster;
    selp.b32 %r5, 1, 0, %p1;
    st.global.b32 [%d4+{4 * len(names)}], %r5;
    """
    out = torch.zeros(6, 4, len(names) + 1, dtype=torch.int32)
    report = machine.assembled(body, out, grid=(4, 6), cluster=(2, 3, 1))
    assert not report.findings
    for y in range(6):
        for x in range(4):
            assert out[y, x].tolist() == [
                x % 2 + 2 * (y % 3), 6, x % 2, y % 3, 0, 2, 3, 1, x // 2, y // 3, 0, 2, 2, 1, 1,
            ]  # fmt: skip


def test_ranks_of_addresses(machine):
    body = f"""
    getctarank.shared::cluster.u32 %r18, %r16;
    cvt.u64.u32 %d7, %r16;
    cvta.shared::cluster.u64 %d7, %d7;
    getctarank.u64 %r19, %d7;
    isspacep.shared::cta %p1, %d7;
    isspacep.shared::cluster %p2, %d7;
    selp.b32 %r20, 100, 0, %p1;
    selp.b32 %r21, 1000, 0, %p2;
    mad.lo.s32 %r18, %r19, 10, %r18;
    add.s32 %r18, %r18, %r20;
    add.s32 %r18, %r18, %r21;
    {GIVE}
    """
    out, _ = run(machine, body)
    assert out[:, 0].tolist() == [1011, 1000]


def test_threads_that_have_ended_are_not_waited_for(machine):
    body = f"""
    setp.eq.u32 %p1, %r11, 0;
    {STORE}
    @%p1 bra end;
    {MEET}
    mov.b32 %r18, 5;
    {GIVE}
    end:
    """
    out, report = run(machine, body)
    assert not report.findings and out[1].eq(5).all()


def test_a_deadlock_at_the_barrier_of_a_cluster(machine):
    body = f"""
    setp.eq.u32 %p1, %r11, 0;
    setp.lt.u32 %p2, %r1, 32;
    @%p1 bra other;
    barrier.cluster.arrive;
    {at(2, "barrier.cluster.wait;")}
    bra end;
    other:
    @!%p2 bra end;
    {at(3, "bar.sync 2, 64;")}
    end:
    """
    _, report = run(machine, body, threads=64)
    assert report.stopped == "deadlock"
    assert lines(report) == {2, 3}
    assert any("waits at the barrier of its cluster" in f.detail for f in report.findings)


@pytest.mark.parametrize(
    ("body", "words", "line"),
    [
        (at(2, "barrier.cluster.arrive;") * 2 + "barrier.cluster.wait;", "arrived already", 2),
        ("barrier.cluster.arrive;" + at(2, "barrier.cluster.wait;") * 2, "have not arrived", 2),
        ("setp.lt.u32 %p1, %r1, 7;" + at(2, "@%p1 barrier.cluster.arrive.aligned;")
         + "@!%p1 barrier.cluster.arrive; barrier.cluster.wait;", "a part of a warp", 2),
    ],
)  # fmt: skip
def test_misuse_of_the_barrier_of_a_cluster(machine, body, words, line):
    _, report = run(machine, body)
    (finding,) = (f for f in report.findings if "deadlock" not in f.detail)
    assert words in finding.detail and finding.location.line == line


def test_clusters_that_cannot_be(machine):
    with pytest.raises(ValueError, match="no number of clusters"):
        run(machine, MEET, blocks=3)
    with pytest.raises(ValueError, match="at most 16"):
        run(machine, MEET, blocks=32, cluster=(32, 1, 1))


@SEEDS
def test_blocks_that_poll_in_each_others_memory(machine, seed):
    """A flag goes round a cluster of four; clusters of a grid do the same beside each other."""
    body = f"""
    setp.eq.u32 %p1, %r1, 0;
    setp.eq.u32 %p2, %r11, 0;
    mov.b32 %r19, 0;
    st.shared.b32 [%r10], %r19;
    mapa.shared::cluster.u32 %r16, %r10, %r12;
    {MEET}
    @%p2 bra send;
    poll:
    ld.relaxed.cluster.shared::cta.b32 %r19, [%r10];
    setp.eq.u32 %p3, %r19, 0;
    @%p3 bra poll;
    send:
    add.s32 %r18, %r19, 1;
    @%p1 st.relaxed.cluster.shared::cluster.b32 [%r16], %r18;
    {MEET}
    {GIVE}
    """
    out, report = run(machine, body, blocks=8, cluster=(4, 1, 1), seed=seed)
    assert out[:, 0].tolist() == [1, 2, 3, 4] * 2 and not report.findings


def test_undefined_values_are_followed_to_other_blocks(machine):
    """What nobody has written goes through the other block's shared memory, and is stored."""
    body = f"""
    add.s64 %d7, %d2, %d21;
    ld.global.b32 %r17, [%d7];
    {STORE}
    {MEET}
    {LOAD}
    {MEET}
    {{end}}
    """
    text = HEAD + body.format(end=at(5, GIVE))
    x, out = torch.ones(32, dtype=torch.int32), torch.zeros(2, 32, dtype=torch.int32)
    size = {"grid": (2,), "cluster": PAIR}
    assert not machine.assembled(text, out, x, **size).findings
    machine.memory.mark_undefined(x)
    (finding,) = machine.assembled(text, out, x, **size).findings
    assert finding.kind == "uninitialised_read" and "line 5 uses" in finding.detail
    dropped = HEAD + body.format(end="")
    machine.memory.mark_undefined(x)
    assert not machine.assembled(dropped, out, x, **size).findings
