"""The built-in suite: every problem is well formed, float64-clean and not vacuous."""

from __future__ import annotations

import ast
import math
import tomllib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lethe_env.tasks.model import OP_CLASSES, ShapeFamily, Task

SUITE = Path(__file__).resolve().parents[2] / "tasks" / "suite"
NATIVE_ELEMENTS = range(1 << 20, (1 << 26) + 1)
BASE_ELEMENTS_LIMIT = 1 << 18
DOMAINS = {
    "real",
    "positive",
    "nonnegative",
    "unit",
    "negative",
    "probability",
    "log_probability",
    "sign",
    "binary",
    "own",
}


def _read_task(path: Path, table: Mapping[str, Any]) -> Task:
    settings = dict(table)
    family = ShapeFamily(
        base=settings.pop("base"),
        vary={name: tuple(values) for name, values in settings.pop("vary").items()},
        long=settings.pop("long"),
    )
    return Task(
        id=f"{path.parent.name}/{path.stem}",
        source=path.read_text(encoding="utf-8"),
        op_class=path.parent.name,
        family=family,
        **settings,
    )


def _read_suite() -> dict[str, Task]:
    tasks = {}
    for path in sorted(SUITE.glob("*/suite.toml")):
        for stem, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
            task = _read_task(path.parent / f"{stem}.py", table)
            tasks[task.id] = task
    return tasks


TASKS = _read_suite()


@pytest.fixture(params=sorted(TASKS))
def task(request: pytest.FixtureRequest) -> Task:
    return TASKS[request.param]


def literal_sizes(source: str) -> dict[str, int]:
    """Module-level names to which the source assigns a literal integer."""
    sizes = {}
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(value))):
                sizes[name] = value
    return sizes


def resize(source: str, sizes: Mapping[str, int]) -> str:
    """The source with literal module-level integers replaced."""
    missing = sizes.keys() - literal_sizes(source).keys()
    if missing:
        raise KeyError(f"no literal integer constant named {sorted(missing)}")
    tree = ast.parse(source)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in sizes:
                node.value = ast.copy_location(ast.Constant(sizes[name]), node.value)
    return ast.unparse(tree)


@dataclass
class Call:
    """A constructed reference and the inputs of one call."""

    model: torch.nn.Module
    inputs: list[torch.Tensor]

    def outputs(self) -> list[torch.Tensor]:
        return list(flatten(self.model(*self.inputs)))


def flatten(output: Any) -> Iterator[torch.Tensor]:
    match output:
        case torch.Tensor():
            yield output
        case Mapping():
            yield from flatten(list(output.values()))
        case list() | tuple():
            for part in output:
                yield from flatten(part)
        case _:
            raise TypeError(f"a reference returned {type(output).__name__}")


def prepare(
    task: Task, sizes: Mapping[str, int], dtype: torch.dtype = torch.float64, seed: int = 0
) -> Call:
    """Construct the reference at the given sizes and draw its own inputs, in one dtype."""
    namespace: dict[str, Any] = {"__name__": "problem"}
    exec(compile(resize(task.source, sizes), task.id, "exec"), namespace)
    torch.manual_seed(seed)
    model = namespace["Model"](*namespace["get_init_inputs"]()).to(dtype)
    inputs = namespace["get_inputs"]()
    return Call(model, [x.to(dtype) if x.is_floating_point() else x for x in inputs])


