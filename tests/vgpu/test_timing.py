import pytest

from lethe_env.vgpu.timing import TARGETS, Counts, model, model_operation, modelled_time_us


def full(**fields):
    """Counts of a grid that keeps every multiprocessor of every target busy."""
    return Counts(blocks=1 << 12, warps=1 << 14, **fields)


def test_a_memory_bound_launch_takes_its_bytes_over_the_bandwidth():
    counts = full(instructions={"memory": 1000}, footprint_bytes=3_350_000_000)
    time = model(counts, TARGETS["H100"])
    assert time.memory_us == pytest.approx(1000)
    assert time.limited_by == "memory"
    assert time.total_us == pytest.approx(1000 + time.launch_us)


def test_tensor_cores_take_their_operations_over_the_peak_of_the_type():
    counts = full(mma_operations={"f16": 312_000_000_000, "tf32": 156_000_000_000})
    time = model(counts, TARGETS["A100"])
    assert time.tensor_cores_us == pytest.approx(2000)
    assert time.limited_by == "tensor cores"


def test_issue_counts_four_warps_per_clock():
    target = TARGETS["A100"]
    counts = full(instructions={"integer": round(108 * 4 * 1.41e9)})
    assert model(counts, target).issue_us == pytest.approx(1e6)


def test_faster_targets_are_faster():
    counts = full(footprint_bytes=1 << 30, mma_operations={"bf16": 1 << 40})
    times = [modelled_time_us(counts, TARGETS[name]) for name in ("A100", "H100", "B200")]
    assert times == sorted(times, reverse=True) and len(set(times)) == 3


@pytest.mark.parametrize(
    ("name", "kind", "lanes"), [("A100", "f32", 64), ("A100", "special", 16), ("H100", "f32", 128)]
)
def test_a_narrow_pipe_takes_longer_than_issue(name, kind, lanes):
    target = TARGETS[name]
    count = round(target.multiprocessors * target.clock_ghz * 1e9)
    time = model(full(instructions={kind: count}), target)
    assert time.issue_us == pytest.approx(32 / lanes * 1e6)


def test_few_blocks_use_few_multiprocessors_and_few_warps_few_schedulers():
    target = TARGETS["A100"]
    second = {"integer": round(108 * 4 * 1.41e9)}
    half = model(Counts(blocks=54, warps=432, instructions=second), target)
    assert half.issue_us == pytest.approx(2e6)
    thin = model(Counts(blocks=54, warps=54, instructions=second), target)
    assert thin.issue_us == pytest.approx(8e6)
    one = model(Counts(blocks=1, warps=4, footprint_bytes=64 * 1410), target)
    assert one.memory_us == pytest.approx(1)


def test_the_peak_of_float32_is_the_data_sheets():
    assert TARGETS["A100"].flop_per_s("f32") == pytest.approx(19.5e12, rel=0.01)
    assert TARGETS["H100"].flop_per_s("f32") == pytest.approx(67e12, rel=0.01)


def test_a_torch_operation_takes_the_slower_of_memory_and_products():
    target = TARGETS["A100"]
    assert model_operation(2_039_000_000, {}, target).total_us == pytest.approx(
        1000 + model_operation(0, {}, target).total_us
    )
    half = model_operation(1000, {"f16": 312_000_000_000}, target)
    assert half.limited_by == "tensor cores" and half.tensor_cores_us == pytest.approx(1000)


def test_events_become_counts():
    events = {
        "warp_instructions": 7,
        "instructions.f32": 4,
        "instructions.memory": 3,
        "instructions.tensor": 0,
        "sectors": 10,
        "loaded_bytes": 100,
        "stored_bytes": 28,
        "bank_conflicts": 2,
    }
    common = {
        "instructions": {"f32": 4, "memory": 3},
        "loaded_bytes": 100,
        "stored_bytes": 28,
        "sectors": 10,
        "bank_conflicts": 2,
    }
    assert Counts.of(events, 1000) == Counts(**common, footprint_bytes=320)
    assert Counts.of({**events, "mma_operations": 9}, 64, "f16") == Counts(
        **common, footprint_bytes=64, mma_operations={"f16": 9}
    )


def test_an_unknown_input_type_is_an_error():
    with pytest.raises(ValueError, match="e2m1"):
        model(Counts(mma_operations={"e2m1": 1}), TARGETS["B200"])
