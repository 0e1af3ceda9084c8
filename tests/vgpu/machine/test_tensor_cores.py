"""`wgmma` and `tcgen05` bit by bit: descriptors, fragments, tensor memory."""

import itertools
import re

import numpy as np
import pytest
import torch

from lethe_env.vgpu.ptx.model import UnsupportedError

from .matrices import SIZES, TORCH, Matrix, product

THREADS = 128
ROWS, COLUMNS = 64, 16
MEMORY_BYTES = 16384
LANES = np.arange(THREADS)

FILL = "\n".join(
    f"""
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%d5+{block}];
    st.shared.v4.b32 [%r6+{block}], {{%r2, %r3, %r4, %r5}};"""
    for block in range(0, MEMORY_BYTES, 16 * THREADS)
)
"""Copies the first parameter to shared memory."""
HEAD = f"""
shl.b64 %d4, %d20, 4;
add.s64 %d5, %d1, %d4;
shl.b32 %r6, %r1, 4;
{FILL}
fence.proxy.async.shared::cta;
bar.sync 0;
"""


def moderate(source, seed=0):
    """Elements of moderate size that fill shared memory, and their bytes."""
    generator = torch.Generator().manual_seed(seed)
    count = MEMORY_BYTES // SIZES[source]
    values = torch.randn(count, generator=generator).to(TORCH[source])
    return values.view(torch.uint8)


def results(registers):
    """The tile `[64, columns]` from registers `[register, thread]` of `wgmma`."""
    tile = np.zeros((ROWS, 2 * len(registers)), np.uint32)
    for number, register in enumerate(registers):
        group, half, odd = number // 4, number // 2 % 2, number % 2
        row = LANES // 32 * 16 + LANES % 32 // 4 + 8 * half
        tile[row, 8 * group + LANES % 4 * 2 + odd] = register
    return torch.from_numpy(tile.view("f4"))


def placed(across, width, left=True):
    """A matrix whose atoms lie apart, one of them begun within an atom where that is possible."""
    if across:
        rows = ROWS if left else COLUMNS
        return Matrix(0 if left else 8192, 1024 * (width != 16) + 384 * (width == 16),
                      1536 + 512 * (rows == COLUMNS), width, across)  # fmt: skip
    inner = 32 if width > 32 else 0
    return Matrix(
        (0 if left else 9216) + inner, 4096 + 256, 1024 - 512 * (width < 64), width, False
    )


LAYOUTS = [
    (source, across, width)
    for source in ("f16", "bf16", "tf32", "e5m2", "e4m3")
    for across in (False, True)
    for width in (16, 32, 64, 128)
    if not across or SIZES[source] == 2
]
HOPPER = {16: 0, 128: 1, 64: 2, 32: 3}
BLACKWELL = {16: 0, 128: 2, 64: 4, 32: 6}


def factors(matrices, data, source):
    """What lies in shared memory where a pair of descriptors points."""
    left, right = matrices
    memory = data.numpy()
    return left.read(memory, ROWS, source), right.read(memory, COLUMNS, source)


STEP = 40961
"""By which the bits of accumulators differ from thread to thread."""


def first_start(register):
    """Bits of the first thread's accumulator."""
    return register % 5 * 0x00800000 + 0x3F000000


