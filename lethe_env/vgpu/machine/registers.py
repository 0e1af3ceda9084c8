"""PTX registers: one scalar where all lanes agree, one vector elsewhere.

Registers that outlive a block are stack slots.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Mapping

from ..ptx.clusters import uses_clusters
from ..ptx.dataflow import CARRY, destinations, sources
from ..ptx.flow import Flow
from ..ptx.model import (
    Address,
    Dual,
    FloatImmediate,
    Immediate,
    Instruction,
    Kernel,
    Negated,
    Operand,
    Register,
    Symbol,
    UnsupportedError,
    Vector,
)
from .emit import Writer
from .layout import Cluster, Context, Fiber
from .values import LANES, Value, constant, constants, element_of, is_vector, like, vector

SINK = "_"

_CLOCKS = {"%clock": "i32", "%clock64": "i64", "%globaltimer": "i64"}


def element_type(ptx_type: str) -> str:
    """LLVM integer type of a PTX type's bits: `pred` is `i1`, `f16x2` is `i32`, `b8` is `i8`."""
    if ptx_type == "pred":
        return "i1"
    packed = re.fullmatch(r"(?:[subf]|bf)(\d+)(?:x(\d+))?", ptx_type)
    if packed is None:
        raise UnsupportedError(f"the type .{ptx_type}", ptx_type)
    return f"i{int(packed[1]) * int(packed[2] or 1)}"


def registers_of(operand: Operand) -> list[str]:
    """Names of the registers in an operand."""
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Negated):
        return [operand.register.name]
    if isinstance(operand, Dual):
        return [operand.first.name, operand.second.name]
    if isinstance(operand, Vector):
        return [name for item in operand.items for name in registers_of(item)]
    if isinstance(operand, Address):
        return [name for item in (operand.base, *operand.further) for name in registers_of(item)]
    return []


