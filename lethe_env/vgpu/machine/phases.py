"""`mbarrier`: barriers in shared memory that count arrivals and bytes.

A barrier is a word of 64 bits: arrivals that the phase still waits for, arrivals of every phase,
whether it has been made, the phase's parity, and bytes under way. The order of accesses goes by
epochs (see `shadow`), so a phase that completes begins one.
"""

from __future__ import annotations

from ..ptx.model import Address, Dual, Immediate, Instruction, Operand, Register
from . import shadow
from .emit import Module, Writer
from .fibers import give_way
from .layout import Context, Fiber, Site
from .lowering import Lowering, take_operands
from .memory_ops import address_of
from .phase_state import BYTES_BIT, COUNT_BITS, MADE_BIT, PARITY_BIT, is_pending
from .values import LANES, Value, constant, constants, declared, i32, i64, vector
from .windows import OUT_OF_BOUNDS, UNINITIALISED_READ, Access, report

BARRIER_BYTES = 8
_WORDS = 2
_COUNT = (1 << COUNT_BITS) - 1
_SPACES = frozenset(("shared", "shared::cta"))
_ORDERS = frozenset(("release", "acquire", "cta", "shared", "shared::cta"))


def lower_phase_barrier(lowering: Lowering, instruction: Instruction) -> None:
    """Write `mbarrier`."""
    _, action, *modifiers, type_ = instruction.opcode
    if type_ != "b64" or _SPACES.isdisjoint(modifiers):
        raise lowering.unsupported(instruction)
    plain = [part for part in modifiers if part not in _ORDERS]
    match action, plain:
        case ("init", []):
            _lower_init(lowering, instruction)
        case ("inval", []):
            _lower_arrival(lowering, instruction, _unmaker(lowering.module))
        case ("arrive", [] | ["expect_tx"]):
            _lower_arrive(lowering, instruction, bool(plain))
        case ("expect_tx", [] | ["relaxed"]):
            _lower_expect(lowering, instruction)
        case ("try_wait" | "test_wait", [] | ["parity"]):
            _lower_wait(lowering, instruction, bool(plain))
        case _:
            raise lowering.unsupported(instruction)


def _lower_init(lowering: Lowering, instruction: Instruction) -> None:
    place, count = take_operands(instruction, 2)
    name = _maker(lowering.module)
    _lower_arrival(lowering, instruction, name, _lanes(lowering, count, "i64"), place)


def _lower_arrive(lowering: Lowering, instruction: Instruction, expects: bool) -> None:
    target, place, *rest = take_operands(instruction, 2 + expects, more=True)
    if not isinstance(target, Register) or len(rest) > 1:
        raise lowering.unsupported(instruction, "its operands")
    one = constant(vector("i64"), 1)
    given = _lanes(lowering, rest[0], "i64") if rest else one
    pair = (one, given) if expects else (given, constant(vector("i64"), 0))
    name = arriver(lowering.module)
    states = _lower_arrival(lowering, instruction, name, *pair, place)
    lowering.registers.write(target, states, lowering.registers.guard(instruction))


def _lower_expect(lowering: Lowering, instruction: Instruction) -> None:
    place, count = take_operands(instruction, 2)
    zero = constant(vector("i64"), 0)
    name = arriver(lowering.module)
    _lower_arrival(lowering, instruction, name, zero, _lanes(lowering, count, "i64"), place)


def _lower_arrival(
    lowering: Lowering, instruction: Instruction, name: str, *arguments: Value | Operand
) -> Value:
    """Call a function for every active lane; gives what it returned, `<32 x i64>`."""
    writer = lowering.writer
    *values, place = arguments if arguments else take_operands(instruction, 1)
    if not isinstance(place, Address):
        raise lowering.unsupported(instruction, "its operands")
    site = lowering.site(instruction)
    spread = [writer.variable(value) for value in values if isinstance(value, Value)]
    offsets = writer.variable(_offsets(lowering, place))
    states = writer.variable(constant(vector("i64"), 0))
    with writer.lanes(writer.bits(lowering.registers.active(instruction))) as lane:
        own = [writer.load("i64", writer.item(value, "i64", lane)) for value in spread]
        offset = writer.load("i64", writer.item(offsets, "i64", lane))
        state = writer.call("i64", name, lowering.context, offset, *own, site)
        writer.store(state, writer.item(states, "i64", lane))
    return writer.load(vector("i64"), states)


