"""Instructions by which the lanes and warps of a block meet."""

from __future__ import annotations

from ..ptx.model import Dual, Immediate, Instruction, Operand
from .barrier_votes import lower_vote as lower_barrier_vote
from .cohort import note_barrier
from .emit import Module, Writer
from .layout import BARRIERS, STOPS, Context
from .lowering import Lowering, take_operands
from .scheduler import barrier
from .singles import find_single, keep_single
from .values import LANES, Value, constant, constants, i32, vector
from .windows import BARRIER, Access, report

_WORDS = vector("i32")
_REDUCTIONS: dict[tuple[str, ...], tuple[str, int]] = {
    ("add", "s32"): ("add", 0),
    ("add", "u32"): ("add", 0),
    ("min", "s32"): ("smin", 0x7FFFFFFF),
    ("max", "s32"): ("smax", 0x80000000),
    ("min", "u32"): ("umin", 0xFFFFFFFF),
    ("max", "u32"): ("umax", 0),
    ("and", "b32"): ("and", 0xFFFFFFFF),
    ("or", "b32"): ("or", 0),
    ("xor", "b32"): ("xor", 0),
}
"""`redux.sync`: the reduction, and what lanes that do not take part contribute."""


def lower_barrier(lowering: Lowering, instruction: Instruction) -> None:
    """Write `bar` and `barrier` of a block; `bar.warp.sync` needs nothing."""
    modifiers = [m for m in instruction.opcode[1:] if m not in ("cta", "aligned")]
    if modifiers == ["warp", "sync"]:
        return
    votes = modifiers[:1] == ["red"]
    if modifiers not in (["sync"], ["arrive"]) and not votes:
        raise lowering.unsupported(instruction)
    number, *rest = take_operands(instruction, 1 + votes, more=True)[votes:]
    if isinstance(number, Immediate) and not 0 <= number.value < BARRIERS:
        raise lowering.unsupported(instruction, f"barrier {number.value}")
    registers, writer = lowering.registers, lowering.writer
    counted = (number, *rest[: len(rest) - votes])
    if not all(registers.is_uniform(operand) for operand in counted):
        raise lowering.unsupported(instruction, "a barrier that differs between lanes")
    report_missing_lanes(lowering, instruction)
    if votes:
        lower_barrier_vote(lowering, instruction, modifiers[1:])
        return
    threads = registers.read(rest[0], "i32") if rest else i32(lowering.kernel.threads)
    wait = constant("i1", int(modifiers == ["sync"]))
    which = registers.read(number, "i32")
    active = writer.any(registers.active(instruction))
    with writer.when(active):
        if lowering.polls:
            note_barrier(lowering)
        name = barrier(lowering.module)
        writer.call("void", name, lowering.context, lowering.fiber, which, threads, wait)


def report_missing_lanes(lowering: Lowering, instruction: Instruction) -> None:
    """A barrier that a part of a warp reaches is a fault; it then counts for the whole warp."""
    registers, writer = lowering.registers, lowering.writer
    mask = registers.merge(registers.guard(instruction))
    if mask is None:
        return
    window = writer.field(lowering.context, Context, "shared_window")
    addresses = constant(vector("i64"), 0)
    access = Access(addresses, mask, window, lowering.site(instruction), lowering.context)
    bits = writer.bits(mask)
    some = writer.compare("ne", bits, 0)
    with writer.when(writer.both(some, writer.compare("ne", bits, -1))):
        report(writer, access, BARRIER, writer.invert(bits), constant("i64", 0))


def lower_shuffle(lowering: Lowering, instruction: Instruction) -> None:
    """Write `shfl.sync`."""
    target, source, by, clamp, _members = take_operands(instruction, 5)
    if instruction.opcode[:2] != ("shfl", "sync") or instruction.opcode[3:] != ("b32",):
        raise lowering.unsupported(instruction)
    registers, writer = lowering.registers, lowering.writer
    mode = instruction.opcode[2]
    value = registers.read(source, "i32", lanes=True)
    from_lanes: list[int] = []
    if isinstance(by, Immediate) and isinstance(clamp, Immediate):
        pairs = [shuffle_source(mode, lane, by.value, clamp.value) for lane in range(LANES)]
        from_lanes = [lane for lane, _ in pairs]
        moved = writer.shuffle(value, from_lanes)
        inside = constants("i1", [int(valid) for _, valid in pairs])
    else:
        steps = registers.read(by, "i32", lanes=True)
        bounds = registers.read(clamp, "i32", lanes=True)
        lanes, inside = _shuffle_lanes(writer, mode, steps, bounds)
        moved = writer.call(_WORDS, _permuter(lowering.module), value, lanes)
    guard = registers.guard(instruction)
    first = target.first if isinstance(target, Dual) else target
    known = find_single(lowering, source)
    registers.write(first, moved, guard)
    if known is not None and from_lanes and guard is None:
        keep_single(lowering, first, writer.shuffle(known, from_lanes))
    if isinstance(target, Dual):
        registers.write(target.second, inside, guard)