class Registers:
    """Reads and writes the registers of one kernel in the function of its warp."""

    def __init__(
        self, writer: Writer, kernel: Kernel, flow: Flow, context: Value, fiber: Value
    ) -> None:
        self._writer = writer
        self._types = {**kernel.registers, CARRY: "pred"}
        self._uniform = flow.uniform
        self._slots: dict[str, Value] = {}
        self._specials = _special_registers(writer, kernel, context, fiber)
        self._private = _private_registers(kernel, flow)
        self._values: dict[str, Value] = {}
        """What private registers hold: they need no memory."""
        self.mask: Value | None = None
        """Lanes that execute the current block, `<32 x i1>`; `None` is all of them."""
        self.symbols: dict[str, int] = {}
        """Addresses of variables."""
        self.shared_symbols: frozenset[str] = frozenset()
        """Variables whose addresses begin at the block's own part of its cluster's memory."""
        self.shared_base: Value | None = None
        """Where that part begins, `i32`; `None` is at zero."""

    def is_uniform(self, operand: Operand) -> bool:
        """Whether all lanes see one value."""
        return all(self._uniform_name(name) for name in registers_of(operand))

    def read(self, operand: Operand, element: str, lanes: bool = False) -> Value:
        """The bits of a source operand.

        Args:
            operand: Register or constant.
            element: Integer type wanted; wider registers are cut, narrower zero-extended.
            lanes: Whether a vector is wanted even where all lanes agree.
        """
        writer = self._writer
        if isinstance(operand, (Immediate, FloatImmediate, Symbol)):
            type_ = vector(element) if lanes else element
            value = constant(type_, self._constant(operand, element))
            return self._in_cluster(operand, value)
        if isinstance(operand, Negated):
            return writer.invert(self.read(operand.register, element, lanes))
        if not isinstance(operand, Register):
            raise UnsupportedError(f"the operand {operand} where one register is expected")
        value = writer.resize(self._load(operand.name), element)
        return writer.splat(value) if lanes and not is_vector(value.type) else value

    def write(
        self, register: Operand, value: Value, guard: Value | None = None, signed: bool = False
    ) -> None:
        """Set a register where the guard holds.

        Args:
            register: The destination.
            value: Scalar or vector; extended to the register's width by zeros or its sign.
            guard: `i1` or `<32 x i1>`; `None` is always.
            signed: Whether the sign extends.
        """
        if not isinstance(register, Register):
            raise UnsupportedError(f"the operand {register} as a destination")
        if register.name == SINK:
            return
        writer = self._writer
        element = element_type(self._types[register.name])
        if signed and int(element[1:]) > int(element_of(value.type)[1:]):
            value = writer.cast("sext", value, like(value.type, element))
        value = writer.resize(value, element)
        if self._uniform_name(register.name):
            value = writer.extract(value, 0) if is_vector(value.type) else value
            if guard is not None:
                guard = writer.extract(guard, 0) if is_vector(guard.type) else guard
                value = writer.select(guard, value, self._load(register.name))
        else:
            value = value if is_vector(value.type) else writer.splat(value)
            kept = guard if register.name in self._private else self.merge(guard)
            if kept is not None:
                value = writer.select(kept, value, self._load(register.name))
        if register.name in self._private:
            self._values[register.name] = value
        else:
            writer.store(value, self._slot(register.name))

    def guard(self, instruction: Instruction) -> Value | None:
        """The instruction's own predicate as `i1` or `<32 x i1>`, without the block's mask."""
        if instruction.predicate is None:
            return None
        value = self.read(instruction.predicate, "i1")
        return self._writer.invert(value) if instruction.negated else value

    def merge(self, guard: Value | None) -> Value | None:
        """A guard and the block's mask together, as a vector; `None` is all lanes."""
        if guard is None:
            return self.mask
        if not is_vector(guard.type):
            guard = self._writer.splat(guard)
        return guard if self.mask is None else self._writer.both(guard, self.mask)

    def active(self, instruction: Instruction) -> Value:
        """Lanes that execute the instruction, `<32 x i1>`."""
        merged = self.merge(self.guard(instruction))
        return constant(vector("i1"), 1) if merged is None else merged

    def current(self, name: str) -> Value:
        """The value of a register by its name, as it is kept."""
        return self._load(name)

    def held(self, operand: Operand) -> Value | None:
        """What a register holds that lives within the current block; `None` for anything else."""
        return self._values.get(operand.name) if isinstance(operand, Register) else None

    def width(self, operand: Operand) -> str | None:
        """Integer type of a register; `None` for constants."""
        if isinstance(operand, Register) and operand.name in self._types:
            return element_type(self._types[operand.name])
        if isinstance(operand, Register) and operand.name != SINK:
            return element_of(self._special(operand.name).type)
        return None

    def _uniform_name(self, name: str) -> bool:
        if name in self._types:
            return name in self._uniform
        return name == SINK or not is_vector(self._special(name).type)

    def _constant(self, operand: Immediate | FloatImmediate | Symbol, element: str) -> int:
        if isinstance(operand, Immediate):
            return operand.value
        if isinstance(operand, FloatImmediate):
            if operand.width == 64 and element == "i32":
                return _single_bits(operand.bits)
            if f"i{operand.width}" != element:
                raise UnsupportedError(f"a {operand.width}-bit float constant as {element}")
            return operand.bits
        if operand.name not in self.symbols:
            raise UnsupportedError(f"the address of {operand.name}")
        return self.symbols[operand.name]

    def _in_cluster(self, operand: Operand, value: Value) -> Value:
        """An address of the block's own shared memory as the cluster sees it."""
        base = self.shared_base
        if base is None or getattr(operand, "name", None) not in self.shared_symbols:
            return value
        base = self._writer.resize(base, element_of(value.type))
        base = self._writer.splat(base) if is_vector(value.type) else base
        return self._writer.add(value, base)

    def _load(self, name: str) -> Value:
        if name not in self._types:
            return self._special(name)
        if name in self._values:
            return self._values[name]
        return self._writer.load(self._type(name), self._slot(name))

    def _special(self, name: str) -> Value:
        if name in _CLOCKS:
            ticks = self._writer.call("i64", "llvm.readcyclecounter")
            return self._writer.resize(ticks, _CLOCKS[name])
        if name not in self._specials:
            raise UnsupportedError(f"the register {name}", name)
        return self._specials[name]

    def _type(self, name: str) -> str:
        element = element_type(self._types[name])
        return element if name in self._uniform else vector(element)

    def _slot(self, name: str) -> Value:
        if name not in self._slots:
            type_ = self._type(name)
            self._slots[name] = self._writer.slot(type_, initial=constant(type_, 0))
        return self._slots[name]


