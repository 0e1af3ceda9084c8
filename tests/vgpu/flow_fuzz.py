"""Random PTX with branches, loops, guards, memory, atomics and shuffles, for differential tests.

Programs work on a fixed set of variables, which are compared when they end. Float32 and float64
variables are apart from the others, because the bits of their NaNs are left open. Many programs
make one kernel, since a kernel costs more to compile than a program.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from random import Random

import numpy as np

from . import fuzz
from .executor.formats import FORMATS, decode

VARIABLES = {
    "b16": ["h0", "h1", "h2"],
    "b32": ["r0", "r1", "r2", "r3"],
    "b64": ["d0", "d1"],
    "f32": ["g0", "g1", "g2"],
    "f64": ["e0"],
    "p": ["p0", "p1"],
}
"""Names by kind; a predicate's bit is compared too."""
KINDS = [kind for kind, names in VARIABLES.items() for _ in names]
_TYPES = {"b16": "b16", "b32": "b32", "b64": "b64", "f32": "b32", "f64": "b64", "p": "pred"}
TEMPLATES = [t for t in fuzz.TEMPLATES if not t.approximate and "s32" not in t.sources]
_SLOT_BYTES = 16
_CLAMPS = (31, 0, 15, 0x181F, 0x1C1F, 0x1C00, 0x1000)
_ATOMICS = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
}