def wgmma_body(source, matrices, left_registers=False, fresh=False):
    depth, types = 32 // SIZES[source], f"f32.{source}.{source}"
    left, right = matrices
    registers = [f"%r{8 + k}" for k in range(COLUMNS // 2)]
    starts = "\n".join(f"mad.lo.s32 {name}, %r1, {STEP}, {first_start(k)};"
                       for k, name in enumerate(registers))  # fmt: skip
    flags = ", 1, 1" + f", {int(left.across)}, {int(right.across)}" * (SIZES[source] == 2)
    first = "%d6"
    if left_registers:
        first = "{%r30, %r31, %r32, %r33}"
        flags = ", 1, 1" + f", {int(right.across)}" * (SIZES[source] == 2)
    stores = "\n".join(f"st.global.b32 [%d8+{4 * THREADS * k}], {name};"
                       for k, name in enumerate(registers))  # fmt: skip
    loads = "\n".join(f"ld.global.b32 %r{30 + k}, [%d9+{4 * THREADS * k}];" for k in range(4))
    return f"""
    {HEAD}
    add.s64 %d8, %d2, %d21;
    add.s64 %d9, %d1, %d21;
    {loads}
    {starts}
    mov.b64 %d6, {left.descriptor(HOPPER, 62)};
    mov.b64 %d7, {right.descriptor(HOPPER, 62)};
    setp.{"ne" if fresh else "eq"}.u32 %p1, %r1, %r1;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n{COLUMNS}k{depth}.{types} {{{", ".join(registers)}}},
        {first}, %d7, %p1{flags};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    {stores}
    """


def starts():
    """What the accumulators of `wgmma_body` hold."""
    firsts = np.array([first_start(k) for k in range(COLUMNS // 2)], np.uint32)
    return results(firsts[:, None] + np.uint32(STEP) * LANES.astype(np.uint32))


@pytest.mark.parametrize(("source", "across", "width"), LAYOUTS)
def test_wgmma(machine, source, across, width):
    matrices = placed(across, width), placed(across, width, left=False)
    data = moderate(source)
    out = torch.zeros(COLUMNS // 2, THREADS, dtype=torch.int32)
    body = wgmma_body(source, matrices)
    report = machine.assembled(body, data, out, threads=THREADS, shared_bytes=MEMORY_BYTES)
    left, right = factors(matrices, data, source)
    expected = product(left, right, starts(), source, short=SIZES[source] == 1)
    assert torch.equal(results(out.numpy().view("u4")), expected)
    assert report.findings == ()


@pytest.mark.parametrize("source", ["f16", "tf32", "e4m3"])
def test_wgmma_with_a_factor_in_registers(machine, source):
    matrices = placed(False, 64), placed(False, 64, left=False)
    data = moderate(source)
    out = torch.zeros(COLUMNS // 2, THREADS, dtype=torch.int32)
    body = wgmma_body(source, matrices, left_registers=True, fresh=True)
    machine.assembled(body, data, out, threads=THREADS, shared_bytes=MEMORY_BYTES)
    words = data.numpy()[: 16 * THREADS].view("u4").reshape(4, THREADS)
    left = np.zeros((ROWS, 8), np.uint32)
    for number, register in enumerate(words):
        row = LANES // 32 * 16 + LANES % 32 // 4 + 8 * (number % 2)
        left[row, LANES % 4 + 4 * (number // 2)] = register
    left = torch.from_numpy(left.view("u1")).view(TORCH[source])
    right = matrices[1].read(data.numpy(), COLUMNS, source)
    zeros = torch.zeros(ROWS, COLUMNS)
    expected = product(left, right, zeros, source, short=SIZES[source] == 1)
    assert torch.equal(results(out.numpy().view("u4")), expected)


def test_wgmma_of_infinities_and_tiny_numbers(machine):
    """Bits that f32 products cannot hold take another way to the same model."""
    matrices = placed(False, 128), placed(False, 128, left=False)
    random = np.random.default_rng(0)
    data = torch.from_numpy(random.integers(0, 256, MEMORY_BYTES, dtype=np.uint8))
    out = torch.zeros(COLUMNS // 2, THREADS, dtype=torch.int32)
    machine.assembled(
        wgmma_body("bf16", matrices), data, out, threads=THREADS, shared_bytes=MEMORY_BYTES
    )
    left, right = factors(matrices, data, "bf16")
    expected = product(left, right, starts(), "bf16").view(torch.int32)
    assert torch.equal(results(out.numpy().view("u4")).view(torch.int32), expected)


def tensor_body(source, matrices, rows, steps=2, left_in_memory=False):
    """`steps` equal products, the first of them fresh, of which the results are stored."""
    left, right = matrices
    formats = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1}[source]
    kind = {"tf32": "tf32", "e4m3": "f8f6f4", "e5m2": "f8f6f4"}.get(source, "f16")
    shape = 1 << 4 | formats << 7 | formats << 10 | COLUMNS // 8 << 17 | rows // 16 << 24
    shape |= left.across << 15 | right.across << 16
    registers = [f"%r{8 + k}" for k in range(COLUMNS)]
    stores = "\n".join(f"st.global.b32 [%d8+{4 * THREADS * k}], {name};"
                       for k, name in enumerate(registers))  # fmt: skip
    loads = "\n".join(f"ld.global.b32 %r{8 + k}, [%d9+{4 * THREADS * k}];" for k in range(8))
    first, place = "%d6", ""
    if left_in_memory:
        first = "[%r30+32]"
        place = f"""{loads}
        add.s32 %r33, %r31, 32;
        tcgen05.st.sync.aligned.32x32b.x8.b32 [%r33], {{{", ".join(registers[:8])}}};
        tcgen05.wait::st.sync.aligned;"""
    mark = 1 << 46
    products = "\n".join(
        f"@%p2 tcgen05.mma.cta_group::1.kind::{kind} [%r30], {first}, %d7, %r32, %p{3 + (k > 0)};"
        for k in range(steps)
    )
    barrier = MEMORY_BYTES
    return f"""
    {HEAD}
    add.s64 %d8, %d2, %d21;
    add.s64 %d9, %d1, %d21;
    setp.lt.u32 %p1, %r1, 32;
    setp.eq.u32 %p2, %r1, 0;
    setp.ne.u32 %p3, %r1, %r1;
    setp.eq.u32 %p4, %r1, %r1;
    mov.b32 %r34, {barrier};
    @%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r34], 64;
    bar.sync 0;
    ld.shared.b32 %r30, [%r34];
    @%p2 mbarrier.init.shared::cta.b64 [%r34+8], 1;
    and.b32 %r35, %r1, 96;
    shl.b32 %r35, %r35, 16;
    add.s32 %r31, %r30, %r35;
    {place}
    bar.sync 0;
    mov.b64 %d6, {left.descriptor(BLACKWELL, 61) | mark};
    mov.b64 %d7, {right.descriptor(BLACKWELL, 61) | mark};
    mov.b32 %r32, {shape};
    {products}
    @%p2 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r34+8];
    mov.b32 %r36, 0;
    wait:
    mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r34+8], %r36;
    @!%p5 bra wait;
    tcgen05.ld.sync.aligned.32x32b.x{COLUMNS}.b32 {{{", ".join(registers)}}}, [%r31];
    tcgen05.wait::ld.sync.aligned;
    bar.sync 0;
    @%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 64;
    {stores}
    """


def lanes_of(rows):
    """The lanes of tensor memory that hold rows."""
    row = np.arange(rows)
    return row if rows == 128 else row // 16 * 32 + row % 16


@pytest.mark.parametrize(("source", "across", "width"), LAYOUTS)
def test_products_in_tensor_memory(machine, source, across, width):
    matrices = placed(across, width), placed(across, width, left=False)
    data = moderate(source)
    out = torch.zeros(COLUMNS, THREADS, dtype=torch.int32)
    report = machine.assembled(
        tensor_body(source, matrices, ROWS), data, out,
        threads=THREADS, shared_bytes=MEMORY_BYTES + 16,
    )  # fmt: skip
    left, right = factors(matrices, data, source)
    expected = torch.zeros(ROWS, COLUMNS)
    for _ in range(2):
        expected = product(left, right, expected, source)
    assert torch.equal(out.view(torch.float32).T[lanes_of(ROWS)], expected)
    undefined = {f.kind for f in report.findings}
    assert undefined == {"uninitialised_read"}, "half of the lanes hold no row, and are loaded"


@pytest.mark.parametrize("source", ["f16", "tf32", "e5m2"])
def test_a_factor_in_tensor_memory(machine, source):
    matrices = placed(False, 64), placed(False, 64, left=False)
    data = moderate(source)
    out = torch.zeros(COLUMNS, THREADS, dtype=torch.int32)
    body = tensor_body(source, matrices, 128, left_in_memory=True)
    report = machine.assembled(body, data, out, threads=THREADS, shared_bytes=MEMORY_BYTES + 16)
    words = data.numpy()[: 32 * THREADS].view("u4").reshape(8, THREADS).T.copy()
    left = torch.from_numpy(words.view("u1")).view(TORCH[source])
    right = matrices[1].read(data.numpy(), COLUMNS, source)
    expected = torch.zeros(128, COLUMNS)
    for _ in range(2):
        expected = product(left, right, expected, source)
    assert torch.equal(out.view(torch.float32).T, expected)
    assert report.findings == ()


def with_signs(body, left, right):
    """Signs of factors that are known only while the kernel runs; `%p3` is false, `%p4` true."""
    shape = int(re.search(r"mov.b32 %r32, (\d+);", body)[1])
    turned = [f"%p{4 if turns else 3}" for turns in (left, right)]
    words = f"""
    selp.b32 %r37, {1 << 13}, 0, {turned[0]};
    selp.b32 %r38, {shape | 1 << 14}, {shape}, {turned[1]};
    or.b32 %r32, %r37, %r38;"""
    return body.replace(f"mov.b32 %r32, {shape};", words)


@pytest.mark.parametrize(
    ("left_turns", "right_turns"), [(True, False), (False, True), (True, True)]
)
def test_products_of_factors_whose_signs_turn(machine, left_turns, right_turns):
    matrices = placed(False, 64), placed(False, 64, left=False)
    data = moderate("f16")
    out = torch.zeros(COLUMNS, THREADS, dtype=torch.int32)
    body = with_signs(tensor_body("f16", matrices, 128, steps=1), left_turns, right_turns)
    report = machine.assembled(body, data, out, threads=THREADS, shared_bytes=MEMORY_BYTES + 16)
    left = matrices[0].read(data.numpy(), 128, "f16")
    right = matrices[1].read(data.numpy(), COLUMNS, "f16")
    sign = (-1) ** (left_turns + right_turns)
    expected = product(sign * left, right, torch.zeros(128, COLUMNS), "f16")
    assert torch.equal(out.view(torch.float32).T, expected)
    assert report.findings == ()


def test_products_that_leave_out_lanes(machine):
    """An empty mask is none; another one is refused when it comes."""
    matrices = placed(False, 64), placed(False, 64, left=False)
    data = moderate("f16")
    body = tensor_body("f16", matrices, 128, steps=1)
    masked = body.replace("%r32, %p3;", "%r32, {%r36, %r36, %r36, %r36}, %p3;")
    masked = masked.replace(".kind::f16 [", ".kind::f16.collector::a::discard [")
    results = []
    for text in (body, masked.replace("mov.b32 %r32", "mov.b32 %r36, 0; mov.b32 %r32")):
        results.append(torch.zeros(COLUMNS, THREADS, dtype=torch.int32))
        machine.assembled(text, data, results[-1], threads=THREADS,
                          shared_bytes=MEMORY_BYTES + 16)  # fmt: skip
    assert torch.equal(*results)
    with pytest.raises(UnsupportedError, match="a tensor-core product that leaves out lanes"):
        machine.assembled(masked.replace("mov.b32 %r32", "mov.b32 %r36, 4; mov.b32 %r32"), data,
                          results[0], threads=THREADS, shared_bytes=MEMORY_BYTES + 16)  # fmt: skip


def test_a_shape_that_depends_on_data_is_refused(machine):
    matrices = placed(False, 64), placed(False, 64, left=False)
    body = tensor_body("f16", matrices, 128, steps=1)
    shape = re.search(r"mov.b32 %r32, (\d+);", body)[1]
    body = body.replace(f"mov.b32 %r32, {shape};", f"selp.b32 %r32, {shape}, 0, %p1;")
    with pytest.raises(UnsupportedError, match="its instruction descriptor"):
        machine.assembled(body, moderate("f16"), torch.zeros(1), threads=THREADS)


def test_halves_of_a_load_lie_apart(machine):
    """`16x32bx2` takes 16 lanes of two pieces of columns."""
    body = """
    mov.b32 %r34, 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r34], 32;
    ld.shared.b32 %r30, [%r34];
    add.s32 %r2, %r1, 100;
    tcgen05.st.sync.aligned.16x32bx2.x2.b32 [%r30], 5, {%r1, %r2};
    tcgen05.wait::st.sync.aligned;
    add.s32 %r31, %r30, 5;
    tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r3}, [%r30], 1;
    tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {%r4}, [%r31], 1;
    tcgen05.wait::ld.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r30, 32;
    add.s64 %d3, %d1, %d21;
    st.global.b32 [%d3], %r3;
    st.global.b32 [%d3+128], %r4;
    """
    out = torch.zeros(2, 32, dtype=torch.int32)
    report = machine.assembled(body, out)
    low = torch.arange(16)
    assert torch.equal(out[0], torch.cat([low, low + 100]).int())
    assert torch.equal(out[1], torch.cat([low + 16, low + 116]).int())
    assert report.findings == ()


FRAGMENTS = {
    # Columns and registers of one repetition; 32-bit elements of row 0, then of row 8.
    "16x64b": (2, [["t0.0", "t2.0"], ["t1.0", "t3.0"]]),
    "16x128b": (4, [[f"t{t}.0" for t in range(4)], [f"t{t}.1" for t in range(4)]]),
    "16x256b": (8, [[f"t{t}.{2 * h + p}" for t in range(4) for p in range(2)] for h in range(2)]),
}
"""As the PTX manual draws them; a row further, threads are four further."""


def spread(shape, tile):
    """The registers `[register, thread]` of a warp that hold a tile `[16, columns]`."""
    width, halves = FRAGMENTS[shape]
    blocks = tile.reshape(16, -1, width)
    names = sorted({name.split(".")[1] for half in halves for name in half})
    found = torch.zeros(blocks.shape[1], len(names), 32, dtype=tile.dtype)
    for (half, row), at in itertools.product(itertools.product(range(2), range(8)), range(width)):
        thread, register = halves[half][at][1:].split(".")
        found[:, int(register), int(thread) + 4 * row] = blocks[8 * half + row, :, at]
    return found.flatten(0, 1)


def fragment_body(load, store, registers, lane):
    """Store registers that number themselves in one shape, load them in another."""
    numbered = "\n".join(f"add.s32 %r{2 + k}, %r1, {32 * k};" for k in range(8))
    taken = [f"%r{20 + k}" for k in range(registers)]
    kept = "\n".join(f"st.global.b32 [%d3+{128 * k}], {r};" for k, r in enumerate(taken))
    given = ", ".join(f"%r{2 + k}" for k in range(8))
    return f"""
    mov.b32 %r14, 0;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r14], 32;
    ld.shared.b32 %r10, [%r14];
    add.s32 %r11, %r10, {lane << 16};
    {numbered}
    tcgen05.st.sync.aligned.{store} [%r1{int(store[0] == "1")}], {{{given}}};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.{load} {{{", ".join(taken)}}}, [%r1{int(load[0] == "1")}];
    tcgen05.wait::ld.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 32;
    add.s64 %d3, %d1, %d21;
    {kept}
    """


NUMBERED = torch.arange(256, dtype=torch.int32).reshape(8, 32)


@pytest.mark.parametrize("lane", [0, 16])
@pytest.mark.parametrize("shape", FRAGMENTS)
def test_a_tile_is_spread_over_a_warp(machine, shape, lane):
    registers = 8 * 16 // 32
    repetitions = 8 // FRAGMENTS[shape][0]
    out = torch.zeros(registers, 32, dtype=torch.int32)
    load = f"{shape}.x{repetitions}.b32"
    body = fragment_body(load, "32x32b.x8.b32", registers, lane)
    assert machine.assembled(body, out).findings == ()
    assert torch.equal(out, spread(shape, NUMBERED.T[lane : lane + 16]))


@pytest.mark.parametrize("shape", FRAGMENTS)
def test_what_a_warp_holds_becomes_a_tile(machine, shape):
    width = FRAGMENTS[shape][0]
    columns = 16
    store = f"{shape}.x{columns // width}.b32"
    out = torch.zeros(columns, 32, dtype=torch.int32)
    body = fragment_body("16x32bx2.x8.b32", store, 8, 0).replace(
        "[%r11];\n    tcgen05.wait::ld", "[%r10], 8;\n    tcgen05.wait::ld"
    )
    assert machine.assembled(body, out).findings == ()
    tile = torch.cat([out[:8, :16], out[:8, 16:]]).T
    assert torch.equal(spread(shape, tile), NUMBERED)


def test_lanes_of_a_tile_that_nobody_stored(machine):
    body = fragment_body("16x256b.x1.b32", "16x128b.x4.b32", 4, 0)
    body = body.replace("[%r11];\n    tcgen05.wait::ld", "[%r12];\n    tcgen05.wait::ld")
    body = body.replace("tcgen05.wait::st", "add.s32 %r12, %r11, 1048576;\n    tcgen05.wait::st")
    (finding,) = machine.assembled(body, torch.zeros(4, 32, dtype=torch.int32)).findings
    assert finding.kind == "uninitialised_read"
