"""The fuzzer's programs are PTX, run, and bring a wrong instruction to light."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
import triton
from hypothesis import HealthCheck, given, settings

from . import fuzz
from .executor import floating

FEW = settings(
    max_examples=15,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assembled(text, folder):
    """What ptxas, which comes with Triton, says of a program."""
    assembler = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    source = folder / "program.ptx"
    source.write_text(text)
    command = [assembler, "-arch=sm_80", source, "-o", folder / "program.cubin"]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_template_is_legal_ptx_and_known_to_the_executor(tmp_path):
    programs = [fuzz.all_of([template], seed=5) for template in fuzz.TEMPLATES]
    for program in programs:
        results = np.zeros((fuzz.LANES, 1), np.uint64)
        fuzz.run_executor(program.text, program.inputs, results)
    kernels = [p.text.replace("entry fuzz", f"entry fuzz{at}") for at, p in enumerate(programs)]
    head = kernels[0][: kernels[0].index(".visible")]
    text = head + "".join(kernel[kernel.index(".visible") :] for kernel in kernels)
    result = assembled(text, tmp_path)
    assert result.returncode == 0, result.stderr[:2000]


def test_the_assembler_refuses_what_is_no_ptx(tmp_path):
    text = fuzz.all_of(fuzz.TEMPLATES[:1], seed=5).text.replace("add.", "add.surprise.")
    assert assembled(text, tmp_path).returncode != 0


@FEW
@given(program=fuzz.programs())
def test_programs_agree_with_themselves(program):
    assert fuzz.differences(program, fuzz.run_executor) == []


def test_a_wrong_instruction_is_seen(monkeypatch):
    (template,) = [item for item in fuzz.TEMPLATES if item.opcode == "max.NaN.f32"]
    program = fuzz.all_of([template], seed=5)
    right = floating.arithmetic

    def wrong(text, inputs, results):
        with monkeypatch.context() as patch:
            patch.setattr(
                floating, "arithmetic", lambda name, modifiers, *rest: right(name, set(), *rest)
            )
            fuzz.run_executor(text, inputs, results)

    assert fuzz.differences(program, fuzz.run_executor) == []
    found = fuzz.differences(program, wrong)
    assert found and all("max.NaN.f32" in line and "0x7fffffff here" in line for line in found)


@pytest.mark.parametrize(("factor", "seen"), [(1 + 2.0**-23, False), (1 + 2.0**-19, True)])
def test_functions_may_be_off_by_what_the_isa_allows(factor, seen):
    (template,) = [item for item in fuzz.TEMPLATES if item.opcode == "ex2.approx.f32"]
    program = fuzz.all_of([template], seed=5)

    def near(text, inputs, results):
        fuzz.run_executor(text, inputs, results)
        values = results.astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            moved = (values.astype(np.float64) * factor).astype(np.float32)
        results[:] = moved.view(np.uint32)

    assert bool(fuzz.differences(program, near)) == seen


def test_open_bits_of_nans_are_not_compared():
    (template,) = [item for item in fuzz.TEMPLATES if item.opcode == "abs.f32"]
    program = fuzz.all_of([template], seed=5)

    def other_nans(text, inputs, results):
        fuzz.run_executor(text, inputs, results)
        results[results > 0x7F800000] = 0x7FC12345

    def zeroed(text, inputs, results):
        results[:] = 0

    assert fuzz.differences(program, other_nans) == []
    assert fuzz.differences(program, zeroed) != []
