"""What Triton makes of `tl.dot` for sm_90 and sm_100: the same kernels as on sm_80."""

import pytest
import torch
import triton
import triton.language as tl
from mmasim.arithmetic import fdpa

from .matrices import SIZES, product

TYPES = {"fp16": ("f16", torch.float16), "bf16": ("bf16", torch.bfloat16),
         "fp32": ("tf32", torch.float32), "fp8e5": ("e5m2", torch.float8_e5m2),
         "fp8e4nv": ("e4m3", torch.float8_e4m3fn)}  # fmt: skip


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           A_ACROSS: tl.constexpr, B_ACROSS: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        if A_ACROSS:
            x = tl.trans(tl.load(a + k[:, None] * M + rows[None, :]))
        else:
            x = tl.load(a + rows[:, None] * K + k[None, :])
        if B_ACROSS:
            y = tl.load(b + k[:, None] * N + columns[None, :])
        else:
            y = tl.trans(tl.load(b + columns[:, None] * K + k[None, :]))
        total = tl.dot(x, y, total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def attention(q, k, v, out, L, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    x = tl.load(q + rows[:, None] * D + d[None, :])
    largest = tl.full((BM,), -float("inf"), tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, L, BN):
        columns = start + tl.arange(0, BN)
        scores = tl.dot(x, tl.load(k + columns[None, :] * D + d[:, None])) * 0.18
        new = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - new[:, None])
        keep = tl.exp2(largest - new)
        weight = weight * keep + tl.sum(p, 1)
        y = tl.load(v + columns[:, None] * D + d[None, :])
        total = tl.dot(p.to(y.dtype), y, total * keep[:, None])
        largest = new
    tl.store(out + rows[:, None] * D + d[None, :], total / weight[:, None])


@triton.jit
def once(a, b, c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, KIND: tl.constexpr):
    rows, columns, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    x = tl.load(a + rows[:, None] * BK + k[None, :])
    y = tl.load(b + columns[None, :] * BK + k[:, None])
    tl.store(c + rows[:, None] * BN + columns[None, :], tl.dot(x, y, out_dtype=KIND))


@triton.jit
def tiled(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
          SPECIAL: tl.constexpr):  # fmt: skip
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    target = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=SPECIAL):
        total = tl.dot(left.load([row, start]), right.load([column, start]).T, total)
    target.store([row, column], total)


def compiled(machine, architecture, name, across=(False, True), **options):
    pointers = {"a": f"*{name}", "b": f"*{name}", "c": "*fp32"}
    sizes = {"M": "i32", "N": "i32", "K": "i32"}
    blocks = {"BM": 64, "BN": 32, "BK": 32, "A_ACROSS": across[0], "B_ACROSS": across[1]}
    return machine.triton(matmul, pointers | sizes, blocks, aligned=tuple(sizes),
                          architecture=architecture, **options)  # fmt: skip


CASES = [(name, across) for name in TYPES for across in ((False, True), (True, False))]


@pytest.mark.parametrize("architecture", [90, 100])
@pytest.mark.parametrize(("name", "across"), CASES)
def test_products(machine, architecture, name, across):
    source, kind = TYPES[name]
    program, shared_bytes = compiled(machine, architecture, name, across)
    m, n, k = 128, 64, 96
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(s, generator=generator).to(kind) for s in ((m, k), (n, k)))
    left = a.T.contiguous() if across[0] else a
    right = b.T.contiguous() if across[1] else b
    out = torch.empty(m, n)
    machine.memory.mark_undefined(out)
    report = machine.run(program, (2, 2), left, right, out, m, n, k, shared_bytes=shared_bytes)
    assert report.findings == ()
    short = architecture == 90 and SIZES[source] == 1
    expected = torch.zeros(m, n)
    depth = 32 // SIZES[source]
    for start in range(0, k, depth):
        piece = slice(start, start + depth)
        expected = product(a[:, piece], b[:, piece], expected, source, short)
    assert torch.equal(out, expected)
    assert report.counts["mma_operations"] >= 2 * m * n * k


@pytest.mark.parametrize("architecture", [80, 90, 100])
@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp8e5"])
def test_products_of_few_rows(machine, architecture, name):
    """Sixteen rows are too few for `wgmma` and `tcgen05`; 8-bit floats become f16 before."""
    from mmasim.nv_ptx.sim import MMA  # builds its C++ part when it is imported

    source, kind = TYPES[name]
    if name == "fp8e5":
        source = "f16"
    pointers = {"a": f"*{name}", "b": f"*{name}", "c": "*fp32"}
    blocks = {"BM": 16, "BN": 16, "BK": 64, "KIND": tl.float32}
    program, size = machine.triton(once, pointers, blocks, architecture=architecture)
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(16, 64, generator=generator).to(kind) for _ in range(2))
    out = torch.empty(16, 16)
    report = machine.run(program, (1,), a, b, out, shared_bytes=size)
    assert report.findings == ()
    shape = "m16n8k8" if name == "fp32" else "m16n8k16"
    names = {80: "Ampere", 90: "Hopper", 100: "Blackwell"}
    model = MMA(names[architecture], f"{shape}.f32.{source}.{source}.f32")
    a, b = (x.half() if name == "fp8e5" else x for x in (a, b))
    halves = [model(a, columns.T, torch.zeros(16, 8)) for columns in b.chunk(2)]
    assert torch.equal(out, torch.cat(halves, 1))


