"""Autotuned kernels: every configuration runs once, then the judge's choice counts."""

import pytest
import torch

SOURCE = """
@triton.autotune(
    configs=[triton.Config({{"BLOCK": b}}, num_warps=b // 16) for b in (16, 32, 64)],
    key=["n"]{extra}
)
@triton.jit
def accumulate(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        n = x.numel()
        accumulate[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        return out
"""


def blocks(observation):
    return [launch.arguments["BLOCK"]["constexpr"] for launch in observation.launches]


def test_the_first_call_runs_every_configuration_on_the_same_buffers(open_cell, call):
    cell = open_cell(SOURCE.format(extra=""))
    first = call(cell, torch.ones(100))
    assert blocks(first) == [16, 32, 64]
    assert [launch.options["num_warps"] for launch in first.launches] == [1, 2, 4]
    assert {launch.tuned for launch in first.launches} == {("BLOCK",)}
    assert torch.equal(first.outputs[0].data, torch.full((100,), 4.0)), (
        "three trials and the choice"
    )
    second = call(cell, torch.ones(100))
    assert blocks(second) == [16]
    assert torch.equal(second.outputs[0].data, torch.ones(100))


@pytest.mark.parametrize("extra", [", reset_to_zero=['out']", ", restore_value=['out']"])
def test_resetting_and_restoring_are_honoured(open_cell, call, extra):
    observation = call(open_cell(SOURCE.format(extra=extra)), torch.ones(100))
    assert torch.equal(observation.outputs[0].data, torch.ones(100))


def test_rotation_picks_the_configuration(open_cell, call):
    cell = open_cell(SOURCE.format(extra=""))
    call(cell, torch.ones(100))
    chosen = [blocks(call(cell, torch.ones(100), rotation=number)) for number in (0, 1, 2, 3, 1)]
    assert chosen == [[16], [32], [64], [16], [32]]


def test_pruned_configurations_never_run(open_cell, call):
    prune = ", prune_configs_by={'early_config_prune': lambda configs, args, **k: configs[1:]}"
    assert blocks(call(open_cell(SOURCE.format(extra=prune)), torch.ones(100))) == [32, 64]


def test_hooks_of_a_configuration_run_before_each_launch(open_cell, call):
    cell = open_cell("""
    count = []
    def hook(args):
        count.append(args["n"])
        args["out"].zero_()
    @triton.autotune(configs=[triton.Config({"BLOCK": b}, pre_hook=hook) for b in (16, 32)], key=[])
    @triton.jit
    def accumulate(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.atomic_add(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            accumulate[(1,)](x, out, x.numel())
            return out, len(count)
    """)
    observation = call(cell, torch.ones(10))
    assert torch.equal(observation.outputs[0].data, torch.ones(10))
    assert observation.outputs[1].data.item() == 3


def test_a_configuration_that_does_not_fit_is_skipped(open_cell, call):
    cell = open_cell("""
    from triton.runtime.errors import OutOfResources
    def hook(args):
        if args["BLOCK"] == 16:
            raise OutOfResources(1, 0, "shared memory")
    @triton.autotune(configs=[triton.Config({"BLOCK": b}, pre_hook=hook) for b in (16, 32)], key=[])
    @triton.jit
    def copy(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            copy[(1,)](x, out, x.numel())
            return out
    """)
    observation = call(cell, torch.ones(10))
    assert observation.fault is None
    assert blocks(observation) == [32]


def test_heuristics_are_untouched(open_cell, call):
    cell = open_cell("""
    @triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})
    @triton.jit
    def copy(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            copy[(1,)](x, out, x.numel())
            return out
    """)
    observation = call(cell, torch.ones(10))
    assert torch.equal(observation.outputs[0].data, torch.ones(10))
    assert blocks(observation) == [16]
    assert observation.launches[0].tuned is None


def test_what_heuristics_derive_from_a_choice_tells_no_choices_apart(open_cell, call):
    cell = open_cell("""
    @triton.autotune(configs=[triton.Config({"BLOCK": b}) for b in (16, 32)], key=[])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def copy(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    class ModelNew(torch.nn.Module):
        def forward(self, x):
            out = torch.empty_like(x)
            copy[lambda meta: (triton.cdiv(48, meta["BLOCK"]),)](x, out, 48)
            return out
    """)
    observation = call(cell, torch.ones(48))
    assert torch.equal(observation.outputs[0].data, torch.ones(48))
    assert {e.arguments["EVEN"]["constexpr"] for e in observation.launches} == {False, True}
    assert len({launch.choice for launch in observation.launches}) == 1


def test_a_tuner_with_one_configuration_has_no_choice(open_cell, call):
    one = SOURCE.format(extra="").replace("(16, 32, 64)", "(16,)")
    observation = call(open_cell(one), torch.ones(100))
    assert [launch.tuned for launch in observation.launches] == [None]


def test_muting_does_not_use_up_the_first_call(open_cell, call):
    cell = open_cell(SOURCE.format(extra=""))
    call(cell, torch.ones(100), mute=True)
    assert blocks(call(cell, torch.ones(100))) == [16, 32, 64]


MANY = """
@triton.autotune(
    configs=[triton.Config({"BLOCK": 16, "TAG": tag}) for tag in range(40)], key=["n"]
)
@triton.jit
def tagged(x, out, n, BLOCK: tl.constexpr, TAG: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + TAG, mask=i < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        tagged[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
"""


def test_what_is_beyond_the_limit_is_named_and_never_launched(open_cell, call):
    cell = open_cell(MANY)
    first = call(cell, torch.zeros(8), deadline_seconds=60.0)
    (tuning,) = first.tunings
    assert (tuning.kernel, tuning.fitting, tuning.left_out_count) == ("tagged", 32, 8)
    assert tuning.left_out[0] == "BLOCK=16, TAG=32, num_warps=4, num_stages=3"
    last = call(cell, torch.zeros(8), rotation=31)
    assert last.outputs[0].data.tolist() == [31.0] * 8
    assert (last.tunings[0].index, last.tunings[0].chosen[:16]) == (31, "BLOCK=16, TAG=31")
    assert call(cell, torch.zeros(8), rotation=32).tunings[0].index == 0


def test_without_time_only_the_first_configuration_is_graded(open_cell, call):
    cell = open_cell(SOURCE.format(extra=""))
    (tuning,) = call(cell, torch.ones(100), tuning_seconds=0.0).tunings
    assert (tuning.fitting, tuning.left_out_count) == (1, 2)


def test_a_fault_tells_which_configuration_was_tried(open_cell, call):
    cell = open_cell(MANY.replace("+ TAG", "+ 1 // (TAG - 3)"))
    seen = call(cell, torch.zeros(8))
    assert seen.fault is not None
    assert seen.tunings[0].chosen.startswith("BLOCK=16, TAG=3,")
