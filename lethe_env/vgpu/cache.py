"""Native code kept on disk, by everything it depends on.

Only a trusted process may own a cache: what is in it is executed by whoever loads it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from .machine import program, shared_code, tensor_code
from .ptx.model import UnsupportedError
from .store import Store, cache_root

Translate = Callable[[str], bytes]
"""From PTX text to the native code that `machine.program.load` takes."""

_LOCATIONS = re.compile(r"^[ \t]*(?:\.(?:file|loc)\b[^\n]*|\.section\b[^{}]*\{[^{}]*\})\n", re.M)
_PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """Where objects are kept."""
    return cache_root() / "objects"


class ObjectCache:
    """Translates what it has not seen before; as a `Translate`, call it."""

    def __init__(
        self, folder: Path | None = None, translate: Translate = program.translate
    ) -> None:
        """Open or create.

        Args:
            folder: where objects lie; `cache_folder()` by default.
            translate: makes what is missing.
        """
        self._store = Store(folder or cache_folder())
        self._translate = translate

    def __call__(self, ptx: str) -> bytes:
        """Native code of a kernel.

        Raises:
            UnsupportedError: the virtual GPU does not implement something in it.
        """
        text = without_locations(ptx)
        name = key(text)
        native = self._store.get(name)
        if native is None:
            try:
                native = self._translate(text)
            except UnsupportedError:
                native = self._translate(ptx)  # says the same, and where
            self._store.put(name, native)
        return native


def link_shared_code(folder: Path | None = None) -> None:
    """Link the functions that kernels have in common into this process, compiled at most once.

    Args:
        folder: where objects lie; `cache_folder()` by default.
    """
    shared_code.link(_kept(folder, "", shared_code.compile_shared))


def link_unit_code(folder: Path | None = None) -> None:
    """The same for the functions of tensor cores and other units.

    Args:
        folder: where objects lie; `cache_folder()` by default.
    """
    tensor_code.link(_kept(folder, "units", tensor_code.compile_units))


def _kept(folder: Path | None, text: str, compile_native: Callable[[], bytes]) -> bytes:
    """Native code from the folder, compiled if it is not there."""
    store = Store(folder or cache_folder())
    name = key(text)
    native = store.get(name)
    if native is None:
        native = compile_native()
        store.put(name, native)
    return native


def ensure_linked() -> None:
    """Link both into this process, unless it has them."""
    if not shared_code.is_linked():
        link_shared_code()
    if not tensor_code.is_linked():
        link_unit_code()


def without_locations(ptx: str) -> str:
    """The same kernel with nothing in it about source files and lines."""
    return _LOCATIONS.sub("", ptx)


def key(ptx: str) -> str:
    """Hash of a kernel's text, this processor, and the compilers it goes through."""
    text = "\0".join((ptx, llvmlite.__version__, _processor(), _own_code()))
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _processor() -> str:
    return f"{llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"


@cache
def _own_code() -> str:
    """Hash of the virtual GPU's sources, so that no object outlives the code that made it."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
