"""Tensor maps: 128 bytes that describe a tensor in global memory and the tiles it is copied in.

Their bits are nobody's business but the hardware's, so this is a form of their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint32, c_uint64

from ..ptx.model import Address, Immediate, Instruction
from .access import loader, storer
from .emit import Module, Writer
from .layout import PARAMETER_WINDOW, WINDOW_BITS, Context, Site
from .lowering import Lowering, take_operands
from .memory_ops import address_of, arguments_at
from .units import RANKS
from .values import LANES, Value, constant, constants, declared, i64, struct_type, vector
from .windows import Access

MAP_BYTES = 128
_CHUNK_BYTES = 16
_WORDS = 4
_ORDINAL = frozenset(("box_dim", "global_dim", "global_stride", "element_stride"))


class TensorMap(ctypes.Structure):
    """A tensor map; dimensions begin with the innermost."""

    _fields_ = (
        ("global_address", c_uint64),
        ("rank", c_uint32),
        ("elemtype", c_uint32),
        ("swizzle_mode", c_uint32),
        ("interleave_layout", c_uint32),
        ("fill_mode", c_uint32),
        ("spare", c_uint32),
        ("box_dim", c_uint32 * RANKS),
        ("global_dim", c_uint32 * RANKS),
        ("global_stride", c_uint64 * (RANKS - 1)),
        ("element_stride", c_uint32 * RANKS),
        ("last", c_uint32),
    )


def encode(
    address: int,
    element_type: int,
    shape: Sequence[int],
    strides_bytes: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    nan_fill: bool,
) -> bytes:
    """A tensor map that the host makes.

    Args:
        address: fake address of the first element.
        element_type: the number that PTX gives the type.
        shape: of the tensor, innermost first.
        strides_bytes: of all dimensions but the innermost.
        box: shape of a tile, innermost first.
        swizzle: 0 to 3: none, 32, 64 or 128 bytes.
        nan_fill: whether what lies outside the tensor is NaN instead of zero.
    """
    found = TensorMap(
        global_address=address,
        rank=len(shape) - 1,
        elemtype=element_type,
        swizzle_mode=swizzle,
        fill_mode=int(nan_fill),
    )
    for index, (length, tile) in enumerate(zip(shape, box, strict=True)):
        found.global_dim[index], found.box_dim[index] = length, tile
        found.element_stride[index] = 1
    for index, stride in enumerate(strides_bytes):
        found.global_stride[index] = stride
    return bytes(found)


def lower_tensor_map(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tensormap`."""
    match instruction.opcode[1:]:
        case ("replace", "tile", field, "shared::cta", "b1024", "b32" | "b64" as type_):
            _lower_replace(lowering, instruction, field, int(type_[1:]))
        case ("cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release",
              "gpu" | "cta" | "sys", "sync", "aligned"):  # fmt: skip
            _lower_publish(lowering, instruction)
        case _:
            raise lowering.unsupported(instruction)


def _lower_replace(lowering: Lowering, instruction: Instruction, field: str, width: int) -> None:
    place, *ordinal, value = take_operands(instruction, 3 if field in _ORDINAL else 2)
    kinds = dict((item[0], item[1]) for item in TensorMap._fields_)
    number = ordinal[0].value if ordinal and isinstance(ordinal[0], Immediate) else 0
    known = field in kinds and field not in ("spare", "last")
    if not known or not isinstance(place, Address) or not 0 <= number < RANKS:
        raise lowering.unsupported(instruction)
    offset = getattr(TensorMap, field).offset + number * width // 8
    registers, writer = lowering.registers, lowering.writer
    addresses = writer.add(address_of(lowering, place, "i64"), offset)
    mask = registers.active(instruction)
    arguments = arguments_at(lowering, instruction, "shared", addresses, mask)
    name = storer(lowering.module, width, 1)
    writer.call("void", name, *arguments, registers.read(value, f"i{width}", lanes=True))


def _lower_publish(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tensormap.cp_fenceproxy`: a warp copies a map to global memory."""
    target, source, size = take_operands(instruction, 3)
    sized = isinstance(size, Immediate) and size.value == MAP_BYTES
    if not sized or not isinstance(target, Address) or not isinstance(source, Address):
        raise lowering.unsupported(instruction, "its operands")
    writer = lowering.writer
    mask = writer.both(lowering.registers.active(instruction), piece_lanes())
    steps = constants("i64", piece_offsets())
    arguments = [
        arguments_at(lowering, instruction, space,
                     writer.add(address_of(lowering, place, "i64"), steps), mask)
        for space, place in (("shared", source), ("global", target))
    ]  # fmt: skip
    types = [vector("i32")] * _WORDS
    zeros = [constant(type_, 0) for type_ in types]
    load, store = (make(lowering.module, 32, _WORDS)
                   for make in (loader, storer))  # fmt: skip
    words = writer.unpack(writer.call(struct_type(types), load, *arguments[0], *zeros), types)
    writer.call("void", store, *arguments[1], *words)


def piece_lanes() -> Value:
    """The lanes that move a map, 16 bytes each."""
    count = MAP_BYTES // _CHUNK_BYTES
    return constants("i1", [int(lane < count) for lane in range(LANES)])


def piece_offsets() -> list[int]:
    """Where each lane's bytes begin."""
    count = MAP_BYTES // _CHUNK_BYTES
    return [_CHUNK_BYTES * (lane % count) for lane in range(LANES)]


def fetcher(module: Module) -> str:
    """`fetch(context, address, site, place)`: a map from a generic address, with all checks."""

    def build(writer: Writer, context: Value, address: Value, site: Value, place: Value) -> None:
        window = writer.shift_right(address, WINDOW_BITS)
        given = writer.compare("eq", window, PARAMETER_WINDOW)
        with writer.when(given):
            parameters = writer.read(context, Context, "parameters")
            source = writer.at(parameters, writer.both(address, (1 << WINDOW_BITS) - 1))
            writer.call("void", "llvm.memcpy.p0.p0.i64", place, source, i64(MAP_BYTES),
                        constant("i1", 0))  # fmt: skip
        with writer.when(writer.invert(given)):
            addresses = writer.add(writer.splat(address), constants("i64", piece_offsets()))
            access = global_access(writer, context, addresses, piece_lanes(), site)
            types = [vector("i32")] * _WORDS
            zeros = [constant(type_, 0) for type_ in types]
            name = loader(module, 32, _WORDS)
            found = writer.call(struct_type(types), name, *access.values(), *zeros)
            for word, value in enumerate(writer.unpack(found, types)):
                for lane in range(MAP_BYTES // _CHUNK_BYTES):
                    item = writer.item(place, "i32", lane * _WORDS + word)
                    writer.store(writer.extract(value, lane), item, 4)
        writer.give()

    parameters = declared("ptr context, i64 address, i32 site, ptr place")
    return module.function("tensor_map.fetch", "void", parameters, build)


def global_access(
    writer: Writer, context: Value, addresses: Value, mask: Value, site: Value
) -> Access:
    """An access to global memory by an instruction's site."""
    sites = writer.read(context, Context, "sites")
    size = f"[{ctypes.sizeof(Site)} x i8]"
    window = writer.item(sites, size, writer.resize(site, "i64"))
    return Access(addresses, mask, window, site, context)
