"""Triton's language runs right on every architecture, so the architectures agree.

Only products on tensor cores differ: between sm_80 and the others, by what their sums cut off.
"""

import pytest
import torch
import triton

from lethe_env.gates.oracle import Oracle
from lethe_env.kernels.controls import HONEST
from lethe_env.tasks.catalog import find_task
from lethe_env.tasks.inputs import draw_inputs
from lethe_env.tasks.probe import Probe
from lethe_env.tasks.reference import CONSTRUCTOR_SEED, task_reference
from lethe_env.vgpu.cache import ObjectCache
from lethe_env.vgpu.driver import VirtualDriver

from . import language

ARCHITECTURES = (80, 90, 100)
SLOW = {"matmul", "causal_attention", "causal_attention_skipping", "linear_gelu", "max_pool2d"}
SLOW |= {"cross_entropy", "causal_conv1d", "layer_norm", "argmax", "variance", "log_softmax"}
"""Honest kernels that take seconds to compile; they are left to `--all-architectures`."""


@pytest.fixture
def activate(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("vgpu")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)

    def start(architecture):
        kernels = [k for k in vars(language).values() if isinstance(k, triton.JITFunction)]
        for kernel in kernels:
            kernel.device_caches.clear()
        translate = ObjectCache(folder / "objects")
        driver = VirtualDriver(architecture=architecture, translate=translate)
        driver.activate()
        return driver.session

    return start


@pytest.fixture
def everywhere(request):
    return request.config.getoption("--all-architectures")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", language.CASES)
def test_the_language(activate, everywhere, name, architecture):
    if architecture == 90 and name not in language.DIFFERENT_ON_90 and not everywhere:
        pytest.skip("the same instructions as for sm_80; --all-architectures runs it")
    session = activate(architecture)
    if name == "fp8_e4m3" and architecture == 80:
        with pytest.raises(triton.CompilationError, match="fp8e4nv not supported"):
            language.CASES[name]()
        return
    found, expected = language.CASES[name]()
    assert torch.equal(found, expected)
    assert session.take_findings() == []


def test_products_differ_by_what_their_sums_cut_off(activate):
    """Sixteen products of f16: two sums of eight on sm_80, one sum with a bit more on the others.

    Let S be the sum of their magnitudes, no less than what a sum is aligned to. On sm_80
    nine numbers are cut by less than 2⁻²⁴ S each and the result by 2⁻²³ S, twice; on the others
    seventeen by 2⁻²⁵ S each and the result by 2⁻²³ S, once: in all less than 33 · 2⁻²⁴ S.
    """
    generator = torch.Generator().manual_seed(9)
    a, b = (torch.randn(16, 16, generator=generator).half() for _ in range(2))
    outputs = []
    for architecture in ARCHITECTURES:
        session = activate(architecture)
        outputs.append(torch.empty(16, 16))
        language.small_dot_kernel[(1,)](a, b, outputs[-1], N=16, PRECISION="tf32")
        assert session.counts[-1][1].mma_operations.keys() == {"f16"}
    first, second, third = outputs
    assert not torch.equal(first, second)
    assert torch.equal(second, third)
    magnitude = a.double().abs() @ b.double().abs()
    assert ((first.double() - second.double()).abs() < 33 * 2.0**-24 * magnitude).all()


def output_of(control, folder):
    """What a candidate gives at its task's small shape."""
    path = folder / f"{control.name}.py"
    path.write_text(control.source())
    names = {"__name__": control.name, "__file__": str(path)}
    exec(compile(control.source(), str(path), "exec"), names)
    task = find_task(control.task)
    probe = Probe(sizes=task.family.base)
    arguments = task_reference(task, probe.sizes).get_init_inputs()
    torch.manual_seed(CONSTRUCTOR_SEED)
    model = names["ModelNew"](*arguments)
    with torch.no_grad():
        return model(*draw_inputs(task, probe))


@pytest.mark.parametrize("control", HONEST, ids=lambda control: control.name)
def test_honest_kernels_agree_on_all_architectures(activate, everywhere, tmp_path, control):
    if control.name in SLOW and not everywhere:
        pytest.skip("takes seconds; --all-architectures runs it")
    outputs = []
    for architecture in ARCHITECTURES:
        session = activate(architecture)
        found = output_of(control, tmp_path)
        outputs.append(found if isinstance(found, tuple) else (found,))
        assert session.take_findings() == []
        assert not any(counts.mma_operations for _, counts in session.counts)
    first, second, third = outputs
    assert all(map(torch.equal, first, second))
    if control.library:
        assert within_the_bound(control, first) and within_the_bound(control, third)
    else:
        assert all(map(torch.equal, first, third))


def within_the_bound(control, found):
    """On sm_100 products are made in pairs, which are not fused into sums; both are right."""
    task = find_task(control.task)
    truth = Oracle().truth(task, Probe(sizes=task.family.base).question, tf32=False)
    pairs = zip(found, truth.outputs, strict=True)
    return all(bool(((t - w.values).abs() <= w.allowed)[w.charged].all()) for t, w in pairs)
