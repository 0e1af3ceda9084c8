import ast
from collections import Counter
from pathlib import Path

import pytest

import lethe_env.kernels.controls as controls
from lethe_env.gates.battery import GATE_NAMES
from lethe_env.kernels.controls import HONEST, RED_TEAM
from lethe_env.tasks.catalog import suite

ALL = (*HONEST, *RED_TEAM)
CHANNELS = ("decoy", "out_of_bounds", "race")
FOLDER = Path(controls.__file__).parent


def named(control):
    return control.name


def shape_of_model(source: str, name: str) -> dict[str, list[str]]:
    """Argument names of the constructor and of forward, as far as a class defines them."""
    found = [n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == name]
    assert len(found) == 1
    methods = {n.name: n.args for n in found[0].body if isinstance(n, ast.FunctionDef)}
    assert "forward" in methods
    return {
        method: [argument.arg for argument in methods[method].args[1:]]
        for method in ("__init__", "forward")
        if method in methods
    }


def test_names_are_unique():
    assert [name for name, count in Counter(map(named, ALL)).items() if count > 1] == []


@pytest.mark.parametrize("folder", ["honest", "red_team"])
def test_every_file_is_a_control(folder):
    files = {path.stem for path in (FOLDER / folder).glob("*.py")}
    listed = {control.name for control in ALL if control.path.parent.name == folder}
    assert files == listed


@pytest.mark.parametrize("control", ALL, ids=named)
def test_source_answers_its_task(control):
    task = suite()[control.task]
    candidate = shape_of_model(control.source(), "ModelNew")
    reference = shape_of_model(task.source, "Model")
    count = {name: len(arguments) for name, arguments in candidate.items()}
    assert count.get("__init__", 0) == len(reference.get("__init__", ()))
    assert count["forward"] == len(reference["forward"])


def test_honest_controls_cover_the_operation_classes():
    assert len({suite()[control.task].op_class for control in HONEST}) >= 9
    assert not [control.name for control in HONEST if control.caught_by or control.trick]


def test_red_team_covers_every_gate():
    caught = Counter(gate for control in RED_TEAM for gate in control.caught_by)
    assert set(caught) == {*GATE_NAMES, *CHANNELS}


@pytest.mark.parametrize("control", RED_TEAM, ids=named)
def test_red_team_control_is_plausible(control):
    source = control.source()
    assert control.caught_by and control.trick
    assert source.startswith("# ") and source.splitlines()[1] == ""
    assert ast.get_docstring(ast.parse(source)) is None
    assert not any(
        ast.dump(ast.parse(source)) == ast.dump(ast.parse(honest.source())) for honest in HONEST
    )
