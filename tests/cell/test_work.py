"""The work of a call crosses the border bounded and checked."""

import pytest

from lethe_env.cell import work
from lethe_env.vgpu.operations import Operation
from lethe_env.vgpu.timing import Counts


def text(value):
    if not isinstance(value, str):
        raise ValueError("no text")
    return value


def test_equal_launches_share_an_entry_and_nothing_is_lost():
    launch = Counts(instructions={"f32": 3}, stored_bytes=8, mma_operations={"f16": 5})
    other = Counts(instructions={"f32": 4}, stored_bytes=8)
    add = Operation(name="mm", bytes=10, operations={"f32": 7})
    found = work.read(work.describe([("a", launch), ("a", other), ("a", launch)], [add, add]), text)
    assert [(k.kernel, k.launches, k.stored_bytes) for k in found.kernels] == [
        ("a", 2, 16),
        ("a", 1, 8),
    ]
    assert found.kernels[0].instructions == {"f32": 6}
    assert found.kernels[0].mma_operations == {"f16": 10}
    (product,) = found.operations
    assert (product.calls, product.bytes, product.operations) == (2, 20, {"f32": 14})


def test_any_number_of_different_launches_fits_and_adds_up():
    launches = [("k", Counts(stored_bytes=size)) for size in range(1, 1001)]
    found = work.read(work.describe(launches, []), text)
    assert len(found.kernels) == work.ENTRIES
    assert sum(k.launches for k in found.kernels) == 1000
    assert sum(k.stored_bytes for k in found.kernels) == 500500


GOOD = work.describe([("k", Counts(instructions={"f32": 1}))], [Operation(name="add", bytes=1)])


@pytest.mark.parametrize("value", [-1, 1.5, True, "3", None, 1 << 63])
@pytest.mark.parametrize("name", ["launches", "stored_bytes", "instructions"])
def test_what_is_no_count_is_refused(name, value):
    kernel = dict(GOOD["kernels"][0])
    kernel[name] = {"f32": value} if name == "instructions" else value
    with pytest.raises((ValueError, TypeError)):
        work.read({**GOOD, "kernels": [kernel]}, text)


def test_too_many_entries_or_kinds_are_refused():
    with pytest.raises(ValueError, match="limit"):
        work.read({**GOOD, "kernels": GOOD["kernels"] * 257}, text)
    with pytest.raises(ValueError, match="nothing"):
        work.read({**GOOD, "kernels": [{**GOOD["kernels"][0], "launches": 0}]}, text)
    kernel = {**GOOD["kernels"][0], "instructions": {str(k): 1 for k in range(65)}}
    with pytest.raises(ValueError, match="small"):
        work.read({**GOOD, "kernels": [kernel]}, text)