def shuffle_source(mode: str, lane: int, by: int, clamp: int) -> tuple[int, bool]:
    """The lane that a lane reads, and whether that lies within its segment."""
    segment, limit = (clamp >> 8) & 31, clamp & 31
    by &= 31
    highest = (lane & segment) | (limit & ~segment & 31)
    wanted = {
        "up": lane - by,
        "down": lane + by,
        "bfly": lane ^ by,
        "idx": (lane & segment) | (by & ~segment & 31),
    }[mode]
    inside = wanted >= highest if mode == "up" else wanted <= highest
    return (wanted if inside else lane), inside


def _shuffle_lanes(writer: Writer, mode: str, by: Value, clamp: Value) -> tuple[Value, Value]:
    """`shuffle_source` for operands in registers."""
    lane = constants("i32", range(LANES))
    segment = writer.both(writer.shift_right(clamp, 8), 31)
    outside = writer.both(writer.invert(segment), 31)
    by = writer.both(by, 31)
    kept = writer.both(lane, segment)
    highest = writer.either(kept, writer.both(clamp, outside))
    wanted = {
        "up": lambda: writer.sub(lane, by),
        "down": lambda: writer.add(lane, by),
        "bfly": lambda: writer.binary("xor", lane, by),
        "idx": lambda: writer.either(kept, writer.both(by, outside)),
    }[mode]()
    inside = writer.compare("sge" if mode == "up" else "sle", wanted, highest)
    return writer.select(inside, wanted, lane), inside


def _permuter(module: Module) -> str:
    """`permute(value, lanes)`: every lane takes the value of a lane it names."""

    def build(writer: Writer, value: Value, lanes: Value) -> None:
        place = writer.variable(value)
        start = writer.splat(writer.cast("ptrtoint", place, "i64"))
        offsets = writer.shift_left(writer.resize(writer.both(lanes, 31), "i64"), 2)
        places = writer.cast("inttoptr", writer.add(start, offsets), vector("ptr"))
        name = "llvm.masked.gather.v32i32.v32p0"
        mask = constant(vector("i1"), 1)
        writer.give(writer.call(_WORDS, name, places, mask, constant(_WORDS, 0)))

    return module.function("warp.permute", _WORDS, [(_WORDS, "value"), (_WORDS, "lanes")], build)


def _participants(lowering: Lowering, instruction: Instruction, members: Operand) -> Value:
    """Bits of the lanes that take part: active and named, `i32`."""
    registers, writer = lowering.registers, lowering.writer
    active = writer.bits(registers.active(instruction))
    if not registers.is_uniform(members):
        named = writer.extract(registers.read(members, "i32", lanes=True), _first(writer, active))
    else:
        named = registers.read(members, "i32")
    return writer.both(active, named)


def _first(writer: Writer, bits: Value) -> Value:
    lane = writer.call("i32", "llvm.cttz.i32", bits, constant("i1", 0))
    return writer.both(writer.resize(lane, "i64"), LANES - 1)


def lower_vote(lowering: Lowering, instruction: Instruction) -> None:
    """Write `vote.sync`."""
    target, source, members = take_operands(instruction, 3)
    registers, writer = lowering.registers, lowering.writer
    taking = _participants(lowering, instruction, members)
    votes = writer.both(writer.bits(registers.read(source, "i1", lanes=True)), taking)
    match instruction.opcode[1:]:
        case ("sync", "ballot", "b32"):
            result = votes
        case ("sync", "any", "pred"):
            result = writer.compare("ne", votes, 0)
        case ("sync", "all", "pred"):
            result = writer.compare("eq", votes, taking)
        case ("sync", "uni", "pred"):
            all_set = writer.compare("eq", votes, taking)
            result = writer.either(all_set, writer.compare("eq", votes, 0))
        case _:
            raise lowering.unsupported(instruction)
    registers.write(target, result, registers.guard(instruction))


def lower_redux(lowering: Lowering, instruction: Instruction) -> None:
    """Write `redux.sync`."""
    target, source, members = take_operands(instruction, 3)
    if instruction.opcode[-1] == "f32":
        _reduce_floats(lowering, instruction, target, source, members)
        return
    reduction = _REDUCTIONS.get(instruction.opcode[2:])
    if instruction.opcode[1] != "sync" or reduction is None:
        raise lowering.unsupported(instruction)
    registers, writer = lowering.registers, lowering.writer
    operation, neutral = reduction
    taking = writer.mask(_participants(lowering, instruction, members))
    value = registers.read(source, "i32", lanes=True)
    value = writer.select(taking, value, constant(_WORDS, neutral))
    result = writer.call("i32", f"llvm.vector.reduce.{operation}.v32i32", value)
    registers.write(target, result, registers.guard(instruction))


