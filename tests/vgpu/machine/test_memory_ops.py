"""Loads, stores, asynchronous copies, matrix loads, atomics and calls, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

LANES = range(32)


def words(n=512, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31 - 1, (n,), generator=generator, dtype=torch.int32)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("guard", ["", "@%p1 "])
@pytest.mark.parametrize(
    ("width", "count"), [(w, c) for w in (8, 16, 32, 64) for c in (1, 2, 4) if w * c <= 128]
)
def test_vector_loads_and_stores(machine, width, count, guard, stride):
    size = width * count // 8
    register = {8: "h", 16: "h", 32: "r", 64: "d"}[width]
    names = [f"%{register}{k}" for k in range(30, 30 + count)]
    listed = names[0] if count == 1 else "{" + ", ".join(names) + "}"
    suffix = ("" if count == 1 else f".v{count}") + f".b{width}"
    old = " ".join(f"mov.b{max(width, 16)} {name}, {9 + k};" for k, name in enumerate(names))
    body = f"""mul.lo.s64 %d6, %d20, {size * stride}; mul.lo.s64 %d7, %d20, {size};
    add.s64 %d3, %d1, %d6; add.s64 %d4, %d2, %d7; setp.ne.s32 %p1, %r1, 5; {old}
    {guard}ld.global{suffix} {listed}, [%d3]; st.global{suffix} [%d4], {listed};"""
    x, o = words(), torch.zeros(128, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    given, got = x.numpy().view(np.uint8), o.numpy().view(np.uint8)
    for lane in LANES:
        start = lane * size * stride
        expected = given[start : start + size].tobytes()
        if guard and lane == 5:
            expected = b"".join((9 + k).to_bytes(width // 8, "little") for k in range(count))
        assert got[lane * size : (lane + 1) * size].tobytes() == expected


def test_guarded_stores_leave_the_other_lanes_alone(machine):
    body = """and.b32 %r2, %r1, 3; setp.eq.s32 %p1, %r2, 0; add.s64 %d3, %d1, %d21;
    @!%p1 st.global.b32 [%d3], %r1;"""
    o = torch.full((32,), -1, dtype=torch.int32)
    machine.assembled(body, o)
    assert o.tolist() == [-1 if k % 4 == 0 else k for k in LANES]


@pytest.mark.parametrize(("type_", "expected"), [("s8", -128), ("u8", 128)])
def test_narrow_loads_extend(machine, type_, expected):
    body = f"ld.global.{type_} %r2, [%d1]; add.s64 %d4, %d2, %d21; st.global.b32 [%d4], %r2;"
    x, o = torch.tensor([128], dtype=torch.uint8), torch.zeros(32, dtype=torch.int32)
    machine.assembled(body, x, o)
    assert o.tolist() == [expected] * 32


def test_cache_hints_change_nothing(machine):
    body = """createpolicy.fractional.L2::evict_first.b64 %d9, 1.0; add.s64 %d3, %d1, %d21;
    add.s64 %d4, %d2, %d21; ld.global.nc.L1::evict_first.L2::cache_hint.b32 %r2, [%d3], %d9;
    st.global.wb.b32 [%d4], %r2; shl.b32 %r3, %r1, 2;
    cp.async.ca.shared.global.L2::cache_hint [%r3], [%d3], 4, %d9; cp.async.wait_all;
    ld.shared.b32 %r4, [%r3]; setp.ne.s32 %p1, %r4, %r2; @%p1 st.global.b32 [%d4], 0;"""
    x, o = words(32), torch.zeros(32, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    assert torch.equal(x, o)


def test_asynchronous_copies_zero_fill_what_they_do_not_read(machine):
    body = """shl.b32 %r2, %r1, 4; shl.b64 %d6, %d20, 4; add.s64 %d3, %d1, %d6;
    add.s64 %d4, %d2, %d6; setp.lt.s32 %p1, %r1, 20; selp.b32 %r3, 16, 0, %p1;
    cp.async.cg.shared.global [%r2], [%d3], 16, %r3;
    cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;
    ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r2]; st.global.v4.b32 [%d4], {%r4, %r5, %r6, %r7};"""
    x, o = words(80), torch.full((128,), -1, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    assert torch.equal(o[:80], x)
    assert not o[80:].any()


def test_an_asynchronous_copy_may_copy_a_part(machine):
    body = """shl.b32 %r2, %r1, 3; shl.b64 %d6, %d20, 3; add.s64 %d3, %d1, %d6;
    add.s64 %d4, %d2, %d6; and.b32 %r3, %r1, 7; add.s32 %r3, %r3, 1;
    cp.async.ca.shared.global [%r2], [%d3], 8, %r3; cp.async.wait_all;
    ld.shared.b64 %d7, [%r2]; st.global.b64 [%d4], %d7;"""
    x, o = words(64), torch.full((64,), -1, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    expected = x.numpy().view(np.uint8).reshape(32, 8).copy()
    for lane in LANES:
        expected[lane, lane % 8 + 1 :] = 0
    assert np.array_equal(o.numpy().view(np.uint8).reshape(32, 8), expected)


def test_a_wait_completes_only_older_groups(machine):
    body = """shl.b32 %r2, %r1, 2; add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21;
    st.shared.b32 [%r2], 1; st.shared.b32 [%r2+128], 2;
    cp.async.ca.shared.global [%r2], [%d3], 4; cp.async.commit_group;
    cp.async.ca.shared.global [%r2+128], [%d3], 4; cp.async.commit_group;
    cp.async.wait_group 1; ld.shared.b32 %r4, [%r2]; ld.shared.b32 %r5, [%r2+128];
    st.global.b32 [%d4], %r4; st.global.b32 [%d4+128], %r5;"""
    x, o = words(32), torch.zeros(64, dtype=torch.int32)
    report = machine.assembled(body, x, o)
    assert [f.kind for f in report.findings] == ["uninitialised_read"]
    assert torch.equal(o[:32], x)
    assert o[32:].tolist() == [2] * 32


def test_more_copies_than_the_queue_holds(machine):
    copies = "\n".join(
        f"cp.async.ca.shared.global [%r2+{128 * k}], [%d3+{128 * k}], 4;" for k in range(300)
    )
    loads = "\n".join(
        f"ld.shared.b32 %r4, [%r2+{128 * k}]; st.global.b32 [%d4+{128 * k}], %r4;"
        for k in (0, 43, 44, 299)
    )
    body = f"""shl.b32 %r2, %r1, 2; add.s64 %d3, %d1, %d21; add.s64 %d4, %d2, %d21;
    {copies} cp.async.wait_all; {loads}"""
    x, o = words(9600), torch.zeros(9600, dtype=torch.int32)
    assert machine.assembled(body, x, o, shared_bytes=38400).findings == ()
    for k in (0, 43, 44, 299):
        assert torch.equal(o[32 * k : 32 * k + 32], x[32 * k : 32 * k + 32])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_matrix_loads(machine, count, transposed):
    registers = ", ".join(f"%r{10 + k}" for k in range(count))
    stores = " ".join(f"st.global.b32 [%d4+{128 * k}], %r{10 + k};" for k in range(count))
    trans = ".trans" if transposed else ""
    # Row r of the tile lies at 16 * (r ^ 1), so that addresses matter.
    body = f"""shl.b32 %r2, %r1, 4; shl.b64 %d6, %d20, 4; add.s64 %d3, %d1, %d6;
    add.s64 %d4, %d2, %d21;
    ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%d3]; xor.b32 %r3, %r2, 16;
    st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}}; bar.sync 0;
    ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r3]; {stores}"""
    x, o = words(128), torch.zeros(32 * count, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    tiles = x.numpy().view(np.uint16).reshape(4, 8, 8)
    got = o.numpy().view(np.uint16).reshape(count, 32, 2)
    for matrix in range(count):
        tile = tiles[matrix].T if transposed else tiles[matrix]
        assert np.array_equal(got[matrix].reshape(8, 8), tile)


def test_local_memory_belongs_to_each_lane(machine):
    body = """.local .align 4 .b8 depot[16];
    mov.u64 %d10, depot; and.b32 %r2, %r1, 3; mul.wide.u32 %d11, %r2, 4; add.s64 %d12, %d10, %d11;
    st.local.b32 [%d10], 0; st.local.b32 [%d10+4], 0; st.local.b32 [%d12], %r1;
    ld.local.b32 %r3, [%d10+4]; add.s64 %d4, %d1, %d21; st.global.b32 [%d4], %r3;"""
    o = torch.zeros(32, dtype=torch.int32)
    assert machine.assembled(body, o).findings == ()
    assert o.tolist() == [k if k % 4 == 1 else 0 for k in LANES]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize(
    ("operation", "start", "value", "expected"),
    [
        ("add.u32", 5, 3, 5 + 32 * 3),
        ("add.s32", 5, -1, 5 - 32),
        ("min.s32", 5, -9, -9),
        ("max.u32", 5, -9, -9),
        ("max.s32", 5, -9, 5),
        ("and.b32", 0xFF, 0x3C, 0x3C),
        ("or.b32", 0x0F, 0x30, 0x3F),
        ("xor.b32", 0x0F, 0xFF, 0x0F),
        ("exch.b32", 5, 77, 77),
        ("inc.u32", 0, 9, 32 % 10),
        ("dec.u32", 4, 9, (4 - 32) % 10),
    ],
)
def test_integer_atomics(machine, space, operation, start, value, expected):
    place = "[%d1]" if space == "global" else "[0]"
    body = f"""mov.b32 %r2, {value}; ld.global.b32 %r3, [%d1]; st.shared.b32 [0], %r3;
    atom.relaxed.gpu.{space}.{operation} %r4, {place}, %r2;
    ld.shared.b32 %r5, [0]; add.s64 %d5, %d2, %d21; st.global.b32 [%d5], %r4;
    st.global.b32 [%d2+128], %r5;"""
    x, o = torch.tensor([start], dtype=torch.int32), torch.zeros(33, dtype=torch.int32)
    assert machine.assembled(body, x, o).findings == ()
    final = x.item() if space == "global" else o[32].item()
    assert final == expected
    assert o[0].item() == start


def test_wide_atomics_and_compare_and_swap(machine):
    x = torch.tensor([10], dtype=torch.int64)
    machine.assembled("cvt.u64.u32 %d3, %r1; red.global.add.u64 [%d1], %d3;", x)
    assert x.item() == 10 + 496
    x, o = torch.tensor([7], dtype=torch.int32), torch.zeros(32, dtype=torch.int32)
    body = """atom.global.acq_rel.gpu.cas.b32 %r2, [%d1], 7, %r1; add.s64 %d4, %d2, %d21;
    st.global.b32 [%d4], %r2;"""
    machine.assembled(body, x, o)
    assert x.item() == 0
    assert o.tolist() == [7] + [0] * 31


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_atomics_round_after_every_addition(machine, dtype):
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(32, generator=generator).to(dtype)
    o = torch.tensor([100.0, -3.0], dtype=dtype)
    body = f"""mul.wide.u32 %d3, %r1, 2; add.s64 %d4, %d1, %d3; ld.global.b16 %h1, [%d4];
    red.global.add.noftz.{name} [%d2], %h1;
    mov.b32 %r3, {{%h1, %h1}}; red.global.add.noftz.{name}x2 [%d2], %r3;"""
    expected = o.clone()
    for value in values:
        expected[0] = expected[0] + value
    for value in values:
        expected = expected + value
    assert machine.assembled(body, values, o).findings == ()
    assert torch.equal(o, expected)


def test_single_atomics_on_global_memory_flush_subnormals(machine):
    tiny = torch.tensor([2.0**-130])
    body = "ld.global.b32 %r2, [%d1]; st.shared.b32 [0], %r2; red.shared.add.f32 [0], %r2;"
    body += "ld.shared.b32 %r3, [0]; st.global.b32 [%d2], %r3; red.global.add.f32 [%d1], %r2;"
    o = torch.zeros(1)
    machine.assembled(body, tiny, o)
    assert tiny.item() == 0.0
    assert o.item() == 33 * 2.0**-130


def test_double_atomics(machine):
    x = torch.tensor([0.5], dtype=torch.float64)
    machine.assembled("cvt.rn.f64.u32 %d3, %r1; red.global.add.f64 [%d1], %d3;", x)
    assert x.item() == 496.5
