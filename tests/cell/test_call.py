"""A call's way there and back: values, memory, launches."""

import pytest
import torch

from lethe_env.cell import CallRequest, HarnessError, ModelRequest

ADD = """
def forward(self, x, y):
    return add(x, y)
"""


def test_a_kernel_runs_and_its_values_come_back(model_of, call):
    x, y = torch.randn(1000), torch.randn(1000)
    observation = call(model_of(ADD), x, y)
    assert observation.fault is None
    (output,) = observation.outputs
    assert (output.path, output.device, output.shares_storage_with) == ("output", "device", None)
    assert torch.equal(output.data, x + y)
    assert observation.inputs_changed == observation.guards_broken == ()
    assert observation.time_us > 0


def test_launches_are_described_well_enough_to_compile_them(model_of, call):
    observation = call(model_of(ADD), torch.ones(1000), torch.ones(1000))
    (launch,) = observation.launches
    assert launch.kernel == "add_kernel"
    assert launch.grid == (4,)
    pointer = {"pointer": "float32"}
    assert launch.arguments == {
        **{"x": pointer, "y": pointer, "out": pointer},
        **{"n": {"value": 1000}, "BLOCK": {"constexpr": 256}},
    }


def test_options_and_dtype_constants_are_recorded(open_cell, call):
    cell = open_cell("""
    @triton.jit
    def fill(out, KIND: tl.constexpr, SCALE: tl.constexpr):
        tl.store(out + tl.arange(0, 16), tl.full((16,), 3, KIND) * SCALE)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.empty(16, device="cuda")
            fill[(1,)](out, KIND=tl.float32, SCALE=0.5, num_warps=8, num_stages=2)
            return out
    """)
    observation = call(cell, torch.ones(1))
    (launch,) = observation.launches
    assert launch.arguments["KIND"] == {"dtype": "float32"}
    assert launch.options == {"num_warps": 8, "num_stages": 2}
    assert torch.equal(observation.outputs[0].data, torch.full((16,), 1.5))


def test_muted_launches_do_nothing_and_are_still_recorded(model_of, call):
    observation = call(model_of(ADD), torch.ones(64), torch.ones(64), mute=True)
    assert len(observation.launches) == 1
    assert observation.outputs[0].data.isnan().all()


def test_an_unknown_launch_option_is_an_error_as_on_a_device(model_of, call):
    cell = model_of("""
    def forward(self, x):
        add_kernel[(1,)](x, x, x, 4, BLOCK=16, nmu_warps=4)
        return x
    """)
    fault = call(cell, torch.ones(4)).fault
    assert fault.exception == "KeyError"
    assert "nmu_warps" in fault.message


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_every_dtype_keeps_its_bits(model_of, call, dtype):
    values = torch.randn(3, 5).to(dtype)
    (output,) = call(model_of("def forward(self, x):\n    return x.clone()"), values).outputs
    assert output.data.dtype == dtype
    assert torch.equal(output.data, values)


def test_strides_and_offsets_arrive_as_they_were_sent(model_of, call):
    cell = model_of(
        "def forward(self, *xs):\n    return [(*x.stride(), x.storage_offset()) for x in xs]"
    )
    base = torch.arange(60.0)
    inputs = (base.view(6, 10).t(), base[7:19].view(3, 4), base[:5].expand(4, 5))
    values = [int(output.data) for output in call(cell, *inputs).outputs]
    assert values == [1, 10, 0, 4, 1, 7, 0, 1, 0]


def test_values_arrive_with_odd_layouts(model_of, call):
    x = torch.arange(60.0).view(6, 10).t()
    (output,) = call(model_of("def forward(self, x):\n    return x"), x).outputs
    assert torch.equal(output.data, x)
    assert output.stride == (1, 10)
    assert output.shares_storage_with == "input[0]"


def test_plain_values_and_nests_arrive_and_return(model_of, call):
    cell = model_of("""
    def forward(self, pair, scale, flag=None):
        return {"sum": pair[0] + pair[1], "rest": (scale * 2, None, [pair[0] * scale])}
    """)
    observation = call(cell, [torch.ones(2), torch.ones(2)], 3)
    paths = {output.path: output.data.tolist() for output in observation.outputs}
    assert paths == {
        "output['sum']": [2.0, 2.0],
        "output['rest'][0]": 6,
        "output['rest'][2][0]": [3.0, 3.0],
    }


