from dataclasses import replace

from lethe_env.specialisation import COMPILE_LIMIT, select
from lethe_env.tasks.observation import Compiled, Launch, Observation


def launch(kernel="k", block=64, n=5, dtype="float32", **options):
    arguments = {"x": {"pointer": dtype}, "n": {"value": n}, "BLOCK": {"constexpr": block}}
    return Launch(kernel=kernel, arguments=arguments, options=options)


def selected(*launches):
    return select([Observation(launches=(each,)) for each in launches])


def test_run_time_numbers_make_no_new_kind():
    assert selected(launch(n=1), launch(n=16), launch(n=1031)).launches == (launch(n=1),)


def test_what_ran_stands_for_its_kind():
    ran = replace(launch(n=16), compiled=Compiled(
        ptx="digest", shared_bytes=0, tensor_memory_columns=0, threads=128
    ))  # fmt: skip
    (chosen,) = selected(launch(n=1), ran, launch(n=7)).launches
    assert chosen is ran


def test_constants_dtypes_and_options_do():
    kinds = (launch(), launch(block=128), launch(dtype="float16"), launch(num_warps=8))
    assert set(map(repr, selected(*kinds).launches)) == set(map(repr, kinds))


def test_an_argument_that_is_none_is_compiled_away():
    absent = Launch(kernel="k", arguments={"x": {"value": None}})
    present = Launch(kernel="k", arguments={"x": {"value": 3}})
    assert len(selected(absent, present).launches) == 2


def test_every_kernel_comes_before_any_kernel_twice_and_the_demanding_kinds_first():
    many = [launch(block=2**power) for power in range(4, 14)]
    chosen = selected(*many, launch(kernel="small", block=1))
    assert len(chosen.launches) == COMPILE_LIMIT
    assert len(chosen.left_out) == len(many) + 1 - COMPILE_LIMIT
    assert {each.kernel for each in chosen.launches[:2]} == {"k", "small"}
    blocks = [e.arguments["BLOCK"]["constexpr"] for e in chosen.launches if e.kernel == "k"]
    assert blocks == [8192, 4096, 2048, 1024, 512]


def test_wider_elements_ask_for_more():
    chosen = selected(launch(dtype="float16"), launch(dtype="float32"))
    assert chosen.launches[0].arguments["x"] == {"pointer": "float32"}


def test_no_launch_no_compile():
    assert selected() == ((), ())


def test_a_choice_is_told_apart_by_what_the_tuner_did_not_choose():
    tuned = {"tuned": ("BLOCK",)}

    def choice(each, **fields):
        return replace(each, **fields).choice

    assert choice(launch()) == ""
    assert choice(launch(), **tuned) == choice(launch(block=128, n=7, num_warps=8), **tuned) != ""
    assert choice(launch(), **tuned) != choice(launch(dtype="float16"), **tuned)
    assert choice(launch(), **tuned) != choice(launch(kernel="other"), **tuned)
    assert choice(launch(), tuned=()) != choice(launch(block=128), tuned=())
