"""Random straight-line PTX over the instructions between registers, for differential tests.

`differences(program, other)` runs a program in the executor and in `other`, and says where they
differ. Results are compared by their bits, but for NaNs of float32 and float64, whose bits are left
open, and for approximate functions, which may be off by what the PTX ISA allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from lethe_env.vgpu.ptx.parser import parse

from .executor.floating import APPROXIMATE_ERROR
from .executor.formats import FORMATS, decode
from .executor.machine import execute

LANES = 32
SHARED_BYTES = 512
INPUTS = 4
"""64-bit words that each lane starts from."""

Run = Callable[[str, np.ndarray, np.ndarray], None]
"""Runs PTX text in one block of 32 threads with two arrays, `(32, INPUTS)` and `(32, results)`."""


@dataclass(frozen=True, slots=True)
class Template:
    """An instruction with places for its operands: `{d}` and `{0}`, `{1}`, …"""

    text: str
    result: str
    """Kind of the result: `p`, `b16`, `b32`, `b64`, or `f32` and `f64` whose NaNs have any bits."""
    sources: tuple[str, ...]
    """Kinds of the sources: those, `c` for counts, `i32` and `l32` and their like for integers and
    floats that may be literals, and `n32` for divisors."""
    approximate: bool = False
    """Whether the ISA gives an error bound for the result; no other instruction takes it."""

    @property
    def opcode(self) -> str:
        """The opcode of the first instruction."""
        return self.text.split()[0]


@dataclass(frozen=True, slots=True)
class Program:
    """PTX text, what each of its results comes from, and the lanes' first values."""

    text: str
    steps: tuple[tuple[Template, str], ...]
    inputs: np.ndarray


def _plain(opcode: str, result: str, *sources: str) -> Template:
    places = ", ".join(f"{{{at}}}" for at in range(len(sources)))
    return Template(f"{opcode} {{d}}, {places};", result, sources)


def _integer_templates(width: int) -> list[Template]:
    value, register = f"i{width}", f"b{width}"
    found = [
        _plain(f"{name}.{sign}{width}", register, value, value)
        for name in ("add", "sub", "mul.lo", "mul.hi", "min", "max")
        for sign in "su"
    ]
    found += [
        _plain(f"{name}.{sign}{width}", register, register, f"n{width}")
        for name in ("div", "rem")
        for sign in "su"
    ]
    found += [_plain(f"mad.{part}.s{width}", register, *[value] * 3) for part in ("lo", "hi")]
    found += [_plain(f"{name}.s{width}", register, register) for name in ("neg", "abs")]
    found += [_plain(f"{name}.b{width}", register, value, value) for name in ("and", "or", "xor")]
    found += [_plain(f"not.b{width}", register, register)]
    found += [
        _plain(f"{name}{width}", register, register, "c") for name in ("shl.b", "shr.u", "shr.s")
    ]
    found += [_plain(f"selp.b{width}", register, value, value, "p")]
    for sign, names in (("s", "eq ne lt le gt ge"), ("u", "lt le gt ge lo ls hi hs")):
        found += [
            _plain(f"setp.{name}.{sign}{width}", "p", register, value) for name in names.split()
        ]
    return found


def _wide_templates() -> list[Template]:
    found = []
    for width in (16, 32):
        for sign in "su":
            kinds = (f"b{width}", f"i{width}")
            found.append(_plain(f"mul.wide.{sign}{width}", f"b{2 * width}", *kinds))
            wide = f"b{2 * width}"
            found.append(_plain(f"mad.wide.{sign}{width}", wide, *kinds, f"i{2 * width}"))
    return found


