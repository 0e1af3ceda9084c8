"""Native code kept on disk, by everything it depends on.

Only a trusted process may own a cache: what is in it is executed by whoever loads it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from .machine import program
from .ptx.model import UnsupportedError

Translate = Callable[[str], bytes]
"""From PTX text to the native code that `machine.program.load` takes."""

_LOCATIONS = re.compile(r"^[ \t]*(?:\.(?:file|loc)\b[^\n]*|\.section\b[^{}]*\{[^{}]*\})\n", re.M)
_PACKAGE = Path(__file__).resolve().parent


def cache_folder() -> Path:
    """Where objects are kept: below `LETHE_CACHE_DIR`, else below `~/.cache/lethe_env`."""
    root = os.environ.get("LETHE_CACHE_DIR")
    return (Path(root) if root else Path.home() / ".cache" / "lethe_env") / "objects"


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
        self._folder = folder or cache_folder()
        self._translate = translate

    def __call__(self, ptx: str) -> bytes:
        """Native code of a kernel.

        Raises:
            UnsupportedError: the virtual GPU does not implement something in it.
        """
        text = without_locations(ptx)
        path = self._folder / f"{key(text)}.o"
        with suppress(FileNotFoundError):
            return path.read_bytes()
        try:
            native = self._translate(text)
        except UnsupportedError:
            native = self._translate(ptx)  # says the same, and where
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(native)
        temporary.replace(path)
        return native


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
