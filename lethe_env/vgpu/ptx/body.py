"""The statements of a kernel's body, read from tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from .declarations import SPACES, registers, variable
from .lexer import Cursor
from .model import (
    Address,
    Instruction,
    Kernel,
    Location,
    Operand,
    Parameter,
    Register,
    Symbol,
    UnsupportedError,
    Variable,
    Vector,
)
from .operands import operands
from .scope import Scopes
from .sources import Sources


class Body:
    """Reads the statements between the braces of an entry."""

    def __init__(self, cursor: Cursor, sources: Sources, found: tuple[Parameter, ...]) -> None:
        self._cursor = cursor
        self._sources = sources
        self._parameters = found
        self._scopes = Scopes()
        self._instructions: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._branch_targets: dict[str, Vector] = {}
        self._variables: dict[str, Variable] = {}
        self._location: Location | None = None

    def parse(self) -> None:
        """Read to the `}` that closes the body."""
        self._scopes.open_body(self._cursor)
        while True:
            if self._cursor.accept("}"):
                if not self._scopes.depth:
                    return
                self._scopes.close()
            else:
                self._statement()

    def kernel(self, name: str, target: str, threads: int) -> Kernel:
        """What was read, with the labels that something names; module variables are to be added."""
        body = tuple(self._with_branch_targets(item) for item in self._instructions)
        named = {name for instruction in body for name in symbols(instruction.operands)}
        return Kernel(
            name=name,
            target=target,
            parameters=self._parameters,
            registers=self._scopes.registers,
            body=body,
            labels={label: at for label, at in self._labels.items() if label in named},
            threads=threads,
            variables=self._variables,
        )

    def _statement(self) -> None:
        cursor = self._cursor
        token = cursor.peek()
        if token.kind == "location":
            self._location = self._sources.location(cursor.take())
        elif cursor.accept("{"):
            self._scopes.open(cursor)
        elif token.kind == "directive":
            self._directive(token.text)
        elif token.kind == "name" and cursor.peek(1).text == ":":
            self._label()
        elif token.kind == "name" or cursor.sees("@"):
            self._instruction()
        elif not cursor.accept(";"):
            raise cursor.unexpected("a statement")

    def _directive(self, word: str) -> None:
        if word == ".reg":
            for name, kind in registers(self._cursor):
                self._scopes.declare_register(name, kind)
        elif word in SPACES:
            declared = variable(self._cursor)
            name = self._scopes.declare(declared.name)
            self._variables[name] = replace(declared, name=name)
        elif word == ".pragma":
            self._cursor.take()
            self._cursor.expect_kind("string")
            self._cursor.expect(";")
        else:
            raise UnsupportedError(f"the directive {word}", word, self._location)

    def _label(self) -> None:
        name = self._scopes.flat(self._cursor.take().text)
        self._cursor.expect(":")
        if self._cursor.accept(".branchtargets"):
            targets = operands(self._cursor, self._scopes.resolve)
            self._branch_targets[name] = Vector(targets)
        else:
            self._labels[name] = len(self._instructions)

    def _instruction(self) -> None:
        predicate, negated = self._guard()
        opcode = self._cursor.expect_kind("name")
        if opcode.startswith(("%", "$", "_")):
            raise UnsupportedError(f"`{opcode}` in place of an opcode", opcode, self._location)
        try:
            found = operands(self._cursor, self._scopes.resolve)
        except UnsupportedError as error:
            raise UnsupportedError(f"{opcode}: {error}", opcode, self._location) from error
        self._instructions.append(
            Instruction(
                opcode=_parts(opcode),
                operands=found,
                predicate=predicate,
                negated=negated,
                location=self._location,
                index=len(self._instructions),
            )
        )

    def _guard(self) -> tuple[Register | None, bool]:
        if not self._cursor.accept("@"):
            return None, False
        negated = self._cursor.accept("!")
        found = self._scopes.resolve(self._cursor.expect_kind("name"))
        if not isinstance(found, Register) or self._scopes.registers.get(found.name) != "pred":
            raise UnsupportedError(f"the guard @{found.name}", "", self._location)
        return found, negated

    def _with_branch_targets(self, instruction: Instruction) -> Instruction:
        match instruction:
            case Instruction(opcode=("brx", *_), operands=(index, Symbol(table))):
                if table not in self._branch_targets:
                    raise UnsupportedError(
                        f"no targets {table}", instruction.name, instruction.location
                    )
                return replace(instruction, operands=(index, self._branch_targets[table]))
        return instruction


@lru_cache(maxsize=4096)
def _parts(opcode: str) -> tuple[str, ...]:
    return tuple(opcode.split("."))


def symbols(items: tuple[Operand, ...]) -> Iterator[str]:
    """Names of the symbols in these operands."""
    for item in items:
        match item:
            case Symbol(name):
                yield name
            case Vector(inner):
                yield from symbols(inner)
            case Address(base, _, further):
                yield from symbols((base, *further))