def _bit_templates() -> list[Template]:
    found = []
    for width in (32, 64):
        register = f"b{width}"
        found += [_plain(f"{name}.b{width}", "b32", register) for name in ("popc", "clz")]
        found += [_plain(f"brev.b{width}", register, register)]
        found += [_plain(f"bfe.{sign}{width}", register, register, "c", "c") for sign in "su"]
        found += [_plain(f"bfi.b{width}", register, register, register, "c", "c")]
    found += [
        _plain(f"shf.{side}.{mode}.b32", "b32", "b32", "b32", "c")
        for side in "lr"
        for mode in ("wrap", "clamp")
    ]
    found += [_plain("prmt.b32", "b32", "b32", "b32", "i32")]
    found += [
        Template(f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table};", "b32", ("b32",) * 3)
        for table in (0x96, 0xE8, 0xCA, 0x1F)
    ]
    found += [_plain(f"{name}.pred", "p", "p", "p") for name in ("and", "or", "xor")]
    found += [_plain("not.pred", "p", "p")]
    found += [
        Template("add.cc.u32 {d}, {0}, {1};\n    addc.u32 {d}, {2}, {3};", "b32", ("b32",) * 4),
        Template(
            "mad.lo.cc.u32 {d}, {0}, {1}, {2};\n    madc.hi.u32 {d}, {0}, {1}, {2};",
            "b32",
            ("b32",) * 3,
        ),
        Template("mov.b32 {d}, {{{0}, {1}}};", "b32", ("b16", "b16")),
        Template("mov.b64 {d}, {{{0}, {1}}};", "b64", ("b32", "b32")),
        Template("mov.b32 {{_, {d}}}, {0};", "b16", ("b32",)),
        Template("mov.b64 {{_, {d}}}, {0};", "b32", ("b64",)),
    ]
    return found


_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge")
_COMPARISONS = (*_ORDERED, *(f"{name}u" for name in _ORDERED), "num", "nan")


def _float_templates() -> list[Template]:
    found = []
    for ftz in ("", ".ftz"):
        two, three = ("f32", "l32", "l32"), ("f32", "l32", "l32", "l32")
        for mode in ("", ".rn", ".rz", ".rm", ".rp"):
            found += [_plain(f"{name}{mode}{ftz}.f32", *two) for name in ("add", "sub", "mul")]
            found += [_plain(f"fma{mode}{ftz}.f32", *three)] if mode else []
        found += [
            _plain(f"{name}{ftz}{nan}.f32", *two) for name in ("min", "max") for nan in ("", ".NaN")
        ]
        found += [_plain(f"{name}{ftz}.f32", "f32", "f32") for name in ("neg", "abs")]
        found += [_plain(f"setp.{name}{ftz}.f32", "p", "l32", "l32") for name in _COMPARISONS]
        found += [_plain(f"setp.lt.and{ftz}.f32", "p", "l32", "l32", "p")]
        found += [_plain(f"{name}.rn{ftz}.f32", "f32", "f32") for name in ("sqrt", "rcp")]
        found += [_plain(f"div.rn{ftz}.f32", *two)]
    found += [_plain("copysign.f32", "f32", "b32", "l32")]
    found += [_plain(f"{name}.f64", "f64", "l64", "l64") for name in ("add", "sub", "mul")]
    found += [_plain("fma.rn.f64", "f64", "l64", "l64", "l64")]
    found += [_plain(f"setp.{name}.f64", "p", "l64", "l64") for name in _COMPARISONS]
    return found


def _half_templates() -> list[Template]:
    found = []
    for kind, width in (("f16", "b16"), ("f16x2", "b32")):
        found += [_plain(f"{name}.{kind}", width, width, width) for name in ("add", "sub", "mul")]
        found += [_plain(f"fma.rn.{kind}", width, width, width, width)]
    found += [_plain(f"fma.rn.bf16{two}", w, w, w, w) for two, w in (("", "b16"), ("x2", "b32"))]
    for kind, width in (("f16", "b16"), ("bf16", "b16"), ("f16x2", "b32"), ("bf16x2", "b32")):
        found += [
            _plain(f"{name}{nan}.{kind}", width, width, width)
            for name in ("min", "max")
            for nan in ("", ".NaN")
        ]
    found += [_plain(f"setp.{name}.f16", "p", "b16", "b16") for name in _COMPARISONS]
    return found


