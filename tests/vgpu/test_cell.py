"""The virtual GPU as a cell's device, from source text to observation."""

import textwrap

import pytest
import torch

from lethe_env.cell import CallRequest, Limits, ModelRequest, Workshop
from lethe_env.cell.conversation import LostError
from lethe_env.gates.comparison import refuses_dtype
from lethe_env.vgpu.cache import cache_folder

HEADER = """
import torch, triton, triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

@triton.jit
def unmasked(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i), mask=i < n)

@triton.jit
def accumulate(x, out):
    tl.store(out, tl.load(out) + tl.load(x + tl.program_id(0)))

@triton.jit
def strange(x):
    code: tl.constexpr = "vadd4.u32.u32.u32 $0, $1, $1, 0;"
    i = tl.program_id(0)
    tl.store(x, tl.inline_asm_elementwise(code, "=r,r", [i], tl.int32, True, 1))

@triton.jit
def exponential(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.exp(tl.load(x + i)))

@triton.jit
def calling(x, out, BLOCK: tl.constexpr):
    exponential(x, out, BLOCK)

@triton.jit
def asserting(x, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 1, "not supported in this architecture")

class ModelNew(torch.nn.Module):
"""
UNMASKED_LINE = 12


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """Where native code is kept, here and nowhere else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LETHE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield cache_folder()


@pytest.fixture(scope="module")
def workshop(objects):
    with Workshop("vgpu", Limits(memory_bytes=4 << 30)) as shop:
        yield shop


@pytest.fixture
def observe(workshop):
    """Call a module's `forward`, whose body is given, on tensors."""

    def observe(body, *inputs, **options):
        forward = "    def forward(self, x):\n" + textwrap.indent(textwrap.dedent(body), " " * 8)
        with workshop.open(HEADER + forward) as cell:
            assert cell.fault is None, cell.fault
            return cell.call(CallRequest(model=ModelRequest(), inputs=inputs, **options))

    return observe


DOUBLE = """
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
"""


def test_a_sound_candidate_leaves_no_trace(observe):
    x = torch.randn(1000)
    seen = observe(DOUBLE, x)
    assert seen.fault is None, seen.fault
    assert torch.equal(seen.outputs[0].data, 2 * x)
    assert seen.sanitizer == () and seen.launches[0].kernel == "double"


@pytest.mark.parametrize("kernel", ["exponential", "calling"])
def test_a_dtype_that_does_not_compile_is_refused_before_any_launch(observe, kernel):
    body = f"""
        out = torch.empty_like(x)
        {kernel}[(1,)](x, out, BLOCK=64)
        return out
    """
    fault = observe(body, torch.randn(64, dtype=torch.float16)).fault
    assert refuses_dtype(fault), fault
    assert observe(body, torch.randn(64)).fault is None


def test_a_kernel_that_calls_another_says_what_does_not_compile(observe):
    fault = observe("calling[(1,)](x, x, BLOCK=3)", torch.randn(64)).fault
    assert fault.message == "arange's range must be a power of 2"


def test_a_configuration_that_no_device_launches_is_no_launch(observe):
    body = """
        blocks = [triton.Config({"BLOCK": block}) for block in (2, 1)]
        triton.autotune(blocks, key=[])(asserting)[(1,)](x)
        return x + 0
    """
    seen = observe(body, torch.randn(64))
    assert seen.fault is None, seen.fault
    assert [launch.arguments["BLOCK"]["constexpr"] for launch in seen.launches] == [1]


def test_the_device_claims_to_be_cuda(observe):
    seen = observe("return torch.tensor([x.is_cuda, torch.cuda.is_available()])", torch.randn(4))
    assert seen.outputs[0].data.tolist() == [True, True]


def test_reading_past_an_input_is_reported_with_its_line(observe):
    body = DOUBLE.replace("double[", "unmasked[")
    (found,) = observe(body, torch.randn(100)).sanitizer
    assert (found.kind, found.kernel, found.line) == ("out_of_bounds", "unmasked", UNMASKED_LINE)
    assert "argument x" in found.detail


def test_what_was_seen_before_a_fault_is_kept(observe):
    body = DOUBLE.replace("double[", "unmasked[").replace("return out", "raise ValueError('no')")
    seen = observe(body, torch.randn(100))
    assert seen.fault.message == "no"
    assert [found.kind for found in seen.sanitizer] == ["out_of_bounds"]


def test_reading_fresh_memory_is_reported_until_torch_writes_it(observe):
    fresh = "    y = torch.empty(64, device='cuda')\n"
    kinds = [
        f.kind for f in observe(fresh + DOUBLE.replace("(x,", "(y,"), torch.randn(64)).sanitizer
    ]
    assert kinds == ["uninitialised_read"]
    for write in ("y.zero_()", "y[:] = 1", "torch.mul(x, 2, out=y)", "y += 1"):
        seen = observe(fresh + f"    {write}\n" + DOUBLE.replace("(x,", "(y,"), torch.randn(64))
        assert seen.sanitizer == (), write


