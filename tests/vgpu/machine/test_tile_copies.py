"""Copies of tiles, element by element: every rank, swizzle and edge."""

import itertools

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.tensor_maps import encode
from lethe_env.vgpu.ptx.model import UnsupportedError

THREADS, SHARED_BYTES = 128, 8192
BARRIER = SHARED_BYTES
TYPES = {
    "u8": (0, torch.uint8), "u16": (1, torch.int16), "u32": (2, torch.int32),
    "s32": (3, torch.int32), "s64": (5, torch.int64), "f16": (6, torch.float16),
    "f32": (7, torch.float32), "bf16": (10, torch.bfloat16),
}  # fmt: skip
"""What a tensor map calls an element type."""


def places(box, size, swizzle):
    """Offset in shared memory of every element of a tile, by its indices, innermost first."""
    width = 16 << swizzle if swizzle else 16
    for number, outer in enumerate(itertools.product(*(range(b) for b in reversed(box)))):
        offset = number * size
        yield outer[::-1], offset ^ (offset // 128 % (width // 16)) * 16


def map_of(machine, tensor, box, kind, swizzle=0, nan=False):
    """A tensor map in memory; the tensor's dimensions are torch's, outermost first."""
    address = machine.memory.pointer(tensor).address
    size = tensor.element_size()
    strides = [stride * size for stride in reversed(tensor.stride()[:-1])]
    data = encode(address, TYPES[kind][0], tensor.shape[::-1], strides, box, swizzle, nan)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def coordinates(origin):
    registers = [f"%r{10 + k}" for k in range(len(origin))]
    moves = "\n".join(f"mov.b32 {r}, {at};" for r, at in zip(registers, origin, strict=True))
    return moves, "{" + ", ".join(registers) + "}"


COPY_OUT = """
shl.b32 %r6, %r1, 2;
add.s64 %d4, %d2, %d21;
"""


def load_body(origin, total_bytes):
    moves, vector = coordinates(origin)
    steps = "\n".join(
        f"ld.shared.b32 %r2, [%r6+{at}]; st.global.b32 [%d4+{at}], %r2;"
        for at in range(0, total_bytes, 4 * THREADS)
    )
    return f"""
    setp.eq.u32 %p1, %r1, 0;
    setp.lt.u32 %p3, %r1, {total_bytes // 4};
    mov.b32 %r5, {BARRIER};
    @%p1 mbarrier.init.shared::cta.b64 [%r5], 1;
    fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.b32 %r4, 0;
    {moves}
    @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {total_bytes};
    @%p1 cp.async.bulk.tensor.{len(origin)}d.shared::cta.global.mbarrier::complete_tx::bytes
        [%r4], [%d1, {vector}], [%r5];
    wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r5], %r4;
    @!%p2 bra wait;
    {COPY_OUT}
    @!%p3 bra done;
    {steps}
    done:
    """


def store_body(origin, total_bytes, operation=None):
    moves, vector = coordinates(origin)
    steps = "\n".join(
        f"ld.global.b32 %r2, [%d4+{at}]; st.shared.b32 [%r6+{at}], %r2;"
        for at in range(0, total_bytes, 4 * THREADS)
    )
    kind = f"cp.reduce.async.bulk.tensor.{len(origin)}d.global.shared::cta.{operation}.bulk_group"
    if operation is None:
        kind = f"cp.async.bulk.tensor.{len(origin)}d.global.shared::cta.bulk_group"
    return f"""
    setp.eq.u32 %p1, %r1, 0;
    setp.lt.u32 %p3, %r1, {total_bytes // 4};
    {COPY_OUT}
    @!%p3 bra done;
    {steps}
    done:
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.b32 %r4, 0;
    {moves}
    @%p1 {kind} [%d1, {vector}], [%r4];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    """


def filled(shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-100, 100, shape, generator=generator)
    return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)


CASES = [
    # type, shape and tile (innermost first), where the tile begins, swizzle
    ("f32", (40,), (16,), (8,), 0),
    ("f32", (42,), (16,), (30,), 0),
    ("f16", (40, 9), (32, 8), (-3, 4), 2),
    ("bf16", (72, 12), (64, 8), (5, -2), 3),
    ("u8", (48, 20), (32, 16), (7, 9), 1),
    ("s32", (8, 6, 5), (4, 3, 4), (2, -1, 3), 0),
    ("u16", (24, 4, 3, 3), (16, 2, 2, 2), (9, 3, -1, 2), 1),
    ("s64", (6, 3, 3, 2, 3), (2, 2, 2, 2, 2), (5, 2, 1, 1, -1), 0),
    ("f32", (8, 8), (8, 8), (20, 20), 0),
]