def _register_kind(kind: str) -> str:
    """The register that holds a value of a PTX type as an operand of `cvt`."""
    return kind if kind in ("f32", "f64") else f"b{max(int(kind[1:]), 16)}"


def _cvt(modifiers: str, to: str, source: str) -> Template:
    opcode = f"cvt{modifiers}.{to}.{source}"
    return _plain(opcode, _register_kind(to), _register_kind(source))


def _conversion_templates() -> list[Template]:
    integers = ("s16", "u16", "s32", "u32", "s64", "u64")
    found = [
        _cvt("", to, source)
        for to in integers
        for source in ("s8", "u8", *integers)
        if to[1:] != source[1:]
    ]
    for mode in (".rni", ".rzi", ".rmi", ".rpi"):
        found += [_cvt(f"{mode}{z}", to, "f32") for z in ("", ".ftz") for to in integers]
        found += [_cvt(mode, to, "f16") for to in ("s32", "u32")]
        found += [_cvt(mode, to, "f64") for to in ("s32", "s64")]
        found += [_cvt(mode, "f32", "f32")]
    for mode in (".rn", ".rz", ".rm", ".rp"):
        found += [_cvt(mode, "f32", source) for source in (*integers, "f64")]
    for mode in (".rn", ".rz"):
        for kind in ("f16", "bf16"):
            found += [_plain(f"cvt{mode}.{kind}.f32", "b16", "f32")]
            found += [_plain(f"cvt{mode}.{kind}x2.f32", "b32", "f32", "f32")]
    found += [_cvt("", "f32", "f16"), _cvt("", "f64", "f32"), _cvt(".rn", "f64", "s64")]
    found += [_cvt(".rn", "f16", "s32"), _plain("cvt.rna.tf32.f32", "f32", "f32")]
    return found


def _approximate_templates() -> list[Template]:
    functions = ("rcp", "sqrt", "rsqrt", "ex2", "lg2")
    opcodes = [f"{name}.approx{ftz}.f32" for name in functions for ftz in ("", ".ftz")]
    found = [
        Template(f"{opcode} {{d}}, {{0}};", "f32", ("f32",), approximate=True)
        for opcode in (*opcodes, "tanh.approx.f32")
    ]
    found += [
        Template(
            f"{name}.approx{ftz}.f32 {{d}}, {{0}};",
            "f32",
            ("s32",),
            approximate=True,
        )
        for name in ("sin", "cos")
        for ftz in ("", ".ftz")
    ]
    found += [Template("div.full.f32 {d}, {0}, {1};", "f32", ("f32", "f32"), approximate=True)]
    return found


TEMPLATES: tuple[Template, ...] = (
    *(template for width in (16, 32, 64) for template in _integer_templates(width)),
    *_wide_templates(),
    *_bit_templates(),
    *_float_templates(),
    *_half_templates(),
    *_conversion_templates(),
    *_approximate_templates(),
)
"""Every instruction that programs are made of; all are legal for sm_80."""

_SPECIAL_SINGLES = (
    *(0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000),
    *(0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x3F800000, 0xBF800000, 0x3F7FFFFF, 0x4B800001),
    *(0x3F000000, 0xBFC00000, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x5F000000, 0x33800000),
)
_SPECIAL_HALVES = (0x3C003C00, 0x7C00FC00, 0x7E007BFF, 0x00010400, 0x800103FF, 0x3F803F80)
_SPECIAL_INTEGERS = (2, 3, 7, 31, 32, 33, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0xFFFFFFFE)
_HIGH_DOUBLES = (0x7FF00000, 0x3FF00000)
SPECIAL = np.array(
    (*_SPECIAL_SINGLES, *_SPECIAL_HALVES, *_SPECIAL_INTEGERS, *_HIGH_DOUBLES), np.uint64
)