@pytest.mark.parametrize("architecture", [80, 90])
def test_products_of_doubles(machine, architecture):
    """In chains along K; only sm_90 has sixteen rows and a depth of 16."""
    from mmasim.nv_ptx.sim import MMA  # builds its C++ part when it is imported

    pointers = {"a": "*fp64", "b": "*fp64", "c": "*fp64"}
    blocks = {"BM": 16, "BN": 16, "BK": 32, "KIND": tl.float64}
    program, size = machine.triton(once, pointers, blocks, architecture=architecture)
    shape = "m8n8k4" if architecture == 80 else "m16n8k16"
    assert {i.opcode[3] for i in program.kernel.body if i.opcode[0] == "mma"} == {shape}
    generator = torch.Generator().manual_seed(8)
    a, b = (torch.randn(16, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    out = torch.empty(16, 16, dtype=torch.float64)
    report = machine.run(program, (1,), a, b, out, shared_bytes=size)
    model = MMA("Ampere" if architecture == 80 else "Hopper", f"{shape}.f64.f64.f64.f64")
    assert report.findings == ()
    assert torch.equal(out, model(a, b.T, torch.zeros_like(out)))


@pytest.mark.parametrize("architecture", [90, 100])
def test_attention_agrees_with_sm_80(machine, architecture):
    """Sums are cut elsewhere, in the 25th bit instead of the 24th, and p is rounded to f16."""
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(128, 64, generator=generator).half() for _ in range(3))
    outputs = []
    for target in (80, architecture):
        pointers = {"q": "*fp16", "k": "*fp16", "v": "*fp16", "out": "*fp32", "L": "i32"}
        blocks = {"BM": 64, "BN": 64, "D": 64}
        program, size = machine.triton(attention, pointers, blocks, ("L",), architecture=target)
        out = torch.empty(128, 64)
        machine.memory.mark_undefined(out)
        report = machine.run(program, (2,), q, k, v, out, 128, shared_bytes=size)
        assert report.findings == ()
        outputs.append(out)
    assert not torch.equal(*outputs)
    # A weight is rounded to f16 and may fall on the other side by one unit, 2^-11 of it at most;
    # the sums' own errors, 2^-24 a term, vanish beside that. Weights add up to one.
    allowed = 2.0**-11 * v.float().abs().max()
    assert (outputs[0] - outputs[1]).abs().max() <= allowed


def test_a_pipeline_of_many_stages_and_warps(machine):
    program, shared_bytes = compiled(machine, 100, "fp16", num_warps=8, num_stages=4)
    a = torch.randn(128, 256, generator=torch.Generator().manual_seed(3)).half()
    out = torch.empty(128, 128)
    machine.memory.mark_undefined(out)
    report = machine.run(program, (2, 4), a, a.T.contiguous(), out, 128, 128, 256,
                         shared_bytes=shared_bytes)  # fmt: skip
    expected = torch.zeros(128, 128)
    for start in range(0, 256, 16):
        piece = a[:, start : start + 16]
        expected = product(piece, piece, expected, "f16")
    assert torch.equal(out, expected)
    assert report.findings == ()


@pytest.mark.parametrize("special", [False, True], ids=["plain", "specialised"])
@pytest.mark.parametrize("architecture", [90, 100])
def test_tiles_and_specialised_warps(machine, architecture, special):
    pointers = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    blocks = {"BM": 128, "BN": 32, "BK": 32, "SPECIAL": special}
    program, shared_bytes = machine.triton(
        tiled, pointers, blocks, ("M", "N", "K"), architecture=architecture
    )
    m, n, k = 144, 40, 112
    generator = torch.Generator().manual_seed(4)
    a, b = (torch.randn(s, generator=generator).half() for s in ((m, k), (n, k)))
    out = torch.empty(m, n)
    machine.memory.mark_undefined(out)
    scratch = torch.empty(4 * 1024, dtype=torch.uint8)
    report = machine.run(program, (2, 2), a, b, out, m, n, k, scratch, shared_bytes=shared_bytes)
    expected = torch.zeros(m, n)
    for start in range(0, k, 16):
        piece = slice(start, start + 16)
        expected = product(a[:, piece], b[:, piece], expected, "f16")
    assert report.stopped == "" and report.findings == ()
    assert torch.equal(out, expected)


def test_products_of_integers(machine):
    a, b = (torch.randint(-128, 128, (n, 64), dtype=torch.int8) for n in (64, 32))
    out = torch.empty(64, 32, dtype=torch.int32)
    blocks = {"BM": 64, "BN": 32, "BK": 64, "KIND": tl.int32}
    pointers = {"a": "*i8", "b": "*i8", "c": "*i32"}
    program, size = machine.triton(once, pointers, blocks, architecture=90)
    assert any(i.opcode[:2] == ("wgmma", "mma_async") for i in program.kernel.body)
    report = machine.run(program, (1,), a, b, out, shared_bytes=size)
    assert torch.equal(out, a.int() @ b.int().T)
    assert report.findings == ()


def test_sums_in_half_precision(machine):
    generator = torch.Generator().manual_seed(6)
    a, b = (torch.randn(n, 64, generator=generator).half() for n in (64, 32))
    out = torch.empty(64, 32, dtype=torch.float16)
    blocks = {"BM": 64, "BN": 32, "BK": 64, "KIND": tl.float16}
    pointers = {"a": "*fp16", "b": "*fp16", "c": "*fp16"}
    program, size = machine.triton(once, pointers, blocks, architecture=90)
    assert any(i.opcode[-3:] == ("f16", "f16", "f16") for i in program.kernel.body)
    report = machine.run(program, (1,), a, b, out, shared_bytes=size)
    model = fdpa.MMA_T_FDPA(25, "RNE-FP16", 16, -21, "f16", "f16")
    expected = torch.zeros(64, 32, dtype=torch.float16)
    for start in range(0, 64, 16):
        piece = slice(start, start + 16)
        expected = model(a[:, piece], b[:, piece].T, expected)
    assert torch.equal(out, expected)
    assert report.findings == ()
