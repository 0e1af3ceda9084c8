"""Torch operations as eager PyTorch would launch them."""

import torch

from lethe_env.vgpu.operations import OperationLog, operations_of


def noted(call):
    return [(item.name, item.bytes, dict(item.operations)) for item in operations_of(call)]


def test_elementwise_work_is_the_bytes_it_moves():
    x, y = torch.ones(4, 8), torch.ones(8)
    assert noted(lambda: x + y) == [("add", 4 * (32 + 8 + 32), {})]


def test_products_count_on_the_unit_that_eager_torch_uses():
    a, b = torch.ones(4, 8), torch.ones(8, 16)
    assert noted(lambda: a @ b) == [("mm", 4 * (32 + 128 + 64), {"f32": 2 * 4 * 8 * 16})]
    ((_, _, half),) = noted(lambda: a.half() @ b.half())[2:]
    assert half == {"f16": 1024}
    signal, weight = torch.ones(1, 2, 10), torch.ones(3, 2, 3)
    ((name, _, products),) = noted(lambda: torch.nn.functional.conv1d(signal, weight))
    assert (name, products) == ("convolution", {"tf32": 2 * 8 * 3 * 2 * 3})


def test_attention_is_one_kernel_with_two_products():
    q = torch.ones(1, 2, 8, 16)
    with torch.no_grad():
        call = operations_of(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
    assert [dict(item.operations) for item in call] == [{"f32": 2 * (2 * 2 * 8 * 8 * 16)}]


def test_views_and_allocations_are_free():
    x = torch.ones(4, 8)
    assert noted(lambda: (x.t(), x[1:], x.view(-1), torch.empty(9), x.expand(2, 4, 8))) == []


def test_an_expanded_operand_is_read_once():
    row = torch.ones(1, 8).expand(100, 8)
    assert noted(lambda: row.neg()) == [("neg", 4 * 8 + 4 * 800, {})]


def test_overwriting_does_not_read_and_a_lookup_reads_what_it_returns():
    x, table = torch.ones(16), torch.ones(1000, 4)
    assert noted(lambda: x.zero_()) == [("zero_", 64, {})]
    assert noted(lambda: x.add_(1)) == [("add_", 128, {})]
    rows = torch.tensor([3, 5])
    assert noted(lambda: table[rows])[-1] == ("index", 2 * 8 + 2 * 2 * 4 * 4, {})


def test_nothing_is_noted_while_paused():
    x = torch.ones(4)
    with OperationLog() as log:
        with log.paused():
            x.add_(1)
        x.mul_(2)
    assert [item.name for item in log.operations] == ["mul_"]
