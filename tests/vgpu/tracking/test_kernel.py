"""Tracking kernels of what Triton compiles: the kernel's own instructions, and shadows for all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lethe_env.vgpu.machine.translation import translate_kernel
from lethe_env.vgpu.tracking.kernel import tracking_kernel

from ..ptx.corpus import NAMES, load


@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_can_be_followed_from_all_its_loads(name):
    kernel, _ = load(name)
    loads = {
        i.index
        for i in kernel.body
        if (i.opcode[0] == "ld" and "global" in i.opcode)
        or (i.opcode[0] == "cp" and len(i.operands) > 1)
    }
    tracked = tracking_kernel(kernel, loads, 1 << 16)
    assert translate_kernel(tracked).sites
    own = iter(replace(i, index=0) for i in tracked.body)
    assert all(replace(i, index=0) in own for i in kernel.body)
    for label, at in kernel.labels.items():
        kept = [replace(i, index=0) for i in kernel.body[at:]]
        after = [replace(i, index=0) for i in tracked.body[tracked.labels[label] :]]
        assert [i for i in after if i in kept][:1] == kept[:1]
