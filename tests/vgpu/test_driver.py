import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from lethe_env.vgpu.arguments import flatten
from lethe_env.vgpu.cache import ObjectCache, without_locations
from lethe_env.vgpu.driver import VirtualDriver
from lethe_env.vgpu.memory import AddressSpace, Pointer
from lethe_env.vgpu.ptx.model import UnsupportedError
from lethe_env.vgpu.session import LaunchError


@pytest.fixture
def driver(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(triton.knobs.runtime, "add_stages_inspection_hook", None)
    monkeypatch.setattr(triton.runtime.driver, "_active", None)
    active = VirtualDriver(translate=ObjectCache(tmp_path / "objects"))
    active.activate()
    return active


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def test_a_launch_computes(driver):
    x, out = torch.randn(1000), torch.empty(1000)
    scale[(triton.cdiv(1000, 256),)](x, out, 1000, 2.5, BLOCK=256)
    assert torch.equal(out, x * 2.5)
    assert driver.session.take_findings() == []


def test_grids_may_depend_on_configuration(driver):
    x, out = torch.randn(1000), torch.empty(1000)
    scale[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, out, 1000, 0.5, BLOCK=128)
    assert torch.equal(out, x * 0.5)


def test_specialisations_are_kernels_of_their_own(driver):
    x, out = torch.randn(1025), torch.empty(1025)
    for n in (1, 16, 1000):  # equal to one, divisible by sixteen, neither
        scale[(8,)](x[1:], out[1:], n, 2, BLOCK=128)
        assert torch.equal(out[1 : n + 1], x[1 : n + 1] * 2)


def test_a_kernel_without_mask_is_found_out(driver):
    @triton.jit
    def copy(x, out, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(out + i, tl.load(x + i))

    beyond = torch.full((128,), 7.0)
    copy[(1,)](torch.randn(128), beyond[:100].clone(), N=128)
    (found,) = driver.session.take_findings()
    assert (found.kind, found.kernel) == ("out_of_bounds", "copy")
    assert found.detail.startswith("byte 400 of the 400 bytes of argument out")
    assert found.opcode.startswith("st.global") and found.file == __file__


def test_autotuning_tries_every_configuration_once(driver):
    tried = []

    def note(arguments, reset_only=False):
        tried.append(reset_only)

    @triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], ["n"], pre_hook=note)
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def double(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(out + i, tl.load(x + i) * 2)
        else:
            tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

    for n in (128, 100):
        x, out = torch.randn(n), torch.empty(n)
        double[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, n)
        assert torch.equal(out, x * 2)
    assert tried.count(False) == 4
    assert driver.session.take_findings() == []


def test_tensor_descriptors_and_tuples(driver):
    @triton.jit
    def add(x, y, out):
        out.store([0, 0], x.load([0, 0]) * y[1] + y[0].load([0, 0]))

    x, y = torch.randn(8, 16), torch.randn(8, 16)
    out = torch.empty(8, 16)
    tiles = [TensorDescriptor.from_tensor(tensor, [8, 16]) for tensor in (x, y, out)]
    add[(1,)](tiles[0], (tiles[1], 2.0), tiles[2])
    assert torch.equal(out, x * 2 + y)


def test_device_assertions_end_the_launch(driver):
    @triton.jit(debug=True)
    def check(x):
        tl.device_assert(tl.load(x) > 0, "must be positive")

    check[(1,)](torch.ones(1))
    with pytest.raises(LaunchError, match="device-side assert triggered"):
        check[(1,)](torch.zeros(1))


def test_printing_is_kept(driver):
    @triton.jit
    def say(n):
        tl.device_print("n is", n)

    say[(1,)](1234)
    assert any("1234" in line for line in driver.session.printed)


def test_launch_hooks_are_called(driver, monkeypatch):
    seen = []
    runtime = triton.knobs.runtime
    monkeypatch.setattr(runtime, "launch_enter_hook", lambda data: seen.append(data.get()["name"]))
    monkeypatch.setattr(runtime, "launch_exit_hook", lambda data: seen.append("done"))
    scale[(1,)](torch.randn(16), torch.empty(16), 16, 2.0, BLOCK=16)
    assert seen == ["scale", "done"]


def test_grids_beyond_the_hardware_are_refused(driver):
    with pytest.raises(RuntimeError, match="invalid argument"):
        scale[(1, 70000)](torch.randn(16), torch.empty(16), 16, 2.0, BLOCK=16)


def test_unknown_instructions_are_never_guessed(driver):
    @triton.jit
    def strange(out):
        value = tl.inline_asm_elementwise(
            "vadd4.u32.u32.u32 $0, $1, $1, 0;", "=r,r", [tl.program_id(0)], tl.int32, True, 1
        )
        tl.store(out, value)

    with pytest.raises(UnsupportedError, match=r"unsupported by the virtual GPU: .*vadd4"):
        strange[(1,)](torch.zeros(1, dtype=torch.int32))


def test_a_binary_of_ours_never_meets_a_real_gpu(driver):
    x = torch.zeros(16)
    ours = scale.warmup(x, x, 16, 2.0, BLOCK=16, grid=(1,))
    assert ours.asm["cubin"].decode() == ours.asm["ptx"]
    triton.knobs.runtime.add_stages_inspection_hook = None
    assert triton.compile(ours.src, target=driver.get_current_target()).hash != ours.hash


def test_launches_are_timed_by_the_model(driver):
    x, out = torch.randn(1000), torch.empty(1000)
    times = triton.runtime.driver.active.get_benchmarker()(
        lambda: scale[(8,)](x, out, 1000, 2.0, BLOCK=128), quantiles=(0.5, 0.2)
    )
    assert len(times) == 2 and times[0] == times[1] > 0
    ((name, counts),) = driver.session.counts
    assert name == "scale" and counts.footprint_bytes == 8000
    assert sum(counts.instructions.values()) > 8 * 4 * 10
    assert (counts.blocks, counts.warps) == (8, 32)


def test_tensor_core_work_is_counted_by_type(driver):
    @triton.jit
    def product(a, b, out, N: tl.constexpr):
        i = tl.arange(0, N)
        tile = i[:, None] * N + i[None, :]
        tl.store(out + tile, tl.dot(tl.load(a + tile), tl.load(b + tile)))

    a, b = torch.randn(32, 32).half(), torch.randn(32, 32).half()
    out = torch.empty(32, 32)
    product[(1,)](a, b, out, N=32)
    assert driver.session.counts[0][1].mma_operations == {"f16": 2 * 32**3}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i32", -3, -3),
        ("u1", True, 1),
        ("fp32", 0.1, 0.10000000149011612),
        ("fp32", 1e300, float("inf")),
        ("fp64", 0.1, 0.1),
        ("fp16", 1.5, 0x3E00),
        ("bf16", -2.0, 0xC000),
    ],
)
def test_numbers_are_passed_as_the_hardware_gets_them(kind, value, expected):
    assert list(flatten(["a"], [kind], [value], AddressSpace())) == [expected]


