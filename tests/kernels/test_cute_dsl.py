"""The CuTe DSL as an optional package."""

import pytest

from lethe_env.kernels import cute_dsl
from lethe_env.kernels.gated_delta.blackwell.compilation import compile_reverse_state_scan


@pytest.mark.parametrize("call", [cute_dsl.load, lambda: compile_reverse_state_scan(128, 64, True)])
def test_a_missing_package_is_named_with_its_extra(call, monkeypatch):
    monkeypatch.setattr(cute_dsl, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'lethe_env\[blackwell\]'"):
        call()


def test_a_kernel_is_compiled_without_a_gpu():
    if not cute_dsl.is_installed():
        pytest.skip(cute_dsl.MISSING)
    from ..vgpu.cute.kernels import add

    vector = cute_dsl.placeholder("Float32", None)
    number = cute_dsl.load("cutlass").Int32(1)
    compiled = cute_dsl.compile_host(add, vector, vector, vector, number)
    assert ".target sm_100a" in compiled.ptx and ".loc" in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")
    assert [name for name, _ in compiled.parameters] == ["a", "b", "out", "count"]
