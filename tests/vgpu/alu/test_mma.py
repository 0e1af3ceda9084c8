"""Tensor-core products, bit by bit against MMA-Sim and against direct sums."""

import numpy as np
import pytest
import torch

from lethe_env.vgpu.alu import mma, processor
from lethe_env.vgpu.alu.accumulation import AMPERE, HOPPER, accumulation_of
from lethe_env.vgpu.ptx.model import UnsupportedError

from .conftest import run_definition

TILES = 12
MODELS = {"sm_80": "Ampere", "sm_89": "Ada Lovelace", "sm_90a": "Hopper",
          "sm_100a": "Blackwell", "sm_120": "RTX Blackwell"}  # fmt: skip
"""MMA-Sim's, by target."""
GROUP, MEMBER = np.arange(32) // 4, np.arange(32) % 4
TORCH = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "tf32": torch.float32,
    "f32": torch.float32,
}
FIELDS = {"f16": (16, 5, 10), "bf16": (16, 8, 7), "tf32": (32, 8, 23), "f32": (32, 8, 23)}
FLOATING = (
    ("m16n8k16", "f32", "f16"),
    ("m16n8k16", "f16", "f16"),
    ("m16n8k16", "f32", "bf16"),
    ("m16n8k8", "f32", "tf32"),
    ("m16n8k8", "f32", "f16"),
    ("m16n8k8", "f16", "f16"),
    ("m16n8k8", "f32", "bf16"),
    ("m16n8k4", "f32", "tf32"),
)


def packed(parts, bits):
    """One register per lane from its parts, lowest first."""
    return sum(part.astype(np.uint32) << np.uint32(bits * i) for i, part in enumerate(parts))


def fragments(a, b, per_register):
    """Registers of A [tile, 16, k] and B [tile, k, 8], each [tile, 32]."""
    bits, span = 32 // per_register, 4 * per_register
    rows, columns = [], []
    for start in range(0, a.shape[2], span):
        k = [start + MEMBER * per_register + i for i in range(per_register)]
        rows += [packed([a[:, GROUP + 8 * half, i] for i in k], bits) for half in range(2)]
        columns.append(packed([b[:, i, GROUP] for i in k], bits))
    return rows + columns


def accumulator_registers(c):
    """Registers of C [tile, 16, 8]."""
    parts = [c[:, GROUP + 8 * half, 2 * MEMBER + odd] for half in range(2) for odd in range(2)]
    if c.itemsize == 4:
        return parts
    return [packed(parts[:2], 16), packed(parts[2:], 16)]


def result_tile(registers, like):
    """D [tile, 16, 8] from its registers."""
    d = np.zeros_like(like)
    for half in range(2):
        for odd in range(2):
            if like.itemsize == 4:
                value = registers[2 * half + odd]
            else:
                value = registers[half] >> np.uint32(16 * odd) & np.uint32(0xFFFF)
            d[:, GROUP + 8 * half, 2 * MEMBER + odd] = value.reshape(-1, 32)
    return d


def multiply(opcode, a, b, c, per_register, model=AMPERE):
    registers = [*fragments(a, b, per_register), *accumulator_registers(c)]
    definition = mma.define(tuple(opcode.split(".")), model)
    flat = [np.ascontiguousarray(register).reshape(-1) for register in registers]
    return result_tile(run_definition(definition, "", 32, flat), c)


def exponents(kind, bias, top, shape, generator):
    """Biased exponents of a kind of data."""
    ranges = {
        "near one": (bias - 3, bias + 4),
        "any": (0, top),
        "spread": (bias - 14, bias + 15),
        "smallest": (0, 6),
        "underflowing products": (max(bias - 70, 0), max(bias - 55, 8)),
        "largest": (top - 4, top),
        "smallest in f32": (max(bias - 53, 0), max(bias - 46, 4)),
        "largest in f32": (min(bias + 57, top - 4), bias + 63),
        "smallest common": (max(bias - 50, 0), max(bias - 46, 4)),
        "largest common": (min(bias + 56, top - 4), bias + 60),
    }
    low, high = ranges.get(kind, ranges["near one"])
    return generator.integers(max(low, 0), min(high, top), shape)


def draw(kind, name, shape, generator):
    """Bit patterns with zeros among them; `special` adds infinities and NaNs."""
    width, exponent_bits, fraction_bits = FIELDS[name]
    bias, top = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    exponent = exponents(kind, bias, top, shape, generator)
    fraction = generator.integers(0, 1 << fraction_bits, shape)
    zero = generator.random(shape) < generator.choice((0.1, 0.9))
    exponent, fraction = np.where(zero, 0, exponent), np.where(zero, 0, fraction)
    if kind == "special":
        infinite = generator.random(shape) < 0.03
        exponent = np.where(infinite, top, exponent)
        fraction = np.where(infinite & (generator.random(shape) < 0.8), 0, fraction)
    sign = generator.integers(0, 2, shape)
    bits = sign << (width - 1) | exponent << fraction_bits | fraction
    return bits.astype(np.uint16 if width == 16 else np.uint32)