def test_constants_take_no_parameter_and_tuples_are_flattened():
    space, x = AddressSpace(), torch.zeros(4)
    given = flatten(
        ["x", "c", "t"], ["*fp32", "constexpr", ("i32", "*fp32")], [x, 5, (3, x)], space
    )
    address = space.address(x)
    assert list(given) == [Pointer(address, "x"), 3, Pointer(address, "t[1]")]


def test_objects_are_translated_once_and_kept(tmp_path):
    asked = []

    def translate(ptx):
        asked.append(ptx)
        return b"native"

    assert ObjectCache(tmp_path, translate)("kernel") == b"native"
    assert ObjectCache(tmp_path, translate)("kernel") == b"native"
    assert ObjectCache(tmp_path, translate)("another") == b"native"
    assert asked == ["kernel", "another"]


def test_objects_do_not_depend_on_where_the_source_lies(driver):
    x = torch.zeros(16)
    ptx = scale.warmup(x, x, 16, 2.0, BLOCK=16, grid=(1,)).asm["ptx"]
    assert __file__ in ptx
    plain = without_locations(ptx)
    assert __file__ not in plain and ".loc" not in plain and ".section" not in plain
    assert "st.global" in plain and plain.count("\n") > 20


def test_refusals_say_where_although_objects_do_not(tmp_path):
    def translate(ptx):
        raise UnsupportedError("located" if ".loc" in ptx else "nowhere")

    with pytest.raises(UnsupportedError, match="located"):
        ObjectCache(tmp_path, translate)("\t.loc 1 2 3\n\tvadd4;\n")
