"""What kernels that hand work to units must not do, and how it shows."""

import pytest
import torch

from .test_tensor_cores import (
    COLUMNS,
    MEMORY_BYTES,
    ROWS,
    THREADS,
    moderate,
    placed,
    tensor_body,
    wgmma_body,
)

MATRICES = placed(False, 64), placed(False, 64, left=False)
WGMMA = wgmma_body("f16", MATRICES)
TENSOR = tensor_body("f16", MATRICES, 128)


def run(machine, body, shared_bytes=MEMORY_BYTES + 16):
    out = torch.zeros(COLUMNS, THREADS, dtype=torch.int32)
    data = moderate("f16")
    report = machine.assembled(body, data, out, threads=THREADS, shared_bytes=shared_bytes)
    return out.view(torch.float32), report


def kinds(report, opcode):
    return {finding.kind for finding in report.findings if finding.opcode.startswith(opcode)}


BOTH = pytest.mark.parametrize(
    ("body", "opcode"), [(WGMMA, "wgmma"), (TENSOR, "tcgen05.mma")], ids=["wgmma", "tcgen05"]
)


@BOTH
def test_a_missing_barrier_before_a_product(machine, body, opcode):
    """Other warps write to a factor, and nothing orders that before the product."""
    store = "st.shared.b32 [%r6+9216], %r2;"
    late = body.replace("mov.b64 %d6", f"{store} mov.b64 %d6")
    ordered = body.replace("mov.b64 %d6", f"{store} bar.sync 0; mov.b64 %d6")
    assert kinds(run(machine, late)[1], opcode) == {"barrier"}
    assert not kinds(run(machine, ordered)[1], opcode)


def test_a_missing_barrier_that_comes_too_late(machine):
    """The product is handed over before the barrier, though it happens after it."""
    store = "st.shared.b32 [%r6+9216], %r2;"
    body = TENSOR.replace("mov.b64 %d6", f"{store} mov.b64 %d6")
    body = body.replace("mov.b32 %r36, 0;", "bar.sync 0; mov.b32 %r36, 0;")
    assert kinds(run(machine, body)[1], "tcgen05.mma") == {"barrier"}


@BOTH
def test_factors_that_nobody_wrote(machine, body, opcode):
    lines = body.splitlines()
    stores = [line for line in lines if "st.shared.v4" in line]
    body = body.replace(stores[-3], "")
    assert kinds(run(machine, body)[1], opcode) == {"uninitialised_read"}


@BOTH
def test_factors_outside_shared_memory(machine, body, opcode):
    right = MATRICES[1]
    far = body.replace(f"mov.b64 %d7, {word_of(body)}", f"mov.b64 %d7, {word_of(body) | 0x3F00}")
    assert right.start and far != body
    assert kinds(run(machine, far)[1], opcode) == {"out_of_bounds"}


def word_of(body):
    """The right factor's descriptor."""
    return int(body.split("mov.b64 %d7, ")[1].split(";")[0])


def test_factors_that_change_before_the_product_is_waited_for(machine):
    """Tensor cores work when all wait: what is overwritten before is what they read."""
    spoil = """
    bar.sync 0;
    st.shared.b32 [%r6+9216], 0;
    mov.b32 %r36, 0;
    """
    spoiled, report = run(machine, TENSOR.replace("mov.b32 %r36, 0;", spoil))
    assert not torch.equal(spoiled, run(machine, TENSOR)[0])
    assert "barrier" in kinds(report, "tcgen05.mma")


def test_results_that_are_not_waited_for(machine):
    head, rest = TENSOR.split("wait:\n")
    tail = rest.split("bra wait;")[1]
    early, report = run(machine, head + tail)
    assert early.isnan().all(), "tensor memory holds what it held before: all ones"
    assert kinds(report, "tcgen05.ld") == {"uninitialised_read"}


def test_columns_that_are_not_allocated(machine):
    beyond = TENSOR.replace("tcgen05.ld.sync", "add.s32 %r31, %r31, 56;\n tcgen05.ld.sync")
    assert "out_of_bounds" in kinds(run(machine, beyond)[1], "tcgen05.ld")
    after = TENSOR.replace("bra wait;", """bra wait;
    bar.sync 0;
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 64;
    bar.sync 0;""").rsplit("@%p1 tcgen05.dealloc", 1)  # fmt: skip
    freed = after[0] + after[1].split(";", 1)[1]
    assert kinds(run(machine, freed)[1], "tcgen05.ld") == {"out_of_bounds"}


def test_more_columns_than_there_are(machine):
    more = "\n".join(
        f"@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r34], {count};"
        for count in (512, 64)
    )
    body = TENSOR.replace(
        "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r34], 64;", more
    )
    assert "out_of_bounds" in kinds(run(machine, body)[1], "tcgen05.alloc")


def test_lanes_of_another_warp(machine):
    body = TENSOR.replace("shl.b32 %r35, %r35, 16;", "shl.b32 %r35, %r35, 16; mov.b32 %r35, 0;")
    report = run(machine, body)[1]
    (finding,) = (f for f in report.findings if f.opcode.startswith("tcgen05.ld"))
    assert finding.kind == "out_of_bounds"
    assert ROWS < 128
