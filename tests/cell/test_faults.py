"""Whatever a candidate does ends in one clear fault, and the next cell is unharmed."""

import pytest
import torch

from lethe_env.cell import ModelRequest
from lethe_env.gates.comparison import refuses_dtype

BODIES = {
    "raise SystemExit(3)": ("exit", "asked to exit with 3"),
    "raise KeyboardInterrupt": ("exception", "KeyboardInterrupt"),
    "import os; os._exit(0)": ("exit", "exit code 0"),
    "import ctypes; ctypes.string_at(0)": ("signal", "SIGSEGV"),
    "import os; os.abort()": ("signal", "SIGABRT"),
    "torch.ones(100 << 30)": ("memory", "limit"),
    "bytearray(100 << 30)": ("memory", "limit"),
    "import numpy; numpy.ones(100 << 30)": ("memory", "limit"),
    "f = lambda: f(); f()": ("exception", "recursion"),
    "raise type('Bad', (Exception,), {'__str__': lambda self: 1 / 0})": ("exception", "Bad"),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_violent_end_is_a_fault(model_of, call, body):
    kind, part = BODIES[body]
    observation = call(model_of(f"def forward(self, x):\n    {body}\n    return x"), torch.ones(4))
    assert observation.fault.kind == kind, observation.fault
    assert part in observation.fault.message
    assert observation.fault.phase == "forward"
    assert observation.outputs == ()


def test_a_raised_exception_leaves_the_cell_alive(model_of, call):
    cell = model_of(
        "def forward(self, x):\n    if x[0] > 0:\n        raise ValueError('no')\n    return x"
    )
    assert call(cell, torch.ones(1)).fault.exception == "ValueError"
    assert cell.alive
    assert call(cell, torch.zeros(1)).fault is None


def test_an_exception_without_words_is_told_by_its_statement(model_of, call):
    cell = model_of("def forward(self, x):\n    assert x.dtype == torch.float32\n    return x")
    fault = call(cell, torch.ones(1, dtype=torch.float16)).fault
    assert fault.exception == "AssertionError"
    assert fault.message == "assert x.dtype == torch.float32"
    assert refuses_dtype(fault)


ENDLESS = [
    "while True: pass",
    "import time; time.sleep(1000)",
    "import signal; signal.pthread_sigmask(0, range(1, 64))\n    while True: pass",
    """while True:
        try:
            while True: pass
        except BaseException: pass""",
]


@pytest.mark.parametrize("loop", ENDLESS)
def test_an_endless_call_is_ended_at_its_deadline(model_of, call, loop):
    cell = model_of(f"def forward(self, x):\n    {loop}")
    observation = call(cell, torch.ones(1), deadline_seconds=0.5)
    assert observation.fault.kind == "timeout"
    assert observation.fault.phase == "forward"
    assert not cell.alive
    assert call(cell, torch.ones(1)).fault == observation.fault


def test_a_death_tells_phase_and_launches_so_far(model_of, call):
    cell = model_of("""
    def forward(self, x):
        add(x, x)
        add(x, x)
        import os; os._exit(7)
    """)
    fault = call(cell, torch.ones(4)).fault
    assert (fault.kind, fault.phase, fault.launches) == ("exit", "forward", 2)
    assert "7" in fault.message


def test_the_line_of_a_python_error_is_given(workshop, call):
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    cell = workshop.open(source + "        y = x.view(3)\n        return y\n")
    fault = call(cell, torch.ones(4)).fault
    assert (fault.line, fault.exception) == (4, "RuntimeError")
    assert "Traceback" not in fault.message
    cell.close()


def test_an_error_within_a_kernel_is_unwrapped_and_located(workshop, call):
    source = """import torch, triton
import triton.language as tl
@triton.jit
def broken(x):
    i = tl.arange(0, 16)
    v = tl.load(x + i)
    tl.store(x + i, v + undefined_name)
class ModelNew(torch.nn.Module):
    def forward(self, x):
        broken[(1,)](x)
        return x
"""
    cell = workshop.open(source)
    fault = call(cell, torch.ones(16)).fault
    assert (fault.exception, fault.line, fault.launches) == ("NameError", 7, 1)
    assert "undefined_name" in fault.message
    cell.close()


@pytest.mark.parametrize(
    ("source", "kind", "part"),
    [
        ("x = 1 / 0", "exception", "division by zero"),
        ("x = 1", "refused", "defines no class ModelNew"),
        ("import os; os._exit(1)", "exit", "exit code 1"),
        ("def f(:", "exception", "invalid syntax"),
        ("import no_such_package", "exception", "no_such_package"),
    ],
)
def test_a_source_that_does_not_load_is_a_fault_of_the_cell(workshop, call, source, kind, part):
    cell = workshop.open(source)
    assert (cell.fault.kind, cell.fault.phase) == (kind, "load")
    assert part in cell.fault.message
    assert call(cell, torch.ones(1)).fault == cell.fault
    cell.close()


def test_a_failing_constructor_is_reported_once_per_model(model_of, call):
    cell = model_of("""
    def __init__(self, size):
        super().__init__()
        raise ValueError(f"bad size {size}")
    """)
    observation = call(cell, torch.ones(1), model=ModelRequest(init_inputs=(3,)))
    assert (observation.fault.phase, observation.fault.message) == ("construct", "bad size 3")


def test_long_messages_are_cut(model_of, call):
    fault = call(
        model_of("def forward(self, x):\n    raise ValueError('a' * 10000)"), torch.ones(1)
    ).fault
    assert len(fault.message) <= 300


def test_printing_without_end_hurts_nobody(model_of, call):
    cell = model_of("""
    def forward(self, x):
        import os, sys
        for _ in range(64):
            sys.stdout.write("x" * (1 << 20)); os.write(2, b"y" * (1 << 20))
        return x + 1
    """)
    assert call(cell, torch.ones(1)).fault is None