def test_what_a_kernel_has_written_is_defined(observe):
    body = """
        y, out = torch.empty_like(x), torch.empty_like(x)
        double[(1,)](x, y, 64, BLOCK=64)
        double[(1,)](y, out, 64, BLOCK=64)
        return out
    """
    x = torch.randn(64)
    seen = observe(body, x)
    assert seen.sanitizer == () and torch.equal(seen.outputs[0].data, 4 * x)


@pytest.mark.parametrize(("kept", "kinds"), [(100, []), (101, ["uninitialised_read"])])
def test_garbage_in_own_memory_may_be_loaded_and_thrown_away(observe, kept, kinds):
    body = f"""
        y, out = torch.empty(128, device=x.device), torch.zeros(128, device=x.device)
        double[(2,)](x, y, 100, BLOCK=64)
        unmasked[(2,)](y, out, {kept}, BLOCK=64)
        return out[:100]
    """
    x = torch.randn(100)
    seen = observe(body, x)
    assert torch.equal(seen.outputs[0].data, 2 * x)
    assert [found.kind for found in seen.sanitizer] == kinds
    assert all(found.line == UNMASKED_LINE for found in seen.sanitizer)


def test_races_between_blocks_are_reported(observe):
    body = """
        out = torch.zeros(1, device='cuda')
        accumulate[(8,)](x, out)
        return out
    """
    assert "race" in {found.kind for found in observe(body, torch.ones(8)).sanitizer}


def test_schedules_change_the_order_of_blocks(observe):
    body = """
        out = torch.zeros(1, device='cuda')
        accumulate[(64,)](x, out)
        return out
    """
    x = torch.ones(64)
    x[0], x[-1] = 1e8, -1e8
    sums = {observe(body, x, schedule=n).outputs[0].data.item() for n in range(4)}
    assert len(sums) > 1
    assert len({observe(body, x, schedule=1).outputs[0].data.item() for _ in range(2)}) == 1


def test_what_the_virtual_gpu_lacks_is_not_the_candidates_fault(observe):
    seen = observe("strange[(1,)](x)\nreturn x", torch.zeros(1, dtype=torch.int32))
    assert seen.fault.kind == "unsupported"
    assert seen.fault.message.startswith("unsupported by the virtual GPU: ")
    assert "vadd4" in seen.fault.message and "/cell-" not in seen.fault.message


def test_newer_hardwares_types_are_unsupported_too(observe):
    body = """
        out = torch.empty(64, device='cuda', dtype=torch.float8_e4m3fn)
        double[(1,)](x, out, 64, BLOCK=64)
        return out
    """
    assert observe(body, torch.randn(64)).fault.kind == "unsupported"


def test_addresses_in_tensors_can_be_followed(observe):
    body = """
        out = torch.empty_like(x)
        assert x[1:].data_ptr() - x.data_ptr() == 4
        double[(1,)](x, out, x.numel(), BLOCK=64)
        return out
    """
    assert observe(body, torch.randn(64)).fault is None


FORGERIES = {
    "raised": """
        from triton.compiler.errors import CompilationError
        raise CompilationError(None, None, "type fp8 not supported in this architecture")
    """,
    "asserted": """
        asserting[(1,)](x, BLOCK=64)
        return x
    """,
    "imitated": """
        class UnsupportedError(Exception): pass
        raise UnsupportedError("unsupported by the virtual GPU: vadd4")
    """,
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_limitation_cannot_be_feigned(observe, forgery):
    seen = observe(FORGERIES[forgery], torch.randn(4))
    assert seen.fault.kind == "exception", seen.fault


def test_a_refusal_is_told_in_the_judges_words(observe):
    body = """
        try:
            strange[(1,)](x)
        except Exception:
            raise ValueError("my own fault")
    """
    seen = observe(body, torch.zeros(1, dtype=torch.int32))
    assert (seen.fault.kind, "vadd4" in seen.fault.message) == ("unsupported", True)
    caught = body.replace('raise ValueError("my own fault")', "return x")
    assert observe(caught, torch.zeros(1, dtype=torch.int32)).fault is None


def test_objects_are_made_once_for_all_cells(observe, objects):
    def kept():
        return {path: path.stat().st_ino for path in objects.iterdir()}

    observe(DOUBLE, torch.randn(64))
    before = kept()
    assert observe(DOUBLE, torch.randn(64)).fault is None
    assert before and kept() == before


def test_a_question_that_is_no_ptx_gets_an_answer(workshop):
    answer = workshop._desk.clerk().answer
    assert "unsupported" in answer({"ask": "translate"})
    assert "unsupported" in answer({"ask": "translate", "ptx": "no PTX at all"})


def test_questions_back_are_counted(workshop):
    with workshop.open(HEADER + "    pass") as cell, pytest.raises(LostError):
        cell._conversation.ask({"op": "load", "source": ASKER}, 10, lambda question: {})


ASKER = """
import gc, socket
channel = next(o for o in gc.get_objects() if isinstance(o, socket.socket) and o.fileno() >= 0)
from lethe_env.cell.protocol import receive, send
while True:
    send(channel, {"ask": "translate", "ptx": ""})
    receive(channel)
"""
