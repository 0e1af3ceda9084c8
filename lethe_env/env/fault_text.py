"""Faults in words for a policy: where a candidate failed, without the numbers it saw.

The text of an exception belongs to the candidate, which could write its inputs into it. So numbers
are masked, quoted text stays only where it is a piece of the source, and what a `raise` or an
`assert` of the candidate's own says is left out: its author knows it. What remains is a choice of
words and lines, as narrow a channel as the choice of which gates to fail.
"""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass

from ..tasks.observation import PHASES

MESSAGE_CHARACTERS = 300
LINE_CHARACTERS = 120

_TEXT = re.compile(
    rf"(?:(?P<phase>{'|'.join(PHASES)}): )?(?:(?P<exception>\w+): )?(?P<message>.*?)"
    r"(?: \(line (?P<line>\d+)\))?",
    re.DOTALL,
)
_KNOWN_EXCEPTIONS = frozenset(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
) | {
    "CompilationError",
    "CompileTimeAssertionFailure",
    "InterpreterError",
    "OutOfMemoryError",
    "OutOfResources",
    "PTXASError",
    "UnsupportedLanguageConstruct",
}
_PHASES = {
    "policy": "refused",
    "load": "while loading",
    "construct": "in the constructor",
    "weights": "while its weights were loaded",
    "forward": "in forward",
    "backward": "in backward",
    "protocol": "in its answer",
}
_DTYPE_NAMES = frozenset(
    f"{kind}{bits}" for kind in ("float", "int", "uint", "fp", "bf") for bits in (8, 16, 32, 64)
) | {"bfloat16", "int1", "float8_e4m3fn", "float8_e5m2", "fp8e4nv", "fp8e5", "conv1d", "conv2d"}
_NUMERAL = re.compile(r"[+-]?\d[\w.]*(?:[+-]\d+)?|\w*\d\w*|\b(?:nan|inf)\b", re.IGNORECASE)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")


@dataclass(frozen=True, slots=True)
class FaultText:
    """One fault, taken apart from the sentence that `gates.comparison.fault_text` makes."""

    message: str
    phase: str = ""
    exception: str = ""
    line: int | None = None


def read_fault(text: str) -> FaultText:
    """Take a fault's sentence apart; never fails."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return FaultText(text)
    return FaultText(
        found["message"],
        found["phase"] or "",
        found["exception"] or "",
        int(found["line"]) if found["line"] and len(found["line"]) < 10 else None,
    )


def describe_fault(fault: FaultText, source: str) -> str:
    """Phase, type of exception, masked message and source line."""
    where = source_line(source, fault.line) if fault.line is not None else ""
    parts = [
        _PHASES.get(fault.phase, ""),
        _exception(fault.exception) if fault.exception else "",
        "" if _says_it_itself(source, fault.line) else masked(fault.message, source),
    ]
    text = ": ".join(filter(None, parts)) or "it failed"
    return f"{text}, at {where}" if where else text


def source_line(source: str, line: int) -> str:
    """The number of a line and its text, which is the policy's own."""
    lines = source.splitlines()
    if not 1 <= line <= len(lines):
        return f"line {line}"
    text = lines[line - 1].strip()
    short = text if len(text) <= LINE_CHARACTERS else f"{text[: LINE_CHARACTERS - 1]}…"
    return f"line {line} `{short}`"


def masked(message: str, source: str) -> str:
    """A message with `#` for every number and `…` for quoted text that the source does not hold.

    Names with digits stay if they are names in the source or names of dtypes.
    """
    names = (frozenset(re.findall(r"[^\W\d]\w*", source)) | _DTYPE_NAMES) - {"nan", "inf"}
    short = message[:MESSAGE_CHARACTERS]
    text = _NUMERAL.sub(lambda found: found[0] if found[0] in names else "#", short)
    return _QUOTED.sub(lambda found: found[0] if _is_of(found[0][1:-1], source) else "'…'", text)


def _is_of(quoted: str, source: str) -> bool:
    return "#" not in quoted and quoted in source


def _exception(name: str) -> str:
    return name if name in _KNOWN_EXCEPTIONS else "an exception of its own"


def _says_it_itself(source: str, line: int | None) -> bool:
    if line is None:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Raise | ast.Assert)
        or (isinstance(node, ast.Call) and _name(node.func) in ("static_assert", "device_assert"))
    )


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