def cancelled(a, b):
    """The second half of K repeats the first with the opposite sign in A, in another order."""
    half = a.shape[2] // 2
    sign = a.dtype.type(1 << (8 * a.itemsize - 1))
    a, b = a.copy(), b.copy()
    a[:, :, half:], b[:, half:] = a[:, :, :half][:, :, ::-1] ^ sign, b[:, :half][:, ::-1]
    return a, b


def tensor(bits, name):
    integers = bits.view(np.int16 if bits.itemsize == 2 else np.int32)
    return torch.from_numpy(integers.copy()).view(TORCH[name])


def all_largest(signs, name, generator):
    """Just below 2, or one unit less: sixteen such products and C have 33 bits on sm_90."""
    width, exponent_bits, fraction_bits = FIELDS[name]
    below_two = (1 << (exponent_bits - 1 + fraction_bits)) - 1
    bits = signs << (width - 1) | below_two - generator.integers(0, 2, signs.shape)
    return bits.astype(np.uint16 if width == 16 else np.uint32)


def sample(shape, target, source, kind, architecture):
    """A, B and C of some tiles, and what MMA-Sim makes of them."""
    generator = np.random.default_rng([FLOATING.index((shape, target, source)), len(kind)])
    depth = int(shape.split("k")[1])
    a = draw(kind, source, (TILES, 16, depth), generator)
    b = draw(kind, source, (TILES, depth, 8), generator)
    c = draw("any" if kind == "any sums" else kind, target, (TILES, 16, 8), generator)
    if kind == "cancelling":
        a, b = cancelled(a, b)
    if kind == "all largest":
        signs = np.arange(16)[:, None] % 2  # of a row
        a = all_largest(np.broadcast_to(signs, a.shape), source, generator)
        b = all_largest(np.zeros(b.shape, np.int64), source, generator)
        c = all_largest(np.broadcast_to(signs, c.shape), target, generator)
        a[::2, 15, 0] = 2 ** FIELDS[source][1] - 1 << FIELDS[source][2]  # an infinity
    return a, b, c, simulated(shape, a, b, c, target, source, architecture)


def simulated(shape, a, b, c, target, source, architecture):
    """D by MMA-Sim."""
    from mmasim.nv_ptx.sim import MMA  # builds its C++ part when it is imported

    model = MMA(MODELS[architecture], f"{shape}.{target}.{source}.{source}.{target}")
    rows, columns = tensor(a, source)[:, :, None], tensor(b, source).mT[:, None]
    full = (TILES, 16, 8, a.shape[2])
    expected = model.dpa(rows.expand(full), columns.expand(full), tensor(c, target))
    return expected.view(torch.int32 if target == "f32" else torch.int16).numpy().view(c.dtype)


def product(shape, target, source, a, b, c, architecture):
    """D by the virtual GPU."""
    opcode = f"mma.sync.aligned.{shape}.row.col.{target}.{source}.{source}.{target}"
    model = accumulation_of(architecture)
    return multiply(opcode, a, b, c, 1 if source == "tf32" else 2, model)


@pytest.mark.parametrize(
    "kind",
    (
        *("near one", "any", "spread", "smallest", "underflowing products", "largest"),
        *("special", "cancelling", "smallest in f32", "largest in f32"),
        *("smallest common", "largest common", "any sums", "all largest"),
    ),
)
@pytest.mark.parametrize("shape,target,source", FLOATING)
@pytest.mark.parametrize("architecture", ("sm_80", "sm_90a"))
def test_equal_to_mma_sim(architecture, shape, target, source, kind):
    a, b, c, expected = sample(shape, target, source, kind, architecture)
    assert np.array_equal(product(shape, target, source, a, b, c, architecture), expected)


@pytest.mark.parametrize("kind", ("spread", "special"))
@pytest.mark.parametrize("architecture", ("sm_89", "sm_100a", "sm_120"))
def test_other_architectures_sum_like_one_of_these(architecture, kind):
    form = ("m16n8k16", "f32", "f16")
    a, b, c, expected = sample(*form, kind, architecture)
    assert np.array_equal(product(*form, a, b, c, architecture), expected)


def test_a_target_without_a_model_is_refused():
    with pytest.raises(UnsupportedError, match=r"mma\.sync for the target `gfx942`"):
        accumulation_of("gfx942")


