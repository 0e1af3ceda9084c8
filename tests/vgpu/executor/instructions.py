"""What each instruction does to the registers and the memory of the threads that execute it."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np

from lethe_env.vgpu.ptx.model import (
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
    Vector,
)

from . import floating, integer, warp
from .convert import convert
from .formats import Bits
from .integer import truncated, width_of
from .memory import Bank, Fault, GlobalMemory, to_bytes, to_registers

_TYPE = re.compile(r"[busf](?:8|16|32|64|128)|pred|f16x2|bf16|bf16x2|tf32")
_COMPARISON_JOINS = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
_CARRYING = ("addc", "subc", "madc")
_FLOAT_NAMES = {"add", "sub", "mul", "fma", "div", "neg", "abs", "min", "max", "copysign"}
_NO_EFFECT = {"membar", "fence", "prefetch", "prefetchu", "nanosleep", "griddepcontrol"}
_ACCESS_HINTS = re.compile(
    r"nc|volatile|relaxed|acquire|release|acq_rel|weak|cta|gpu|sys|ca|cg|cs|lu|cv|wb|wt|noftz"
    r"|L1::\w+|L2::(?:64B|128B|256B)|sync|aligned|m8n8"
)


class Instructions:
    """The registers of a block and the memories that its threads see."""

    def __init__(
        self,
        kernel: Kernel,
        memory: GlobalMemory,
        shared: Bank,
        local: Bank,
        parameters: dict[str, int],
        symbols: dict[str, int],
        position: tuple[int, int, int],
        sizes: tuple[int, ...],
    ) -> None:
        self._kernel = kernel
        self._memory = memory
        self._shared = shared
        self._local = local
        self._parameters = parameters
        self._symbols = symbols
        threads = np.arange(kernel.threads)
        self._special = _special_registers(threads, position, sizes)
        self._registers = {
            name: np.zeros(kernel.threads, np.uint64) for name in (*kernel.registers, "%cc")
        }

    def guarded(self, instruction: Instruction, threads: np.ndarray) -> np.ndarray:
        """Those of the threads whose guard lets them execute the instruction."""
        if instruction.predicate is None:
            return threads
        value = self._registers[instruction.predicate.name][threads]
        return threads[value != instruction.negated]

    def read(self, operand: Operand, kind: str, threads: np.ndarray) -> Bits:
        """Raw bits of an operand, as wide as its type."""
        match operand:
            case Register(name) if name in self._registers:
                bits = self._registers[name][threads]
            case Register(name) if name in self._special:
                bits = self._special[name][threads]
            case Negated(register):
                bits = self._registers[register.name][threads] ^ np.uint64(1)
            case Immediate(value) if not floating.is_floating(kind):
                bits = np.full(len(threads), value % 2**64, np.uint64)
            case FloatImmediate():
                bits = np.full(len(threads), _float_bits(operand, kind), np.uint64)
            case Symbol(name):
                bits = np.full(len(threads), self._symbols[name], np.uint64)
            case _:
                raise NotImplementedError(f"{operand} as {kind}")
        return truncated(bits, width_of(kind))

    def write(self, operand: Operand, bits: Bits, threads: np.ndarray) -> None:
        """Set a register of these threads, cut to its declared width."""
        if operand == Register("_"):
            return
        if not isinstance(operand, Register):
            raise NotImplementedError(f"a result in {operand}")
        width = width_of(self._kernel.registers[operand.name])
        self._registers[operand.name][threads] = truncated(bits.astype(np.uint64), width)

    def execute(self, instruction: Instruction, threads: np.ndarray) -> None:
        """Execute one instruction other than a branch or a barrier."""
        name = instruction.opcode[0]
        if name in _NO_EFFECT or instruction.opcode[:3] in (
            ("cp", "async", "commit_group"),
            ("cp", "async", "wait_group"),
            ("cp", "async", "wait_all"),
        ):
            return
        handler: Callable[[Instruction, np.ndarray], None] = getattr(
            self, f"_{name}", self._arithmetic
        )
        try:
            handler(instruction, threads)
        except (NotImplementedError, KeyError, ValueError) as error:
            raise NotImplementedError(f"{instruction.name} {instruction.operands}") from error

    def _arithmetic(self, instruction: Instruction, threads: np.ndarray) -> None:
        name, *rest = instruction.opcode
        kind = rest.pop()
        modifiers = set(rest)
        destination, *operands = instruction.operands
        kinds = [kind] * len(operands)
        if name in ("shl", "shr", "bfe", "bfi", "shf"):
            plain = 1 if name in ("shl", "shr", "bfe") else 2
            kinds[plain:] = ["u32"] * len(kinds[plain:])
        mixed = "f32" in modifiers and kind in ("f16", "bf16")
        if mixed:
            kinds[-1] = "f32"
        if "wide" in modifiers:
            kinds[2:] = [f"{kind[0]}{2 * width_of(kind)}"] * len(kinds[2:])
        sources = [
            self.read(operand, wanted, threads)
            for operand, wanted in zip(operands, kinds, strict=True)
        ]
        if mixed:
            self.write(destination, floating.mixed(name, modifiers, kinds, sources), threads)
            return
        if floating.is_floating(kind):
            if name not in _FLOAT_NAMES | floating.APPROXIMATE.keys():
                raise NotImplementedError(name)
            self.write(destination, floating.arithmetic(name, modifiers, kind, sources), threads)
            return
        if name in _CARRYING:
            sources.append(self._registers["%cc"][threads])
        carries = "cc" in modifiers
        modifiers.discard("cc")
        self.write(destination, integer.arithmetic(name, modifiers, kind, sources), threads)
        if carries:
            carry = integer.carry_of(name, modifiers, kind, sources)
            self._registers["%cc"][threads] = carry

    def _mov(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, kind = instruction.opcode
        destination, source = instruction.operands
        if isinstance(source, Vector):
            width = width_of(kind) // len(source.items)
            bits = np.zeros(len(threads), np.uint64)
            for at, item in enumerate(source.items):
                bits |= self.read(item, f"b{width}", threads) << np.uint64(at * width)
        else:
            bits = self.read(source, kind, threads)
        if isinstance(destination, Vector):
            width = width_of(kind) // len(destination.items)
            for at, item in enumerate(destination.items):
                self.write(item, truncated(bits >> np.uint64(at * width), width), threads)
        else:
            self.write(destination, bits, threads)

    def _cvta(self, instruction: Instruction, threads: np.ndarray) -> None:
        """Global addresses are generic ones as they are; other spaces are not known here."""
        if "global" not in instruction.opcode:
            raise NotImplementedError
        destination, source = instruction.operands
        self.write(destination, self.read(source, "u64", threads), threads)

    def _cvt(self, instruction: Instruction, threads: np.ndarray) -> None:
        *modifiers, to, source = instruction.opcode[1:]
        destination, *operands = instruction.operands
        bits = [self.read(operand, source, threads) for operand in operands]
        result = convert(set(modifiers), to, source, bits)
        self.write(destination, _extended(result, to), threads)

    def _selp(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, kind = instruction.opcode
        destination, first, second, chooser = instruction.operands
        chosen = self.read(chooser, "pred", threads) != 0
        a, b = self.read(first, kind, threads), self.read(second, kind, threads)
        self.write(destination, np.where(chosen, a, b), threads)

    def _setp(self, instruction: Instruction, threads: np.ndarray) -> None:
        comparison, *modifiers, kind = instruction.opcode[1:]
        destination, first, second, *third = instruction.operands
        a, b = self.read(first, kind, threads), self.read(second, kind, threads)
        if floating.is_floating(kind):
            truth = floating.compare(comparison, "ftz" in modifiers, kind, a, b)
        else:
            truth = integer.compare(comparison, kind, a, b)
        both = [truth.astype(np.uint64), (~truth).astype(np.uint64)]
        joins = [name for name in modifiers if name != "ftz"]
        if len(joins) != len(third):
            raise NotImplementedError
        for join, operand in zip(joins, third, strict=True):
            other = self.read(operand, "pred", threads)
            both = [_COMPARISON_JOINS[join](value, other) for value in both]
        if isinstance(destination, Dual):
            self.write(destination.first, both[0], threads)
            self.write(destination.second, both[1], threads)
        else:
            self.write(destination, both[0], threads)

    def _testp(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, name, kind = instruction.opcode
        destination, source = instruction.operands
        truth = floating.test_property(name, kind, self.read(source, kind, threads))
        self.write(destination, truth, threads)

    def _ld(self, instruction: Instruction, threads: np.ndarray) -> None:
        space, kind, count = _access(instruction)
        destination, address = instruction.operands
        items = destination.items if isinstance(destination, Vector) else (destination,)
        if space == "param":
            self._load_parameter(items, address, kind, threads)
            return
        size_bytes = width_of(kind) // 8
        data = self._load(space, self._addresses(address, threads), count * size_bytes, threads)
        for item, bits in zip(items, to_registers(data, count), strict=True):
            self.write(item, _extended(bits, kind), threads)

    def _load_parameter(
        self, items: tuple[Operand, ...], address: Address, kind: str, threads: np.ndarray
    ) -> None:
        if len(items) != 1 or address.offset:
            raise NotImplementedError
        value = self._parameters[address.base.name]
        bits = truncated(np.full(len(threads), value, np.uint64), width_of(kind))
        self.write(items[0], _extended(bits, kind), threads)

    def _st(self, instruction: Instruction, threads: np.ndarray) -> None:
        space, kind, count = _access(instruction)
        address, source = instruction.operands
        if space == "param":
            return
        items = source.items if isinstance(source, Vector) else (source,)
        if len(items) != count:
            raise NotImplementedError
        registers = [self.read(item, kind, threads) for item in items]
        data = to_bytes(registers, width_of(kind) // 8)
        self._store(space, self._addresses(address, threads), data, threads)

    def _cp(self, instruction: Instruction, threads: np.ndarray) -> None:
        """`cp.async`, done at once: nothing here shows a missing wait."""
        match instruction.opcode:
            case ("cp", "async", "ca" | "cg", "shared" | "shared::cta", "global", *hints):
                if not all(_ACCESS_HINTS.fullmatch(hint) for hint in hints):
                    raise NotImplementedError
            case _:
                raise NotImplementedError
        to, source, size, *kept = instruction.operands
        size_bytes = size.value
        keep = self.read(kept[0], "u32", threads) if kept else np.full(len(threads), size_bytes)
        addresses = self._addresses(source, threads)
        data = np.zeros((len(threads), size_bytes), np.uint8)
        for kept_bytes in np.unique(keep).tolist():
            rows = np.flatnonzero(keep == kept_bytes)
            if kept_bytes not in (0, size_bytes):
                raise NotImplementedError
            if kept_bytes:
                data[rows] = self._memory.read(addresses[rows], size_bytes)
        self._shared.write(self._addresses(to, threads), data)

    def _atom(self, instruction: Instruction, threads: np.ndarray) -> None:
        destination, address, *operands = instruction.operands
        old = self._update(instruction, address, operands, threads)
        self.write(destination, old, threads)

    def _red(self, instruction: Instruction, threads: np.ndarray) -> None:
        address, *operands = instruction.operands
        self._update(instruction, address, operands, threads)

    def _update(
        self, instruction: Instruction, address: Address, operands: list[Operand], who: np.ndarray
    ) -> Bits:
        """Read, change and write, one thread after the other."""
        *modifiers, name, kind = [
            word for word in instruction.opcode[1:] if not _ACCESS_HINTS.fullmatch(word)
        ]
        space = modifiers.pop() if modifiers else "generic"
        if modifiers or len(address.further):
            raise NotImplementedError
        addresses = self._addresses(address, who)
        values = [self.read(operand, kind, who) for operand in operands]
        found = []
        for at in range(len(who)):
            one = slice(at, at + 1)
            data = self._load(space, addresses[one], width_of(kind) // 8, who[one])
            (old,) = to_registers(data, 1)
            new = _updated(name, kind, space, old, [value[one] for value in values])
            self._store(space, addresses[one], to_bytes([new], width_of(kind) // 8), who[one])
            found.append(int(old[0]))
        return np.array(found, np.uint64)

    def _shfl(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, _, mode, _ = instruction.opcode
        destination, *operands, _ = instruction.operands
        for lanes in _warps(threads):
            whole = lanes[0] - lanes[0] % warp.LANES + np.arange(warp.LANES)
            sources = [self.read(operand, "b32", whole) for operand in operands]
            result, valid = warp.shuffle(mode, *sources)
            mine = lanes % warp.LANES
            if isinstance(destination, Dual):
                self.write(destination.first, result[mine], lanes)
                self.write(destination.second, valid[mine], lanes)
            else:
                self.write(destination, result[mine], lanes)

    def _vote(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, _, mode, _ = instruction.opcode
        destination, source, _ = instruction.operands
        for lanes in _warps(threads):
            truth = self.read(source, "pred", lanes) != 0
            ballot = int(sum(1 << int(lane % warp.LANES) for lane in lanes[truth]))
            results = {
                "ballot": ballot,
                "any": truth.any(),
                "all": truth.all(),
                "uni": truth.all() or not truth.any(),
            }
            self.write(destination, np.full(len(lanes), int(results[mode]), np.uint64), lanes)

    def _redux(self, instruction: Instruction, threads: np.ndarray) -> None:
        _, _, name, kind = instruction.opcode
        destination, source, _ = instruction.operands
        for lanes in _warps(threads):
            bits = self.read(source, kind, lanes)
            total = bits[:1]
            for at in range(1, len(bits)):
                total = integer.arithmetic(name, set(), kind, [total, bits[at : at + 1]])
            self.write(destination, np.repeat(total, len(lanes)), lanes)

    def _match(self, instruction: Instruction, threads: np.ndarray) -> None:
        """`match.any`: the lanes that hold the same value."""
        _, mode, _, kind = instruction.opcode
        if mode != "any":
            raise NotImplementedError
        destination, source, _ = instruction.operands
        for lanes in _warps(threads):
            values = self.read(source, kind, lanes).tolist()
            bits = [
                sum(
                    1 << int(lane % warp.LANES)
                    for lane, v in zip(lanes, values, strict=True)
                    if v == own
                )
                for own in values
            ]
            self.write(destination, np.array(bits, np.uint64), lanes)

    def _ldmatrix(self, instruction: Instruction, threads: np.ndarray) -> None:
        words = [word for word in instruction.opcode[1:] if not _ACCESS_HINTS.fullmatch(word)]
        if "b16" not in words or set(words) - {"b16", "x1", "x2", "x4", "trans", "shared"}:
            raise NotImplementedError
        destination, address = instruction.operands
        items = destination.items if isinstance(destination, Vector) else (destination,)
        for lanes in _warps(threads):
            addresses = self._addresses(address, lanes)
            for at, item in enumerate(items):
                data = self._shared.read(addresses[8 * at : 8 * at + 8], 16)
                rows = np.ascontiguousarray(data).view(np.uint16)
                self.write(item, warp.matrix_rows(rows, "trans" in words), lanes)

    def _mma(self, instruction: Instruction, threads: np.ndarray) -> None:
        match instruction.opcode:
            case (_, "sync", "aligned", shape, "row", "col", *rest) if len(rest) in (4, 5):
                *saturating, out, left, right, total = rest
                if saturating not in ([], ["satfinite"]):
                    raise NotImplementedError
            case _:
                raise NotImplementedError
        destination, *sources = instruction.operands
        capability = int(self._kernel.target.removeprefix("sm_").rstrip("a"))
        for lanes in _warps(threads):
            fragments = [
                [self.read(item, "b32", lanes) for item in source.items] for source in sources
            ]
            kinds = (out, left, right, total)
            results = warp.multiply(
                shape, kinds, fragments, capability=capability, saturates=bool(saturating)
            )
            for item, bits in zip(destination.items, results, strict=True):
                self.write(item, bits, lanes)

    def _call(self, instruction: Instruction, threads: np.ndarray) -> None:
        if Symbol("__assertfail") in instruction.operands:
            raise Fault(f"a device assertion failed in thread {threads[0]}")
        raise NotImplementedError

    def _trap(self, instruction: Instruction, threads: np.ndarray) -> None:
        raise Fault(f"trap in thread {threads[0]}")

    def _addresses(self, address: Address, threads: np.ndarray) -> np.ndarray:
        if address.further:
            raise NotImplementedError
        base = self.read(address.base, "u64", threads)
        return base + np.uint64(address.offset % 2**64)

    def _load(
        self, space: str, addresses: np.ndarray, size_bytes: int, threads: np.ndarray
    ) -> np.ndarray:
        match space:
            case "global" | "const" | "generic":
                return self._memory.read(addresses, size_bytes)
            case "shared" | "shared::cta":
                return self._shared.read(addresses, size_bytes)
            case "local":
                return self._local.read(addresses, size_bytes, threads)
        raise NotImplementedError(space)

    def _store(
        self, space: str, addresses: np.ndarray, data: np.ndarray, threads: np.ndarray
    ) -> None:
        match space:
            case "global" | "generic":
                self._memory.write(addresses, data)
            case "shared" | "shared::cta":
                self._shared.write(addresses, data)
            case "local":
                self._local.write(addresses, data, threads)
            case _:
                raise NotImplementedError(space)


def _special_registers(
    threads: np.ndarray, position: tuple[int, int, int], sizes: tuple[int, ...]
) -> dict[str, Bits]:
    lanes = threads % warp.LANES
    found = {
        "%tid.x": threads,
        "%tid.y": 0 * threads,
        "%tid.z": 0 * threads,
        "%ntid.x": 0 * threads + len(threads),
        "%ntid.y": 0 * threads + 1,
        "%ntid.z": 0 * threads + 1,
        "%laneid": lanes,
        "%warpid": threads // warp.LANES,
        "%lanemask_lt": (1 << lanes) - 1,
        "%lanemask_le": (2 << lanes) - 1,
        "%lanemask_eq": 1 << lanes,
    }
    for axis, at, size in zip("xyz", position, sizes, strict=True):
        found[f"%ctaid.{axis}"] = 0 * threads + at
        found[f"%nctaid.{axis}"] = 0 * threads + size
    return {name: np.asarray(values).astype(np.uint64) for name, values in found.items()}


def _access(instruction: Instruction) -> tuple[str, str, int]:
    """Space, type and vector length of a load or a store."""
    *words, kind = instruction.opcode[1:]
    words = [word for word in words if not _ACCESS_HINTS.fullmatch(word)]
    counts = [word for word in words if word in ("v2", "v4", "v8")]
    spaces = [word for word in words if word not in counts]
    if len(spaces) > 1 or len(counts) > 1 or not _TYPE.fullmatch(kind):
        raise NotImplementedError
    return (spaces or ["generic"])[0], kind, int(counts[0][1:]) if counts else 1


def _updated(name: str, kind: str, space: str, old: Bits, values: list[Bits]) -> Bits:
    if name == "exch":
        return values[0]
    if name == "cas":
        return np.where(old == values[0], values[1], old)
    if name == "inc":
        return np.where(old >= values[0], np.uint64(0), old + np.uint64(1))
    if name == "dec":
        outside = (old == 0) | (old > values[0])
        return np.where(outside, values[0], old - np.uint64(1))
    if floating.is_floating(kind):
        flushing = {"ftz"} if kind == "f32" and space == "global" else set()
        return floating.arithmetic(name, flushing, kind, [old, values[0]])
    return integer.arithmetic(name, set(), kind, [old, values[0]])


def _warps(threads: np.ndarray) -> list[np.ndarray]:
    numbers = threads // warp.LANES
    return [threads[numbers == number] for number in np.unique(numbers)]


def _extended(bits: Bits, kind: str) -> Bits:
    """A value as a wider register holds it: extended by its sign for signed types."""
    if kind[0] != "s":
        return bits
    sign = np.uint64(1 << (width_of(kind) - 1))
    return (truncated(bits, width_of(kind)) ^ sign) - sign


def _float_bits(immediate: FloatImmediate, kind: str) -> int:
    width = width_of(kind)
    if width == immediate.width:
        return immediate.bits
    if (immediate.width, width) == (64, 32):
        (value,) = struct.unpack("<d", struct.pack("<Q", immediate.bits))
        return int(np.float32(value).view(np.uint32))
    raise NotImplementedError(f"a {immediate.width}-bit literal as {kind}")
