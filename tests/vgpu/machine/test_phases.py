"""`mbarrier`: counting, waiting, deadlocks."""

import pytest
import torch

INIT = """
setp.eq.u32 %p1, %r1, 0;
mov.b32 %r5, 64;
@%p1 mbarrier.init.shared::cta.b64 [%r5], {count};
bar.sync 0;
"""
WAIT = """
wait{name}:
mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r5], {parity};
@!%p9 bra wait{name};
"""


def test_a_phase_waits_for_every_arrival(machine):
    """Warp 1 reads what the lanes of warp 0 wrote before each arrived; no barrier is between."""
    body = f"""
    {INIT.format(count=32)}
    setp.lt.u32 %p2, %r1, 32;
    shl.b32 %r6, %r1, 2;
    @!%p2 bra second;
    st.shared.b32 [%r6+512], %r1;
    mbarrier.arrive.shared::cta.b64 _, [%r5];
    bra end;
    second:
    {WAIT.format(name="", parity=0)}
    ld.shared.b32 %r7, [%r6+384];
    add.s64 %d3, %d1, %d21;
    st.global.b32 [%d3+-128], %r7;
    end:
    """
    out = torch.zeros(32, dtype=torch.int32)
    report = machine.assembled(body, out, threads=64)
    assert out.tolist() == list(range(32))
    assert report.findings == ()


def test_phases_follow_each_other(machine):
    """Two warps hand a number to and fro, each waiting for its own barrier."""
    body = f"""
    {INIT.format(count=1)}
    @%p1 mbarrier.init.shared::cta.b64 [%r5+8], 1;
    @%p1 st.shared.b32 [128], 1;
    bar.sync 0;
    mov.b32 %r6, 0;
    mov.b32 %r10, 0;
    and.b32 %r8, %r1, 31;
    setp.eq.u32 %p2, %r8, 0;
    setp.ge.u32 %p3, %r1, 32;
    loop:
    @%p3 bra other;
    ld.shared.b32 %r9, [128];
    mul.lo.s32 %r9, %r9, 3;
    @%p2 st.shared.b32 [128], %r9;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [%r5];
    waita:
    mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r5+8], %r10;
    @!%p9 bra waita;
    bra next;
    other:
    waitb:
    mbarrier.try_wait.parity.shared::cta.b64 %p9, [%r5], %r10;
    @!%p9 bra waitb;
    ld.shared.b32 %r9, [128];
    add.s32 %r9, %r9, 1;
    @%p2 st.shared.b32 [128], %r9;
    @%p2 mbarrier.arrive.shared::cta.b64 _, [%r5+8];
    next:
    xor.b32 %r10, %r10, 1;
    add.s32 %r6, %r6, 1;
    setp.lt.u32 %p5, %r6, 5;
    @%p5 bra loop;
    @%p1 ld.shared.b32 %r9, [128];
    @%p1 st.global.b32 [%d1], %r9;
    """
    out = torch.zeros(1, dtype=torch.int32)
    report = machine.assembled(body, out, threads=64)
    value = 1
    for _ in range(5):
        value = 3 * value + 1
    assert out.item() == value
    assert report.findings == ()


def test_a_test_does_not_wait(machine):
    body = f"""
    {INIT.format(count=2)}
    mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r5], 0;
    @%p1 mbarrier.arrive.shared::cta.b64 %d3, [%r5], 1;
    mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r5], 0;
    @%p1 mbarrier.arrive.shared::cta.b64 %d4, [%r5];
    mbarrier.test_wait.parity.shared::cta.b64 %p4, [%r5], 0;
    mbarrier.test_wait.parity.shared::cta.b64 %p5, [%r5], 1;
    mbarrier.test_wait.shared::cta.b64 %p6, [%r5], %d3;
    selp.b32 %r6, 1, 0, %p2;
    selp.b32 %r7, 2, 0, %p3;
    selp.b32 %r8, 4, 0, %p4;
    selp.b32 %r9, 8, 0, %p5;
    selp.b32 %r10, 16, 0, %p6;
    add.s32 %r6, %r6, %r7;
    add.s32 %r6, %r6, %r8;
    add.s32 %r6, %r6, %r9;
    add.s32 %r6, %r6, %r10;
    @%p1 st.global.b32 [%d1], %r6;
    """
    out = torch.zeros(1, dtype=torch.int32)
    machine.assembled(body, out)
    assert out.item() == 4 + 16


def test_expected_bytes_hold_a_phase(machine):
    body = f"""
    {INIT.format(count=1)}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 64;
    mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r5], 0;
    selp.b32 %r6, 1, 0, %p2;
    @%p1 st.global.b32 [%d1], %r6;
    """
    out = torch.full((1,), 5, dtype=torch.int32)
    machine.assembled(body, out)
    assert out.item() == 0


def test_a_deadlock_names_the_barrier_of_each_warp(machine):
    body = f"""
    {INIT.format(count=2)}
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];
    setp.lt.u32 %p2, %r1, 32;
    @!%p2 bra second;
    {WAIT.format(name="", parity=0)}
    bra end;
    second:
    bar.sync 3, 64;
    end:
    """
    report = machine.assembled(body, torch.zeros(1), threads=64)
    assert report.stopped == "deadlock"
    (finding,) = (f for f in report.findings if f.opcode.startswith("mbarrier"))
    assert "warp 0 of block (0, 0, 0) waits for the mbarrier at byte 64" in finding.detail
    assert any("warp 1 of block (0, 0, 0) waits at barrier 3" in f.detail for f in report.findings)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("mov.b32 %r5, 64; mbarrier.arrive.shared::cta.b64 _, [%r5];", "uninitialised_read"),
        ("mov.b32 %r5, 4092; mbarrier.init.shared::cta.b64 [%r5], 1;", "out_of_bounds"),
        ("mov.b32 %r5, 64; mbarrier.init.shared::cta.b64 [%r5], 1;"
         "mbarrier.inval.shared::cta.b64 [%r5]; mbarrier.arrive.shared::cta.b64 _, [%r5];",
         "uninitialised_read"),
    ],
)  # fmt: skip
def test_a_barrier_must_be_made(machine, body, kind):
    report = machine.assembled(body, torch.zeros(1))
    assert kind in {finding.kind for finding in report.findings}
    assert all(finding.opcode.startswith("mbarrier") for finding in report.findings)


def test_a_barrier_is_made_before_others_see_it(machine):
    """A barrier of the block has to lie between the two."""
    body = f"""
    {INIT.format(count=1).replace("bar.sync 0;", "")}
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];
    {WAIT.format(name="", parity=0)}
    """
    ordered = body.replace("@%p1 mbarrier.arrive", "bar.sync 0; @%p1 mbarrier.arrive")
    assert machine.assembled(ordered, torch.zeros(1), threads=64).findings == ()
    early = body.replace("@%p1 mbarrier.arrive.shared::cta.b64 _, [%r5];", "")
    early = early.replace("try_wait.parity", "test_wait.parity").replace("@!%p9 bra wait;", "")
    (finding,) = machine.assembled(early, torch.zeros(1), threads=64).findings
    assert finding.kind == "barrier" and "warp 0" in finding.detail