def all_finite(tensors: Iterable[torch.Tensor]) -> bool:
    return all(bool(x.isfinite().all()) for x in tensors)


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def is_defined(task: Task, sizes: Mapping[str, int]) -> bool:
    """Whether the reference gives a finite, non-empty result at these sizes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs = prepare(task, sizes).outputs()
        except (RuntimeError, ValueError):
            return False
    return all(x.numel() for x in outputs) and all_finite(outputs)


class DtypeRecorder(TorchDispatchMode):
    """Records the floating dtypes of everything computed under it."""

    def __init__(self):
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(part, torch.Tensor) and part.is_floating_point():
                self.dtypes.add(part.dtype)
        return result


def test_every_file_has_metadata_and_every_table_a_file() -> None:
    files = {f"{path.parent.name}/{path.stem}" for path in SUITE.glob("*/*.py")}
    assert files == set(TASKS)
    assert len(files) >= 50
    assert {path.name for path in SUITE.iterdir() if path.is_dir()} <= set(OP_CLASSES)


def test_the_suite_covers_every_kind_of_output_and_input() -> None:
    kinds = set()
    for task in TASKS.values():
        call = prepare(task, task.family.base)
        output = call.model(*call.inputs)
        kinds.add(type(output).__name__)
        kinds.update("scalar" for x in flatten(output) if x.ndim == 0)
        kinds.update("integer output" for x in flatten(output) if x.dtype == torch.int64)
        kinds.update("integer input" for x in call.inputs if x.dtype == torch.int64)
        kinds.update("boolean input" for x in call.inputs if x.dtype == torch.bool)
    assert kinds >= {
        *("Tensor", "tuple", "dict", "scalar"),
        *("integer output", "integer input", "boolean input"),
    }


def test_family_names_are_literal_integers_of_the_source(task: Task) -> None:
    family = task.family
    names = family.base.keys() | family.vary.keys() | family.long.keys()
    assert names <= literal_sizes(task.source).keys()
    assert family.base.keys() == family.long.keys(), "base and long fix the same sizes"
    assert family.vary.keys() == family.base.keys(), "every size of the base is varied"


def test_metadata_uses_known_words(task: Task) -> None:
    assert task.level in (1, 2, 3)
    assert set(task.dtypes) <= {"float32", "float16", "bfloat16"}
    assert "float32" in task.dtypes
    assert set(task.domains) <= DOMAINS
    if task.domains:
        assert len(task.domains) == len(prepare(task, task.family.base).inputs)


def test_varied_sizes_share_few_compilations(task: Task) -> None:
    for name, values in task.family.vary.items():
        values = {*values, task.family.base[name]}
        assert 3 <= len(values) <= 6, name
        assert len({(value - 1).bit_length() for value in values}) <= 4, name


def test_every_varied_size_reaches_one_where_the_operation_is_defined_there(task: Task) -> None:
    for name, values in task.family.vary.items():
        at_one = {**task.family.base, name: 1}
        assert (1 in values) == is_defined(task, at_one), name


def test_base_is_small_with_one_dimension_beyond_a_block(task: Task) -> None:
    base = task.family.base
    call = prepare(task, base)
    assert sum(x.numel() for x in [*call.inputs, *call.model.parameters()]) <= BASE_ELEMENTS_LIMIT
    image = base.get("height", 1) * base.get("width", 1)
    enough = 32 if task.op_class == "recurrence" else 128
    assert max(*base.values(), image) > enough


def test_native_shape_is_realistic(task: Task) -> None:
    with torch.device("meta"):
        call = prepare(task, {})
    elements = sum(x.numel() for x in [*call.inputs, *call.model.parameters()])
    assert elements in NATIVE_ELEMENTS, f"{elements:,}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_member_runs_and_is_finite(task: Task, dtype: torch.dtype) -> None:
    family = task.family
    for sizes in (family.base, *family.variants(), family.long):
        outputs = prepare(task, sizes, dtype).outputs()
        assert outputs and all(x.numel() for x in outputs), sizes
        assert all_finite(outputs), sizes


def test_equal_calls_give_equal_results(task: Task) -> None:
    call = prepare(task, task.family.base, torch.float32)
    before = [x.clone() for x in call.inputs]
    outputs = call.outputs()
    assert equal(call.inputs, before), "the reference writes to its inputs"
    assert equal(call.outputs(), outputs), "two calls on the same inputs differ"


def test_output_depends_on_every_input_and_parameter(task: Task) -> None:
    base = task.family.base
    expected = prepare(task, base).outputs()
    count = len(prepare(task, base).inputs)
    for index in range(count):
        call = prepare(task, base)
        x = call.inputs[index]
        if x.is_floating_point():
            call.inputs[index] = x + torch.rand_like(x)
        else:
            call.inputs[index] = prepare(task, base, seed=1).inputs[index]
        changed = call.outputs()
        assert all_finite(changed) and not equal(changed, expected), f"input {index}"
    for name, _ in prepare(task, base).model.named_parameters():
        call = prepare(task, base)
        with torch.no_grad():
            parameter = call.model.get_parameter(name)
            parameter.add_(torch.rand_like(parameter))
        changed = call.outputs()
        assert all_finite(changed) and not equal(changed, expected), f"parameter {name}"


@pytest.mark.parametrize("task_id", sorted(id for id, task in TASKS.items() if task.gradients))
def test_gradients_reach_every_input_and_parameter(task_id: str) -> None:
    task = TASKS[task_id]
    call = prepare(task, task.family.base)
    leaves = [x.requires_grad_() for x in call.inputs if x.is_floating_point()]
    leaves += call.model.parameters()
    outputs = call.outputs()
    torch.manual_seed(1)
    cotangents = [torch.randn_like(x) for x in outputs]
    gradients = torch.autograd.grad(outputs, leaves, cotangents)
    assert all_finite(gradients)
    assert all(bool(gradient.any()) for gradient in gradients)


def test_float64_stays_float64_throughout(task: Task) -> None:
    call = prepare(task, task.family.base)
    with DtypeRecorder() as recorder:
        call.outputs()
    assert recorder.dtypes <= {torch.float64}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types_run_and_are_finite_when_widened(task: Task, dtype: torch.dtype) -> None:
    call = prepare(task, task.family.base, dtype)
    outputs = call.outputs()
    assert {x.dtype for x in outputs if x.is_floating_point()} <= {dtype}
    wide = Call(
        call.model.double(), [x.double() if x.is_floating_point() else x for x in call.inputs]
    )
    assert all_finite(outputs) and all_finite(wide.outputs())


def test_nan_flows_from_every_input_to_an_output(task: Task) -> None:
    for index, x in enumerate(prepare(task, task.family.base).inputs):
        if x.is_floating_point():
            call = prepare(task, task.family.base)
            call.inputs[index] = torch.full_like(x, math.nan)
            floating = [y for y in call.outputs() if y.is_floating_point()]
            assert not floating or any(bool(y.isnan().any()) for y in floating), f"input {index}"
