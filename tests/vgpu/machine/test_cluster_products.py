"""Products of `tcgen05` that two blocks of a cluster make together."""

import pytest
import torch

from lethe_env.vgpu.ptx.model import UnsupportedError

from .matrices import SIZES, Matrix, product
from .test_clusters import MEET, PAIR, at, lines
from .test_tensor_cores import BLACKWELL, FILL, MEMORY_BYTES, THREADS, moderate

COLUMNS = 32
LEFT = Matrix(0, 4096 + 256, 512, 64, False)
RIGHT = Matrix(9216, 4096 + 256, 1024, 64, False)
ACROSS = Matrix(0, 2048, 1024, 128, True), Matrix(9216, 1024, 1536, 32, True)
ALLOCATE = at(2, "@%p1 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%r34], 32;")
RELEASE = at(3, "@%p1 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r30, 32;")
COMMIT = at(5, "@%p6 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
               ".multicast::cluster.b64 [%r34+8], %h1;")  # fmt: skip
WAIT = """
wait:
mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r34+8], %r36;
@!%p5 bra wait;
"""
AFTER_FILL = "fence.proxy.async.shared::cta;" + MEET
BEFORE_PRODUCT = "bar.sync 0;" + MEET
LAST = "bar.sync 0;" + MEET


def pair_body(rows, source="f16", matrices=(LEFT, RIGHT)):
    """Two equal products of `rows` rows and 32 columns, of which each block holds a half."""
    left, right = matrices
    formats = {"f16": 0, "bf16": 1, "tf32": 2, "e5m2": 1}[source]
    kind = {"tf32": "tf32", "e5m2": "f8f6f4"}.get(source, "f16")
    shape = 1 << 4 | formats << 7 | formats << 10 | COLUMNS // 8 << 17 | rows // 16 << 24
    shape |= left.across << 15 | right.across << 16
    held = COLUMNS if rows == 256 else COLUMNS // 2
    registers = [f"%q{k}" for k in range(held)]
    stores = "\n".join(
        f"st.global.b32 [%d8+{4 * THREADS * k}], {name};" for k, name in enumerate(registers)
    )
    mark = 1 << 46
    products = "\n".join(
        f"@%p6 tcgen05.mma.cta_group::2.kind::{kind} [%r30], %d6, %d7, %r32, %p{3 + k};"
        for k in range(2)
    )
    return f"""
    .reg .b32 %q<{COLUMNS}>;
    mov.u32 %r24, smem;
    mov.u32 %r25, %cluster_ctarank;
    mul.wide.u32 %d10, %r25, {MEMORY_BYTES};
    shl.b64 %d4, %d20, 4;
    add.s64 %d5, %d1, %d4;
    add.s64 %d5, %d5, %d10;
    shl.b32 %r6, %r1, 4;
    add.s32 %r6, %r6, %r24;
    {FILL}
    mul.wide.u32 %d11, %r25, {4 * THREADS * held};
    add.s64 %d8, %d2, %d21;
    add.s64 %d8, %d8, %d11;
    setp.lt.u32 %p1, %r1, 32;
    setp.eq.u32 %p2, %r1, 0;
    setp.ne.u32 %p3, %r1, %r1;
    setp.eq.u32 %p4, %r1, %r1;
    setp.eq.u32 %p7, %r25, 0;
    and.pred %p6, %p2, %p7;
    mov.b16 %h1, 3;
    add.s32 %r34, %r24, {MEMORY_BYTES};
    @%p2 mbarrier.init.shared::cta.b64 [%r34+8], 1;
    fence.mbarrier_init.release.cluster;
    {AFTER_FILL}
    {ALLOCATE}
    {BEFORE_PRODUCT}
    ld.shared.b32 %r30, [%r34];
    and.b32 %r35, %r1, 96;
    shl.b32 %r35, %r35, 16;
    add.s32 %r31, %r30, %r35;
    mov.b64 %d6, {left.descriptor(BLACKWELL, 61) | mark};
    mov.b64 %d7, {right.descriptor(BLACKWELL, 61) | mark};
    mov.b32 %r32, {shape};
    .loc 1 4 0
    {products}
    .loc 1 1 0
    {COMMIT}
    mov.b32 %r36, 0;
    {WAIT}
    .loc 1 6 0
    tcgen05.ld.sync.aligned.32x32b.x{held}.b32 {{{", ".join(registers)}}}, [%r31];
    .loc 1 1 0
    tcgen05.wait::ld.sync.aligned;
    {LAST}
    {RELEASE}
    {stores}
    """


