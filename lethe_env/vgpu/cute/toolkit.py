"""The CuTe DSL, an optional package: imported when it is first needed."""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from types import ModuleType

ARCHITECTURE = "sm_100a"
"""What kernels are compiled for."""
MISSING = (
    "kernels in the CuTe DSL need nvidia-cutlass-dsl: pip install 'lethe_env[blackwell]' "
    "(Python 3.10 to 3.14 on Linux)"
)


def is_installed() -> bool:
    """Whether the DSL can be imported; imports nothing."""
    return find_spec("nvidia_cutlass_dsl") is not None


def load(module: str = "cutlass.cute") -> ModuleType:
    """A module of the DSL.

    The DSL asks a driver for the architecture, unless the environment says it when the DSL is
    imported; so this sets `CUTE_DSL_ARCH` where nobody has.

    Raises:
        ModuleNotFoundError: the package is not installed; says how to.
    """
    if not is_installed():
        raise ModuleNotFoundError(MISSING)
    os.environ.setdefault("CUTE_DSL_ARCH", ARCHITECTURE)
    return importlib.import_module(module)
