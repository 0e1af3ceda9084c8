"""`mbarrier`: barriers in shared memory that count arrivals and bytes.

A barrier is a word of 64 bits: arrivals that the phase still waits for, arrivals of every phase,
whether it has been made, the phase's parity, whether another block has arrived, and bytes under
way. The order of accesses goes by epochs (see `shadow`), so a phase that completes begins one: in
every block of the cluster, if another block has arrived.
"""

from __future__ import annotations

from ..ptx.model import Address, Dual, Immediate, Instruction, Operand, Register
from .cluster_memory import home_of, offset_in
from .lowering import Lowering, take_operands
from .memory_ops import address_of
from .phase_actions import arriver, maker, unmaker, waiter
from .phase_state import PARITY_BIT
from .registers import SINK
from .values import Value, constant, i32, i64, vector

_CLUSTER = "shared::cluster"
_SPACES = frozenset(("shared", "shared::cta"))
_ORDERS = frozenset(("release", "acquire", "relaxed", "cta", "cluster"))
_REMOTE = frozenset(("arrive", "expect_tx", "complete_tx"))
"""What threads may do to a barrier of another block."""


def lower_phase_barrier(lowering: Lowering, instruction: Instruction) -> None:
    """Write `mbarrier`."""
    _, action, *modifiers, type_ = instruction.opcode
    spaces = [part for part in modifiers if part in _SPACES or part == _CLUSTER]
    remote = spaces == [_CLUSTER] and action in _REMOTE
    if type_ != "b64" or len(spaces) != 1 or not (remote or spaces[0] in _SPACES):
        raise lowering.unsupported(instruction)
    plain = [part for part in modifiers if part not in (*_ORDERS, *spaces)]
    match action, plain:
        case ("init", []):
            _lower_init(lowering, instruction)
        case ("inval", []):
            _lower_arrival(lowering, instruction, unmaker(lowering.module))
        case ("arrive", [] | ["expect_tx"]):
            _lower_arrive(lowering, instruction, bool(plain))
        case ("expect_tx" | "complete_tx", []):
            _lower_bytes(lowering, instruction)
        case ("try_wait" | "test_wait", [] | ["parity"]):
            _lower_wait(lowering, instruction, bool(plain))
        case _:
            raise lowering.unsupported(instruction)


def _lower_init(lowering: Lowering, instruction: Instruction) -> None:
    place, count = take_operands(instruction, 2)
    name = maker(lowering.module)
    _lower_arrival(lowering, instruction, name, _lanes(lowering, count, "i64"), place)


def _lower_arrive(lowering: Lowering, instruction: Instruction, expects: bool) -> None:
    target, place, *rest = take_operands(instruction, 2 + expects, more=True)
    # Of another block's barrier, nobody learns the state.
    known = _CLUSTER not in instruction.opcode or target == Register(SINK)
    if not isinstance(target, Register) or len(rest) > 1 or not known:
        raise lowering.unsupported(instruction, "its operands")
    one = constant(vector("i64"), 1)
    given = _lanes(lowering, rest[0], "i64") if rest else one
    pair = (one, given) if expects else (given, constant(vector("i64"), 0))
    name = arriver(lowering.module)
    states = _lower_arrival(lowering, instruction, name, *pair, place)
    lowering.registers.write(target, states, lowering.registers.guard(instruction))


def _lower_bytes(lowering: Lowering, instruction: Instruction) -> None:
    place, count = take_operands(instruction, 2)
    zero = constant(vector("i64"), 0)
    given = _lanes(lowering, count, "i64")
    if instruction.opcode[1] == "complete_tx":
        given = lowering.writer.sub(zero, given)
    _lower_arrival(lowering, instruction, arriver(lowering.module), zero, given, place)


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
    addresses = writer.variable(_addresses(lowering, place))
    states = writer.variable(constant(vector("i64"), 0))
    remote = lowering.clustered and _CLUSTER in instruction.opcode
    context = lowering.context
    with writer.lanes(writer.bits(lowering.registers.active(instruction))) as lane:
        own = [writer.load("i64", writer.item(value, "i64", lane)) for value in spread]
        address = writer.load("i64", writer.item(addresses, "i64", lane))
        home = home_of(writer, context, address) if remote else context
        offset = offset_in(writer, home, address)
        state = writer.call("i64", name, context, home, offset, *own, site)
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
    base = offset_in(writer, lowering.context, i64(0))
    offsets = writer.add(_addresses(lowering, place), writer.splat(base))
    name = waiter(lowering.module, blocks=instruction.opcode[1] == "try_wait")
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


def _addresses(lowering: Lowering, place: Address) -> Value:
    return lowering.writer.resize(address_of(lowering, place, "i32"), "i64")
