"""Lines of the kernel's own source, from `.file` and `.loc`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .lexer import Token
from .model import Location, UnsupportedError

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+\d+\s*(?:,[^/]*?inlined_at\s+(\d+)\s+(\d+))?")
_CALLER = re.compile(r"@\[\s*([^\s\[\]]+?):(\d+):\d+")


class Sources:
    """The files that the PTX names, known before the code that refers to them."""

    def __init__(self, sequence: list[Token]) -> None:
        self._files = dict(_files(sequence))

    def location(self, token: Token) -> Location:
        """Where the author of the kernel looks for an instruction under this `.loc`.

        Code inlined from a library belongs to the outermost call: LLVM gives the chain of callers
        in the line's comment, as `// library.py:7:3 @[ kernel.py:12:5 ]`.
        """
        match = _LOC.match(token.text)
        if match is None:
            raise UnsupportedError(f"line {token.line} of the PTX has an unknown `{token.text}`")
        file, line, caller_file, caller_line = match.groups()
        callers = _CALLER.findall(token.text)
        if callers:
            name, outermost_line = callers[-1]
            return Location(self._full_path(name), int(outermost_line))
        if caller_file is not None:
            file, line = caller_file, caller_line
        return Location(self._files.get(int(file), f"file {file}"), int(line))

    def _full_path(self, name: str) -> str:
        matches = [path for path in self._files.values() if path.rsplit("/", 1)[-1] == name]
        return matches[0] if len(matches) == 1 else name


def _files(sequence: list[Token]) -> Iterator[tuple[int, str]]:
    for directive, number, path in zip(sequence, sequence[1:], sequence[2:], strict=False):
        if directive.text == ".file" and path.kind == "string":
            yield int(number.text), path.text[1:-1]
