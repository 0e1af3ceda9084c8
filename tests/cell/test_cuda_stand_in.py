"""Candidates written for a GPU run unchanged; what lies on the host is known."""

import pytest
import torch

TRUE = [
    "x.is_cuda",
    "not x.is_cpu",
    "x.device.type == 'cuda'",
    "str(x.device) == 'cuda:0'",
    "x.get_device() == 0",
    "torch.cuda.is_available()",
    "torch.cuda.device_count() == 1",
    "torch.cuda.current_device() == 0",
    "torch.cuda.get_device_capability() == (8, 0)",
    "torch.cuda.get_device_properties(x.device).multi_processor_count == 108",
    "torch.cuda.current_stream().cuda_stream == 0",
    "torch.cuda.synchronize() is None",
    "torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event()) > 0",
    "torch.empty(3, device='cuda').is_cuda",
    "torch.empty(3, device=x.device).is_cuda",
    "torch.zeros(3, device=torch.device('cuda', 0)).is_cuda",
    "torch.ones(3, device=torch.cuda.current_device()).is_cuda",
    "torch.randn(2, generator=torch.Generator(device='cuda'), device='cuda').is_cuda",
    "x.new_zeros(3).is_cuda",
    "torch.zeros_like(x).is_cuda",
    "(x + 1).view(2, 2).t()[0].is_cuda",
    "x.cuda() is x",
    "x.to('cuda') is x",
    "x.to(x.device, torch.float16).dtype == torch.float16",
    "torch.ones(3).cuda().is_cuda",
    "torch.ones(3).to(0).is_cuda",
    "torch.ones(3).to(x).is_cuda",
    "torch.ones(3).to(device='cuda', dtype=torch.int32).is_cuda",
    "not torch.ones(3).is_cuda",
    "not x.cpu().is_cuda",
    "not x.to('cpu').is_cuda",
    "not torch.zeros(3, device='cpu').is_cuda",
    "not torch.zeros(3).add(1).is_cuda",
    "torch.zeros(()).add(x).is_cuda",
    "not torch.from_numpy(x.cpu().numpy()).is_cuda",
    "not torch.zeros(3).add_(1).is_cuda",
    "torch.zeros(3).device.type == 'cpu'",
    "x.cpu().data_ptr() != x.data_ptr()",
    "triton.runtime.driver.active.get_current_device() == 0",
    "triton.runtime.driver.active.get_current_target().arch == 80",
    "triton.runtime.driver.active.utils.get_device_properties(0)['multiprocessor_count'] == 108",
    "torch.compile(lambda y: y + 1)(x).is_cuda",
    "isinstance(x, torch.Tensor) and type(x) is torch.Tensor",
]


@pytest.mark.parametrize("expression", TRUE)
def test_it_is_as_on_a_gpu(model_of, call, expression):
    observation = call(
        model_of(f"def forward(self, x):\n    return bool({expression})"), torch.ones(4)
    )
    assert observation.fault is None, observation.fault
    assert observation.outputs[0].data.item() is True


def test_context_managers_of_torch_cuda_work(model_of, call):
    cell = model_of("""
    def forward(self, x):
        with torch.cuda.device(x.device), torch.cuda.device_of(x), torch.device("cuda"):
            with torch.cuda.stream(torch.cuda.Stream()):
                assert torch.zeros(3).is_cuda
                return add(x, x)
    """)
    observation = call(cell, torch.ones(4))
    assert observation.fault is None, observation.fault
    assert torch.equal(observation.outputs[0].data, torch.full((4,), 2.0))


@pytest.mark.parametrize(
    "expression",
    ["torch.zeros(4)", "x.cpu()", "x.to('cpu')", "torch.tensor([1.0]) * 2", "x.cpu()[1:]"],
)
def test_outputs_on_the_host_are_reported(model_of, call, expression):
    (output,) = call(
        model_of(f"def forward(self, x):\n    return {expression}"), torch.ones(4)
    ).outputs
    assert output.device == "host"


def test_outputs_on_the_device_are_reported(model_of, call):
    cell = model_of("def forward(self, x):\n    return x + torch.tensor(1.0), x.cpu().cuda()")
    assert [output.device for output in call(cell, torch.ones(4)).outputs] == ["device", "device"]


def test_a_kernel_cannot_reach_host_memory(model_of, call):
    cell = model_of("def forward(self, x):\n    return add(x, torch.zeros(x.shape))")
    fault = call(cell, torch.ones(4)).fault
    assert fault.exception == "ValueError"
    assert "Pointer argument (at 1) cannot be accessed from Triton (cpu tensor?)" in fault.message


def test_an_empty_host_tensor_may_be_passed(model_of, call):
    cell = model_of("""
    def forward(self, x):
        add_kernel[(1,)](x, torch.zeros(0), x, 0, BLOCK=16)
        return x + 1
    """)
    assert call(cell, torch.ones(4)).fault is None


def test_parameters_are_moved_to_the_device_and_plain_attributes_are_not(model_of, call):
    cell = model_of("""
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("scale", torch.ones(4))
        self.plain = torch.ones(4)
    def forward(self, x):
        return self.weight.is_cuda, self.scale.is_cuda, self.plain.is_cuda, add(x, self.weight)
    """)
    observation = call(cell, torch.ones(4))
    assert [output.data.tolist() for output in observation.outputs[:3]] == [True, True, False]
    assert torch.equal(observation.outputs[3].data, torch.full((4,), 2.0))


def test_numpy_of_a_device_tensor_is_an_error_as_on_a_gpu(model_of, call):
    fault = call(model_of("def forward(self, x):\n    return x.numpy().sum()"), torch.ones(4)).fault
    assert fault.exception == "TypeError"
    assert "Tensor.cpu()" in fault.message


def test_a_second_device_does_not_exist(model_of, call):
    fault = call(model_of("def forward(self, x):\n    return x.to('cuda:1')"), torch.ones(4)).fault
    assert "invalid device ordinal" in fault.message


def test_the_judge_itself_is_untouched(model_of, call):
    call(model_of("def forward(self, x):\n    return x"), torch.ones(4))
    assert not torch.ones(1).is_cuda
    assert torch.cuda.Event.__module__.startswith("torch")


@pytest.mark.parametrize(("architecture", "name"), [(80, "A100"), (90, "H100"), (100, "B200")])
def test_the_claimed_device_is_the_one_that_code_is_compiled_for(architecture, name):
    from lethe_env.cell import claims, cuda_runtime
    from lethe_env.gates.hardware import SHARED_LIMIT_BYTES
    from lethe_env.gates.roofline import TARGET
    from lethe_env.vgpu.driver import ARCHITECTURES, VirtualDriver

    driver = VirtualDriver(architecture=architecture)
    claimed, target = claims.device_properties(architecture), driver.target
    assert driver.get_device_capability() == (claimed.major, claimed.minor)
    assert ARCHITECTURES[driver.get_current_target().arch] == name
    assert (architecture == 80) == (name == TARGET)
    assert name in claimed.name and claimed.multi_processor_count == target.multiprocessors
    assert claimed.shared_memory_per_block_optin == SHARED_LIMIT_BYTES[f"sm_{architecture}"]
    mine = cuda_runtime.Driver(driver.get_current_target()).utils.get_device_properties()
    theirs = driver._properties()
    for key in ("multiprocessor_count", "sm_clock_rate", "mem_clock_rate", "mem_bus_width"):
        assert mine[key] == theirs[key], key