WITHOUT_WIDE_REGISTERS = (
    ("sm_80", ("m16n8k8", "f32", "tf32"), "near one"),
    ("sm_80", ("m16n8k8", "f32", "tf32"), "largest common"),
    ("sm_90a", ("m16n8k16", "f32", "bf16"), "largest common"),
    ("sm_90a", ("m16n8k16", "f32", "bf16"), "all largest"),
)


@pytest.mark.parametrize("architecture,form,kind", WITHOUT_WIDE_REGISTERS)
def test_equal_to_mma_sim_without_wide_registers(monkeypatch, architecture, form, kind):
    a, b, c, expected = sample(*form, kind, architecture)
    monkeypatch.setattr(processor, "has", lambda feature: False)
    mma.define.cache_clear()
    actual = product(*form, a, b, c, architecture)
    mma.define.cache_clear()
    assert np.array_equal(actual, expected)


def single_output(row, column, accumulator, dtype=np.float32, model=AMPERE):
    """The first element of D for one row of A and one column of B, of f16."""
    a, b = np.zeros((1, 16, 16), np.float16), np.zeros((1, 16, 8), np.float16)
    a[0, 0], b[0, :, 0] = row, column
    c = np.zeros((1, 16, 8), dtype)
    c[0, 0, 0] = accumulator
    name, raw = {2: ("f16", np.uint16), 4: ("f32", np.uint32)}[c.itemsize]
    opcode = f"mma.sync.aligned.m16n8k16.row.col.{name}.f16.f16.{name}"
    d = multiply(opcode, a.view(np.uint16), b.view(np.uint16), c.view(raw), 2, model)
    return d.view(dtype)[0, 0, 0]


def test_terms_below_24_bits_are_cut():
    row, column = np.zeros(16, np.float16), np.zeros(16, np.float16)
    row[0], column[0] = 2.0**-13, 2.0**-12
    assert single_output(row, column, 1.0) == 1.0  # 2⁻²⁵ beside 1
    row[1:8], column[1:8] = row[0], column[0]
    assert single_output(row, column, 1.0) == 1.0  # eight of them, an exact 2⁻²²
    assert single_output(row, column, 0.0) == 2.0**-22


def test_a_25th_bit_and_the_whole_of_k_count_on_newer_architectures():
    row, column = np.zeros(16, np.float16), np.zeros(16, np.float16)
    row[1:5], column[1:5] = 2.0**-13, 2.0**-12
    # Four times 2⁻²⁵ beside 1 is one unit of f32.
    assert single_output(row, column, 1.0) == 1.0
    assert single_output(row, column, 1.0, model=HOPPER) == 1 + 2.0**-23
    row[:], column[:] = 0.0, 1.0
    row[0], row[8] = 2.0**15, -(2.0**15)
    # 2⁻¹⁰ is the 25th bit beside 2¹⁵, which is gone again in the same sum.
    assert single_output(row, column, 2.0**-10) == 0.0
    assert single_output(row, column, 2.0**-10, model=HOPPER) == 2.0**-10


def test_halves_of_k_are_summed_one_after_the_other():
    row, column = np.zeros(16, np.float16), np.ones(16, np.float16)
    row[0], row[8] = 2.0**15, -(2.0**15)
    assert single_output(row, column, 2.0**-10) == 0.0
    row[1], row[8] = -(2.0**15), 0.0
    assert single_output(row, column, 2.0**-10) == 0.0
    assert single_output(row, column, 2.0**-9) == 2.0**-9


def test_results_are_truncated():
    row, column = np.zeros(16, np.float16), np.ones(16, np.float16)
    row[0] = 2.0**-24
    assert single_output(row, column, 1.0) == 1.0
    assert single_output(-row, column, 1.0) == np.nextafter(np.float32(1), np.float32(0))
    assert single_output(row, column, -1.0) == np.nextafter(np.float32(-1), np.float32(0))


@pytest.mark.parametrize("model,last", ((AMPERE, -44), (HOPPER, -46)), ids=("ampere", "hopper"))
def test_a_zero_counts_as_a_small_exponent(model, last):
    row, column = np.zeros(16, np.float16), np.zeros(16, np.float16)
    row[:2], column[:2] = (2.0**-13, 2.0 ** (last + 24)), (2.0**-12, 2.0**-24)
    # 2⁻²⁵ is a tie of f16; beside a zero, of exponent −20 or −21, the last bit breaks it, and the
    # next is cut.
    assert single_output(row, column, 0.0, np.float16, model) == 2.0**-24
    row[1] /= 2
    assert single_output(row, column, 0.0, np.float16, model) == 0.0