_REGISTERS = {"p": "%p", "b16": "%h", "b32": "%r", "b64": "%d", "f32": "%r", "f64": "%d"}
_SMALL = [f"%s{at}" for at in range(2 * INPUTS)]
"""Registers with float32 numbers below 2 in size (`s32`), where errors of `sin` are bounded."""


def first_values(seed: int) -> np.ndarray:
    """`(32, INPUTS)` words: half special halves, a quarter random, a quarter near one."""
    generator = np.random.default_rng(seed)
    shape = (LANES, 2 * INPUTS)
    random = generator.integers(0, 2**32, shape, np.uint64)
    near_one = np.uint64(0x3F000000) + (random & np.uint64(0x81FFFFFF))
    choice = generator.integers(0, 4, shape)
    special = generator.choice(SPECIAL, shape)
    halves = np.where(choice < 2, special, np.where(choice == 2, random, near_one))
    return halves.astype(np.uint32).view(np.uint64)


@st.composite
def programs(
    draw: st.DrawFn, templates: Sequence[Template] = TEMPLATES, most_steps: int = 12
) -> Program:
    """Programs of one to `most_steps` (60 at most) of these instructions."""
    pools = {
        "p": ["%p0", "%p1"],
        "b16": [f"%h{at}" for at in range(4 * INPUTS)],
        "b32": [f"%r{at}" for at in range(2 * INPUTS)],
        "b64": [f"%d{at}" for at in range(INPUTS)],
        "f32": [],
        "f64": [],
    }
    steps = []
    for number in range(draw(st.integers(1, most_steps))):
        template = draw(st.sampled_from(list(templates)))
        operands = [draw(_operand(kind, pools)) for kind in template.sources]
        result = f"{_REGISTERS[template.result]}{64 + number}"
        steps.append((template, template.text.format(*operands, d=result)))
        if not template.approximate:
            pools[template.result].append(result)
    inputs = first_values(draw(st.integers(0, 2**32 - 1)))
    return Program(_text(steps), tuple(steps), inputs)


def all_of(templates: Sequence[Template], seed: int) -> Program:
    """A program of these instructions, each on the first values alone."""
    steps = []
    for number, template in enumerate(templates):
        operands = [_first_register(kind, at) for at, kind in enumerate(template.sources)]
        result = f"{_REGISTERS[template.result]}{64 + number}"
        steps.append((template, template.text.format(*operands, d=result)))
    return Program(_text(steps), tuple(steps), first_values(seed))


def _first_register(kind: str, at: int) -> str:
    special = {"p": f"%p{at % 2}", "c": "%r3", "s32": _SMALL[at]}
    if kind in special:
        return special[kind]
    if kind[0] == "n":
        return "7"
    return {"16": f"%h{5 * at}", "32": f"%r{3 * at % 8}", "64": f"%d{at}"}[kind[1:]]


def _operand(kind: str, pools: dict[str, list[str]]) -> st.SearchStrategy[str]:
    if kind == "p":
        return st.sampled_from(pools["p"])
    if kind == "c":
        return st.one_of(st.sampled_from(pools["b32"]), st.integers(0, 70).map(str))
    if kind == "s32":
        return st.sampled_from(_SMALL)
    letter, width = kind[0], int(kind[1:])
    if letter == "n":
        return st.sampled_from(["1", "2", "3", "7", "100", "127"])
    registers = st.sampled_from(pools[f"b{width}"])
    if letter == "i":
        top = 2 ** (width - 1)
        literals = st.one_of(st.integers(-8, 8), st.integers(-top, top - 1)).map(str)
        return st.one_of(registers, registers, literals)
    if letter in "fl" and pools[f"f{width}"]:
        registers = st.one_of(registers, st.sampled_from(pools[f"f{width}"]))
    if letter == "l":
        bits = st.one_of(st.integers(0, 2**width - 1), st.sampled_from(SPECIAL.tolist()))
        prefix = "0f" if width == 32 else "0d"
        return st.one_of(registers, registers, bits.map(lambda b: f"{prefix}{b:0{width // 4}X}"))
    return registers


