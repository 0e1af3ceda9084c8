"""The reference module: a task's source, executed at one member of its shape family."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch

from .model import Task, TaskError
from .randomness import seed_generators

CONSTRUCTOR_SEED = 42
"""KernelBench seeds both constructors with 42 (`eval.py`, `seed_num=42`)."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a source in the KernelBench convention defines."""

    model_class: Callable[..., torch.nn.Module]
    get_inputs: Callable[[], list[Any]]
    get_init_inputs: Callable[[], list[Any]]
    evaluation_mode: bool = False
    """Whether modules are put into evaluation mode, or left as their constructor leaves them."""

    def init_inputs(self) -> list[Any]:
        """Constructor arguments, drawn with KernelBench's seed.

        Raises:
            TaskError: `get_init_inputs` fails.
        """
        with torch.random.fork_rng(devices=[]):
            seed_generators(CONSTRUCTOR_SEED)
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
            seed_generators(CONSTRUCTOR_SEED)
            try:
                module = self.model_class(*arguments)
            except Exception as error:
                raise TaskError(f"Model of the reference fails: {one_line(error)}") from error
        return module.eval() if self.evaluation_mode else module


def size_constants(source: str, origin: str = "task") -> dict[str, int]:
    """Module-level integer constants of a source, with the values written there.

    Literals and arithmetic on literals count: `n = 8`, `m, k = 4, 2048 * 2`, and the entries of a
    tuple by their index: `shape = (32, 64)` gives `shape[0]` and `shape[1]`. What is computed from
    other names follows by itself.

    Raises:
        TaskError: the source is not Python.
    """
    return {slot.name: slot.value for slot in _slots(_parse(source, origin))}


def load_reference(source: str, sizes: Mapping[str, int], origin: str = "task") -> Reference:
    """Execute a source with some of its module-level integer constants rebound.

    The constants are rebound in the syntax tree before execution, so that values derived from
    them at module level and default arguments follow.

    Raises:
        TaskError: not Python, an unknown constant, a failing import, or a missing name.
    """
    return _load(source, tuple(sorted(sizes.items())), origin)


def rebound_source(source: str, sizes: Mapping[str, int], origin: str = "task") -> str:
    """The source with some of its module-level integer constants rebound, as text.

    Raises:
        TaskError: not Python, or an unknown constant.
    """
    tree = _parse(source, origin)
    _rebind(tree, sizes, origin)
    return ast.unparse(tree)


def task_reference(task: Task, sizes: Mapping[str, int]) -> Reference:
    """The reference of a task at one member of its shape family."""
    reference = load_reference(task.source, sizes, task.origin or task.id)
    return replace(reference, evaluation_mode=task.evaluation_mode)


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


@dataclass(frozen=True, slots=True)
class _Slot:
    """A place in the syntax tree that holds the value of a size constant."""

    name: str
    value: int
    rebind: Callable[[int], None]


def _slots(tree: ast.Module) -> list[_Slot]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets: list[ast.expr] = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        for target in targets:
            found += _slots_of(node, target)
    return found


def _slots_of(node: ast.Assign | ast.AnnAssign, target: ast.expr) -> list[_Slot]:
    value = node.value
    if isinstance(target, ast.Name):
        folded = _folded(value)
        if folded is None:
            return _tuple_slots(target.id, value)
        return [_Slot(target.id, folded, lambda new: setattr(node, "value", _literal(new)))]
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)):
        return []
    found = []
    for index, (inner, element) in enumerate(zip(target.elts, value.elts, strict=False)):
        folded = _folded(element)
        if isinstance(inner, ast.Name) and folded is not None:
            found.append(_Slot(inner.id, folded, partial(_set_element, value.elts, index)))
    return found


def _tuple_slots(name: str, value: ast.expr | None) -> list[_Slot]:
    """The integers of a tuple, as in `shape = (64, 32768)`: `shape[0]` and `shape[1]`."""
    if not isinstance(value, ast.Tuple):
        return []
    return [
        _Slot(f"{name}[{index}]", folded, partial(_set_element, value.elts, index))
        for index, element in enumerate(value.elts)
        if (folded := _folded(element)) is not None
    ]


def _set_element(elements: list[ast.expr], index: int, new: int) -> None:
    elements[index] = _literal(new)


def _literal(value: int) -> ast.Constant:
    return ast.Constant(value=value, lineno=1, col_offset=0, end_lineno=1, end_col_offset=0)


_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


def _folded(node: ast.expr | None) -> int | None:
    """The value of an integer expression without names, else `None`."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _folded(node.left), _folded(node.right)
        if left is None or right is None or not 0 <= right < 1 << 40:
            return None
        if isinstance(node.op, ast.Pow | ast.LShift) and right > 64:
            return None
        if isinstance(node.op, ast.FloorDiv) and right == 0:
            return None
        return _OPERATORS[type(node.op)](left, right)
    return None


def _rebind(tree: ast.Module, sizes: Mapping[str, int], origin: str) -> None:
    left = set(sizes)
    for slot in _slots(tree):
        if slot.name in sizes:
            slot.rebind(sizes[slot.name])
            left.discard(slot.name)
    if left:
        names = ", ".join(sorted(left))
        raise TaskError(f"{origin}: no module-level integer constant named {names}")


def one_line(error: BaseException) -> str:
    """Type and message of an exception on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]
