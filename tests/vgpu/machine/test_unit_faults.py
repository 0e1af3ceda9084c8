"""What kernels that hand work to units must not do, and how it shows."""

import pytest
import torch

from .test_tensor_cores import (
    COLUMNS,
    MEMORY_BYTES,
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
    order = "fence.proxy.async.shared::cta; bar.sync 0;"
    ordered = body.replace("mov.b64 %d6", f"{store} {order} mov.b64 %d6")
    assert "barrier" in kinds(run(machine, late)[1], opcode)
    assert not kinds(run(machine, ordered)[1], opcode)


def test_a_missing_barrier_that_comes_too_late(machine):
    """The product is handed over before the barrier, though it happens after it."""
    store = "st.shared.b32 [%r6+9216], %r2;"
    body = TENSOR.replace("mov.b64 %d6", f"{store} mov.b64 %d6")
    body = body.replace("mov.b32 %r36, 0;", "bar.sync 0; mov.b32 %r36, 0;")
    assert "barrier" in kinds(run(machine, body)[1], "tcgen05.mma")


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
    assert kinds(report, "tcgen05.ld") == {"uninitialised_read", "asynchronous"}


ALLOCATE = "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r34], 64;"
RELEASE = "@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 64;"
RELINQUISH = "@%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
LOAD = "tcgen05.ld.sync"


def misuse(machine, body):
    """Where a kernel misuses a unit: opcodes with the words of the finding."""
    report = run(machine, body)[1]
    return {
        (f.opcode.split(".")[1], f.detail.split(",")[0])
        for f in report.findings
        if f.kind == "asynchronous"
    }


def test_columns_that_are_not_allocated(machine):
    unallocated = "columns of tensor memory are used that are not allocated"
    beyond = TENSOR.replace(LOAD, f"add.s32 %r31, %r31, 56;\n {LOAD}")
    assert misuse(machine, beyond) == {("ld", unallocated)}
    kept, rest = TENSOR.rsplit(RELEASE, 1)
    freed = kept.replace(LOAD, f"bar.sync 0; {RELEASE} bar.sync 0; {LOAD}") + rest
    assert misuse(machine, freed) == {("ld", unallocated)}


def test_columns_that_are_not_released(machine):
    kept = TENSOR.replace(RELEASE, "")
    words = "the block ends before these columns of tensor memory are released"
    assert misuse(machine, kept) == {("alloc", words)}


def test_columns_that_are_released_in_another_way(machine):
    words = "columns of tensor memory are released that were not allocated so"
    twice = TENSOR.replace(RELEASE, f"{RELEASE} {RELEASE}")
    assert misuse(machine, twice) == {("dealloc", words)}
    half = TENSOR.replace(RELEASE, RELEASE.replace("64", "32"))
    assert ("dealloc", words) in misuse(machine, half)


def test_more_columns_than_there_are(machine):
    words = "so many columns of tensor memory are not free"
    both = f"{ALLOCATE.replace('64', '512')} {ALLOCATE}"
    assert ("alloc", words) in misuse(machine, TENSOR.replace(ALLOCATE, both))
    odd = TENSOR.replace(ALLOCATE, ALLOCATE.replace("64", "96"))
    assert ("alloc", words) in misuse(machine, odd)


def test_the_right_to_allocate_is_given_up_once(machine):
    words = "the block has given up its right to allocate tensor memory"
    once = TENSOR.replace(ALLOCATE, f"{ALLOCATE} {RELINQUISH}")
    assert misuse(machine, once) == set()
    twice = once.replace(RELINQUISH, f"{RELINQUISH} {RELINQUISH}")
    assert misuse(machine, twice) == {("relinquish_alloc_permit", words)}
    before = TENSOR.replace(ALLOCATE, f"{RELINQUISH} {ALLOCATE}")
    assert misuse(machine, before) == {("alloc", words)}


def test_lanes_of_another_warp(machine):
    foreign = TENSOR.replace("shl.b32 %r35, %r35, 16;", "mov.b32 %r35, 0;")
    words = "lanes of tensor memory are used that belong to another warp"
    assert misuse(machine, foreign) == {("ld", words)}


def test_a_product_that_nobody_waits_for(machine):
    """The loads come before it, and the block ends before it."""
    head, rest = TENSOR.split("wait:\n")
    found = misuse(machine, head + rest.split("bra wait;")[1])
    under_way = "a product that works on these columns has not been waited for"
    assert ("ld", under_way) in found and ("dealloc", under_way) in found


def test_units_may_be_early(machine):
    """What no wait orders comes out another way; what is ordered does not."""
    head, rest = TENSOR.split("wait:\n")
    careless = head + rest.split("bra wait;")[1]
    outputs = {}
    for name, body in (("right", TENSOR), ("wrong", careless)):
        for early in (False, True):
            out = torch.zeros(COLUMNS, THREADS, dtype=torch.int32)
            machine.assembled(
                body, moderate("f16"), out, threads=THREADS, shared_bytes=MEMORY_BYTES + 16,
                early=early,
            )  # fmt: skip
            outputs[name, early] = out[:, :32]  # of the warp that hands the products over
    assert torch.equal(outputs["right", False], outputs["right", True])
    assert torch.equal(outputs["wrong", True], outputs["right", True])
    assert not torch.equal(outputs["wrong", False], outputs["wrong", True])


@BOTH
def test_a_missing_fence_between_threads_and_units(machine, body, opcode):
    """Threads wrote the factors; without the fence a unit need not see that."""
    report = run(machine, body.replace("fence.proxy.async.shared::cta;", ""))[1]
    assert kinds(report, opcode) == {finding.kind for finding in report.findings}
    assert {finding.kind for finding in report.findings} == {"asynchronous"}
    assert all("is read without fence.proxy.async" in f.detail for f in report.findings)


def test_the_fence_may_follow_the_barrier(machine):
    """It is enough that the warp that hands the work over makes it."""
    fence = "fence.proxy.async.shared::cta;"
    body = TENSOR.replace(fence, "").replace("mov.b64 %d6", f"@%p1 {fence} mov.b64 %d6")
    assert misuse(machine, body) == set()
    before = WGMMA.replace(fence, "").replace("mov.b64 %d6", f"{fence} mov.b64 %d6")
    assert misuse(machine, before) == set()


def test_stores_to_tensor_memory_are_waited_for(machine):
    body = tensor_body("f16", MATRICES, 128, left_in_memory=True)
    words = "a store to these columns of tensor memory has not been waited for"
    assert misuse(machine, body) == set()
    early = body.replace("tcgen05.wait::st.sync.aligned;", "")
    assert misuse(machine, early) == {("mma", words)}


def test_registers_that_a_unit_still_fills(machine):
    words = "a register is used before what fills it has been waited for"
    for kept in ("wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"):
        assert misuse(machine, WGMMA.replace(kept, "")) == {("global", words)}
    early = TENSOR.replace("tcgen05.wait::ld.sync.aligned;", "")
    assert misuse(machine, early) == {("global", words)}


def test_registers_that_change_without_a_fence(machine):
    words = "registers of the product have changed since the last wgmma.fence"
    body = WGMMA.replace("wgmma.fence.sync.aligned;", "")
    assert misuse(machine, body) == {("mma_async", words)}


def test_factors_that_change_before_the_group_is_waited_for(machine):
    """`wgmma` may still read what another warp writes to after a barrier."""
    spoil = "bar.sync 0; st.shared.b32 [%r6+9216], 0;"
    wait = "wgmma.wait_group.sync.aligned 0;"
    early = WGMMA.replace(wait, f"{spoil} {wait}")
    late = WGMMA.replace(wait, f"{wait} {spoil}")
    assert "barrier" in kinds(run(machine, early)[1], "wgmma")
    assert not run(machine, late)[1].findings
