"""Units that work for several blocks of a cluster: barriers and copies of tiles."""

import pytest
import torch

from lethe_env.vgpu.ptx.model import UnsupportedError

from .test_clusters import HEAD, MEET, NEXT, PAIR, at, lines, run
from .test_tile_copies import filled, map_of

INIT = """
setp.eq.u32 %p1, %r1, 0;
add.s32 %r20, %r10, 2048;
mapa.shared::cluster.u32 %r21, %r20, %r12;
@%p1 mbarrier.init.shared::cta.b64 [%r20], {count};
@%p1 fence.mbarrier_init.release.cluster;
"""
RELAXED = """
barrier.cluster.arrive.relaxed.aligned;
barrier.cluster.wait.aligned;
"""
WAIT = """
wait{name}:
mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p9, [%r20], {parity};
@!%p9 bra wait{name};
"""
SEEDS = pytest.mark.parametrize("seed", [None, 1])
EARLY = pytest.mark.parametrize("early", [False, True])
TELL = at(3, "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r21];")
PUT = at(2, "st.shared::cluster.b32 [%r16], %r17;")
GET = at(4, "ld.shared.b32 %r18, [%r15];")
GIVE = "st.global.b32 [%d6], %r18;"


ARRIVED = WAIT.format(name="", parity=0)


def handed(meet=RELAXED, wait=ARRIVED):
    """Every lane writes to the other block, and then arrives at its barrier."""
    return INIT.format(count=32) + meet + PUT + TELL + wait + GET + GIVE


@SEEDS
def test_an_arrival_at_another_block_hands_data_on(machine, seed):
    out, report = run(machine, handed(), blocks=4, seed=seed)
    assert torch.equal(out, NEXT.int()) and not report.findings


@SEEDS
def test_data_that_are_not_waited_for(machine, seed):
    _, report = run(machine, handed(wait="bar.sync 0;"), seed=seed)
    assert (lines(report) | lines(report, "uninitialised_read")) & {2, 4}


@SEEDS
def test_a_barrier_is_made_before_other_blocks_see_it(machine, seed):
    _, report = run(machine, handed(meet="bar.sync 0;"), seed=seed)
    assert 3 in lines(report) | lines(report, "uninitialised_read")


def test_bytes_that_another_block_expects_and_completes(machine):
    body = f"""
    {INIT.format(count=1)}
    {RELAXED}
    @%p1 mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r21], 8;
    @%p1 mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [%r21], 8;
    {RELAXED}
    mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r20], 0;
    {RELAXED}
    @%p1 mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r21], 16;
    {WAIT.format(name="", parity=0)}
    selp.b32 %r18, 1, 0, %p2;
    {GIVE}
    """
    out, report = run(machine, body)
    assert not out.any() and not report.findings


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (("[%r21];", "[%r21+4096];"), "out_of_bounds"),
        (("[%r21];", "[%r21+8];"), "uninitialised_read"),
        (("_, [%r21];", "_, [%r21+33554432];"), "out_of_bounds"),
    ],
)
def test_a_barrier_of_another_block_must_be_there(machine, change, kind):
    _, report = run(machine, handed().replace(*change))
    assert lines(report, kind) == {3}


def test_an_arrival_at_a_block_that_has_ended(machine):
    """The other block waits for nothing, so its barrier may be gone."""
    _, report = run(machine, INIT.format(count=64) + RELAXED + TELL)
    assert lines(report) == {3}
    assert any("may have ended" in f.detail for f in report.findings)


def test_a_deadlock_at_a_barrier_that_another_block_should_tell(machine):
    _, report = run(machine, handed().replace(TELL, ""))
    assert report.stopped == "deadlock"
    (finding,) = (f for f in report.findings if "deadlock" in f.detail)
    assert finding.detail.count("waits for the mbarrier at byte 2048") == 2


TILE = (4, 8)
TILE_BYTES = 128
COPY = """cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{how}
    [%r22], [%d1, {{%r23, %r24}}], [{barrier}]{mask};"""


