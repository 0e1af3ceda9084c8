"""Loading a candidate: its source becomes the module `candidate`, backed by a real file."""

from __future__ import annotations

import ast
import importlib.util
import linecache
import sys
from pathlib import Path
from types import ModuleType

MODULE_NAME = "candidate"


class NoModelError(Exception):
    """The source defines no class `ModelNew`."""


def write_source(source: str, folder: Path) -> Path:
    """Write the source where `inspect.getsource` will find it; Triton reads kernels that way."""
    path = folder / f"{MODULE_NAME}.py"
    path.write_text(source, encoding="utf-8")
    linecache.cache[str(path)] = (len(source), None, source.splitlines(keepends=True), str(path))
    return path


def load(path: Path) -> ModuleType:
    """Run the candidate's module.

    Raises:
        BaseException: whatever the candidate's top level raises.
    """
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {path.name}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def definitions(source: str, name: str) -> list[ast.FunctionDef]:
    """Every function of that name which the source defines, wherever it does."""
    nodes = ast.walk(ast.parse(source))
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]


def hoist(module: ModuleType, definition: ast.FunctionDef) -> None:
    """Define a kernel that the source defines inside a function, at the top level of its module.

    The function that defines it would have to be called with the right arguments otherwise. Of the
    decorators only the one that makes it a kernel stays, and what it closes over is missing.
    """
    definition.decorator_list = [ast.parse("__import__('triton').jit", mode="eval").body]
    text, path = ast.unparse(definition), f"<kernel {definition.name}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    exec(compile(text, path, "exec"), vars(module))


def model_class(module: ModuleType) -> type:
    """The class `ModelNew`.

    Raises:
        NoModelError: there is none.
    """
    found = getattr(module, "ModelNew", None)
    if not isinstance(found, type):
        raise NoModelError("the source defines no class ModelNew")
    return found
