import pytest

from lethe_env.vgpu.timing import TARGETS, Counts, model, modelled_time_us


def test_a_memory_bound_launch_takes_its_bytes_over_the_bandwidth():
    counts = Counts(instructions=1000, footprint_bytes=3_350_000_000)
    time = model(counts, TARGETS["H100"])
    assert time.memory_us == pytest.approx(1000)
    assert time.limited_by == "memory"
    assert time.total_us == pytest.approx(1000 + time.launch_us)


def test_tensor_cores_take_their_operations_over_the_peak_of_the_type():
    counts = Counts(mma_operations={"f16": 312_000_000_000, "tf32": 156_000_000_000})
    time = model(counts, TARGETS["A100"])
    assert time.tensor_cores_us == pytest.approx(2000)
    assert time.limited_by == "tensor cores"


def test_issue_counts_four_warps_per_clock():
    target = TARGETS["A100"]
    counts = Counts(instructions=round(108 * 4 * 1.41e9))
    assert model(counts, target).issue_us == pytest.approx(1e6)


def test_faster_targets_are_faster():
    counts = Counts(footprint_bytes=1 << 30, mma_operations={"bf16": 1 << 40})
    times = [modelled_time_us(counts, TARGETS[name]) for name in ("A100", "H100", "B200")]
    assert times == sorted(times, reverse=True) and len(set(times)) == 3


def test_events_become_counts():
    events = {"warp_instructions": 7, "sectors": 10, "loaded_bytes": 100, "stored_bytes": 28}
    assert Counts.of(events, 1000) == Counts(instructions=7, global_bytes=128, footprint_bytes=320)
    assert Counts.of({**events, "mma_operations": 9}, 64, "f16") == Counts(
        instructions=7, global_bytes=128, footprint_bytes=64, mma_operations={"f16": 9}
    )


def test_an_unknown_input_type_is_an_error():
    with pytest.raises(ValueError, match="e2m1"):
        model(Counts(mma_operations={"e2m1": 1}), TARGETS["B200"])
