"""A cell of the sanitizer stands for what the narrowest access moves, and tells warps apart."""

from __future__ import annotations

import pytest

from lethe_env.vgpu.machine.granules import granule_bits
from lethe_env.vgpu.ptx.parser import parse

WIDE = "st.shared.v4.b32 [%r1], {%r2,%r2,%r2,%r2};"


@pytest.mark.parametrize(
    ("body", "shared"),
    [
        (WIDE, 4),
        (WIDE + "cp.async.cg.shared.global [%r1], [%d1], 16;", 4),
        (WIDE + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r1];", 4),
        (WIDE + "ld.shared.v2.b32 {%r2,%r3}, [%r1];", 3),
        (WIDE + "cp.async.ca.shared.global [%r1], [%d1], 8;", 3),
        (WIDE + "ld.b32 %r2, [%d1];", 2),
        (WIDE + "atom.shared.add.u32 %r2, [%r1], 1;", 2),
        (WIDE + "ld.shared.b16 %h1, [%r1];", 1),
        (WIDE + "mbarrier.init.shared.b64 [%r1], 1;", 2),
    ],
)
def test_bytes_of_a_cell_of_shared_memory(assembler, body, shared):
    kernel = parse(assembler(body, 1))
    assert granule_bits(kernel, "shared") == shared
    assert granule_bits(kernel, "global") <= 2


LINE = "and.b32 %r4, %r1, 31; shr.u32 %r3, %r1, 5; xor.b32 %r5, %r4, {order};"


@pytest.mark.parametrize("order", [0, 9])
@pytest.mark.parametrize(("words", "bits"), [(1, 2), (2, 3), (4, 4)])
@pytest.mark.parametrize(("apart", "found"), [(True, []), (False, ["barrier"])])
def test_warps_that_store_to_neighbouring_cells(machine, order, words, bits, apart, found):
    """Warps 0 and 1 take turns in a row of cells, or meet in the last one of warp 0's."""
    values = "%r1" if words == 1 else "{" + ", ".join(["%r1"] * words) + "}"
    suffix = "b32" if words == 1 else f"v{words}.b32"
    meet = "" if apart else "setp.eq.s32 %p1, %r1, 63; @%p1 mov.u32 %r6, 62;"
    body = f"""{LINE.format(order=order)} shl.b32 %r6, %r5, 1; add.s32 %r6, %r6, %r3; {meet}
    shl.b32 %r6, %r6, {bits}; st.shared.{suffix} [%r6], {values};"""
    report = machine.assembled(body, threads=64)
    assert [finding.kind for finding in report.findings] == found
    if found:
        assert report.findings[0].lanes == 1


def test_a_warp_whose_cells_others_have_read(machine):
    """All may read what one has written before the barrier; the last one may not store there."""
    body = """shl.b32 %r3, %r1, 2; and.b32 %r3, %r3, 127; xor.b32 %r3, %r3, 12;
    setp.lt.u32 %p1, %r1, 32; @%p1 st.shared.b32 [%r3], %r1; bar.sync 0;
    ld.shared.b32 %r4, [%r3]; {last}"""
    assert machine.assembled(body.replace("{last}", ""), threads=96).findings == ()
    late = "shr.u32 %r5, %r1, 5; setp.eq.u32 %p2, %r5, 1; @%p2 st.shared.b32 [%r3], %r1;"
    (finding,) = machine.assembled(body.replace("{last}", late), threads=96).findings
    assert (finding.kind, finding.lanes) == ("barrier", 32)
    assert "several other warps" in finding.detail