def tiles(machine, copy, expected_bytes, parity=0, blocks=2, cluster=PAIR, tell="%p1", **options):
    """Block `k` loads a tile of its own with `copy`; each block gives what it then holds."""
    source = filled((64, 32), torch.float32)
    out = torch.zeros(blocks, 64, dtype=torch.int32)
    body = f"""
    {HEAD.replace("%d1;", "%d2;").replace("%r14, 128;", "%r14, 256;")}
    {INIT.format(count=1)}
    {RELAXED}
    add.s32 %r27, %r15, %r6;
    add.s64 %d6, %d6, %d21;
    shl.b32 %r24, %r14, 3;
    mov.b32 %r23, 4;
    shl.b32 %r25, %r11, 7;
    add.s32 %r22, %r10, %r25;
    and.b32 %r26, %r20, -16777217;
    mov.b16 %h1, 3;
    setp.eq.u32 %p3, %r11, 0;
    and.pred %p4, %p1, %p3;
    @{tell} mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {expected_bytes};
    {copy}
    {WAIT.format(name="", parity=parity)}
    {at(5, "ld.shared.v2.b32 {%r18, %r19}, [%r27];")}
    st.global.v2.b32 [%d6], {{%r18, %r19}};
    {MEET}
    done:
    """
    report = machine.assembled(body, map_of(machine, source, TILE, "f32"), out, grid=(blocks,),
                               cluster=cluster, **options)  # fmt: skip
    parts = [source[8 * k : 8 * k + 8, 4:8].flatten() for k in range(blocks)]
    return out.view(torch.float32), parts, report


MULTICAST = at(3, "@%p1 " + COPY.format(how=".multicast::cluster", barrier="%r20", mask=", %h1"))


@EARLY
@SEEDS
def test_tiles_that_go_to_all_blocks_of_a_cluster(machine, early, seed):
    """Each block loads one tile for both, at its own offset."""
    found, parts, report = tiles(machine, MULTICAST, 2 * TILE_BYTES, blocks=4, early=early,
                                 seed=seed)  # fmt: skip
    for block in range(4):
        pair = block - block % 2
        assert torch.equal(found[block], torch.cat([parts[pair], parts[pair + 1]]))
    assert not report.findings


def test_bytes_of_another_block_that_are_not_expected(machine):
    """The phase ends before the second tile has come; what is read of it is undefined."""
    _, _, report = tiles(machine, MULTICAST, TILE_BYTES)
    assert lines(report, "uninitialised_read") == {5}


def test_a_tile_for_a_block_that_is_not_there(machine):
    wrong = MULTICAST.replace("@%p1", "mov.b16 %h1, 7;\n@%p1")
    _, _, report = tiles(machine, wrong, 2 * TILE_BYTES)
    assert lines(report, "out_of_bounds") == {3}
    assert any("the cluster has no such block" in f.detail for f in report.findings)


def test_a_tile_that_another_block_still_reads(machine):
    """The second round overwrites what the peer may still be reading."""
    again = f"""
    {MULTICAST}
    {WAIT.format(name="a", parity=0)}
    {at(4, "ld.shared.v2.b32 {%r18, %r19}, [%r27];")}
    MEETING
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {2 * TILE_BYTES};
    {MULTICAST.replace(".loc 1 3", ".loc 1 6")}
    """
    _, _, report = tiles(machine, again.replace("MEETING", "bar.sync 0;"), 2 * TILE_BYTES, parity=1)
    assert lines(report) & {4, 6}
    _, _, report = tiles(machine, again.replace("MEETING", MEET), 2 * TILE_BYTES, parity=1)
    assert not report.findings


PAIRED = at(3, "@%p1 " + COPY.format(how=".cta_group::2", barrier="%r26", mask=""))


@EARLY
@SEEDS
def test_tiles_of_a_pair_tell_the_first_block(machine, early, seed):
    """Both blocks load into their own memory and tell the first one, which then reads both."""
    read = at(6, "ld.shared::cluster.v2.b32 {%r18, %r19}, [%r28];")
    copy = f"""
    {PAIRED}
    @!%p3 bra away;
    mapa.shared::cluster.u32 %r28, %r27, 0;
    setp.ge.u32 %p5, %r1, 16;
    @%p5 mapa.shared::cluster.u32 %r28, %r27, 1;
    {WAIT.format(name="a", parity=0)}
    {read}
    st.global.v2.b32 [%d6], {{%r18, %r19}};
    away:
    {MEET}
    bra done;
    """
    found, parts, report = tiles(machine, copy, 2 * TILE_BYTES, tell="%p4", early=early, seed=seed)
    done = found[0]
    assert torch.equal(done, torch.cat([parts[0], parts[1]])) and not report.findings


