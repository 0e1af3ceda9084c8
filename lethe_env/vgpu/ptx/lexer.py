"""PTX text as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .model import UnsupportedError

_PATTERN = re.compile(
    r"""
    (?:\s+|//[^\n]*|/\*.*?\*/)*
    (?:
    (?P<location>\.loc\b[^\n]*)
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<float>(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}
              |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.$]))
  | (?P<integer>(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?(?![\w.$]))
  | (?P<directive>\.[A-Za-z]\w*)
  | (?P<name>[%$A-Za-z_][\w$]*(?:(?:\.|::)\w+)*)
  | (?P<mark>[{}()\[\],;:|!@<>=+-])
  | (?P<end>\Z)
    )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """One word of PTX.

    `kind` is `location` (a whole `.loc` line), `string`, `float`, `integer`, `directive`, `name`
    (opcodes with all their modifiers are one name), `mark`, or `end`.
    """

    kind: str
    text: str
    line: int


def tokens(text: str) -> Iterator[Token]:
    """The words of `text`, then one of kind `end`.

    Raises:
        UnsupportedError: a character that begins no word of PTX.
    """
    position, line = 0, 1
    for match in _PATTERN.finditer(text):
        if match.start() != position:
            break
        kind = match.lastgroup
        word = match[kind]
        line += text.count("\n", position, match.start(kind))
        yield Token(kind, word, line)
        if kind == "end":
            return
        position = match.end()
    rest = text[position:].lstrip()
    line += text.count("\n", position, len(text) - len(rest))
    found = rest[:40].splitlines()[0]
    raise UnsupportedError(f"line {line} of the PTX cannot be read from {found!r} on")


class Cursor:
    """A place in a sequence of tokens that ends with `end`."""

    def __init__(self, sequence: Sequence[Token]) -> None:
        self._tokens = [*sequence, sequence[-1]]  # nobody looks further than one ahead
        self._at = 0

    def peek(self, ahead: int = 0) -> Token:
        """The token `ahead` places on, without moving."""
        return self._tokens[self._at + ahead]

    def take(self) -> Token:
        """The next token, and move behind it."""
        token = self._tokens[self._at]
        if token.kind != "end":
            self._at += 1
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these (a string never is)."""
        token = self._tokens[self._at]
        return token.text in texts and token.kind != "string"

    def accept(self, text: str) -> bool:
        """Move behind the next token if it is `text`."""
        token = self._tokens[self._at]
        if token.text != text or token.kind == "string":
            return False
        self._at += 1
        return True

    def expect(self, text: str) -> None:
        """Move behind `text`, which must come next."""
        if not self.accept(text):
            raise self.unexpected(f"`{text}`")

    def expect_kind(self, kind: str) -> str:
        """The text of the next token, which must be of this kind."""
        token = self._tokens[self._at]
        if token.kind != kind:
            raise self.unexpected(f"{'an' if kind == 'integer' else 'a'} {kind}")
        self._at += 1
        return token.text

    def unexpected(self, wanted: str) -> UnsupportedError:
        """The error that says what stands here in place of `wanted`."""
        token = self.peek()
        return UnsupportedError(
            f"line {token.line} of the PTX has `{token.text}` where {wanted} is expected"
        )

    def skip_braces(self) -> None:
        """Move behind the `{…}` that comes next, whatever is in it."""
        self.expect("{")
        depth = 1
        while depth:
            if self.peek().kind == "end":
                raise self.unexpected("`}`")
            text = self.take().text
            depth += (text == "{") - (text == "}")

    def inside_braces(self) -> Iterator[tuple[Token, Token]]:
        """Neighbouring tokens from here to the `}` that closes the brace just taken."""
        depth, at = 1, self._at
        while at + 1 < len(self._tokens):
            token = self._tokens[at]
            depth += (token.text == "{") - (token.text == "}")
            if depth == 0:
                return
            if depth == 1:
                yield self._tokens[at - 1], token
            at += 1
