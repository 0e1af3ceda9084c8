"""Which names in a source stand for imported things, and which are local variables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ROUNDS = 8


class Aliases:
    """Names bound by imports anywhere in a source, and plain re-bindings of them."""

    def __init__(self, tree: ast.Module) -> None:
        self._paths: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    whole = name.name if name.asname else name.name.partition(".")[0]
                    self._paths[name.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom) and node.module:
                for name in node.names:
                    self._paths[name.asname or name.name] = f"{node.module}.{name.name}"
        assignments = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        for _ in range(_ROUNDS):  # an alias of an alias needs another round
            before = len(self._paths)
            for node in assignments:
                self._follow(node)
            if len(self._paths) == before:
                break

    def __contains__(self, name: str) -> bool:
        return name in self._paths

    def path(self, node: ast.AST) -> str | None:
        """Dotted path of an imported thing, `torch.nn.functional` for `F`; else `None`."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._paths:
            return None
        return ".".join([self._paths[node.id], *reversed(parts)])

    def _follow(self, node: ast.Assign) -> None:
        path = self.path(node.value)
        if path is not None:
            for target in node.targets:
                if isinstance(target, ast.Name):
                    self._paths.setdefault(target.id, path)


class Scopes:
    """The function scopes around the node being visited.

    Only functions and comprehensions count: a name bound there can never mean a builtin, whereas
    one bound in a module or class may not be bound yet.
    """

    def __init__(self) -> None:
        self._bound: list[set[str]] = []

    @contextmanager
    def entered(self, node: ast.AST) -> Iterator[None]:
        """Enter the scope that the node opens, if it opens one."""
        opens = isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS))
        if opens:
            self._bound.append(_names_bound_by(node))
        try:
            yield
        finally:
            if opens:
                self._bound.pop()

    def is_local(self, name: str) -> bool:
        """Whether the name is a local variable here or in an enclosing function."""
        return any(name in bound for bound in self._bound)


def _names_bound_by(scope: ast.AST) -> set[str]:
    bound: set[str] = set()
    released: set[str] = set()
    if isinstance(scope, _FUNCTIONS):
        arguments = scope.args
        everything = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        everything += [extra for extra in (arguments.vararg, arguments.kwarg) if extra]
        bound |= {argument.arg for argument in everything}
        waiting: list[ast.AST] = scope.body if isinstance(scope.body, list) else [scope.body]
    else:
        waiting = [generator.target for generator in scope.generators]
    waiting = list(waiting)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global):
            released |= set(node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
            continue
        if not isinstance(node, (ast.Lambda, *_COMPREHENSIONS)):
            waiting.extend(ast.iter_child_nodes(node))
    return bound - released
