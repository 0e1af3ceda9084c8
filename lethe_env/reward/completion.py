"""Completions: finding the source text in what a model wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TOOL_NAME = "submit_kernel"
"""The tool through which a model hands in source text; its argument is `source`."""
TEXT_CHARACTERS = 1 << 22
"""Longest text that is searched for code, four times what the verifier reads of a source."""

_FENCE = re.compile(
    r"(?:[^`]*+(?P<ticks>`{3,}+)|[ \t]*+(?P<tildes>~{3,}+))[ \t]*+(?P<language>[\w+#.-]*+)[^`]*+$"
)  # possessive throughout, so that a line of a million backticks takes linear time
_MODEL = re.compile(r"^[ \t]*(class[ \t]+ModelNew\b|ModelNew[ \t]*[:=])", re.MULTILINE)
_PYTHON = ("", "python", "python3", "py", "triton")


@dataclass(frozen=True, slots=True)
class Extraction:
    """The source text in a completion, or the reason why there is none."""

    source: str | None
    reason: str
    """Where the source was found, or what is missing."""


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    text: str
    complete: bool

    @property
    def defines_model(self) -> bool:
        return _MODEL.search(self.text) is not None

    @property
    def python(self) -> bool:
        return self.language.lower() in _PYTHON


def extract_source(completion: str | Sequence[Mapping[str, Any]]) -> Extraction:
    """Find the source text of a candidate; never raises, whatever it is given.

    In a text, reasoning up to `</think>` is skipped. Of several fenced blocks the last complete
    one that defines `ModelNew` counts, else one that is cut off but defines it, else the last
    block of Python. A text that defines `ModelNew` outside of fences is source as it stands. In a
    chat, the last message of the assistant that holds source counts, and in a message a call of
    `submit_kernel` goes before its text.

    Args:
        completion: what the model wrote: text, bytes, or a list of chat messages.
    """
    if isinstance(completion, str | bytes | bytearray):
        return _from_text(completion)
    if isinstance(completion, Mapping):
        completion = [completion]
    if not isinstance(completion, Sequence):
        return Extraction(None, f"a {type(completion).__name__} is not a completion")
    return _from_messages(completion)


def _from_messages(messages: Sequence[Any]) -> Extraction:
    reason = "the chat has no message of the assistant"
    for message in reversed(messages):
        if not isinstance(message, Mapping) or message.get("role", "assistant") != "assistant":
            continue
        found = _from_message(message)
        if found.source is not None:
            return found
        if reason.startswith("the chat"):
            reason = found.reason
    return Extraction(None, reason)


def _from_message(message: Mapping[str, Any]) -> Extraction:
    for source in reversed(list(_submitted(message.get("tool_calls")))):
        return _checked(source, f"call of {TOOL_NAME}")
    return _from_text(_content(message.get("content")))


def _submitted(calls: Any) -> Iterator[str]:
    for call in calls if isinstance(calls, list | tuple) else ():
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or function.get("name") != TOOL_NAME:
            continue
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                continue
        source = arguments.get("source") if isinstance(arguments, Mapping) else None
        if isinstance(source, str):
            yield source


def _content(content: Any) -> str | bytes | bytearray:
    if isinstance(content, str | bytes | bytearray):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))


def _from_text(text: str | bytes | bytearray) -> Extraction:
    if not isinstance(text, str):
        text = bytes(text).decode("utf-8", errors="replace")
    if len(text) > TEXT_CHARACTERS:
        return Extraction(None, f"the completion has more than {TEXT_CHARACTERS} characters")
    if not text.strip():
        return Extraction(None, "the completion is empty")
    answer = text.rpartition("</think>")[2]
    if "<think>" in answer:
        return Extraction(None, "the completion ends inside its reasoning")
    blocks = list(_blocks(answer))
    block = _chosen(blocks)
    if _MODEL.search(answer) and (block is None or not block.defines_model):
        return _checked(answer, "whole text")
    if block is not None:
        return _checked(block.text, "fenced block" if block.complete else "fence without an end")
    return Extraction(None, "the completion has no Python code")


def _chosen(blocks: Sequence[_Block]) -> _Block | None:
    for wanted in (
        lambda block: block.defines_model and block.complete,
        lambda block: block.defines_model,
        lambda block: block.python and block.complete,
        lambda block: block.python,
    ):
        for block in reversed(blocks):
            if block.text.strip() and wanted(block):
                return block
    return None


def _blocks(text: str) -> Iterator[_Block]:
    ticks = language = ""
    lines: list[str] = []
    for line in text.split("\n"):
        if ticks:
            if _closes(line, ticks):
                yield _Block(language, "\n".join([*lines, ""]), complete=True)
                ticks, lines = "", []
            else:
                lines.append(line)
            continue
        opening = _FENCE.match(line)
        if opening is not None:
            ticks, language = opening["ticks"] or opening["tildes"], opening["language"]
    if ticks:
        yield _Block(language, "\n".join(lines), complete=False)


def _closes(line: str, ticks: str) -> bool:
    mark = line.strip()
    return len(mark) >= len(ticks) and not mark.strip(ticks[0])


def _checked(source: str, where: str) -> Extraction:
    try:
        source.encode("utf-8")
    except UnicodeEncodeError as error:
        return Extraction(None, f"{where}: character {error.start} is no Unicode text")
    if not source.strip():
        return Extraction(None, f"{where}: the source is empty")
    return Extraction(source, where)
