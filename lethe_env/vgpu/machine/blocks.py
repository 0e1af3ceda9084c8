"""Control flow: basic blocks in loop-contiguous order, with a mask of lanes where lanes part.

A kernel whose branches are all taken by whole warps becomes plain branches. Otherwise every block
has a word of lanes that wait for it. Blocks are visited in order, those without lanes are
skipped, and after a block that leads back to an earlier one, execution goes back if lanes wait
there. So lanes meet again where their paths do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ptx.flow import Flow
from ..ptx.model import Instruction, Kernel, Symbol, UnsupportedError, Vector
from .emit import Writer
from .registers import Registers
from .values import Value, i32, is_vector

_LEAVING = frozenset({"ret", "exit", "trap"})

Lower = Callable[[Instruction], None]


def write_blocks(
    writer: Writer, kernel: Kernel, flow: Flow, registers: Registers, lower: Lower, enter: Callable
) -> None:
    """Write all blocks of a kernel.

    Args:
        writer: Writer of the warp's function, positioned at its start.
        kernel: The kernel.
        flow: Its control flow.
        registers: Its registers; `registers.mask` is kept up to date.
        lower: Writes one instruction that is no branch.
        enter: Called with a block's number where its code begins.
    """
    style = _Masked if flow.divergent_branches else _Plain
    control = style(writer, kernel, flow, registers)
    control.begin()
    for number, block in enumerate(flow.blocks):
        control.open(number)
        enter(number)
        body = kernel.body[block.start : block.stop]
        branch = body[-1] if body and body[-1].opcode[0] in {"bra", "brx", *_LEAVING} else None
        for instruction in body:
            if instruction is not branch or instruction.opcode[0] == "trap":
                lower(instruction)
        if branch is not None and branch.opcode[0] == "brx":
            control.close_indexed(number, branch, _table(kernel, flow, branch))
        else:
            control.close(number, branch)
    control.end()


def _table(kernel: Kernel, flow: Flow, branch: Instruction) -> list[int | None]:
    """Where `brx.idx` goes by its index; an index beyond the table, which PTX leaves open, leaves.

    Raises:
        UnsupportedError: the branch has a guard.
    """
    _, table = branch.operands
    if branch.predicate is not None or branch.opcode[1:] not in (("idx",), ("idx", "uni")):
        raise UnsupportedError("an indexed branch of this form", branch.name, branch.location)
    starts = {block.start: number for number, block in enumerate(flow.blocks)}
    items = table.items if isinstance(table, Vector) else ()
    labels = [item.name for item in items if isinstance(item, Symbol)]
    return [starts.get(kernel.labels[label]) for label in labels]


def _targets(flow: Flow, number: int, branch: Instruction | None) -> tuple[int | None, int | None]:
    """Where a block goes if its branch is taken, and if not; `None` is the end of the kernel."""
    successors = flow.blocks[number].successors
    if branch is None:
        following = successors[0] if successors else None
        return following, following
    if branch.opcode[0] in _LEAVING:
        return None, (successors[0] if branch.predicate is not None and successors else None)
    if not isinstance(branch.operands[0], Symbol):
        raise UnsupportedError("a branch to no label", branch.name, branch.location)
    taken = successors[0]
    return taken, (successors[-1] if branch.predicate is not None else None)


class _Plain:
    """Whole warps take every branch together."""

    def __init__(self, writer: Writer, kernel: Kernel, flow: Flow, registers: Registers) -> None:
        self._writer, self._flow, self._registers = writer, flow, registers

    def begin(self) -> None:
        self._writer.jump("block.0")

    def open(self, number: int) -> None:
        self._writer.label(f"block.{number}")

    def close(self, number: int, branch: Instruction | None) -> None:
        taken, passed = _targets(self._flow, number, branch)
        guard = self._registers.guard(branch) if branch is not None else None
        if guard is None:
            self._writer.jump(_label(taken))
        else:
            self._writer.branch(guard, _label(taken), _label(passed))

    def close_indexed(self, number: int, branch: Instruction, table: Sequence[int | None]) -> None:
        index = self._registers.read(branch.operands[0], "i32")
        cases = " ".join(f"i32 {k}, label %{_label(to)}" for k, to in enumerate(table))
        self._writer.line(f"switch {index}, label %leave [ {cases} ]")

    def end(self) -> None:
        self._writer.label("leave")
        self._writer.give()


class _Masked:
    """Lanes part and meet again: `waiting[block]` holds the lanes that are to execute it."""

    def __init__(self, writer: Writer, kernel: Kernel, flow: Flow, registers: Registers) -> None:
        self._writer, self._flow, self._registers = writer, flow, registers
        self._waiting = [writer.slot("i32", initial=i32(0)) for _ in flow.blocks]
        self._lanes = i32(-1)

    def begin(self) -> None:
        self._writer.store(i32(-1), self._waiting[0])
        self._writer.jump("visit.0")

    def open(self, number: int) -> None:
        writer = self._writer
        writer.label(f"visit.{number}")
        lanes = writer.load("i32", self._waiting[number])
        writer.branch(writer.compare("ne", lanes, 0), f"block.{number}", f"next.{number}")
        writer.label(f"block.{number}")
        writer.store(i32(0), self._waiting[number])
        partial = number in self._flow.partial
        self._lanes = lanes if partial else i32(-1)
        self._registers.mask = writer.mask(lanes) if partial else None

    def close(self, number: int, branch: Instruction | None) -> None:
        writer = self._writer
        taken, passed = _targets(self._flow, number, branch)
        guard = self._registers.guard(branch) if branch is not None else None
        if guard is None:
            self._send(taken, self._lanes)
        else:
            bits = self._guard_bits(guard)
            self._send(taken, writer.both(bits, self._lanes))
            self._send(passed, writer.both(writer.invert(bits), self._lanes))
        self._go_on(number, (taken, passed))

    def close_indexed(self, number: int, branch: Instruction, table: Sequence[int | None]) -> None:
        writer = self._writer
        index = self._registers.read(branch.operands[0], "i32", lanes=True)
        for position, target in enumerate(table):
            bits = writer.bits(writer.compare("eq", index, position))
            self._send(target, writer.both(bits, self._lanes))
        self._go_on(number, table)

    def _go_on(self, number: int, targets: Sequence[int | None]) -> None:
        """Back to the first target whose lanes wait, or else to the next block."""
        writer = self._writer
        writer.jump(f"next.{number}")
        writer.label(f"next.{number}")
        following = number + 1
        after = f"visit.{following}" if following < len(self._flow.blocks) else "leave"
        for target in sorted({t for t in targets if t is not None and t <= number}):
            stay = writer.name("stay")
            back = writer.compare("ne", writer.load("i32", self._waiting[target]), 0)
            writer.branch(back, f"visit.{target}", stay)
            writer.label(stay)
        writer.jump(after)

    def end(self) -> None:
        self._writer.label("leave")
        self._writer.give()

    def _guard_bits(self, guard: Value) -> Value:
        if is_vector(guard.type):
            return self._writer.bits(guard)
        return self._writer.select(guard, i32(-1), i32(0))

    def _send(self, target: int | None, lanes: Value) -> None:
        if target is None:
            return
        slot = self._waiting[target]
        self._writer.store(self._writer.either(self._writer.load("i32", slot), lanes), slot)


def _label(number: int | None) -> str:
    return "leave" if number is None else f"block.{number}"
