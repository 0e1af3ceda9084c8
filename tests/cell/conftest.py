import textwrap

import pytest

from lethe_env.cell import CallRequest, Limits, ModelRequest, Workshop

HEADER = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

def add(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    return out
"""


@pytest.fixture(scope="session")
def workshop():
    limits = Limits(memory_bytes=2 << 30, load_seconds=20.0)
    with Workshop("interpreter", limits) as shop:
        yield shop


@pytest.fixture
def open_cell(workshop):
    cells = []

    def opener(source):
        cells.append(workshop.open(HEADER + textwrap.dedent(source)))
        return cells[-1]

    yield opener
    for cell in cells:
        cell.close()


@pytest.fixture
def model_of(open_cell):
    """Open a cell with a module whose body is given."""

    def opener(body):
        body = textwrap.indent(textwrap.dedent(body), "    ")
        cell = open_cell("class ModelNew(torch.nn.Module):\n" + body)
        assert cell.fault is None, cell.fault
        return cell

    return opener


@pytest.fixture
def call():
    """Call a cell's default model, or another one."""

    def caller(cell, *inputs, model=ModelRequest(), **options):  # noqa: B008
        return cell.call(CallRequest(model=model, inputs=inputs, **options))

    return caller