@dataclass(slots=True)
class Writer:
    """Writes one program."""

    random: Random
    lines: list[str] = field(default_factory=list)
    names: int = 0

    def program(self, steps: int) -> str:
        """The body of a program between braces, without its last stores."""
        self._prologue()
        self._block(steps, depth=0)
        return "\n    ".join(self.lines)

    def _prologue(self) -> None:
        for kind, names in VARIABLES.items():
            self.lines.append(f".reg .{_TYPES[kind]} {', '.join(f'%{n}' for n in names)};")
        self.lines.append(".reg .b32 %at, %far, %t; .reg .b64 %w;")
        self.lines.append(f"mul.lo.u32 %at, %lane, {_SLOT_BYTES};")
        key = self.random.getrandbits(32)
        for k, name in enumerate(VARIABLES["b32"] + VARIABLES["f32"]):
            flip = 0 if self.random.random() < 0.5 else (key * (k + 3)) % 2**32
            self.lines.append(f"xor.b32 %{name}, %in{self.random.randrange(8)}, {flip:#x};")
        for name in VARIABLES["b64"] + VARIABLES["f64"]:
            a, b = (f"%in{self.random.randrange(8)}" for _ in range(2))
            self.lines.append(f"mov.b64 %{name}, {{{a}, {b}}};")
        for name in VARIABLES["b16"]:
            self.lines.append(f"cvt.u16.u32 %{name}, %in{self.random.randrange(8)};")
        self.lines.append("setp.lt.s32 %p0, %in0, %in1; setp.lt.u32 %p1, %in2, %in3;")
        self.lines.append("st.shared.v2.b64 [%at], {%d0, %d1};")

    def _block(self, steps: int, depth: int) -> None:
        for _ in range(steps):
            choice = self.random.random()
            if choice < 0.1 and depth < 2:
                self._condition(depth)
            elif choice < 0.15 and depth < 2:
                self._loop(depth)
            elif choice < 0.19 and depth < 2:
                self._table(depth)
            elif choice < 0.29 and depth == 0:
                self._exchange()
            elif choice < 0.45:
                self._memory()
            else:
                self._step()

    def _pick(self, kind: str) -> str:
        return f"%{self.random.choice(VARIABLES[kind])}"

    def _label(self) -> str:
        self.names += 1
        return f"L{self.names}"

    def _guard(self) -> str:
        if self.random.random() < 0.7:
            return ""
        return f"@{self.random.choice(['', '!'])}{self._pick('p')} "

    def _step(self) -> None:
        template = self.random.choice(TEMPLATES)
        operands = [self._operand(kind) for kind in template.sources]
        text = template.text.format(*operands, d=self._pick(template.result))
        self.lines.append((self._guard() if text.count(";") == 1 else "") + text)

    def _operand(self, kind: str) -> str:
        letter = kind[0]
        if kind == "p":
            return self._pick("p")
        if kind == "c":
            return self.random.choice([self._pick("b32"), str(self.random.randrange(71))])
        width = int(kind[1:])
        if letter == "n":
            return self.random.choice(["1", "2", "3", "7", "100", "127"])
        if letter == "i" and self.random.random() < 0.3:
            top = 2 ** (width - 1)
            return str(self.random.choice([self.random.randrange(-8, 9), -top, top - 1]))
        if letter == "l" and self.random.random() < 0.3:
            bits = int(self.random.choice(fuzz.SPECIAL))
            if width == 64:
                bits = bits << 32 | self.random.getrandbits(32)
            return f"{'0f' if width == 32 else '0d'}{bits:0{width // 4}X}"
        if letter in "fl" and self.random.random() < 0.7:
            return self._pick(f"f{width}")
        return self._pick(f"b{width}")

    def _condition(self, depth: int) -> None:
        other, end = self._label(), self._label()
        self.lines.append(f"@{self.random.choice(['', '!'])}{self._pick('p')} bra {other};")
        self._block(self.random.randrange(1, 4), depth + 1)
        if self.random.random() < 0.5:
            self.lines += [f"bra.uni {end};", f"{other}:"]
            self._block(self.random.randrange(1, 3), depth + 1)
            self.lines.append(f"{end}:")
        else:
            self.lines.append(f"{other}:")

    def _loop(self, depth: int) -> None:
        start, end = self._label(), self._label()
        self.names += 1
        count, test = f"%c{self.names}", f"%q{self.names}"
        self.lines.append(f".reg .b32 {count}; .reg .pred {test};")
        uniform = self.random.random() < 0.3
        source = self.random.randrange(4) if uniform else self._pick("b32")
        self.lines += [f"and.b32 {count}, {source}, 3;" if not uniform else
                       f"mov.b32 {count}, {source};"]  # fmt: skip
        self.lines += [f"{start}:", f"setp.eq.s32 {test}, {count}, 0;", f"@{test} bra {end};"]
        self._block(self.random.randrange(1, 4), depth + 1)
        self.lines += [f"sub.s32 {count}, {count}, 1;", f"bra.uni {start};", f"{end}:"]

    def _table(self, depth: int) -> None:
        cases, end, table = [self._label() for _ in range(4)], self._label(), self._label()
        self.lines.append(f"and.b32 %t, {self._pick('b32')}, 3;")
        self.lines.append(f"{table}: .branchtargets {', '.join(cases)};")
        self.lines.append(f"brx.idx %t, {table};")
        for case in cases:
            self.lines.append(f"{case}:")
            self._block(1, depth + 1)
            self.lines.append(f"bra.uni {end};")
        self.lines.append(f"{end}:")

    def _exchange(self) -> None:
        r, pick = self.random, self._pick
        mode = r.choice(["up", "down", "bfly", "idx"])
        step = r.choice([str(r.randrange(32)), pick("b32")])
        reduction = r.choice(["add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32"])
        vote = r.choice(["any", "all", "uni"])
        value = pick("b32")
        self.lines.append(r.choice([
            f"shfl.sync.{mode}.b32 {pick('b32')}|{pick('p')}, {value}, {step}, "
            f"{r.choice(_CLAMPS)}, -1;",
            f"vote.sync.ballot.b32 {pick('b32')}, {pick('p')}, -1;",
            f"vote.sync.{vote}.pred {pick('p')}, {pick('p')}, -1;",
            f"redux.sync.{reduction} {pick('b32')}, {value}, -1;",
            f"match.any.sync.b32 {pick('b32')}, {value}, -1;",
            f"and.b32 %t, {value}, 3; match.any.sync.b32 {pick('b32')}, %t, -1;",
            f"bar.warp.sync -1; xor.b32 %far, %at, {_SLOT_BYTES * r.randrange(32)};\n    "
            f"ld.shared.b32 {pick('b32')}, [%far+{4 * r.randrange(4)}]; bar.warp.sync -1;",
        ]))  # fmt: skip

    def _memory(self) -> None:
        r, pick, guard = self.random, self._pick, self._guard()
        width = r.choice([1, 2, 4, 8])
        kind = {1: "b16", 2: "b16", 4: "b32", 8: "b64"}[width]
        place = f"[%at+{r.randrange(0, _SLOT_BYTES, width)}]"
        space = r.choice([".shared", ".shared", ".shared::cta"])
        sign = r.choice("sub")
        name = r.choice(list(_ATOMICS))
        atomic = r.choice(_ATOMICS[name])
        wide = f"b{atomic[1:]}"
        slot = f"[%at+{r.randrange(0, _SLOT_BYTES, int(atomic[1:]) // 8)}]"
        self.lines.append(guard + r.choice([
            f"ld{space}.{sign}{8 * width} {pick(kind)}, {place};",
            f"st{space}.b{8 * width} {place}, {pick(kind)};",
            f"ld.shared.v2.b32 {{{pick('b32')}, {pick('b32')}}}, [%at+8];",
            f"st.shared.v4.b32 [%at], {{{', '.join(pick('b32') for _ in range(4))}}};",
            f"atom.shared.{name}.{atomic} {pick(wide)}, {slot}, {pick(wide)};",
            f"atom.shared.cas.b32 {pick('b32')}, [%at+4], {pick('b32')}, {pick('b32')};",
            f"ld.shared.{r.choice('su')}8 {pick('b32')}, [%at+{r.randrange(16)}];",
        ]))  # fmt: skip


