"""Modelled times of the native backward beside Triton's."""

import importlib
from pathlib import Path

import pytest

from lethe_env.vgpu.timing import TARGETS, Counts, model

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("blackwell")


def counts(**changes):
    fields = {
        "blocks": 148, "warps": 148 * 8, "instructions": {"memory": 10_000, "f32": 7_000},
        "loaded_bytes": 3, "stored_bytes": 4, "sectors": 5, "footprint_bytes": 1 << 26,
        "bank_conflicts": 6, "mma_operations": {"f16": 1 << 30},
    }  # fmt: skip
    return Counts(**fields | changes)


def test_heads_do_the_same_side_by_side(script):
    one = counts()
    many = script.scaled(one, 10)
    for part in ("memory_us", "tensor_cores_us", "issue_us"):
        first, second = (getattr(model(x, TARGETS["B200"]), part) for x in (one, many))
        assert second == pytest.approx(10 * first)
    assert many.blocks == 1480 and many.mma_operations == {"f16": 10 << 30}
    # A head of one block leaves multiprocessors free for others.
    small = counts(blocks=1, warps=8)
    assert model(script.scaled(small, 148), TARGETS["B200"]).issue_us == pytest.approx(
        model(small, TARGETS["B200"]).issue_us
    )


def test_launches_are_told_by_stage(script):
    first, second, *_ = script.STAGES
    native = [
        (f"kernel_cutlass_{name}_Tensor_0", counts(footprint_bytes=k << 26))
        for k, name in ((1, first), (2, second))
    ]
    triton = [(name, counts()) for name in script.STAGES if name != first]
    found = script.by_stage([*native, *triton], 1)
    assert list(found) == list(dict.fromkeys(script.STAGES.values()))
    sizes = [model(found_counts, TARGETS["B200"]).total_us for _, found_counts in native]
    stages = [found[script.STAGES[name]] for name in (first, second)]
    assert [stage.native_us for stage in stages] == sizes
    assert [stage.total_us - stage.native_us for stage in stages] == pytest.approx(
        [0, model(counts(), TARGETS["B200"]).total_us]
    )
    assert found["dq, dk, dg, db"].native_us == 0 and script.by_stage([], 1)["K#1"].total_us == 0
    with pytest.raises(ValueError, match="not enough values"):
        script.by_stage([("kernel_cutlass_other", counts())], 1)
