"""Ahead-of-time compiles: what a kernel needs, on targets that are not here."""

import json
from dataclasses import replace

import pytest

from lethe_env.cell import Workshop
from lethe_env.cell import resources as module
from lethe_env.cell.assembler import refusal
from lethe_env.gates import hardware
from lethe_env.gates.results import Results
from lethe_env.gates.verdict import Status
from lethe_env.tasks.observation import Launch
from lethe_env.vgpu.store import Store

from .conftest import HEADER

FLOAT, HALF = {"pointer": "float32"}, {"pointer": "bfloat16"}
ADD = Launch(
    kernel="add_kernel",
    arguments={
        **{"x": FLOAT, "y": FLOAT, "out": FLOAT},
        **{"n": {"value": 1000}, "BLOCK": {"constexpr": 256}},
    },
    options={"num_warps": 8},
    grid=(4,),
)

TENSOR_MEMORY = """
import triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor
@triton.jit
def product(a, b, c, K, SIZE: tl.constexpr, STEP: tl.constexpr):
    row, step = tl.arange(0, SIZE), tl.arange(0, STEP)
    total = tl.zeros([SIZE, SIZE], dtype=tl.float32)
    for k in range(0, K, STEP):
        left = tl.load(a + row[:, None] * K + (k + step)[None, :]).to(tl.bfloat16)
        right = tl.load(b + (k + step)[:, None] * SIZE + row[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + row[:, None] * SIZE + row[None, :], total)
@triton.jit
def square(x):
    return x * x
@triton.jit
def apply(out, KIND: tl.constexpr, F: tl.constexpr, extra, flag: tl.constexpr):
    tl.store(out + tl.arange(0, 16), F(tl.full((16,), 3, KIND)).to(tl.float32))
@triton.jit
def copy(source, target):
    target.store([0, 0], source.load([0, 0]))
@triton.jit
def mistaken(out):
    tl.store(out, nothing_of_this_name)
class ModelNew: pass
"""


@pytest.fixture(scope="module")
def shop():
    with Workshop("interpreter") as workshop:
        yield workshop


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LETHE_CACHE_DIR", str(tmp_path))
    return tmp_path / "resources"


def test_figures_come_for_every_launch_and_target(shop):
    found = shop.resources(HEADER, [ADD], ["sm_80", "sm_90", "sm_100"])
    assert [entry.target for entry in found] == ["sm_80", "sm_90", "sm_100"]
    for entry in found:
        assert entry.error is None
        assert (entry.kernel, entry.threads, entry.options) == ("add_kernel", 256, {"num_warps": 8})
        assert 4 <= entry.registers <= 64
        assert (entry.spill_bytes, entry.shared_bytes, entry.tensor_memory_columns) == (0, 0, 0)


def product(size, step, warps, left):
    arguments = {"a": left, "b": HALF, "c": FLOAT, "K": {"value": 256}}
    arguments |= {"SIZE": {"constexpr": size}, "STEP": {"constexpr": step}}
    return Launch(
        kernel="product", arguments=arguments, options={"num_warps": warps, "num_stages": 1}
    )


def test_a_kernel_over_its_tensor_memory_is_rejected(shop, make_task):
    """A total of 256 by 256 fills all columns; a factor made in registers needs 32 of its own."""
    launches = [product(256, 32, 8, left) for left in ({"pointer": "int16"}, HALF)]
    over, full = shop.resources(TENSOR_MEMORY, launches, ["sm_100"])
    assert (over.error, over.tensor_memory_columns) == (None, 544)
    assert (full.error, full.tensor_memory_columns) == (None, 512)
    finding = finding_of(make_task, over, full)
    assert finding.status is Status.FAIL
    assert finding.reason == "product on sm_100: 544 tensor-memory columns, the limit is 512"
    assert (finding.score, finding.measured["tensor_memory_columns"]) == (0.5, 544.0)
    assert finding_of(make_task, full).status is Status.PASS


def finding_of(make_task, *entries):
    """What RES-02 says of some compiles."""
    results = Results(task=make_task(HEADER), truths={}, observations={}, resources=entries)
    return hardware.judge(results)