def _reduce_floats(
    lowering: Lowering,
    instruction: Instruction,
    target: Operand,
    source: Operand,
    members: Operand,
) -> None:
    """`redux.sync.min` and `max` of f32: a NaN is dropped, or propagated with `.NaN`."""
    modifiers = [part for part in instruction.opcode[1:-1] if part not in ("abs", "NaN")]
    if modifiers not in (["sync", "min"], ["sync", "max"]):
        raise lowering.unsupported(instruction)
    registers, writer = lowering.registers, lowering.writer
    propagates = "NaN" in instruction.opcode
    neutral = {"min": 0x7F800000, "max": 0xFF800000}[modifiers[1]] if propagates else 0x7FFFFFFF
    taking = writer.mask(_participants(lowering, instruction, members))
    bits = registers.read(source, "i32", lanes=True)
    if "abs" in instruction.opcode:
        bits = writer.both(bits, 0x7FFFFFFF)
    bits = writer.select(taking, bits, constant(_WORDS, neutral))
    value = writer.cast("bitcast", bits, vector("float"))
    name = f"llvm.{modifiers[1]}imum{'' if propagates else 'num'}.v32f32"
    for step in (16, 8, 4, 2, 1):
        other = writer.shuffle(value, [lane ^ step for lane in range(LANES)])
        value = writer.call(vector("float"), name, value, other)
    ordered = writer.op(vector("i1"), f"fcmp ord {value}, {value.text}")
    result = writer.cast("bitcast", value, _WORDS)
    result = writer.select(ordered, result, constant(_WORDS, 0x7FFFFFFF))
    registers.write(target, result, registers.guard(instruction))


def lower_match(lowering: Lowering, instruction: Instruction) -> None:
    """Write `match.any.sync` and `match.all.sync`."""
    target, source, members = take_operands(instruction, 3)
    _, kind, *modifiers, type_ = instruction.opcode
    if kind not in ("any", "all") or modifiers != ["sync"] or type_ not in ("b32", "b64"):
        raise lowering.unsupported(instruction)
    registers, writer = lowering.registers, lowering.writer
    taking = _participants(lowering, instruction, members)
    value = registers.read(source, f"i{type_[1:]}", lanes=True)
    guard = registers.guard(instruction)
    if kind == "all":
        first = writer.splat(writer.extract(value, _first(writer, taking)))
        same = writer.both(writer.bits(writer.compare("eq", value, first)), taking)
        agreed = writer.compare("eq", same, taking)
        mask = writer.select(agreed, taking, i32(0))
        registers.write(target.first if isinstance(target, Dual) else target, mask, guard)
        if isinstance(target, Dual):
            registers.write(target.second, agreed, guard)
        return
    result = constant(_WORDS, 0)
    for lane in range(LANES):
        own = writer.splat(writer.extract(value, lane))
        same = writer.both(writer.bits(writer.compare("eq", value, own)), taking)
        result = writer.insert(result, same, lane)
    registers.write(target, result, guard)


def lower_active_mask(lowering: Lowering, instruction: Instruction) -> None:
    """Write `activemask`."""
    registers = lowering.registers
    active = lowering.writer.bits(registers.active(instruction))
    registers.write(instruction.operands[0], active, registers.guard(instruction))


def lower_elect(lowering: Lowering, instruction: Instruction) -> None:
    """Write `elect.sync`: the lowest lane that takes part leads."""
    target, members = take_operands(instruction, 2)
    if not isinstance(target, Dual) or instruction.opcode != ("elect", "sync"):
        raise lowering.unsupported(instruction)
    registers, writer = lowering.registers, lowering.writer
    taking = _participants(lowering, instruction, members)
    lowest = writer.both(taking, writer.sub(i32(0), taking))
    guard = registers.guard(instruction)
    leader = writer.call("i32", "llvm.cttz.i32", taking, constant("i1", 0))
    registers.write(target.first, leader, guard)
    registers.write(target.second, writer.mask(lowest), guard)


def lower_trap(lowering: Lowering, instruction: Instruction) -> None:
    """Write `trap` and `brkpt`: the launch ends."""
    writer = lowering.writer
    stopped = writer.compare("ne", writer.read(lowering.context, Context, "stop"), 0)
    active = writer.any(lowering.registers.active(instruction))
    with writer.when(writer.both(active, writer.invert(stopped))):
        writer.write(lowering.context, Context, "stop", STOPS.index("trap"))