def _lower_wait(lowering: Lowering, instruction: Instruction, by_parity: bool) -> None:
    target, place, state, *_ = take_operands(instruction, 3, more=True)
    if not isinstance(place, Address) or isinstance(target, Dual):
        raise lowering.unsupported(instruction, "its operands")
    registers, writer = lowering.registers, lowering.writer
    given = _lanes(lowering, state, "i32" if by_parity else "i64")
    if not by_parity:
        given = writer.shift_right(given, PARITY_BIT)
    parities = writer.both(writer.resize(given, "i64"), 1)
    offsets = _offsets(lowering, place)
    name = _waiter(lowering.module, blocks=instruction.opcode[1] == "try_wait")
    left = writer.variable(writer.bits(registers.active(instruction)))
    passed = writer.variable(i32(0))
    kept = [writer.variable(value) for value in (offsets, parities)]
    site = lowering.site(instruction)
    head, inside, after = (writer.name(stem) for stem in ("head", "inside", "after"))
    writer.jump(head)
    writer.label(head)
    bits = writer.load("i32", left)
    writer.branch(writer.compare("ne", bits, 0), inside, after)
    writer.label(inside)
    lane = writer.resize(writer.call("i32", "llvm.cttz.i32", bits, constant("i1", 1)), "i64")
    offset, parity = (writer.load("i64", writer.item(value, "i64", lane)) for value in kept)
    done = writer.call("i1", name, lowering.context, lowering.fiber, offset, parity,
                       i32(instruction.index), site)  # fmt: skip
    same = writer.both(
        writer.compare("eq", offsets, writer.splat(offset)),
        writer.compare("eq", parities, writer.splat(parity)),
    )
    alike = writer.both(writer.bits(same), bits)
    writer.store(writer.both(bits, writer.invert(alike)), left)
    won = writer.select(done, alike, i32(0))
    writer.store(writer.either(writer.load("i32", passed), won), passed)
    writer.jump(head)
    writer.label(after)
    guard = registers.guard(instruction)
    if instruction.opcode[1] == "try_wait":
        registers.write(target, constant("i1", 1), guard)
    else:
        registers.write(target, writer.mask(writer.load("i32", passed)), guard)


def _lanes(lowering: Lowering, operand: Operand, element: str) -> Value:
    width = lowering.registers.width(operand)
    if isinstance(operand, Immediate) or width is None:
        return lowering.registers.read(operand, element, lanes=True)
    value = lowering.registers.read(operand, width, lanes=True)
    return lowering.writer.resize(value, element)


def _offsets(lowering: Lowering, place: Address) -> Value:
    return lowering.writer.resize(address_of(lowering, place, "i32"), "i64")


def place_of(writer: Writer, context: Value, offset: Value, site: Value) -> tuple[Value, Value]:
    """Host address of a barrier, and whether it lies in shared memory; reports if not."""
    window = writer.field(context, Context, "shared_window")
    size = writer.read(window, Site, "size")
    fits = writer.compare("ule", writer.add(offset, BARRIER_BYTES), size)
    with writer.when(writer.invert(fits)):
        access = _access(writer, context, offset, site)
        report(writer, access, OUT_OF_BOUNDS, i32(1), i64(BARRIER_BYTES))
    safe = writer.select(fits, offset, i64(0))
    host = writer.add(writer.read(window, Site, "host"), safe)
    return writer.cast("inttoptr", host, "ptr"), fits


def _access(writer: Writer, context: Value, offset: Value, site: Value) -> Access:
    window = writer.field(context, Context, "shared_window")
    lane = constants("i1", [1] + [0] * (LANES - 1))
    return Access(writer.splat(offset), lane, window, site, context)


def _load(
    writer: Writer, context: Value, offset: Value, site: Value, quiet: bool = False
) -> tuple[Value, Value, Value]:
    """Place and word of a barrier, and whether it has been made; reports if not."""
    place, fits = place_of(writer, context, offset, site)
    word = writer.load("i64", place, 1)
    flag = writer.both(writer.shift_right(word, MADE_BIT), 1)
    # Shared memory that nobody has written is all ones, and so many arrivals cannot be asked for.
    fresh = writer.compare("eq", word, -1)
    made = writer.both(writer.compare("ne", flag, 0), writer.invert(fresh))
    if not quiet:
        access = _access(writer, context, offset, site)
        with writer.when(writer.both(fits, writer.invert(made))):
            report(writer, access, UNINITIALISED_READ, i32(1), i64(0))
        with writer.when(writer.both(fits, made)):
            shadow.before_load(writer, access, 32, _WORDS)
    return place, word, writer.both(fits, made)