def test_spills_and_shared_memory_are_measured(shop):
    (entry,) = shop.resources(TENSOR_MEMORY, [product(128, 64, 1, HALF)], ["sm_80"])
    assert entry.spill_bytes > 0
    assert entry.shared_bytes >= 16384


def test_every_kind_of_argument_can_be_compiled_again(shop):
    arguments = {
        **{"out": FLOAT, "KIND": {"dtype": "float16"}, "F": {"function": "square"}},
        **{"extra": {"value": None}, "flag": {"value": True}},
    }
    descriptor = {
        **{"descriptor": "float16", "shape": [64, 64]},
        **{"strides": [64, 1], "block_shape": [32, 32]},
    }
    launches = [
        Launch(kernel="apply", arguments=arguments),
        Launch(kernel="copy", arguments={"source": descriptor, "target": descriptor}),
    ]
    for entry in shop.resources(TENSOR_MEMORY, launches, ["sm_90"]):
        assert entry.error is None
        assert entry.registers > 0


MADE_INSIDE = (
    HEADER
    + """
def maker(size, configurations):
    @triton.autotune(configs=configurations, key=["n"])
    @triton.jit
    def plain(out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, i.to(tl.float32), mask=i < n)
    @triton.jit
    def closed(out, n, BLOCK: tl.constexpr):
        tl.store(out + tl.arange(0, size), 1.0)
    return plain, closed

def other(size):
    @triton.jit
    def twice(out, n):
        tl.store(out, 0.0)
    return twice

def another(size):
    @triton.jit
    def twice(out, n):
        tl.store(out + n, 1.0)
    return twice
"""
)


def test_a_kernel_that_a_function_makes_is_compiled_if_it_stands_by_itself(shop):
    arguments = {"out": FLOAT, "n": {"value": 7}, "BLOCK": {"constexpr": 64}}
    names = ("plain", "closed", "twice")
    launches = [Launch(kernel=name, arguments=arguments) for name in names]
    entries = shop.resources(MADE_INSIDE, launches, ["sm_90", "sm_100"])
    assert [(entry.kernel, entry.error) for entry in entries] == [("plain", None)] * 2
    assert all(entry.registers > 0 for entry in entries)


@pytest.mark.parametrize(
    ("launch", "part"),
    [
        (Launch(kernel="mistaken", arguments={"out": FLOAT}), "nothing_of_this_name"),
        (Launch(kernel="absent"), "defines no function absent"),
        (Launch(kernel="apply", arguments={"out": {"unknown": "Thing"}}), "cannot be described"),
        (product(256, 64, 3, HALF), "power of 2"),
    ],
)
def test_what_does_not_compile_says_why(shop, launch, part):
    (entry,) = shop.resources(TENSOR_MEMORY, [launch], ["sm_90"])
    assert part in entry.error
    assert entry.registers == 0


def test_an_assembler_error_is_one_sentence():
    log = "ptxas error   : Entry function 'f' uses too much shared data (0x4 bytes, 0x2 max)\nmore"
    text = refusal(f"`ptxas` failed with error code 255\n`ptxas` stderr:\n{log}\n")
    assert text == (
        "the assembler refused the kernel: "
        "Entry function 'f' uses too much shared data (0x4 bytes, 0x2 max)"
    )
    blackwell = "ptxas-blackwell fatal   : Ptx assembly aborted due to errors"
    assert "Ptx assembly aborted" in refusal(blackwell)


@pytest.mark.parametrize("end", ["import os; os._exit(5)", "x = 1 / 0", "while True: pass"])
def test_a_source_that_ends_the_compiler_is_an_error_text(end, cache):
    from lethe_env.cell import Limits

    with Workshop("interpreter", Limits(load_seconds=2.0)) as shop:
        found = shop.resources(HEADER + end, [ADD], ["sm_80", "sm_90"])
    assert all(entry.error for entry in found)


def test_a_source_cannot_start_processes_while_it_is_compiled(shop):
    (entry,) = shop.resources(HEADER + "import os; os.fork()", [ADD], ["sm_80"])
    assert "PermissionError" in entry.error


