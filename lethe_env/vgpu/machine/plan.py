"""What launches of one program with the same grid, arguments and sizes of memory have in common."""

from __future__ import annotations

import math
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ..ptx.model import Kernel, Parameter
from .buffer import Buffer
from .launch import (
    Argument,
    Bytes,
    Cells,
    Options,
    cells_wanted,
    has_hidden_pointer,
    reachable_windows,
)
from .speculation import worthwhile_threads

if TYPE_CHECKING:
    from .program import Program

_MOST_KEPT = 64
_FAR_MORE = 2
_SIZE = 1
"""Column of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a launch needs that does not depend on its seed."""

    grid: tuple[int, int, int]
    blocks: int
    parameters: Buffer
    """As the kernel reads them."""
    loaded: frozenset[int]
    """Windows that loads may reach."""
    written: frozenset[int]
    """Windows that stores and atomic operations may reach."""
    cells: Cells
    """For those of them in which races are looked for."""
    saved: frozenset[int]
    """Windows whose content matters if the launch is repeated."""
    separable: bool
    """Whether blocks may run on several threads, unless they meet."""
    work: int
    """Instructions of all warps: a guess, or what an earlier launch has executed."""
    threads: int
    """On how many the blocks should run."""


class Plans:
    """The latest plans of a program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[Hashable, Plan] = {}

    def find(
        self,
        grid: Sequence[int],
        arguments: Sequence[Argument],
        table: np.ndarray,
        options: Options,
    ) -> Plan:
        """The plan of a launch; arguments as for `Program.run`.

        Raises:
            ValueError: more arguments than parameters.
        """
        sizes = table[:, _SIZE].tobytes()
        given = tuple(map(_distinct, arguments))
        key = tuple(grid), given, sizes, options.races, options.threads
        plan = self._known.get(key)
        if plan is None:
            if len(self._known) >= _MOST_KEPT:
                self._known.clear()
            plan = self._known[key] = _planned(self._program, grid, arguments, table, options)
        return plan

    def learn(self, plan: Plan, executed: int, table: np.ndarray, options: Options) -> None:
        """Expect later launches of this kind to do what this one did, if that was far more.

        Args:
            plan: Of the launch.
            executed: Instructions of all its warps.
            table: See `find`.
            options: See there.
        """
        if executed <= _FAR_MORE * plan.work:
            return
        threads = _threads(plan, executed, table, options)
        better = replace(plan, work=executed, threads=threads)
        for key, known in self._known.items():
            if known is plan:
                self._known[key] = better


def _distinct(argument: Argument) -> Hashable:
    """Equal only for arguments that are passed as the same bits."""
    return struct.pack("<d", argument) if isinstance(argument, float) else argument


def _planned(
    program: Program,
    grid: Sequence[int],
    arguments: Sequence[Argument],
    table: np.ndarray,
    options: Options,
) -> Plan:
    accessed = program.accessed
    loaded = frozenset(reachable_windows(accessed.loaded, arguments, table))
    cells = cells_wanted(program, arguments, table) if options.races else {}
    saved = frozenset(cells) & loaded if program.writes_blindly else frozenset(cells)
    x, y, z = (*grid, 1, 1)[:3]
    blocks = math.prod(grid)
    plan = Plan(
        grid=(x, y, z),
        blocks=blocks,
        parameters=Buffer.of(_parameter_buffer(program.kernel, arguments)),
        loaded=loaded,
        written=frozenset(reachable_windows(accessed.written, arguments, table)),
        cells=cells,
        saved=saved,
        separable=options.races and not has_hidden_pointer(arguments),
        work=blocks * program.block_work,
        threads=1,
    )
    return replace(plan, threads=_threads(plan, plan.work, table, options))


def _threads(plan: Plan, work: int, table: np.ndarray, options: Options) -> int:
    if not plan.separable:
        return 1
    return worthwhile_threads(work, plan.blocks, plan.cells, plan.saved, table, options.threads)


def _parameter_buffer(kernel: Kernel, arguments: Sequence[Argument]) -> bytearray:
    parameters = kernel.parameters
    if len(arguments) > len(parameters):
        raise ValueError(
            f"{kernel.name} takes {len(parameters)} arguments, {len(arguments)} were given"
        )
    size = max((p.offset_bytes + p.size_bytes for p in parameters), default=0)
    buffer = bytearray(size + 16)
    for parameter, argument in zip(parameters, arguments, strict=False):
        data = _argument_bytes(parameter, argument)
        buffer[parameter.offset_bytes : parameter.offset_bytes + len(data)] = data
    return buffer


def _argument_bytes(parameter: Parameter, argument: Argument) -> bytes:
    size = parameter.size_bytes
    if isinstance(argument, Bytes):
        return argument.data[:size]
    number = isinstance(argument, (int, float))
    if isinstance(argument, float) or (number and parameter.type in ("f32", "f64")):
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], argument)
    value = argument if isinstance(argument, int) else argument.address
    return (value & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