def _single_bits(double_bits: int) -> int:
    """A decimal literal has double precision and is rounded where single is wanted."""
    (value,) = struct.unpack("<d", double_bits.to_bytes(8, "little"))
    return int.from_bytes(struct.pack("<f", value), "little")


def _private_registers(kernel: Kernel, flow: Flow) -> frozenset[str]:
    """Registers that live within one block and are set there before they are read.

    Lanes that are off may leave anything in them.
    """
    blocks: dict[str, set[int]] = defaultdict(set)
    exposed: set[str] = set()
    for number, block in enumerate(flow.blocks):
        seen: set[str] = set()
        for instruction in kernel.body[block.start : block.stop]:
            written, read = destinations(instruction), sources(instruction)
            if instruction.predicate is not None:
                read |= written
            exposed |= read - seen
            seen |= read | written
            for name in read | written:
                blocks[name].add(number)
    return frozenset(n for n, where in blocks.items() if len(where) == 1 and n not in exposed)


def _special_registers(
    writer: Writer, kernel: Kernel, context: Value, fiber: Value
) -> dict[str, Value]:
    """Values of the special registers; scalars are the same in all lanes."""
    zero = constant("i32", 0)
    one = constant("i32", 1)
    warp = writer.read(fiber, Fiber, "warp")
    lanes = constants("i32", range(LANES))
    thread = writer.add(writer.splat(writer.mul(warp, LANES)), lanes)
    specials = {
        "%tid.x": thread,
        "%tid.y": zero,
        "%tid.z": zero,
        "%ntid.x": constant("i32", kernel.threads),
        "%ntid.y": one,
        "%ntid.z": one,
        "%laneid": lanes,
        "%warpid": warp,
        "%nwarpid": constant("i32", -(-kernel.threads // LANES)),
        "%smid": zero,
        "%lanemask_eq": constants("i32", [1 << lane for lane in range(LANES)]),
        "%lanemask_lt": constants("i32", [(1 << lane) - 1 for lane in range(LANES)]),
        "%lanemask_le": constants("i32", [(2 << lane) - 1 for lane in range(LANES)]),
        "%lanemask_gt": constants("i32", [-(2 << lane) for lane in range(LANES)]),
        "%lanemask_ge": constants("i32", [-(1 << lane) for lane in range(LANES)]),
    }
    for axis in "xyz":
        specials[f"%ctaid.{axis}"] = writer.read(context, Context, f"block_{axis}")
        specials[f"%nctaid.{axis}"] = writer.read(context, Context, f"grid_{axis}")
    return specials | _cluster_registers(writer, context, specials, uses_clusters(kernel))


def _cluster_registers(
    writer: Writer, context: Value, specials: Mapping[str, Value], clustered: bool
) -> dict[str, Value]:
    """Special registers that tell of clusters; elsewhere every block is one of its own."""
    zero, one = constant("i32", 0), constant("i32", 1)
    found = {"%cluster_ctarank": zero, "%cluster_nctarank": one}
    sizes = [one] * 3
    if clustered:
        cluster = writer.read(context, Context, "cluster")
        start = writer.field(cluster, Cluster, "sizes")
        sizes = [writer.load("i32", writer.item(start, "i32", k)) for k in range(3)]
        explicit = writer.read(cluster, Cluster, "explicit")
        found = {
            "%cluster_ctarank": writer.read(context, Context, "rank"),
            "%cluster_nctarank": writer.read(context, Context, "cluster_size"),
            "%is_explicit_cluster": writer.compare("ne", explicit, 0),
        }
    for axis, size in zip("xyz", sizes, strict=True):
        block, grid = specials[f"%ctaid.{axis}"], specials[f"%nctaid.{axis}"]
        found[f"%cluster_nctaid.{axis}"] = size
        parts = (("clusterid", "udiv", block), ("nclusterid", "udiv", grid),
                 ("cluster_ctaid", "urem", block))  # fmt: skip
        for name, operation, whole in parts:
            value = writer.binary(operation, whole, size) if clustered else whole
            found[f"%{name}.{axis}"] = value
        if not clustered:
            found[f"%cluster_ctaid.{axis}"] = zero
    return found
