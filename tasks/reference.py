"""The reference module: a task's source, executed at one member of its shape family."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from .model import Task, TaskError

CONSTRUCTOR_SEED = 42
"""KernelBench seeds both constructors with 42 (`eval.py`, `seed_num=42`)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a source in the KernelBench convention defines."""

    model_class: Callable[..., torch.nn.Module]
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]

    def init_inputs(self) -> list[Any]:
        """Constructor arguments, drawn with KernelBench's seed.

        Raises:
            TaskError: `get_init_inputs` fails.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(CONSTRUCTOR_SEED)
            try:
                return list(self.get_init_inputs())
            except Exception as error:
                raise TaskError(
                    f"get_init_inputs of the reference fails: {one_line(error)}"
                ) from error

    def build(self) -> torch.nn.Module:
        """A fresh module, its weights drawn with KernelBench's seed.

        Raises:
            TaskError: the constructor fails.
        """
        arguments = self.init_inputs()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(CONSTRUCTOR_SEED)
            try:
                return self.model_class(*arguments)
            except Exception as error:
                raise TaskError(f"Model of the reference fails: {one_line(error)}") from error


def size_constants(source: str, origin: str = "task") -> dict[str, int]:
    """Module-level integer constants of a source, with the values written there.

    Only literals count: `n = 8`, `m, n = 4, 8`. What is computed from them follows by itself.

    Raises:
        TaskError: the source is not Python.
    """
    constants: dict[str, int] = {}
    for target, value in _literal_assignments(_parse(source, origin)):
        constants[target.id] = value.value
    return constants


def load_reference(source: str, sizes: Mapping[str, int], origin: str = "task") -> Reference:
    """Execute a source with some of its module-level integer constants rebound.

    The constants are rebound in the syntax tree before execution, so that values derived from
    them at module level and default arguments follow.

    Raises:
        TaskError: not Python, an unknown constant, a failing import, or a missing name.
    """
    return _load(source, tuple(sorted(sizes.items())), origin)


def task_reference(task: Task, sizes: Mapping[str, int]) -> Reference:
    """The reference of a task at one member of its shape family."""
    return load_reference(task.source, sizes, task.origin or task.id)


@lru_cache(maxsize=512)
def _load(source: str, sizes: tuple[tuple[str, int], ...], origin: str) -> Reference:
    tree = _parse(source, origin)
    _rebind(tree, dict(sizes), origin)
    namespace: dict[str, Any] = {"__name__": "reference", "__file__": origin}
    try:
        exec(compile(tree, origin, "exec"), namespace)
    except Exception as error:
        raise TaskError(f"{origin}: the reference fails at import: {one_line(error)}") from error
    for name in ("Model", "get_inputs", "get_init_inputs"):
        if name not in namespace:
            raise TaskError(f"{origin}: the reference defines no {name}")
    return Reference(
        model_class=namespace["Model"],
        get_inputs=namespace["get_inputs"],
        get_init_inputs=namespace["get_init_inputs"],
    )


def _parse(source: str, origin: str) -> ast.Module:
    try:
        return ast.parse(source, origin)
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"{origin}: the reference is not Python: {error}") from error


def _literal_assignments(tree: ast.Module) -> list[tuple[ast.Name, ast.Constant]]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value = [node.target], node.value
        else:
            continue
        for target in targets:
            found += _pairs(target, value)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.Name, ast.Constant]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        if len(target.elts) != len(value.elts):
            return []
        return [
            pair
            for inner, element in zip(target.elts, value.elts, strict=True)
            for pair in _pairs(inner, element)
        ]
    if (
        isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and type(value.value) is int
    ):
        return [(target, value)]
    return []


def _rebind(tree: ast.Module, sizes: Mapping[str, int], origin: str) -> None:
    left = set(sizes)
    for target, constant in _literal_assignments(tree):
        if target.id in sizes:
            constant.value = sizes[target.id]
            left.discard(target.id)
    if left:
        names = ", ".join(sorted(left))
        raise TaskError(f"{origin}: no module-level integer constant named {names}")


def one_line(error: BaseException) -> str:
    """Type and message of an exception on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