def run(machine, body, rows=256, source="f16", cluster=PAIR, **options):
    held = COLUMNS if rows == 256 else COLUMNS // 2
    data = torch.stack([moderate(source, seed) for seed in range(2)])
    out = torch.zeros(2, held, THREADS, dtype=torch.int32)
    report = machine.assembled(body, data, out, threads=THREADS, grid=(2,), cluster=cluster,
                               shared_bytes=MEMORY_BYTES + 16, **options)  # fmt: skip
    return data, out.view(torch.float32), report


def expected(data, rows, source, matrices):
    """The whole product, as the tensor cores add it up."""
    left, right = (
        torch.cat([matrix.read(memory.numpy(), count // 2, source) for memory in data])
        for matrix, count in zip(matrices, (rows, COLUMNS), strict=True)
    )
    total = torch.zeros(rows, COLUMNS)
    for _ in range(2):
        total = product(left, right, total, source)
    return left, right, total


def tile(out, rows):
    """The result `[rows, 32]` from what the lanes of both blocks hold."""
    if rows == 256:
        return torch.cat([block.T for block in out])
    return torch.cat([torch.cat([block.T[:64], block.T[64:]], 1) for block in out])


SCHEDULES = [(early, seed) for early in (False, True) for seed in (None, 1)]


@pytest.mark.parametrize(("early", "seed"), SCHEDULES)
@pytest.mark.parametrize("rows", [128, 256])
def test_two_blocks_make_a_product(machine, rows, early, seed):
    data, out, report = run(machine, pair_body(rows), rows, early=early, seed=seed)
    left, right, total = expected(data, rows, "f16", (LEFT, RIGHT))
    found = tile(out, rows)
    assert torch.equal(found, total) and not report.findings
    magnitudes = left.double().abs() @ right.double().abs().T
    truth = 2 * left.double() @ right.double().T
    # Of two steps, each drops 17 parts in 2^25 of all magnitudes, and what f32 does not hold.
    assert ((found - truth).abs() <= 4 * (17 * 2.0**-25 + 2.0**-23) * magnitudes).all()


@pytest.mark.parametrize(
    ("source", "matrices"),
    [("bf16", ACROSS), ("tf32", (LEFT, RIGHT)), ("e5m2", (LEFT, RIGHT))],
)
def test_factors_of_two_blocks(machine, source, matrices):
    assert source in SIZES
    data, out, report = run(machine, pair_body(256, source, matrices), source=source)
    assert torch.equal(tile(out, 256), expected(data, 256, source, matrices)[2])
    assert not report.findings


BODY = pair_body(256)


def test_factors_of_the_other_block_that_nothing_orders(machine):
    """A barrier of each block does not make the other's shared memory ready."""
    alone = BODY.replace(AFTER_FILL, "fence.proxy.async.shared::cta;")
    alone = alone.replace(BEFORE_PRODUCT, "bar.sync 0;")
    assert 4 in lines(run(machine, alone)[2]) | lines(run(machine, alone)[2], "uninitialised_read")


@pytest.mark.parametrize("without", ["@%p7", "@!%p7"], ids=["first", "second"])
def test_factors_without_a_fence(machine, without):
    """Of the block that makes the product, or of the other one."""
    fence = "fence.proxy.async.shared::cta;"
    _, _, report = run(machine, BODY.replace(fence, f"{without} bra bare; {fence} bare:"))
    assert lines(report, "asynchronous") == {4}


def test_factors_that_change_before_the_product_is_done(machine):
    """The second block overwrites its part while the first one's tensor cores may read it."""
    spoil = at(7, "@!%p7 st.shared.b32 [%r6+9216], %r25;") + "mov.b32 %r36, 0;"
    _, _, report = run(machine, BODY.replace("mov.b32 %r36, 0;", spoil))
    assert lines(report) & {4, 7}
    late = BODY.replace(
        "tcgen05.wait::ld", "@!%p7 st.shared.b32 [%r6+9216], %r25; tcgen05.wait::ld"
    )
    assert not run(machine, late)[2].findings


def test_results_that_the_other_block_does_not_wait_for(machine):
    skip = BODY.replace(WAIT, f"@!%p7 bra skipped; {WAIT} skipped:")
    _, _, report = run(machine, skip)
    assert lines(report, "asynchronous") | lines(report, "uninitialised_read") == {6}


def test_a_commit_that_leaves_out_the_other_block(machine):
    _, _, report = run(machine, BODY.replace("mov.b16 %h1, 3;", "mov.b16 %h1, 1;"))
    assert report.stopped == "deadlock"
    told = "".join(f.detail for f in report.findings if "deadlock" in f.detail)
    assert "warp 0 of block (1, 0, 0) waits for the mbarrier at byte 16392" in told


def words(report, line):
    return {f.detail.split(",")[0] for f in report.findings
            if f.kind == "asynchronous" and f.location.line == line}  # fmt: skip


def test_columns_that_one_block_releases_too_early(machine):
    """The second block's part of tensor memory is gone before the product is made."""
    early = BODY.replace(COMMIT, f"@!%p7 bra kept; bar.sync 0; {RELEASE} kept: {COMMIT}")
    early = early.replace(LAST + "\n    " + RELEASE, LAST + "@!%p7 bra freed;" + RELEASE + "freed:")
    _, _, report = run(machine, early, early=False, seed=1)
    assert words(report, 4) or words(report, 3)


def test_columns_that_only_one_block_allocates(machine):
    alone = BODY.replace(ALLOCATE, f"@!%p7 bra without; {ALLOCATE} without:")
    _, _, report = run(machine, alone)
    assert "the other block of the pair does not allocate tensor memory" in words(report, 2)


def test_columns_of_different_numbers(machine):
    other = ALLOCATE.replace("32;", "64;")
    body = BODY.replace(ALLOCATE, f"@!%p7 bra other; {ALLOCATE} bra both; other: {other} both:")
    words_of = words(run(machine, body)[2], 2)
    assert any("do not allocate as many columns" in word for word in words_of)


def test_columns_that_a_block_keeps(machine):
    _, _, report = run(machine, BODY.replace(RELEASE, f"@!%p7 bra kept; {RELEASE} kept:"))
    (finding,) = report.findings
    assert finding.location.line == 2 and "in block (1, 0, 0)" in finding.detail
    assert "before these columns of tensor memory are released" in finding.detail


def test_a_pair_needs_two_blocks(machine):
    with pytest.raises(UnsupportedError, match="a block that has no other"):
        run(machine, BODY, cluster=(1, 1, 1))


def shape_of(rows, columns):
    return f"mov.b32 %r32, {1 << 4 | columns // 8 << 17 | rows // 16 << 24};"


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("dealloc.cta_group::2", "dealloc.cta_group::1"), "groups of one block and of two"),
        (("[%r30], %d6,", "[%r30], [%r30],"), "its left factor in tensor memory"),
        ((shape_of(128, 32), shape_of(64, 32)), "its instruction descriptor"),
        ((shape_of(128, 32), shape_of(128, 24)), "its instruction descriptor"),
    ],
)  # fmt: skip
def test_what_is_refused(machine, change, match):
    body = pair_body(128)
    assert change[0] in body
    with pytest.raises(UnsupportedError, match=match):
        run(machine, body.replace(*change), 128)
