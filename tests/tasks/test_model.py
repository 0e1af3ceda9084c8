import json

import pytest

from lethe_env.tasks.model import ShapeFamily, Task, TaskError

FAMILY = ShapeFamily(base={"n": 5, "m": 3}, vary={"n": (1, 5, 7), "m": (2,)}, long={"n": 99})


def task(**fields):
    return Task(id="a/b", source="x", family=FAMILY, waived={"CMP-02": "no graph"}, **fields)


def test_json_round_trip_gives_an_equal_task():
    original = task(domains=("real", None), dtypes=("float32", "float16"), level=2)
    assert Task.from_json(json.loads(json.dumps(original.to_json()))) == original


def test_variants_change_one_size_and_leave_out_the_base():
    assert FAMILY.variants() == (
        {"n": 1, "m": 3},
        {"n": 7, "m": 3},
        {"n": 5, "m": 2},
    )


def test_digest_depends_on_the_content_and_not_on_the_origin():
    assert task(origin="here").digest == task(origin="there").digest
    assert task().digest != task(gradients=True).digest


def test_a_waiver_needs_a_reason():
    with pytest.raises(TaskError, match=r"waiver of ORD-01 needs a reason"):
        Task(id="a", source="", waived={"ORD-01": ""})


@pytest.mark.parametrize("dtypes", [(), ("fp16",), ("float32", "float64")])
def test_dtypes_are_those_that_gates_ask_for(dtypes):
    with pytest.raises(TaskError, match=r"one or more of float32, float16, bfloat16, not \("):
        task(dtypes=dtypes)


@pytest.mark.parametrize(
    ("dtypes", "working"),
    [(("float16", "float32"), "float32"), (("bfloat16", "float16"), "bfloat16")],
)
def test_questions_are_asked_in_float32_or_in_the_first_dtype(dtypes, working):
    assert task(dtypes=dtypes).working_dtype == working


def test_an_unknown_class_names_the_known_ones():
    with pytest.raises(TaskError, match=r"unknown op class 'sorting'.*softmax"):
        Task(id="a", source="", op_class="sorting")
