"""Which exceptions on the virtual GPU are not the candidate's, judged by whose code raised them.

What an exception says is easily imitated, so it counts only if the frame that raised it runs in a
module of Triton's or of the virtual GPU's, told by the identity of its globals.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure

from ..vgpu.ptx.model import UnsupportedError
from ..vgpu.session import LaunchError
from .loader import MODULE_NAME
from .translation import BrokenError

_BEYOND_THIS_ARCHITECTURE = ("not supported in this architecture", "num_ctas > 1 requires")
"""What Triton says to code that is fine on newer hardware than the virtual GPU's."""
_VIRTUAL_GPU = "lethe_env.vgpu."
_CONVERSION = "lethe_env.vgpu.arguments"
"""Takes a launch's values as Triton's own launcher would: what it raises is about them."""
_CHAIN = 20


def excuse(error: BaseException) -> tuple[str, str] | None:
    """Kind of fault and reason, if the exception says nothing against the candidate."""
    root = _root(error)
    owner = _owner(root)
    if isinstance(error, UnsupportedError | BrokenError):
        kind = "unsupported" if isinstance(error, UnsupportedError) else "harness"
        ours = owner.startswith(_VIRTUAL_GPU) or owner == BrokenError.__module__
        return (kind, str(error)) if ours else None
    text = " ".join(str(error).split())
    if isinstance(error, CompilationError):
        newer = any(phrase in text for phrase in _BEYOND_THIS_ARCHITECTURE)
        asserted = isinstance(error, CompileTimeAssertionFailure)
        if newer and owner.startswith("triton.") and not asserted:
            return "unsupported", f"unsupported by the virtual GPU: {text[-200:]}"
        return None
    ours = owner.startswith(_VIRTUAL_GPU) and owner != _CONVERSION
    if ours and not isinstance(root, LaunchError | MemoryError):
        return "harness", f"the virtual GPU broke: {type(root).__name__}: {text}"
    return None


def _root(error: BaseException) -> BaseException:
    """The first exception of a chain of causes."""
    for _ in range(_CHAIN):
        if error.__cause__ is None:
            break
        error = error.__cause__
    return error


def _owner(error: BaseException) -> str:
    """The virtual GPU's or Triton's module that raised, itself or in a library that it called.

    Empty if the candidate's own code did, or code of no module.
    """
    frames: list[FrameType] = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        name = str(frame.f_globals.get("__name__", ""))
        module = sys.modules.get(name)
        if module is None or module.__dict__ is not frame.f_globals or name == MODULE_NAME:
            return ""
        if name.startswith(("lethe_env.", "triton.")):
            return name
    return ""
