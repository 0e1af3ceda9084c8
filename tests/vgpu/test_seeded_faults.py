"""Faults put into sound kernels are found, with the line of the kernel; sound kernels are clean."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field

import pytest
import torch
import triton
import triton.language as tl

from .machine.conftest import Machine

N = 1000
BLOCK = 256


@triton.jit
def scale(x, out, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if FAULT == "off-by-one program":
        i += BLOCK
    inside = i < n
    filled = inside | (FAULT == "missing load mask")
    v = tl.load(x + i, mask=filled)  # missing load mask
    if FAULT == "missing store mask":
        tl.store(out + i, v * 2)  # missing store mask
    else:
        tl.store(out + i, v * 2, mask=inside)


@triton.jit
def row_sums(x, out, rows, columns, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    stride = columns
    if FAULT == "wrong stride":
        stride = columns + 1
    v = tl.load(x + r * stride + c, mask=c < columns, other=0)  # wrong stride
    if FAULT == "non-atomic accumulation":
        tl.store(out, tl.load(out) + tl.sum(v, 0))  # non-atomic accumulation
    else:
        tl.store(out + r, tl.sum(v, 0))


@triton.jit
def far_copy(x, out, step, FAULT: tl.constexpr):
    p = tl.program_id(0)
    wide = p.to(tl.int64) * step
    offset = (p * step if FAULT == "int32 overflow" else wide) >> 26
    tl.store(out + p, tl.load(x + offset))  # int32 overflow


@triton.jit
def shift(x, out, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i + 1, mask=i + 1 < n, other=0)
    if FAULT == "in-place shift":
        tl.store(x + i, v, mask=i < n)  # in-place shift
    else:
        tl.store(out + i, v, mask=i < n)


@triton.jit
def twice(x, middle, out, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    """Writes to memory that nobody has written, and reads it again."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside)
    if FAULT == "read before write":
        v += tl.load(middle + i, mask=inside)  # read before write
    if FAULT == "unwritten tail":
        tl.store(middle + i, v, mask=i < n - 5)
    else:
        tl.store(middle + i, v, mask=inside)
    tl.debug_barrier()
    w = tl.load(middle + i, mask=inside)  # unwritten tail
    tl.store(out + i, w, mask=inside)


def numbers(n: int = N) -> torch.Tensor:
    return torch.arange(n, dtype=torch.int32)


@dataclass(frozen=True)
class Fault:
    """A kernel, how it is launched, and what its fault is reported as."""

    name: str
    kernel: triton.JITFunction
    kind: str
    grid: int
    arguments: tuple = ()
    undefined: tuple[str, ...] = ()
    constants: dict = field(default_factory=lambda: {"BLOCK": BLOCK})
    mark: str = ""
    """What the line in question says, if not the fault's name."""


ROWS = (4, 200)
FAULTS = [
    Fault("missing load mask", scale, "out_of_bounds", 4, ("x", "out", N)),
    Fault("missing store mask", scale, "out_of_bounds", 4, ("x", "out", N)),
    Fault(
        "off-by-one program", scale, "uninitialised_read", 4, ("x", "out", N), ("out",),
        mark="tl.load(result + i",
    ),
    Fault("wrong stride", row_sums, "out_of_bounds", 4, ("tile", "out", *ROWS)),
    Fault("non-atomic accumulation", row_sums, "race", 4, ("tile", "out", *ROWS)),
    Fault("int32 overflow", far_copy, "out_of_bounds", 128, ("x", "out", 1 << 26), (), {}),
    Fault("in-place shift", shift, "race", 4, ("x", "out", N)),
    Fault("read before write", twice, "uninitialised_read", 4, ("x", "middle", "out", N),
          ("middle",)),
    Fault("unwritten tail", twice, "uninitialised_read", 4, ("x", "middle", "out", N),
          ("middle",)),
]  # fmt: skip


@triton.jit
def read_all(result, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(result + i, mask=i < n), mask=i < n)


def line_of(function, text):
    lines, first = inspect.getsourcelines(function.fn)
    return first + next(k for k, line in enumerate(lines) if text in line)


def launched(machine, kernel, grid, arguments, constants, undefined=()):
    names = kernel.arg_names
    signature = {
        name: "*i32" if isinstance(value, torch.Tensor) else "i32"
        for name, value in zip(names, arguments, strict=False)
    }
    program, shared = machine.triton(kernel, signature, constants)
    return machine.run(program, [grid], *arguments, undefined=undefined, shared_bytes=shared)


@pytest.mark.parametrize("seeded", [True, False], ids=["faulty", "clean"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_with_its_line_and_a_sound_kernel_is_clean(fault, seeded):
    machine = Machine()
    tensors = {
        "x": numbers(),
        "tile": numbers(ROWS[0] * ROWS[1]),
        "out": torch.zeros(N, dtype=torch.int32),
        "middle": torch.zeros(N, dtype=torch.int32),
    }
    arguments = [tensors.get(a, a) if isinstance(a, str) else a for a in fault.arguments]
    constants = {**fault.constants, "FAULT": fault.name if seeded else ""}
    undefined = [tensors[name] for name in fault.undefined]
    report = launched(machine, fault.kernel, fault.grid, arguments, constants, undefined)
    findings = [(fault.kernel, finding) for finding in report.findings]
    if fault.mark:  # what was left unwritten shows when somebody reads it
        again = [tensors["out"], torch.zeros(N, dtype=torch.int32), N]
        report = launched(machine, read_all, 4, again, {"BLOCK": BLOCK})
        findings += [(read_all, finding) for finding in report.findings]
    if not seeded:
        assert findings == []
        return
    assert {finding.kind for _, finding in findings} == {fault.kind}
    for kernel, finding in findings:
        assert finding.kernel == kernel.fn.__name__
        assert finding.location.file.endswith("test_seeded_faults.py")
        assert finding.location.line == line_of(kernel, fault.mark or f"# {fault.name}")


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    v = tl.load(x + i, mask=inside, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + i, e / tl.sum(e, 0), mask=inside)


def test_each_barrier_of_softmax_is_missed_when_it_is_gone():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from lethe_env.vgpu.machine.program import compile as compile_ptx

    machine = Machine()
    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = ASTSource(softmax, types, {(3,): 512}, {})
    compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32))
    text, shared = compiled.asm["ptx"], compiled.metadata.shared
    barriers = [k for k in range(len(text)) if text.startswith("bar.sync", k)]
    assert len(barriers) >= 4
    body = {"x": torch.randn(3, 500), "out": torch.zeros(3, 500)}
    for place in (None, *barriers):
        kept = text if place is None else text[:place] + text[text.index(";", place) + 1 :]
        report = machine.run(
            compile_ptx(kept), [3], body["x"], body["out"], 500, shared_bytes=shared
        )
        kinds = {finding.kind for finding in report.findings}
        assert kinds <= {"barrier", "uninitialised_read"}
        assert ("barrier" in kinds) == (place is not None)
        for finding in report.findings:
            assert finding.location.line > 0