@pytest.mark.parametrize(
    ("expression", "part"),
    [
        ("'text'", "type str"),
        ("x.to_sparse()", "sparse"),
        ("torch.empty(2, device='meta')", "meta"),
        ("x.as_subclass(type('Lazy', (torch.Tensor,), {}))", "subclass"),
        ("torch.ones(1, device='cuda').expand(1 << 40)", "limit of bytes"),
        ("[x] * 1000", "more than 256"),
        ("1 << 80", "64 bits"),
    ],
)
def test_other_outputs_are_protocol_faults(model_of, call, expression, part):
    observation = call(model_of(f"def forward(self, x):\n    return {expression}"), torch.ones(4))
    assert observation.fault.kind == "protocol"
    assert part in observation.fault.message
    assert observation.outputs == ()


def test_changed_inputs_are_reported(model_of, call):
    cell = model_of("def forward(self, x, y):\n    y.zero_()\n    return x + y")
    x, y = torch.ones(8), torch.ones(8)
    assert call(cell, x, y).inputs_changed == (1,)
    assert torch.equal(y, torch.ones(8)), "the judge's own tensor was touched"


@pytest.mark.parametrize("offset", [-1, 1000, 1500])
def test_writes_outside_an_input_are_reported(open_cell, call, offset):
    cell = open_cell(f"""
    @triton.jit
    def stray(x):
        tl.store(x + {offset}, 1.0)
    class ModelNew(torch.nn.Module):
        def forward(self, x, y):
            stray[(1,)](y)
            return x + y
    """)
    observation = call(cell, torch.ones(1000), torch.ones(1000))
    assert observation.guards_broken == (1,)
    assert observation.inputs_changed == ()


def test_reads_outside_an_input_give_nan(open_cell, call):
    cell = open_cell("""
    @triton.jit
    def stray(x, out):
        tl.store(out, tl.load(x + 1000))
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.zeros(1, device=x.device)
            stray[(1,)](x, out)
            return out
    """)
    assert call(cell, torch.ones(1000)).outputs[0].data.isnan().all()


def test_caching_by_address_is_caught(model_of, call):
    cell = model_of("""
    seen = {}
    def forward(self, x, y):
        key = (x.data_ptr(), y.data_ptr(), x.shape)
        if key not in self.seen:
            self.seen[key] = add(x, y)
        return self.seen[key]
    """)
    first = call(cell, torch.ones(100), torch.ones(100))
    second = call(cell, torch.zeros(100), torch.zeros(100))
    assert torch.equal(first.outputs[0].data, torch.full((100,), 2.0))
    assert torch.equal(second.outputs[0].data, torch.full((100,), 2.0)), "addresses have changed"
    assert second.outputs[0].shares_storage_with == "previous output"


def test_outputs_in_parameter_memory_are_named(model_of, call):
    cell = model_of("""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4, 4))
    def forward(self, x):
        return self.weight.data[1:]
    """)
    assert call(cell, torch.ones(1)).outputs[0].shares_storage_with == "parameter weight"


def test_instances_persist_between_calls_of_one_model_only(model_of, call):
    cell = model_of("""
    count = 0
    def forward(self, x):
        self.count += 1
        return x + self.count
    """)
    one, other = ModelRequest(seed=1), ModelRequest(seed=2)
    values = [call(cell, torch.zeros(1), model=m).outputs[0].data.item() for m in (one, one, other)]
    assert values == [1.0, 2.0, 1.0]
    assert call(cell, torch.zeros(1), model=ModelRequest(seed=1)).outputs[0].data.item() == 3.0


def test_fresh_memory_is_poisoned(model_of, call):
    cell = model_of("""
    def forward(self, x):
        kinds = (torch.float16, torch.int8, torch.int64, torch.bool)
        return [torch.empty(3, dtype=kind, device="cuda") for kind in kinds] + [x.new_empty(2)]
    """)
    half, byte, long, flag, new = (o.data for o in call(cell, torch.ones(1)).outputs)
    assert half.isnan().all() and new.isnan().all() and flag.all()
    assert set(byte.tolist()) == {0x5B}
    assert set(long.tolist()) == {0x5BA55BA55BA55BA5}


def test_inputs_beyond_the_arena_are_the_harness_fault(model_of, workshop):
    cell = model_of(ADD)
    storage = torch.empty(1, dtype=torch.uint8).untyped_storage()
    assert storage.nbytes() == 1
    huge = torch.empty(workshop.limits.input_bytes, dtype=torch.uint8)
    with pytest.raises(HarnessError, match=r"Limits\.input_bytes"):
        cell.call(CallRequest(model=ModelRequest(), inputs=(huge, huge)))


def test_values_that_cannot_be_sent_are_the_harness_fault(model_of, call):
    with pytest.raises(HarnessError, match="type object"):
        call(model_of(ADD), object())
