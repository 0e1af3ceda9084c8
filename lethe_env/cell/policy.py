"""Reading a candidate before it runs: what asks for more than computing is refused.

The sandbox is what protects the judge. The policy is there because a candidate that starts
processes, reads files, walks frames or patches torch is not a kernel, whatever it achieves; and
because the line it is told is a better lesson than a permission error. Only the syntax tree is
looked at, so comments, docstrings and strings may say anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..tasks.observation import Fault
from .policy_rules import (
    ALLOWED_OF,
    ALLOWED_STANDARD_MODULES,
    ASSIGNABLE_PATHS,
    FORBIDDEN_ATTRIBUTES,
    FORBIDDEN_BUILTINS,
    FORBIDDEN_COMPONENTS,
    FORBIDDEN_PACKAGES,
    FORBIDDEN_PATHS,
    STANDARD_MODULES,
)
from .scopes import Aliases, Scopes

SOURCE_CHARACTERS = 1 << 20


class _RefusedError(Exception):
    def __init__(self, node: ast.AST, message: str) -> None:
        self.line: int | None = getattr(node, "lineno", None)
        self.message = message


def review(source: str) -> Fault | None:
    """Why this source is refused, or `None` if it may run."""
    if len(source) > SOURCE_CHARACTERS:
        return _refused(f"has more than {SOURCE_CHARACTERS} characters", None)
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return _refused(f"is not Python: line {error.lineno}: {error.msg}", error.lineno)
    except (ValueError, RecursionError, MemoryError) as error:
        return _refused(f"is not Python: {error or type(error).__name__}", None)
    try:
        _Review(tree).visit(tree)
    except _RefusedError as refusal:
        return _refused(f"line {refusal.line}: {refusal.message}", refusal.line)
    except RecursionError:
        return _refused("is nested too deeply to be read", None)
    if not _defines_model(tree):
        return _refused("defines no class ModelNew", None)
    return None


def _refused(message: str, line: int | None) -> Fault:
    return Fault(kind="refused", phase="policy", message=f"the source {message}", line=line)


def _defines_model(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            return True
        if isinstance(node, ast.Name) and node.id == "ModelNew" and isinstance(node.ctx, ast.Store):
            return True
    return False


class _Review(ast.NodeVisitor):
    """Raises `_RefusedError` at the first thing that is not allowed."""

    def __init__(self, tree: ast.Module) -> None:
        self._aliases = Aliases(tree)
        self._scopes = Scopes()
        self._vetted: set[int] = set()

    def visit(self, node: ast.AST) -> None:
        with self._scopes.entered(node):
            super().visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            _check_import(node, name.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            raise _RefusedError(node, "relative imports lead nowhere: a candidate is one file")
        _check_import(node, node.module)
        for name in node.names:
            if name.name == "*" and node.module in ("torch", "numpy", "os", "sys"):
                raise _RefusedError(node, f"`from {node.module} import *` hides what is used")
            if name.name != "*":
                _check_path(node, f"{node.module}.{name.name}")

    def visit_Name(self, node: ast.Name) -> None:
        if self._scopes.is_local(node.id):
            return
        if node.id in FORBIDDEN_BUILTINS and node.id not in self._aliases:
            raise _RefusedError(node, f"`{node.id}` is not allowed in a candidate")
        if node.id in ("getattr", "setattr", "delattr") and id(node) not in self._vetted:
            raise _RefusedError(node, f"`{node.id}` may only be called, with a literal name")
        path = self._aliases.path(node)
        if path in ALLOWED_OF and isinstance(node.ctx, ast.Load) and id(node) not in self._vetted:
            raise _RefusedError(node, f"the module `{path}` may not be passed around")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in FORBIDDEN_ATTRIBUTES:
            raise _RefusedError(node, f"the attribute `{node.attr}` is not allowed in a candidate")
        base = self._aliases.path(node.value)
        if base is not None:
            _check_path(node, f"{base}.{node.attr}")
            if node.attr == "__dict__":
                raise _RefusedError(node, f"`{base}.__dict__` is not allowed in a candidate")
            if isinstance(node.value, ast.Name | ast.Attribute):
                self._vetted.add(id(node.value))
        whole = self._aliases.path(node)
        if whole in ALLOWED_OF and id(node) not in self._vetted:
            raise _RefusedError(node, f"`{whole}` may only be used as `{whole}.get(…)`")
        if not isinstance(node.ctx, ast.Load):
            self._check_store(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr", "delattr"):
            self._check_dynamic(node, node.func.id)
            self._vetted.add(id(node.func))
        self.generic_visit(node)

    def _check_store(self, node: ast.Attribute) -> None:
        base = self._aliases.path(node.value)
        if base is not None and not f"{base}.{node.attr}".startswith(ASSIGNABLE_PATHS):
            raise _RefusedError(
                node, f"`{base}.{node.attr}` belongs to a module; it may not be changed"
            )
        if node.attr in ("__class__", "__dict__"):
            raise _RefusedError(node, f"`{node.attr}` may not be assigned")
        for part in _chain(node.value):
            of_type = isinstance(part, ast.Call) and _is_name(part.func, "type")
            if of_type or (isinstance(part, ast.Attribute) and part.attr == "__class__"):
                raise _RefusedError(node, "attributes of a class may not be changed from outside")

    def _check_dynamic(self, node: ast.Call, function: str) -> None:
        if len(node.args) < 2 or isinstance(node.args[1], ast.Starred):
            raise _RefusedError(node, f"`{function}` needs a literal name")
        target, name = node.args[0], node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            context = ast.Load() if function == "getattr" else ast.Store()
            spelled = ast.Attribute(value=target, attr=name.value, ctx=context)
            self.visit(ast.copy_location(spelled, node))
        elif not (_is_name(target, "self") and _is_numbered(name)):
            raise _RefusedError(node, f"`{function}` needs a literal name")


def _check_import(node: ast.AST, module: str) -> None:
    root = module.partition(".")[0]
    if root in FORBIDDEN_PACKAGES or (
        root in STANDARD_MODULES and root not in ALLOWED_STANDARD_MODULES
    ):
        raise _RefusedError(node, f"the import of `{root}` is not allowed in a candidate")
    _check_path(node, module)


def _check_path(node: ast.AST, path: str) -> None:
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        prefix = ".".join(parts[:end])
        if prefix in FORBIDDEN_PATHS:
            raise _RefusedError(node, f"`{prefix}` is not allowed in a candidate")
        allowed = ALLOWED_OF.get(prefix)
        if allowed is not None and end < len(parts) and parts[end] not in allowed:
            names = ", ".join(sorted(allowed))
            raise _RefusedError(
                node, f"`{prefix}.{parts[end]}` is not allowed; allowed are: {names}"
            )
    if any(part.lstrip("_") in FORBIDDEN_COMPONENTS for part in parts[1:]) and path != "os.path":
        raise _RefusedError(node, f"`{path}` is not allowed in a candidate")


def _chain(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
        yield node


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_numbered(name: ast.AST) -> bool:
    """Whether this is an f-string like `f"weight_{i}"`, which names one of a module's own parts."""
    if not isinstance(name, ast.JoinedStr) or not name.values:
        return False
    first = name.values[0]
    return isinstance(first, ast.Constant) and not str(first.value).startswith("_")