def _text(steps: Sequence[tuple[Template, str]]) -> str:
    prologue = [f"ld.global.b64 %d{at}, [%d{INPUTS} + {8 * at}];" for at in range(INPUTS)]
    prologue += [f"mov.b64 {{%r{2 * at}, %r{2 * at + 1}}}, %d{at};" for at in range(INPUTS)]
    prologue += [f"mov.b32 {{%h{2 * at}, %h{2 * at + 1}}}, %r{at};" for at in range(2 * INPUTS)]
    prologue += [f"and.b32 {name}, %r{at}, 0xBFFFFFFF;" for at, name in enumerate(_SMALL)]
    prologue += ["setp.lt.s32 %p0, %r0, %r1;", "setp.lt.u32 %p1, %r2, %r3;"]
    body = [line for at, step in enumerate(steps) for line in (step[1], *_stored(at, step[0]))]
    code = "\n    ".join([*prologue, *body])
    return f"""
.version 8.7
.target sm_80
.address_size 64
.visible .entry fuzz(
    .param .u64 .ptr .global .align 8 inputs,
    .param .u64 .ptr .global .align 8 results
)
.reqntid {LANES}
{{
    .reg .pred %p<128>;
    .reg .b16 %h<128>;
    .reg .b32 %r<128>;
    .reg .b32 %s<{2 * INPUTS}>;
    .reg .b64 %d<128>;
    mov.u32 %r0, %tid.x;
    ld.param.b64 %d{INPUTS}, [inputs];
    mad.wide.u32 %d{INPUTS}, %r0, {8 * INPUTS}, %d{INPUTS};
    ld.param.b64 %d{INPUTS + 1}, [results];
    mad.wide.u32 %d{INPUTS + 1}, %r0, {8 * len(steps)}, %d{INPUTS + 1};
    {code}
    ret;
}}
"""


def _stored(at: int, template: Template) -> tuple[str, str]:
    widened = {
        "p": f"selp.b64 %d127, 1, 0, %p{64 + at};",
        "b16": f"cvt.u64.u16 %d127, %h{64 + at};",
        "b32": f"cvt.u64.u32 %d127, %r{64 + at};",
        "b64": f"mov.b64 %d127, %d{64 + at};",
    }
    register = template.result.replace("f", "b")
    return widened[register], f"st.global.b64 [%d{INPUTS + 1} + {8 * at}], %d127;"


def run_executor(text: str, inputs: np.ndarray, results: np.ndarray) -> None:
    """The executor as one side of a comparison."""
    execute(parse(text), (1,), [inputs, results], SHARED_BYTES)


def differences(program: Program, other: Run) -> list[str]:
    """What `other` computes otherwise than the executor, a line for each lane and instruction."""
    sides = []
    for run in (run_executor, other):
        results = np.zeros((LANES, len(program.steps)), np.uint64)
        run(program.text, program.inputs.copy(), results)
        sides.append(results)
    return [
        f"lane {lane}: {text.strip()} gives {ours[lane]:#x} here and {theirs[lane]:#x} there"
        for (template, text), ours, theirs in zip(
            program.steps, sides[0].T, sides[1].T, strict=True
        )
        for lane in np.flatnonzero(~_agree(template, ours, theirs))
    ]


def _agree(template: Template, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    same = ours == theirs
    if template.result not in FORMATS:
        return same
    form = FORMATS[template.result]
    x, y = (decode(np.ascontiguousarray(bits), form) for bits in (ours, theirs))
    same = same | (np.isnan(x) & np.isnan(y))
    if not template.approximate:
        return same
    way, size = APPROXIMATE_ERROR[template.opcode.split(".")[0]]
    # Both sides may be off, and a result may be rounded up to, or flushed from, the least normal.
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= 2 * size * (np.abs(x) if way == "relative" else 1) + 2.0**-126
    overflow = (np.minimum(np.abs(x), np.abs(y)) >= form.largest) & (np.sign(x) == np.sign(y))
    return same | near | overflow
