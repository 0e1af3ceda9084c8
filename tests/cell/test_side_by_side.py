"""Configurations are compiled at once, and nothing that a launch does or says depends on it."""

from functools import partial

import pytest
import torch
import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from lethe_env.cell import CallRequest, Limits, ModelRequest, Workshop
from lethe_env.cell.side_by_side import SideBySide
from lethe_env.vgpu.cache import ObjectCache
from lethe_env.vgpu.cores import THREADS_VARIABLE
from lethe_env.vgpu.driver import VirtualDriver

BLOCKS = (16, 24, 32, 64)


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@pytest.fixture
def compiles(tmp_path, monkeypatch):
    """The virtual GPU is active; gives the blocks that were compiled so far."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)
    VirtualDriver(translate=ObjectCache(tmp_path / "objects")).activate()
    found = []
    compile_kernel = triton.compiler.compile

    def noting(source, **options):
        found.append(source.constants[(3,)])
        return compile_kernel(source, **options)

    monkeypatch.setattr(triton.compiler, "compile", noting)
    double.device_caches.clear()
    yield found
    double.device_caches.clear()


def test_launches_find_what_was_compiled_ahead(compiles):
    x, out, texts = torch.randn(100), torch.empty(100), []

    def warm_up(block):
        double.warmup(x, out, 100, BLOCK=block, grid=(1,))

    SideBySide(2, texts.extend).compile([partial(warm_up, block) for block in BLOCKS])
    assert sorted(compiles) == list(BLOCKS)
    assert len(set(texts)) == 3 and all(".visible .entry double" in text for text in texts)
    with pytest.raises(CompilationError, match="power of 2"):
        double[(5,)](x, out, 100, BLOCK=24)
    for block in (16, 32, 64):
        double[(triton.cdiv(100, block),)](x, out.zero_(), 100, BLOCK=block)
        assert torch.equal(out, 2 * x)
    assert len(compiles) == len(BLOCKS), "nothing is compiled twice"


@pytest.mark.parametrize(("threads", "blocks"), [(1, BLOCKS), (2, BLOCKS[:1])])
def test_one_at_a_time_is_left_to_the_launches(compiles, threads, blocks):
    def warm_up(block):
        raise AssertionError("compiled ahead")

    SideBySide(threads, compiles.append).compile([partial(warm_up, block) for block in blocks])
    assert compiles == []


def test_what_cannot_be_bound_is_left_to_the_launch_to_say(compiles):
    wrong = [partial(double.warmup, grid=(1,), nonsense=1)] * 2
    SideBySide(2, compiles.extend).compile(wrong)
    assert compiles == []


TUNED = """
import torch, triton, triton.language as tl
hooks = []
@triton.autotune([triton.Config({{"BLOCK": block}}{hook}) for block in (16, 32, 64)], key=[])
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        double[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out, torch.tensor(len(hooks))
"""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv(THREADS_VARIABLE, "2")
        with Workshop("vgpu", Limits(memory_bytes=4 << 30)) as shop:
            yield shop


@pytest.mark.parametrize(("hook", "batches"), [("", [2]), (", pre_hook=hooks.append", [])])
def test_a_tuner_has_as_many_configurations_made_at_once_as_there_are_threads(
    workshop, monkeypatch, hook, batches
):
    """Three configurations on two threads: two at once, then the last one by itself."""
    desk, asked = workshop._desk, []
    prepare = desk._prepare

    def noting(texts):
        asked.append(len(texts))
        prepare(texts)

    monkeypatch.setattr(desk, "_prepare", noting)
    x = torch.randn(100)
    with workshop.open(TUNED.format(hook=hook)) as cell:
        seen = cell.call(CallRequest(model=ModelRequest(), inputs=(x,)))
    assert seen.fault is None, seen.fault
    assert torch.equal(seen.outputs[0].data, 2 * x)
    assert [e.arguments["BLOCK"]["constexpr"] for e in seen.launches] == [16, 32, 64]
    assert seen.outputs[1].data.item() == (4 if hook else 0)
    assert asked == batches


NOTHING = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry nothing() .reqntid 32 { ret; }
"""


def test_the_judge_fills_its_cache_and_forgives_what_cannot_be_translated(workshop, monkeypatch):
    desk, opened = workshop._desk, []
    converse = desk._converse

    def noting(task):
        opened.append(task)
        return converse(task)

    monkeypatch.setattr(desk, "_converse", noting)
    clerk = desk.clerk()
    texts = [NOTHING, "no PTX at all", NOTHING, 7, "a third text for two threads"]
    assert clerk.answer({"ask": "prepare", "ptx": texts}) == {}
    assert clerk.take_denial() is None
    assert len(opened) == 3, "two texts once; the refused one again, with its lines"
    assert clerk.answer({"ask": "translate", "ptx": NOTHING})["native"]
    assert len(opened) == 3
    assert "unsupported" in clerk.answer({"ask": "translate", "ptx": "no PTX at all"})
