"""Shared code: what a kernel leaves to it is what the kernel would have defined itself."""

import pytest

from lethe_env.vgpu.machine import shared_code, tensor_code
from lethe_env.vgpu.machine.translation import translate_kernel
from lethe_env.vgpu.ptx.parser import parse
from tests.vgpu.ptx import corpus

AMPERE = [name for name in corpus.NAMES if not name.endswith(("sm_90", "sm_100"))]


@pytest.mark.parametrize("name", AMPERE)
def test_shared_functions_are_those_of_every_kernel(name):
    kernel, _ = corpus.load(name)
    own = translate_kernel(kernel).module.functions
    left = translate_kernel(kernel, shared_code.declarations()).module
    shared = {function: own[function] for function in own if function in shared_code.declarations()}
    assert len(shared) > 5
    assert shared.keys().isdisjoint(left.functions)
    whole = shared_code.text()
    for body in shared.values():
        assert body.replace("define internal", "define") in whole


@pytest.mark.parametrize("name", ("dot_fp16", "dot_bf16", "dot_fp32"))
def test_newer_gpus_have_products_of_their_own(name):
    older = parse(corpus.text_of(name))
    newer = parse(corpus.text_of(name).replace(".target sm_80", ".target sm_90a"))
    assert tensor_code.serves(newer) and not tensor_code.serves(older)
    before, after = (
        {f: text for f, text in translate_kernel(k).module.functions.items() if "mma.sync" in f}
        for k in (older, newer)
    )
    assert len(before) == len(after) == 1
    assert before.keys() <= shared_code.declarations().keys()
    assert after.keys() <= tensor_code.declarations().keys() - shared_code.declarations().keys()
    for body in after.values():
        assert body.replace("define internal", "define") in tensor_code.text()


def test_nothing_shared_reaches_a_kernels_own_code():
    assert "@warp(" not in shared_code.text()
    assert {"warp", "block.run", "fiber.body"}.isdisjoint(shared_code.declarations())
    assert {"load.32x4", "store.32x1", "warp.barrier", "copy.issue.16"} <= set(
        shared_code.declarations()
    )