def test_results_are_kept_on_disk_and_the_grid_does_not_matter(shop, cache, monkeypatch):
    (first,) = shop.resources(HEADER, [ADD], ["sm_80"])
    (path,) = cache.iterdir()
    content = json.loads(Store(cache).get(path.name))
    Store(cache).put(path.name, json.dumps(content | {"registers": 77}).encode())
    other = Launch(kernel=ADD.kernel, arguments=ADD.arguments, options=ADD.options, grid=(9,))
    (second,) = shop.resources(HEADER, [other], ["sm_80"])
    assert (first.registers, second.registers) == (content["registers"], 77)
    monkeypatch.setattr(module, "version", lambda name: "0.0")
    (third,) = shop.resources(HEADER, [ADD], ["sm_80"])
    assert third == first


def test_a_damaged_cache_is_compiled_over(shop, cache):
    shop.resources(HEADER, [ADD], ["sm_80"])
    (path,) = cache.iterdir()
    path.write_text("{")
    (entry,) = shop.resources(HEADER, [ADD], ["sm_80"])
    assert entry.error is None
    assert json.loads(Store(cache).get(path.name))["registers"] == entry.registers


def test_unknown_targets_are_refused(shop):
    with pytest.raises(ValueError, match="sm_80, sm_90, sm_100"):
        shop.resources(HEADER, [ADD], ["sm_75"])


def test_observed_launches_compile(shop):
    import torch

    from lethe_env.cell import CallRequest, ModelRequest

    source = HEADER + "class ModelNew:\n    def __call__(self, x):\n        return add(x, x)\n"
    with shop.open(source) as cell:
        request = CallRequest(model=ModelRequest(), inputs=(torch.ones(100),))
        launches = cell.call(request).launches
    (entry,) = shop.resources(source, launches, ["sm_90"])
    assert entry.error is None and entry.threads == 128


def test_what_has_run_is_not_compiled_again(monkeypatch):
    import torch

    from lethe_env.cell import CallRequest, ModelRequest

    compiled, from_source = [], module._Session._from_source

    def noted(session, launch, target):
        compiled.append(target)
        return from_source(session, launch, target)

    monkeypatch.setattr(module._Session, "_from_source", noted)
    source = HEADER + "class ModelNew:\n    def __call__(self, x):\n        return add(x, x)\n"
    with Workshop("vgpu", architecture=90) as virtual:
        with virtual.open(source) as cell:
            request = CallRequest(model=ModelRequest(), inputs=(torch.ones(128),))
            (launch,) = cell.call(request).launches
        assert launch.compiled.threads == 128
        ran, further = virtual.resources(source, [launch], ["sm_90", "sm_100"])
        assert compiled == ["sm_100"]
        unknown = replace(launch.compiled, ptx="another digest", threads=7)
        unknown = replace(launch, options={"num_stages": 4}, compiled=unknown)
        (again,) = virtual.resources(source, [unknown], ["sm_90"])
    assert compiled == ["sm_100", "sm_90"]
    assert ran.error is further.error is again.error is None
    assert (ran.registers, ran.threads) == (again.registers, again.threads)


def test_kernels_of_ours_are_compiled_where_they_were_prepared(shop):
    pointer = {"pointer": "float16"}
    launch = Launch(
        kernel="unit_length_kernel",
        arguments={
            **{"x": pointer, "y": pointer, "inverse": FLOAT},
            **{"width": {"value": 48}, "eps": {"value": 1e-6}, "BLOCK": {"constexpr": 64}},
        },
        grid=(4,),
    )
    source = "from lethe_env.kernels.gated_delta import unit_length\nclass ModelNew: pass"
    with Workshop(
        "interpreter", prepare=["lethe_env.kernels.gated_delta.blackwell.modules:LinearAttention"]
    ) as ours:
        (found,) = ours.resources(source, [launch], ["sm_90"])
    assert found.error is None and found.registers > 0
    (unknown,) = shop.resources("class ModelNew: pass", [launch], ["sm_90"])
    assert unknown.error == "the source defines no function unit_length_kernel"
