"""More configurations are compiled while none is known to fit, and no more than that."""

import pytest

from lethe_env.ahead_of_time import compile_ahead
from lethe_env.gates.hardware import SHARED_LIMIT_BYTES
from lethe_env.tasks.observation import KernelResources, Launch

TARGETS = ("sm_90", "sm_100")


def launch(block, kernel="k", tuned=("BLOCK",)):
    return Launch(kernel=kernel, arguments={"BLOCK": {"constexpr": block}}, tuned=tuned)


class Compiler:
    """Shared memory grows with the block; sm_100 takes twice as much."""

    def __init__(self, known=lambda launch: True):
        self.blocks = []
        self._known = known

    def __call__(self, launches):
        self.blocks += [each.arguments["BLOCK"]["constexpr"] for each in launches]
        return tuple(
            KernelResources(
                kernel=each.kernel,
                target=target,
                choice=each.choice,
                shared_bytes=each.arguments["BLOCK"]["constexpr"] * factor,
            )
            for each in launches
            for target, factor in zip(TARGETS, (1, 2), strict=True)
            if self._known(each)
        )


LIMIT = SHARED_LIMIT_BYTES["sm_90"]


@pytest.mark.parametrize(
    ("first", "further", "looked_at", "left"),
    [
        pytest.param([LIMIT // 2], [8, 4], [], 2, id="all fits"),
        pytest.param([LIMIT + 1], [16, 8], [8], 1, id="the smallest one comes next, and fits"),
        pytest.param([LIMIT], [LIMIT - 1, LIMIT // 2], [LIMIT // 2], 1, id="one target will do"),
        pytest.param(
            [LIMIT + 1], [LIMIT + 3, LIMIT + 2], [LIMIT + 2, LIMIT + 3], 0, id="none fits"
        ),
    ],
)
def test_further_configurations_are_compiled_until_one_fits(first, further, looked_at, left):
    compiler = Compiler()
    resources, note = compile_ahead(compiler, [*map(launch, first)], [*map(launch, further)], 2)
    assert compiler.blocks == first + looked_at
    assert len(resources) == 2 * len(compiler.blocks)
    assert note == (f"{left} smaller specialisations were not compiled" if left else "")


def test_launches_without_a_tuner_and_those_of_other_choices_stay_where_they_are():
    compiler = Compiler()
    further = [launch(8, tuned=None), launch(4, kernel="other")]
    _, note = compile_ahead(compiler, [launch(LIMIT + 1)], further, 2)
    assert compiler.blocks == [LIMIT + 1]
    assert note == "2 smaller specialisations were not compiled"


def test_kernels_that_are_left_out_are_said_to_be():
    compiler = Compiler(known=lambda each: each.kernel == "k")
    resources, note = compile_ahead(compiler, [launch(8), launch(8, kernel="hidden")], [], 2)
    assert len(resources) == 2
    assert note == "kernels that only the function which makes them knows were not compiled"