def padded(shape, kind):
    """A tensor whose rows are multiples of 16 bytes apart, with nothing to see in between."""
    dtype = TYPES[kind][1]
    size = torch.empty(0, dtype=dtype).element_size()
    row = -(-shape[0] * size // 16) * 16 // size
    return filled((*shape[:0:-1], row), dtype)[..., : shape[0]]


FILLED = [(case, False) for case in CASES]
FILLED += [(case, True) for case in CASES if case[0] in ("f16", "bf16", "f32")]
"""What lies outside becomes zero, or NaN."""


@pytest.mark.parametrize(("case", "nan"), FILLED, ids=str)
def test_loads(machine, case, nan):
    kind, shape, box, origin, swizzle = case
    source = padded(shape, kind)
    size, total = source.element_size(), int(np.prod(box)) * source.element_size()
    out = torch.zeros(total, dtype=torch.uint8)
    tensor_map = map_of(machine, source, box, kind, swizzle, nan)
    report = machine.assembled(load_body(origin, total), tensor_map, out, threads=THREADS,
                               shared_bytes=SHARED_BYTES + 8)  # fmt: skip
    found = out.view(source.dtype)
    for index, offset in places(box, size, swizzle):
        at = tuple(o + i for o, i in zip(origin, index, strict=True))
        inside = all(0 <= a < length for a, length in zip(at, shape, strict=True))
        value = found[offset // size]
        if inside:
            assert value == source[at[::-1]]
        else:
            assert value.isnan() if nan else value == 0
    assert report.findings == ()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_stores(machine, case):
    kind, shape, box, origin, swizzle = case
    target = padded(shape, kind)
    before = target.clone()
    size, total = target.element_size(), int(np.prod(box)) * target.element_size()
    tile = filled((total // size,), target.dtype, seed=1)
    tensor_map = map_of(machine, target, box, kind, swizzle)
    report = machine.assembled(store_body(origin, total), tensor_map, tile, threads=THREADS,
                               shared_bytes=SHARED_BYTES)  # fmt: skip
    for index, offset in places(box, size, swizzle):
        at = tuple(o + i for o, i in zip(origin, index, strict=True))
        if all(0 <= a < length for a, length in zip(at, shape, strict=True)):
            before[at[::-1]] = tile[offset // size]
    assert torch.equal(target, before)
    assert report.findings == ()


OPERATIONS = {
    "add": torch.add, "min": torch.minimum, "max": torch.maximum, "and": torch.bitwise_and,
    "or": torch.bitwise_or, "xor": torch.bitwise_xor,
}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "kind"),
    [*itertools.product(OPERATIONS, ("s32", "s64")), ("add", "f32"), ("add", "f16"),
     ("add", "bf16")],
)  # fmt: skip
def test_reductions(machine, operation, kind):
    target = padded((10, 6), kind)
    expected = target.clone()
    box, origin = (8, 4), (4, 3)
    size = target.element_size()
    tile = filled((32,), target.dtype, seed=1)
    tensor_map = map_of(machine, target, box, kind)
    body = store_body(origin, 32 * size, operation)
    report = machine.assembled(body, tensor_map, tile, threads=THREADS, grid=(2,),
                               shared_bytes=SHARED_BYTES)  # fmt: skip
    part = expected[3:6, 4:10]
    for _ in range(2):
        part[:] = OPERATIONS[operation](part, tile.view(4, 8)[:3, :6])
    assert torch.equal(target, expected)
    assert report.findings == ()


def test_a_tile_that_is_not_waited_for(machine):
    source = padded((32, 8), "f16")
    tensor_map = map_of(machine, source, (32, 8), "f16")
    head, rest = load_body((0, 0), 512).split("wait:\n")
    out = torch.zeros(512, dtype=torch.uint8)
    report = machine.assembled(head + rest.split("bra wait;")[1], tensor_map, out,
                               threads=THREADS, shared_bytes=SHARED_BYTES + 8)  # fmt: skip
    assert (out == 0xFF).all(), "shared memory holds what it held before: all ones"
    assert "uninitialised_read" in {finding.kind for finding in report.findings}


OTHER = BARRIER + 8
"""Another barrier."""
WAIT_FOR_OTHER = f"mov.b32 %r5, {OTHER};"
OTHER_WORK = {
    "a later copy": f"""
        mov.b32 %r7, 2048; mov.b32 %r8, {OTHER};
        @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 512;
        @%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
            [%r7], [%d1, {{%r10, %r11}}], [%r8];
        {WAIT_FOR_OTHER}""",
    "tensor cores": f"""
        mov.b32 %r8, {OTHER};
        @%p1 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
        {WAIT_FOR_OTHER}""",
    "a store": """
        shl.b32 %r7, %r1, 2;
        st.shared.b32 [%r7+2048], 0;
        fence.proxy.async.shared::cta;
        bar.sync 0;
        mov.b32 %r7, 2048;
        @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%d1, {%r10, %r11}], [%r7];
        cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;""",
}
"""What is handed over after a copy, and waited for in its place."""


@pytest.mark.parametrize("other", OTHER_WORK)
def test_waiting_for_something_else_brings_no_tile(machine, other):
    source = padded((32, 8), "f16")
    tensor_map = map_of(machine, source, (32, 8), "f16")
    head, rest = load_body((0, 0), 512).split("wait:\n")
    make = "@%p1 mbarrier.init.shared::cta.b64"
    head = head.replace("bar.sync 0;", f"{make} [%r5+8], 1;\nbar.sync 0;", 1)
    rest = rest.split("bra wait;")[1] if other == "a store" else f"wait:\n{rest}"
    out = torch.zeros(512, dtype=torch.uint8)
    report = machine.assembled(head + OTHER_WORK[other] + rest, tensor_map, out,
                               threads=THREADS, shared_bytes=SHARED_BYTES + 16)  # fmt: skip
    assert (out == 0xFF).all(), "shared memory holds what it held before: all ones"
    assert "uninitialised_read" in {finding.kind for finding in report.findings}


def test_a_tile_that_changes_before_it_is_stored(machine):
    target = padded((32, 8), "f16")
    tensor_map = map_of(machine, target, (32, 8), "f16")
    body = store_body((0, 0), 512)
    early = body.replace("cp.async.bulk.commit_group;", "st.shared.b32 [%r6], 0;\n"
                         "bar.sync 0;\n cp.async.bulk.commit_group;")  # fmt: skip
    tile = filled((256,), torch.float16, seed=1)
    machine.assembled(early, tensor_map, tile, threads=THREADS, shared_bytes=SHARED_BYTES)
    assert (target == 0).all()


def test_a_tensor_beyond_its_memory(machine):
    source = padded((32, 8), "f16")
    address = machine.memory.pointer(source).address
    data = encode(address, 6, (32, 9), [64], (32, 8), 0, False)
    tensor_map = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    out = torch.zeros(512, dtype=torch.uint8)
    report = machine.assembled(load_body((0, 4), 512), tensor_map, out, threads=THREADS,
                               shared_bytes=SHARED_BYTES + 8)  # fmt: skip
    (finding,) = report.findings
    assert finding.kind == "out_of_bounds" and finding.opcode.startswith("cp.async.bulk.tensor")


def test_two_blocks_that_store_one_tile(machine):
    target = padded((32, 8), "f16")
    tensor_map = map_of(machine, target, (32, 8), "f16")
    tiles = filled((2, 256), torch.float16, seed=1)
    body = store_body((0, 0), 512).replace(
        "add.s64 %d4, %d2, %d21;",
        "mov.u32 %r20, %ctaid.x; mul.wide.u32 %d5, %r20, 512; add.s64 %d2, %d2, %d5;"
        "add.s64 %d4, %d2, %d21;",
    )
    report = machine.assembled(body, tensor_map, tiles, target, threads=THREADS, grid=(2,),
                               shared_bytes=SHARED_BYTES)  # fmt: skip
    assert {finding.kind for finding in report.findings} == {"race"}


def test_what_a_map_asks_for_is_refused_if_it_is_not_implemented(machine):
    source = padded((32, 8), "f32")
    address = machine.memory.pointer(source).address
    data = encode(address, 11, (32, 8), [128], (4, 8), 0, False)
    tensor_map = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    with pytest.raises(UnsupportedError, match="a tensor map"):
        machine.assembled(load_body((0, 0), 128), tensor_map, torch.zeros(32), threads=THREADS,
                          shared_bytes=SHARED_BYTES + 8)  # fmt: skip


MULTICAST = "mbarrier::complete_tx::bytes.multicast::cluster"


def test_a_copy_to_all_blocks_of_a_cluster_reaches_the_only_one(machine):
    source = filled((8, 32), torch.float32)
    out = torch.zeros(128, dtype=torch.uint8)
    body = load_body((0, 0), 128).replace("shared::cta.global", "shared::cluster.global")
    body = body.replace("mbarrier::complete_tx::bytes", MULTICAST)
    body = body.replace("[%r5];\n    wait:", "[%r5], %h1;\n    wait:")
    assert body.count(MULTICAST) == body.count("%h1") == 1
    body = "mov.b16 %h1, 1;" + body
    report = machine.assembled(body, map_of(machine, source, (4, 8), "f32"), out,
                               threads=THREADS, shared_bytes=SHARED_BYTES + 8)  # fmt: skip
    assert report.findings == ()
    assert torch.equal(out.view(torch.float32), source[:8, :4].flatten())


PREFETCH = "@%p1 cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d1, {%r10, %r11}];\n    "


def test_a_prefetch_changes_nothing(machine):
    source = filled((8, 32), torch.float32)
    plain = load_body((0, 0), 128)
    body = plain.replace("@%p1 mbarrier.arrive", f"{PREFETCH}@%p1 mbarrier.arrive")
    size = {"threads": THREADS, "shared_bytes": SHARED_BYTES + 8}
    reports = []
    for text in (plain, body):
        out = torch.zeros(128, dtype=torch.uint8)
        given = map_of(machine, source, (4, 8), "f32"), out
        reports.append(machine.assembled(text, *given, **size))
        assert torch.equal(out.view(torch.float32), source[:8, :4].flatten())
        assert reports[-1].findings == ()
    first, second = (report.counts["loaded_bytes"] for report in reports)
    assert first == second
    with pytest.raises(UnsupportedError, match="im2col"):
        machine.assembled(body.replace("global.tile", "global.im2col"), *given, **size)
