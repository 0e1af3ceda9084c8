"""PTX text to `Kernel`: everything that Triton prints, and nothing that is not understood."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from .body import Body, symbols
from .declarations import parameters, variable
from .inlining import Function, inlined
from .lexer import Cursor, tokens
from .model import Kernel, UnsupportedError, Variable
from .operands import integer_value
from .sources import Sources

_LINKAGE = (".visible", ".weak", ".common")
_HINTS = (".minnctapersm", ".maxnreg", ".maxnctapersm", ".maxclusterrank", ".maxntid")


def parse(text: str) -> Kernel:
    """The one kernel of a PTX module.

    Calls of functions that the module defines are replaced by their bodies; other functions are
    named by a `Symbol`. The targets of `brx.idx` stand in its second operand as a `Vector` of
    labels.

    Raises:
        UnsupportedError: a directive, a literal or a name that this parser does not know, or a
            module without exactly one entry point.
    """
    sequence = list(tokens(text))
    return _Module(Cursor(sequence), Sources(sequence)).parse()


class _Module:
    def __init__(self, cursor: Cursor, sources: Sources) -> None:
        self._cursor = cursor
        self._sources = sources
        self._target = ""
        self._functions: set[str] = set()
        self._defined: dict[str, Function] = {}
        self._variables: dict[str, Variable] = {}
        self._kernel: Kernel | None = None

    def parse(self) -> Kernel:
        while self._cursor.peek().kind != "end":
            self._declaration()
        if self._kernel is None:
            raise UnsupportedError("PTX without an entry point")
        kernel = inlined(self._kernel, self._defined)
        kernel = replace(kernel, variables=self._variables | dict(kernel.variables))
        _check_names(kernel, self._functions)
        return kernel

    def _declaration(self) -> None:
        cursor = self._cursor
        cursor.accept(".extern")
        while cursor.sees(*_LINKAGE):
            cursor.take()
        match cursor.peek().text:
            case ".version" | ".address_size" | ".file":
                self._skip_line()
            case ".loc":
                cursor.take()
            case ".target":
                self._read_target()
            case ".section":
                self._skip_section()
            case ".func":
                self._read_function()
            case ".entry":
                self._read_entry()
            case ".global" | ".const" | ".shared":
                declared = variable(cursor)
                self._variables[declared.name] = declared
            case _:
                raise cursor.unexpected("a directive of a module")

    def _skip_line(self) -> None:
        line = self._cursor.peek().line
        while self._cursor.peek().line == line and self._cursor.peek().kind != "end":
            self._cursor.take()

    def _read_target(self) -> None:
        self._cursor.expect(".target")
        self._target = self._cursor.expect_kind("name")
        while self._cursor.accept(","):
            self._cursor.expect("debug")

    def _skip_section(self) -> None:
        self._cursor.expect(".section")
        self._cursor.expect_kind("directive")
        self._cursor.skip_braces()

    def _read_function(self) -> None:
        cursor = self._cursor
        cursor.expect(".func")
        returns = parameters(cursor)
        name = cursor.expect_kind("name")
        self._functions.add(name)
        found = parameters(cursor)
        cursor.accept(".noreturn")
        if cursor.accept(";"):
            return
        cursor.expect("{")
        body = Body(cursor, self._sources, found)
        body.parse()
        code = body.kernel(name, self._target, 0)
        self._defined[name] = Function(body=code, returns=returns)

    def _read_entry(self) -> None:
        if self._kernel is not None:
            raise UnsupportedError("PTX with two entry points")
        cursor = self._cursor
        cursor.expect(".entry")
        name = cursor.expect_kind("name")
        found = parameters(cursor)
        threads, cluster, explicit = self._read_sizes(name)
        cursor.expect("{")
        body = Body(cursor, self._sources, found)
        body.parse()
        kernel = body.kernel(name, self._target, threads)
        self._kernel = replace(kernel, cluster=cluster, explicit_cluster=explicit)

    def _read_sizes(self, name: str) -> tuple[int, tuple[int, int, int] | None, bool]:
        """What the directives between an entry's head and its body say.

        Returns:
            Threads per block, blocks per cluster, and whether a launch has to give these.
        """
        threads, cluster, explicit = 0, None, False
        while not self._cursor.sees("{"):
            directive = self._cursor.expect_kind("directive")
            sizes = list(_sizes(self._cursor))
            if directive == ".reqntid":
                if math.prod(sizes[1:]) != 1:
                    raise UnsupportedError(
                        f"a block of {sizes} threads, in more than one dimension"
                    )
                threads = sizes[0]
            elif directive == ".reqnctapercluster":
                x, y, z = (*sizes, 1, 1)[:3]
                cluster = (x, y, z)
            elif directive == ".explicitcluster":
                explicit = True
            elif directive not in _HINTS:
                raise UnsupportedError(f"`{directive}` on the entry {name}")
        if threads == 0:
            raise UnsupportedError(f"the entry {name} without `.reqntid`")
        return threads, cluster, explicit


def _check_names(kernel: Kernel, functions: set[str]) -> None:
    known = {item.name for item in kernel.parameters} | functions
    known |= kernel.labels.keys() | kernel.variables.keys()
    for instruction in kernel.body:
        for name in symbols(instruction.operands):
            if name not in known:
                raise UnsupportedError(
                    f"the name {name}, which nothing declares,",
                    instruction.name,
                    instruction.location,
                )


def _sizes(cursor: Cursor) -> Iterator[int]:
    while cursor.peek().kind == "integer":
        yield integer_value(cursor.take().text)
        cursor.accept(",")