def _maker(module: Module) -> str:
    """`i64 make(context, offset, count, site)`."""

    def build(writer: Writer, context: Value, offset: Value, count: Value, site: Value) -> None:
        place, fits = place_of(writer, context, offset, site)
        kept = writer.both(count, _COUNT)
        word = writer.either(kept, writer.shift_left(kept, COUNT_BITS))
        word = writer.either(word, 1 << MADE_BIT)
        with writer.when(fits):
            shadow.complete_copy(writer, _access(writer, context, offset, site), _WORDS)
            writer.store(word, place, 1)
        writer.give(word)

    parameters = declared("ptr context, i64 offset, i64 count, i32 site")
    return module.function("phase.make", "i64", parameters, build)


def _unmaker(module: Module) -> str:
    """`i64 unmake(context, offset, site)`."""

    def build(writer: Writer, context: Value, offset: Value, site: Value) -> None:
        place, _, made = _load(writer, context, offset, site)
        with writer.when(made):
            shadow.issue_copy(writer, _access(writer, context, offset, site), _WORDS)
            writer.store(i64(-1), place, 1)
        writer.give(i64(0))

    parameters = declared("ptr context, i64 offset, i32 site")
    return module.function("phase.unmake", "i64", parameters, build)


def checker(module: Module) -> str:
    """`check(context, offset, site)`: report a barrier that has not been made."""

    def build(writer: Writer, context: Value, offset: Value, site: Value) -> None:
        _load(writer, context, offset, site)
        writer.give()

    parameters = declared("ptr context, i64 offset, i32 site")
    return module.function("phase.check", "void", parameters, build)


def arriver(module: Module, quiet: bool = False) -> str:
    """`i64 arrive(context, offset, count, bytes, site)`: gives the state before.

    `bytes` are expected beside, or if it is negative, have come. A `quiet` arrival at a barrier
    that is no more is nothing to speak of.
    """

    def build(
        writer: Writer, context: Value, offset: Value, count: Value, size: Value, site: Value
    ) -> None:
        place, word, made = _load(writer, context, offset, site, quiet)
        with writer.when(made):
            fewer = writer.both(writer.sub(writer.both(word, _COUNT), count), _COUNT)
            new = writer.either(writer.both(word, ~_COUNT), fewer)
            new = writer.add(new, writer.shift_left(size, BYTES_BIT))
            idle = writer.compare("eq", writer.shift_right(new, BYTES_BIT), 0)
            complete = writer.both(idle, writer.compare("eq", fewer, 0))
            expected = writer.both(writer.shift_right(new, COUNT_BITS), _COUNT)
            turned = writer.either(new, expected)
            turned = writer.binary("xor", turned, i64(1 << PARITY_BIT))
            writer.store(writer.select(complete, turned, new), place, 1)
            epoch = writer.read(context, Context, "epoch")
            step = writer.resize(complete, "i32")
            writer.write(context, Context, "epoch", writer.add(epoch, step))
            changes = writer.read(context, Context, "changes")
            writer.write(context, Context, "changes", writer.add(changes, 1))
        writer.give(word)

    parameters = declared("ptr context, i64 offset, i64 count, i64 bytes, i32 site")
    name = "phase.arrive.quiet" if quiet else "phase.arrive"
    return module.function(name, "i64", parameters, build)


def _waiter(module: Module, blocks: bool) -> str:
    """`i1 wait(context, fiber, offset, parity, instruction, site)`: whether a phase has passed.

    A waiting warp gives way until the phase with that parity has completed.
    """

    def build(
        writer: Writer, context: Value, fiber: Value, offset: Value, parity: Value,
        instruction: Value, site: Value,
    ) -> None:  # fmt: skip
        place, word, made = _load(writer, context, offset, site)
        held = writer.both(made, is_pending(writer, word, parity))
        if blocks:
            with writer.when(held):
                writer.write(fiber, Fiber, "phase", place)
                writer.write(fiber, Fiber, "parity", parity)
                writer.write(fiber, Fiber, "held_at", writer.add(instruction, 1))
                writer.call("void", give_way(module), context)
                writer.write(fiber, Fiber, "held_at", 0)
                writer.store(i64(0), writer.field(fiber, Fiber, "phase"))
            writer.give(constant("i1", 1))
        else:
            writer.give(writer.invert(held))

    parameters = declared(
        "ptr context, ptr fiber, i64 offset, i64 parity, i32 instruction, i32 site"
    )
    name = "phase.wait" if blocks else "phase.test"
    return module.function(name, "i1", parameters, build)


def write_all(module: Module) -> None:
    """Write what kernels call."""
    for function in (_maker, _unmaker, arriver, checker):
        function(module)
    for blocks in (True, False):
        _waiter(module, blocks)
