"""Calls of functions that the module defines, replaced by what they do.

Parameters and return values are `.param` variables of the caller, so the callee's names for them
become the caller's. Its registers, variables and labels get names of their own for every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .model import (
    Address,
    Dual,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Parameter,
    Register,
    Symbol,
    UnsupportedError,
    Variable,
    Vector,
)

_LEAVING = frozenset({"ret"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A `.func` with a body."""

    body: Kernel
    """What it does; its parameters are those of the function."""
    returns: tuple[Parameter, ...]


def inlined(kernel: Kernel, functions: Mapping[str, Function]) -> Kernel:
    """The kernel without calls of these functions.

    Raises:
        UnsupportedError: a function that calls itself, or a call of another form.
    """
    if not any(_callee(item) in functions for item in kernel.body):
        return kernel
    result = _Result(kernel, functions)
    result.append(kernel, {}, {}, "", ())
    return result.kernel()


class _Result:
    def __init__(self, kernel: Kernel, functions: Mapping[str, Function]) -> None:
        self._kernel = kernel
        self._functions = functions
        self._body: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._registers: dict[str, str] = {}
        self._variables: dict[str, Variable] = {}
        self._calls = 0

    def kernel(self) -> Kernel:
        return replace(
            self._kernel,
            body=tuple(self._body),
            labels=self._labels,
            registers=self._registers,
            variables=self._variables,
        )

    def append(
        self,
        code: Kernel,
        registers: Mapping[str, str],
        symbols: Mapping[str, str],
        end: str,
        callers: tuple[str, ...],
    ) -> None:
        """Append a body under other names; `ret` goes to the label `end` if there is one."""
        self._registers |= {registers.get(n, n): kind for n, kind in code.registers.items()}
        for name, variable in code.variables.items():
            fresh = symbols.get(name, name)
            self._variables[fresh] = replace(variable, name=fresh)
        at = {index: [] for index in range(len(code.body) + 1)}
        for label, index in code.labels.items():
            at[index].append(symbols.get(label, label))
        for index, instruction in enumerate(code.body):
            self._place(at[index])
            renamed = _renamed(instruction, registers, symbols)
            callee = _callee(renamed)
            if callee in self._functions:
                self._call(renamed, callee, callers)
            elif end and renamed.opcode[0] in _LEAVING:
                self._add(replace(renamed, opcode=("bra",), operands=(Symbol(end),)))
            else:
                self._add(renamed)
        self._place(at[len(code.body)])

    def _call(self, instruction: Instruction, callee: str, callers: tuple[str, ...]) -> None:
        if callee in callers:
            raise _unsupported(instruction, f"the function {callee}, which calls itself")
        function = self._functions[callee]
        self._calls += 1
        mark = f".call{self._calls}"
        end = f"end{mark}"
        if instruction.predicate is not None:
            skip = replace(
                instruction,
                opcode=("bra",),
                operands=(Symbol(end),),
                negated=not instruction.negated,
            )
            self._add(skip)
        code = function.body
        registers = {name: name + mark for name in code.registers}
        symbols = {name: name + mark for name in (*code.variables, *code.labels)}
        symbols |= _parameters(instruction, function)
        self.append(code, registers, symbols, end, (*callers, callee))
        self._place([end])

    def _place(self, labels: list[str]) -> None:
        self._labels |= dict.fromkeys(labels, len(self._body))

    def _add(self, instruction: Instruction) -> None:
        self._body.append(replace(instruction, index=len(self._body)))


def _callee(instruction: Instruction) -> str:
    if instruction.opcode[0] != "call":
        return ""
    names = [item.name for item in instruction.operands if isinstance(item, Symbol)]
    return names[0] if names else ""


def _parameters(instruction: Instruction, function: Function) -> dict[str, str]:
    """The caller's names for what the function calls its parameters and return values."""
    lists = [item for item in instruction.operands if isinstance(item, Vector)]
    before = isinstance(instruction.operands[0], Vector)
    returned = lists[0].items if before else ()
    given = lists[before].items if len(lists) > before else ()
    declared = (*function.returns, *function.body.parameters)
    passed = (*returned, *given)
    if len(declared) != len(passed) or not all(isinstance(item, Symbol) for item in passed):
        raise _unsupported(instruction, "its parameters")
    return {
        own.name: item.name
        for own, item in zip(declared, passed, strict=True)
        if isinstance(item, Symbol)
    }


def _renamed(
    instruction: Instruction, registers: Mapping[str, str], symbols: Mapping[str, str]
) -> Instruction:
    def rename(operand: Operand) -> Operand:
        match operand:
            case Register(name):
                return Register(registers.get(name, name))
            case Symbol(name):
                return Symbol(symbols.get(name, name))
            case Vector(items):
                return Vector(tuple(map(rename, items)))
            case Address(base, offset, further):
                return Address(rename(base), offset, tuple(map(rename, further)))  # type: ignore[arg-type]
            case Dual(first, second):
                return Dual(rename(first), rename(second))  # type: ignore[arg-type]
            case Negated(register):
                return Negated(rename(register))  # type: ignore[arg-type]
        return operand

    guard = instruction.predicate
    return replace(
        instruction,
        operands=tuple(map(rename, instruction.operands)),
        predicate=rename(guard) if guard is not None else None,
    )


def _unsupported(instruction: Instruction, why: str) -> UnsupportedError:
    name = instruction.name
    return UnsupportedError(f"{name}: {why}", name, instruction.location)