@pytest.mark.parametrize("model,last", ((AMPERE, 156), (HOPPER, 158)), ids=("ampere", "hopper"))
def test_a_zero_counts_as_a_smaller_exponent_in_f32(model, last):
    """2⁻¹⁴⁹ - 2⁻ᵏ and 2⁻ᵏ are one unit of f32 where 2⁻ᵏ is not cut beside a zero."""
    factors = {155: (9, 7), 156: (127, 1), 157: (17, 15), 158: (73, 7), 159: (33, 31)}
    a, b = np.zeros((1, 16, 16), np.float32), np.zeros((1, 16, 8), np.float32)
    for index, (k, (left, right)) in enumerate(factors.items()):
        a[0, index, :2] = left * 2.0**-69, 2.0 ** (80 - k)
        b[0, :2, index] = right * 2.0 ** (69 - k), 2.0**-80
    a, b = ((matrix.view(np.uint32) >> 16).astype(np.uint16) for matrix in (a, b))
    opcode = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
    d = multiply(opcode, a, b, np.zeros((1, 16, 8), np.uint32), 2, model)
    assert [int(d[0, index, index]) for index in range(5)] == [int(k <= last) for k in factors]


@pytest.mark.parametrize("types", ("s8.s8", "u8.s8", "u8.u8"))
@pytest.mark.parametrize("depth", (16, 32))
def test_integers(types, depth):
    generator = np.random.default_rng(depth)
    a = generator.integers(0, 256, (TILES, 16, depth)).astype(np.uint8)
    b = generator.integers(0, 256, (TILES, depth, 8)).astype(np.uint8)
    c = generator.integers(0, 1 << 32, (TILES, 16, 8), dtype=np.uint32)
    left, right = types.split(".")
    x = a.view(np.int8 if left == "s8" else np.uint8).astype(np.int64)
    y = b.view(np.int8 if right == "s8" else np.uint8).astype(np.int64)
    expected = (x @ y + c.view(np.int32)).astype(np.uint64).astype(np.uint32)
    opcode = f"mma.sync.aligned.m16n8k{depth}.row.col.s32.{types}.s32"
    assert np.array_equal(multiply(opcode, a, b, c, 4), expected)


def test_doubles_are_a_chain_of_fused_steps():
    generator = np.random.default_rng(1)
    a, b, c = (generator.integers(-(1 << 26), 1 << 26, s) for s in ((8, 4), (4, 8), (8, 8)))
    opcode = ("mma", "sync", "aligned", "m8n8k4", "row", "col", "f64", "f64", "f64", "f64")
    registers = [a[GROUP, MEMBER], b[MEMBER, GROUP], c[GROUP, 2 * MEMBER], c[GROUP, 2 * MEMBER + 1]]
    scale = 2.0**-60
    inputs = [
        (register.astype(np.float64) * (scale if index > 1 else 1.0)).view(np.uint64)
        for index, register in enumerate(registers)
    ]
    low, high = run_definition(mma.define(opcode, AMPERE), "", 32, inputs)
    for odd, actual in enumerate((low, high)):
        for lane in range(32):
            row, column = GROUP[lane], 2 * MEMBER[lane] + odd
            total = int(c[row, column])  # in units of 2⁻⁶⁰
            for k in range(4):
                exact = total + (int(a[row, k]) * int(b[k, column]) << 60)
                total = int(round_to_double(exact))
            assert actual[lane].view(np.float64) == float(total) * scale


@pytest.mark.parametrize("depth", (4, 8, 16))
def test_sixteen_rows_of_doubles(depth):
    from mmasim.nv_ptx.sim import MMA  # builds its C++ part when it is imported

    generator = np.random.default_rng(depth)
    a, b, c = (generator.standard_normal(s) for s in ((16, depth), (depth, 8), (16, 8)))
    shape = f"m16n8k{depth}.f64.f64.f64.f64"
    expected = MMA("Hopper", shape)(*map(torch.from_numpy, (a, b, c))).numpy()
    kinds = ("row", "col", *shape.split(".")[1:])
    opcode = ("mma", "sync", "aligned", shape.partition(".")[0], *kinds)
    rows = [a[GROUP + 8 * half, k + MEMBER] for k in range(0, depth, 4) for half in range(2)]
    columns = [b[k + MEMBER, GROUP] for k in range(0, depth, 4)]
    sums = [c[GROUP + 8 * half, 2 * MEMBER + odd] for half in range(2) for odd in range(2)]
    registers = [register.view(np.uint64) for register in (*rows, *columns, *sums)]
    results = run_definition(mma.define(opcode, HOPPER), "", 32, registers)
    for index, found in enumerate(results):
        half, odd = divmod(index, 2)
        assert np.array_equal(found.view(np.float64), expected[GROUP + 8 * half, 2 * MEMBER + odd])


def round_to_double(integer):
    return int(float(integer))
