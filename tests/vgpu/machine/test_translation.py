"""From a kernel to its module: what is written for it, and what is left out."""

import torch
import triton
import triton.language as tl

from lethe_env.vgpu.machine.translation import translate_kernel


@triton.jit
def half_sums(x, o, n: tl.constexpr):
    row = tl.program_id(0)
    tl.store(o + row, tl.sum(tl.load(x + row * n + tl.arange(0, n)), 0))


def test_sums_of_halves_are_not_computed_in_pairs(machine):
    program, size = machine.triton(half_sums, {"x": "*fp16", "o": "*fp16"}, {"n": 1024})
    assert "add.f16x2" in {instruction.name for instruction in program.kernel.body}
    text = translate_kernel(program.kernel).module.text()
    assert "<32 x half>" in text
    assert "<64 x half>" not in text
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-2, 3, (5, 1024), generator=generator).half()
    sums = torch.full((5,), torch.nan, dtype=torch.float16)
    assert machine.run(program, (5,), x, sums, shared_bytes=size).findings == ()
    assert torch.equal(sums, x.double().sum(1).half())