def kernel_text(programs: list[str]) -> str:
    """One kernel of several programs; each has its columns in the results.

    By its `.loc`, a program is line 0 of a file, and the store of each variable a further line.
    """
    columns = len(KINDS)
    body = [f"ld.global.b64 %i{k}, [%own + {8 * k}];" for k in range(4)]
    body += [f"mov.b64 {{%in{2 * k}, %in{2 * k + 1}}}, %i{k};" for k in range(4)]
    names = [name for group in VARIABLES.values() for name in group]
    for number, program in enumerate(programs):
        body += ["{", f".loc {number + 1} 0 0", program]
        for at, (name, kind) in enumerate(zip(names, KINDS, strict=True)):
            place = f"[%out + {8 * (number * columns + at)}]"
            body.append(f".loc {number + 1} {at + 1} 0")
            body.append({
                "b64": f"st.global.b64 {place}, %{name};",
                "f64": f"st.global.b64 {place}, %{name};",
                "b16": f"cvt.u64.u16 %w, %{name}; st.global.b64 {place}, %w;",
                "p": f"selp.b64 %w, 1, 0, %{name}; st.global.b64 {place}, %w;",
            }.get(kind, f"cvt.u64.u32 %w, %{name}; st.global.b64 {place}, %w;"))  # fmt: skip
        body.append("}")
    return _FRAME.format(body="\n    ".join(body), row=8 * columns * len(programs))


_FRAME = """
.version 8.7
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 smem[];
.visible .entry fuzz(
    .param .u64 .ptr .global .align 8 inputs,
    .param .u64 .ptr .global .align 8 results
)
.reqntid 32
{{
    .reg .b32 %lane, %in<8>; .reg .b64 %i<4>, %own, %out, %x;
    mov.u32 %lane, %tid.x;
    ld.param.b64 %own, [inputs];
    mad.wide.u32 %own, %lane, 32, %own;
    ld.param.b64 %out, [results];
    mad.wide.u32 %out, %lane, {row}, %out;
    {body}
    ret;
}}
"""


def disagreements(count: int, random: Random, run_other: fuzz.Run) -> list[str]:
    """What `count` random programs compute otherwise in `run_other` than in the executor."""
    programs = [Writer(random).program(random.randrange(3, 14)) for _ in range(count)]
    text = kernel_text(programs)
    inputs = fuzz.first_values(random.getrandbits(32))
    sides = []
    for run in (fuzz.run_executor, run_other):
        results = np.zeros((32, count * len(KINDS)), np.uint64)
        run(text, inputs.copy(), results)
        sides.append(results.reshape(32, count, len(KINDS)))
    same = sides[0] == sides[1]
    for at, kind in enumerate(KINDS):
        if kind in FORMATS:
            x, y = (decode(np.ascontiguousarray(s[..., at]), FORMATS[kind]) for s in sides)
            same[..., at] |= np.isnan(x) & np.isnan(y)
    wrong = np.flatnonzero(~same.all(axis=(0, 2)))
    return [_told(programs[k], same[:, k], sides[0][:, k], sides[1][:, k]) for k in wrong]


def _told(program: str, same: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> str:
    names = [name for group in VARIABLES.values() for name in group]
    lane, at = np.argwhere(~same)[0]
    differ = f"{names[at]} of lane {lane}: {ours[lane, at]:#x} here, {theirs[lane, at]:#x} there"
    return f"{differ}\n    {program}"


def main() -> None:
    """Compare many programs, and say how many and how long it took."""
    from .test_differential import run_compiled

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=96)
    given = parser.parse_args()
    random, done, wrong, begun = Random(given.seed), 0, 0, time.monotonic()
    while done < given.count:
        found = disagreements(given.batch, random, run_compiled)
        done, wrong = done + given.batch, wrong + len(found)
        for line in found:
            print(line)
        print(f"{done} of {given.count}, {wrong} disagree", file=sys.stderr)
    print(f"{done} programs in {time.monotonic() - begun:.0f} s, {wrong} disagree")


if __name__ == "__main__":
    main()
