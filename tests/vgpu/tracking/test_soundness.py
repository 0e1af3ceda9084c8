"""No use is missed: where a result depends on what nobody wrote, its store is reported."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.program import Options, Program, build
from lethe_env.vgpu.memory import AddressSpace
from lethe_env.vgpu.ptx.model import Address, Register
from lethe_env.vgpu.ptx.parser import parse
from lethe_env.vgpu.tracking.kernel import tracking_kernel

from .. import flow_fuzz, fuzz

PROGRAMS = 24
COLUMNS = len(flow_fuzz.KINDS)
UNDEFINED = {6: [1, 1, 0, 0], 7: [0, 0, 0, 0]}
"""By the input, a word in every lane, which of its bytes are written."""


def launched(program: Program, inputs: np.ndarray) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """The results, by lane, program and variable; and program and variable of reported uses."""
    memory = AddressSpace()
    results = np.zeros((32, PROGRAMS * COLUMNS), np.int64)
    pointers = [memory.pointer(torch.from_numpy(a)) for a in (inputs.view(np.int64), results)]
    defined = np.ones((32, 8, 4), np.uint8)
    for word, written in UNDEFINED.items():
        defined[:, word] = written
    memory.table[pointers[0].address >> 40, 3] = defined.ctypes.data
    options = Options(shared_bytes=2 * fuzz.SHARED_BYTES, races=False, barriers=False)
    places = [f.location for f in program.run((1,), pointers, memory, options).findings
              if f.opcode.startswith("use.")]  # fmt: skip
    uses = {(int(place.file.split()[1]) - 1, place.line - 1) for place in places}
    return results.reshape(32, PROGRAMS, COLUMNS), uses


@pytest.mark.parametrize("seed", [1, 2])
def test_a_result_that_garbage_changes_is_reported(seed):
    random = Random(seed)
    writers = [flow_fuzz.Writer(random) for _ in range(PROGRAMS)]
    programs = [writer.program(random.randrange(3, 14)) for writer in writers]
    kernel = parse(flow_fuzz.kernel_text(programs))
    loads = {i.index for i in kernel.body if Address(Register("%own"), 24) in i.operands}
    program = build(tracking_kernel(kernel, loads, fuzz.SHARED_BYTES))
    inputs = fuzz.first_values(seed)
    other = inputs.copy()
    words = other.view(np.uint32).reshape(32, 8)
    garbage = np.random.default_rng(seed).integers(0, 2**32, (32, 2), np.uint32)
    words[:, 7] = garbage[:, 1]
    words[:, 6] = (words[:, 6] & 0xFFFF) | (garbage[:, 0] & 0xFFFF0000)
    (first, uses), (second, _) = launched(program, inputs), launched(program, other)
    steered = {number for number, variable in uses if variable < 0}
    differ = {(int(n), int(v)) for _, n, v in np.argwhere(first != second)}
    plain = {(number, variable) for number, variable in differ if number not in steered}
    assert len(plain) > 20
    assert plain <= uses
    assert len(steered) < PROGRAMS
