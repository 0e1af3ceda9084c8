"""From an exception to a fault: what happened, in one sentence, and on which line."""

from __future__ import annotations

import linecache
import traceback

from triton.compiler.errors import CompilationError
from triton.runtime.errors import InterpreterError

from ..tasks.observation import Fault

MESSAGE_CHARACTERS = 300

_OUT_OF_MEMORY = ("not enough memory", "out of memory", "can't allocate memory")


def from_exception(error: BaseException, phase: str, source_path: str, launches: int = 0) -> Fault:
    """The fault that this exception amounts to.

    Args:
        error: whatever the candidate's code raised.
        phase: what was being done.
        source_path: the file name under which the candidate was compiled.
        launches: kernel launches of this call so far.
    """
    line = _line(error, source_path)
    root = error
    while isinstance(root, InterpreterError) and root.__cause__ is not None:
        root = root.__cause__
    if isinstance(root, SystemExit):
        kind, message = "exit", f"the candidate asked to exit with {root.code!r}"
    elif _is_memory(root):
        kind, message = "memory", f"more memory was asked for than the limit: {_text(root)}"
    else:
        statement = linecache.getline(source_path, line) if line is not None else ""
        kind, message = "exception", _text(root, statement)
    return Fault(
        kind=kind,
        phase=phase,
        message=message,
        exception=type(root).__name__[:100],
        line=line,
        launches=launches,
    )


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        phrase in str(error).lower() for phrase in _OUT_OF_MEMORY
    )


def _text(error: BaseException, statement: str = "") -> str:
    """What an exception says; one that says nothing is told by the statement that raised it."""
    try:
        text = compile_message(error) if isinstance(error, CompilationError) else str(error)
    except Exception:  # noqa: BLE001 - a candidate's own exception class can do anything
        text = ""
    text = " ".join(text.split()) or " ".join(statement.split()) or type(error).__name__
    return text if len(text) <= MESSAGE_CHARACTERS else text[: MESSAGE_CHARACTERS - 1] + "…"


def compile_message(error: CompilationError) -> str:
    """Why a kernel does not compile.

    Where it calls another function, its error only shows the call: the cause says why.
    """
    link: BaseException | None = error
    for _ in range(20):
        if not isinstance(link, CompilationError):
            break
        if link.error_message:
            return str(link.error_message)
        link = link.__cause__
    return str(error)


def _line(error: BaseException, source_path: str) -> int | None:
    """Innermost line within the candidate, looked for at the deepest cause first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 20:
        chain.append(current)
        current = current.__cause__ or current.__context__
    for link in reversed(chain):
        if isinstance(link, SyntaxError) and link.filename == source_path:
            return link.lineno
        lines = [
            number
            for frame, number in traceback.walk_tb(link.__traceback__)
            if frame.f_code.co_filename == source_path
        ]
        if lines:
            return lines[-1]
    return None
