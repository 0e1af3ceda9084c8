"""Registers whose values are known from the text of a kernel."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from itertools import product, starmap

from .model import Immediate, Instruction, Kernel, Operand, Register

_COMBINATIONS: Mapping[str, Callable[[int, int], int]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def possible_values(kernel: Kernel, operand: Operand) -> frozenset[int]:
    """The values that an operand can have; none if that cannot be told."""
    if isinstance(operand, Immediate):
        return frozenset((operand.value,))
    if not isinstance(operand, Register):
        return frozenset()
    found = [i for i in kernel.body if i.operands and i.operands[0] == operand]
    match found:
        case [Instruction(opcode=("mov", _), operands=(_, source), predicate=None)]:
            return possible_values(kernel, source)
        case [Instruction(opcode=("selp", _), operands=(_, *choices, _), predicate=None)]:
            first, second = (possible_values(kernel, choice) for choice in choices)
            return first | second if first and second else frozenset()
        case [Instruction(opcode=(name, _), operands=(_, left, right), predicate=None)] if (
            name in _COMBINATIONS
        ):
            sides = (possible_values(kernel, left), possible_values(kernel, right))
            return frozenset(starmap(_COMBINATIONS[name], product(*sides)))
    return frozenset()
