import json
import math
import pickle
import random
import string
from dataclasses import replace

import pytest

from lethe_env.gates.battery import GATE_NAMES
from lethe_env.reward import RewardShape
from lethe_env.trl import RewardFunction, Scorer, contract_reward, use_verifier
from lethe_env.trl import allclose_reward as module_level

from .fakes import TASK, chat, source

SHAPE = RewardShape()
NAMES = ("contract", "allclose", "floor")


@pytest.fixture
def functions(verifier):
    scorer = Scorer(verifier)
    return [RewardFunction(name, scorer=scorer) for name in NAMES]


class Log:
    """The trainer's logging hooks."""

    def __init__(self):
        self.metrics: dict[str, list[float]] = {}
        self.columns: dict[str, list] = {}

    def metric(self, name, value):
        self.metrics.setdefault(name, []).append(value)

    def extra(self, name, values):
        self.columns.setdefault(name, []).extend(values)


def call(functions, completions, log=None, **columns):
    columns.setdefault("task", [TASK] * len(completions))
    log = log or Log()
    return [
        function(
            prompts=["p"] * len(completions),
            completions=completions,
            completion_ids=[[1]] * len(completions),
            trainer_state=None,
            log_metric=log.metric,
            log_extra=log.extra,
            **columns,
        )
        for function in functions
    ]


def test_every_function_pays_for_one_shared_verification(functions, verifier):
    completions = [
        chat(f"```python\n{source()}```"),
        chat(source("CMP-03")),
        chat(source("CMP-01", "allclose")),
        chat(source("plain")),
        chat("I would rather not."),
        chat(source()),
    ]
    contract, allclose, floor = call(functions, completions)
    assert len(verifier.batches) == 1 and len(verifier.judged) == 4
    assert contract[0] == contract[5] == allclose[0] == allclose[1] == floor[1] == SHAPE.solved
    assert SHAPE.base < contract[2] < contract[1] < SHAPE.partial_limit
    assert allclose[2] == 0.0
    assert contract[3] == allclose[3] == floor[3] == SHAPE.base
    assert contract[4] == allclose[4] == floor[4] == 0.0


def test_texts_are_completions_too(functions):
    assert call(functions, [source(), "no"])[0] == [SHAPE.solved, 0.0]


def test_a_broken_harness_is_none_in_every_function(functions, verifier):
    scores = call(functions, [source("void"), source()])
    assert [column[0] for column in scores] == [None, None, None]
    assert [column[1] for column in scores] == [SHAPE.solved] * 3
    verifier.broken = True
    assert call(functions, [source("x")]) == [[None], [None], [None]]


def test_an_unknown_task_is_left_out_by_every_function(functions, verifier, caplog):
    scores = call(functions, [source(), source()], task=["no/such", TASK])
    assert [column[0] for column in scores] == [None, None, None]
    assert [column[1] for column in scores] == [SHAPE.solved] * 3
    assert caplog.text.count("'no/such' of the dataset is left out") == 1
    bad = call(functions, [source()] * 3, task_json=["{", "[]", '{"id": 3}'])
    assert bad == [[None] * 3] * 3


def test_a_task_may_travel_as_json(functions, verifier, task):
    other = replace(task, id="my/own")
    scores = call(functions, [source()], task=["my/own"], task_json=[json.dumps(other.to_json())])
    assert scores[0] == [SHAPE.solved]
    assert verifier.batches[0][0].task == other


def test_a_model_may_speak_a_language_of_its_own(verifier):
    def spoken(task, completion):
        return source() if completion == f"the kernel of {task.id}" else None

    function = RewardFunction("contract", scorer=Scorer(verifier), source=spoken)
    assert call([function], [f"the kernel of {TASK}", "noise"]) == [[SHAPE.solved, 0.0]]


def test_a_dataset_without_tasks_is_refused_with_what_to_do(functions):
    with pytest.raises(ValueError, match=r"no column 'task'.*LetheSpec"):
        functions[0](completions=["x"])
    with pytest.raises(ValueError, match="2 completions came with 1 values"):
        functions[0](completions=["x", "y"], task=[TASK])


def test_the_batch_is_logged_once_and_always_under_the_same_keys(functions):
    mixed, silent = Log(), Log()
    completions = [source(), source("CMP-01", "ORD-02"), source("EXC-01"), "prose", source("void")]
    call(functions, completions, mixed)
    call(functions, ["prose"], silent)
    assert mixed.metrics.keys() == silent.metrics.keys()
    assert {f"lethe/fails/{gate}" for gate in GATE_NAMES} < mixed.metrics.keys()
    assert {len(values) for values in mixed.metrics.values()} == {1}
    value = {name: values[0] for name, values in mixed.metrics.items()}
    assert all(math.isfinite(number) for number in value.values())
    assert value["lethe/fails/CMP-01"] == pytest.approx(2 / 5)
    assert value["lethe/fails/RES-02"] == pytest.approx(1 / 5)
    assert value["lethe/false_accepts"] == pytest.approx(2 / 5)
    assert value["lethe/accepted/contract"] == pytest.approx(1 / 5)
    assert value["lethe/void"] == value["lethe/unloadable"] == pytest.approx(1 / 5)
    assert value["lethe/reward/allclose"] == pytest.approx(3 / 4)
    assert mixed.columns["status"] == ["accepted", "rejected", "rejected", "rejected", "void"]
    assert mixed.columns["rejected_by"][1] == "CMP-01 ORD-02"
    assert mixed.columns["reason"][3].startswith("not judged: the completion has no Python")
    assert {len(values) for values in mixed.columns.values()} == {5}


def test_a_step_of_another_trainer_without_hooks_is_fine(functions):
    assert functions[0](completions=[source()], task=[TASK]) == [SHAPE.solved]


def test_a_thousand_malformed_completions_are_scored(functions):
    draw = random.Random(1)
    pieces = [*string.printable, "```", "```python\n", "class ModelNew", "\ud800", "\x00", source()]
    rubbish = ["".join(draw.choices(pieces, k=draw.randrange(60))) for _ in range(996)]
    completions = [chat(t) if i % 2 else t for i, t in enumerate(rubbish)]
    completions += [None, 7, [{"role": "assistant", "content": None}], b"\xff\xfe"]
    for scores in call(functions, completions):
        assert len(scores) == 1000
        assert all(math.isfinite(score) for score in scores)


def test_module_level_functions_ask_the_verifier_of_the_process(verifier):
    use_verifier(verifier)
    assert contract_reward(completions=[source()], task=[TASK]) == [SHAPE.solved]
    assert module_level(completions=[source("allclose")], task=[TASK]) == [0.0]
    assert (contract_reward.__name__, module_level.__name__) == (
        "contract_reward",
        "allclose_reward",
    )
    copy = pickle.loads(pickle.dumps(contract_reward))
    assert copy(completions=[source("CMP-01")], task=[TASK]) != [SHAPE.solved]
    assert copy.__name__ == "contract_reward"
