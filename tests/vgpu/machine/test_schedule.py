"""The order of blocks hides nothing that depends on it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lethe_env.vgpu.machine.schedule import block_order

SEEDS = range(20)


@pytest.mark.parametrize("blocks", [1, 2, 31, 63, 64, 100, 1024, 70001])
def test_every_block_begins_once(blocks):
    assert block_order(blocks, None).tolist() == list(range(blocks))
    order = block_order(blocks, 7)
    assert order.dtype == np.uint32
    assert sorted(order.tolist()) == list(range(blocks))
    assert order.tolist() == block_order(blocks, 7).tolist()


@pytest.mark.parametrize("blocks", [2, 3, 64, 1024])
def test_any_two_blocks_begin_in_either_order(blocks):
    orders = [np.argsort(block_order(blocks, seed)) for seed in SEEDS]
    for first, second in ((0, 1), (0, blocks - 1), (blocks // 2 - 1, blocks // 2)):
        assert {bool(order[first] < order[second]) for order in orders} == {True, False}


def test_neighbours_of_a_large_grid_begin_one_after_the_other():
    steps = np.abs(np.diff(block_order(1024, 3).astype(int)))
    assert np.mean(steps == 1) > 0.9


@pytest.mark.parametrize("blocks", [2, 5, 200])
@pytest.mark.parametrize(
    "write",
    ["st.global.b32 [%d1], %r2;", "atom.global.exch.b32 %r3, [%d1], %r2;"],
    ids=["store", "exchange"],
)
def test_the_last_writer_differs_from_seed_to_seed(machine, blocks, write):
    x = torch.zeros(1, dtype=torch.int32)
    winners = set()
    for seed in SEEDS:
        machine.assembled(f"mov.u32 %r2, %ctaid.x; {write}", x, grid=(blocks,), seed=seed)
        winners.add(x.item())
    assert len(winners) > 1


@pytest.mark.parametrize("blocks", [3, 200])
def test_sums_of_floats_depend_on_the_seed(machine, blocks):
    """2**24 and ones: how many of them are lost depends on how many come after it."""
    body = """mov.u32 %r2, %ctaid.x; setp.eq.s32 %p1, %r2, 1; mov.b32 %r3, 0f3F800000;
    @%p1 mov.b32 %r3, 0f4B800000; setp.eq.s32 %p2, %r1, 0;
    @%p2 red.global.add.f32 [%d1], %r3;"""
    sums = set()
    for seed in SEEDS:
        x = torch.zeros(1)
        machine.assembled(body, x, grid=(blocks,), seed=seed)
        sums.add(x.item())
    assert len(sums) > 1