def test_a_barrier_elsewhere_without_a_pair(machine):
    plain = PAIRED.replace(".cta_group::2", "")
    with pytest.raises(UnsupportedError, match="another block than what it writes"):
        tiles(machine, plain, TILE_BYTES)


SEND = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
EXPECT = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r20], {};"


def sent(store, bytes_, wait=ARRIVED, read=GET):
    """Every lane sends a value to the other block, whose barrier counts the bytes."""
    return f"""
    {INIT.format(count=1)}
    {RELAXED}
    {EXPECT.format(bytes_)}
    {at(3, store)}
    {wait}
    {read}
    {GIVE}
    """


@EARLY
@SEEDS
def test_values_that_come_later(machine, early, seed):
    body = sent(f"{SEND}.b32 [%r16], %r17, [%r21];", 128)
    out, report = run(machine, body, blocks=4, early=early, seed=seed)
    assert torch.equal(out, NEXT.int()) and not report.findings


@pytest.mark.parametrize(("kind", "size"), [("v2.b32", 8), ("b64", 8), ("v4.b32", 16)])
def test_widths_of_values_that_come_later(machine, kind, size):
    places = "mul.lo.s32 %r25, %r1, 16; add.s32 %r25, %r25, %r10; mov.b64 %d7, {%r17, %r13};"
    places += "mapa.shared::cluster.u32 %r26, %r25, %r12;"
    value = {"v2.b32": "{%r17, %r13}", "b64": "%d7", "v4.b32": "{%r13, %r17, %r17, %r17}"}[kind]
    place = "%r25+4" if kind == "v4.b32" else "%r25"
    read = at(4, f"ld.shared.b32 %r18, [{place}];")
    body = sent(f"{places} {SEND}.{kind} [%r26], {value}, [%r21];", 32 * size, read=read)
    out, report = run(machine, body, blocks=4)
    assert torch.equal(out, NEXT.int()) and not report.findings


def test_values_that_are_not_waited_for(machine):
    body = sent(f"{SEND}.b32 [%r16], %r17, [%r21];", 128, wait="bar.sync 0;") + MEET
    _, report = run(machine, body)
    assert 4 in lines(report) | lines(report, "uninitialised_read")


def test_values_for_places_that_are_not_there(machine):
    beyond = sent(f"{SEND}.b32 [%r16+4096], %r17, [%r21];", 128)
    assert lines(run(machine, beyond)[1], "out_of_bounds") == {3}
    elsewhere = sent(f"{SEND}.b32 [%r16], %r17, [%r20];", 128)
    with pytest.raises(UnsupportedError, match="another block than what it writes"):
        run(machine, elsewhere)


@pytest.mark.parametrize(
    ("operation", "type_", "start", "expected"),
    [
        ("add", "u32", 5, 5 + 32 * 7), ("min", "s32", 9, 7), ("max", "u32", 3, 7),
        ("and", "b32", 12, 4), ("or", "b32", 8, 15), ("xor", "b32", 1, 1),
        ("inc", "u32", 6, 6), ("dec", "u32", 2, 2), ("add", "u64", 5, 5 + 32 * 7),
    ],
)  # fmt: skip
def test_reductions_that_come_later(machine, operation, type_, start, expected):
    """Eight steps bring `inc` and `dec` up to 7 back to where they began; there are 32."""
    bits = int(type_[1:])
    value = "%r19" if bits == 32 else "%d9"
    kind = f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{operation}"
    body = f"""
    {INIT.format(count=1)}
    st.shared.v2.b32 [%r10], {{{start}, 0}};
    mov.b32 %r19, 7;
    mov.b64 %d9, 7;
    mapa.shared::cluster.u32 %r16, %r10, %r12;
    {RELAXED}
    {EXPECT.format(4 * bits)}
    {at(3, f"{kind}.{type_} [%r16], {value}, [%r21];")}
    {ARRIVED}
    ld.shared.b32 %r18, [%r10];
    {GIVE}
    """
    out, report = run(machine, body)
    assert out.eq(expected).all() and not report.findings
