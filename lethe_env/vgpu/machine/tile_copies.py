"""The tensor memory accelerator: tiles of tensors between global and shared memory."""

from __future__ import annotations

from collections.abc import Callable

from .access import loader, storer
from .chunks import CHUNK_BYTES, Chunks
from .cluster_memory import each_home
from .emit import Module, Writer
from .tensor_maps import global_access
from .tile_shapes import Shape, read_shape
from .units import RANKS, Kind, Operation
from .values import LANES, Value, constant, constants, declared, i64, struct_type, vector

_WORDS = 4


def claimer(module: Module) -> str:
    """`claim(context, operation)`: a copy may touch shared memory from when it is handed over."""

    def build(writer: Writer, context: Value, operation: Value) -> None:
        shape, valid = read_shape(writer, context, operation)
        with writer.when(valid):
            site = writer.read(operation, Operation, "site")
            target = writer.resize(writer.read(operation, Operation, "target"), "i64")
            total = writer.mul(shape.rows(writer), shape.row_bytes(writer))
            kind = writer.read(operation, Operation, "kind")
            loads = writer.compare("eq", kind, int(Kind.LOAD))
            blocks = writer.read(operation, Operation, "blocks")
            with each_home(writer, context, blocks) as (_, home):
                chunks = Chunks(writer, context, site, home)
                with writer.repeat(writer.shift_right(total, 4)) as chunk:
                    offset = writer.add(target, writer.mul(chunk, CHUNK_BYTES))
                    with writer.when(loads):
                        chunks.claim(offset, defined=False)
                    with writer.when(writer.invert(loads)):
                        chunks.read(offset, vector("i64", 2))
        writer.give()

    return module.function("tile.claim", "void", declared("ptr context, ptr operation"), build)


def copier(
    module: Module, kind: Kind, finish: Callable[..., None], update: Callable[..., None] | None
) -> str:
    """`copy(context, operation)`: make a copy happen.

    Args:
        module: Where to write it.
        kind: What it does.
        finish: Writes what happens at last in each block that a tile goes to, by its rank, with
            the bytes of the tile.
        update: Writes a reduction of 16 bytes, see `tile_reductions`, if it is one.
    """

    def build(writer: Writer, context: Value, operation: Value) -> None:
        shape, valid = read_shape(writer, context, operation)
        blocks = writer.read(operation, Operation, "blocks")
        with writer.when(valid), each_home(writer, context, blocks) as (rank, home):
            _Copy(writer, context, operation, shape, kind, update, home).run()
            size = writer.mul(shape.rows(writer), shape.row_bytes(writer))
            finish(writer, context, operation, size, rank)
        writer.give()

    name = f"tile.{kind.name.lower()}"
    return module.function(name, "void", declared("ptr context, ptr operation"), build)


class _Copy:
    """One copy as it happens: whole chunks 32 at a time, ragged ones by bytes."""

    def __init__(self, writer: Writer, context: Value, operation: Value, shape: Shape,
                 kind: Kind, update: Callable[..., None] | None, home: Value) -> None:  # fmt: skip
        self._writer, self._context, self._operation = writer, context, operation
        self._shape, self._kind, self._update = shape, kind, update
        self._site = writer.read(operation, Operation, "site")
        self._chunks = Chunks(writer, context, self._site, home)
        self._addresses = writer.slot(f"[{LANES} x i64]", 64)
        self._offsets = writer.slot(f"[{LANES} x i64]", 64)
        self._words = writer.slot(f"[{_WORDS * LANES} x i32]", 64)
        self._count = writer.variable(i64(0))

    def run(self) -> None:
        """Go through the rows of the tile, and the chunks of each."""
        writer, shape = self._writer, self._shape
        row_bytes = shape.row_bytes(writer)
        target = writer.resize(writer.read(self._operation, Operation, "target"), "i64")
        with writer.repeat(shape.rows(writer)) as row:
            start, inside = self._row(row)
            line = writer.add(target, writer.mul(row, row_bytes))
            with writer.repeat(writer.shift_right(row_bytes, 4)) as chunk:
                offset = writer.add(line, writer.mul(chunk, CHUNK_BYTES))
                turned = writer.both(writer.shift_right(offset, 7), shape.swizzle)
                offset = writer.binary("xor", offset, writer.shift_left(turned, 4))
                self._chunk(start, inside, chunk, offset)
        self._flush()

    def _row(self, row: Value) -> tuple[Value, Value]:
        """Address of a row's first element, and whether the row lies in the tensor."""
        writer, shape = self._writer, self._shape
        address, inside, rest = shape.start, constant("i1", 1), row
        for index in range(1, RANKS):
            box = shape.boxes[index]
            at = writer.add(shape.origin[index], writer.binary("urem", rest, box))
            rest = writer.binary("udiv", rest, box)
            address = writer.add(address, writer.mul(at, shape.strides[index - 1]))
            inside = writer.both(inside, writer.compare("ult", at, shape.lengths[index]))
        return address, inside

    def _chunk(self, row: Value, inside: Value, chunk: Value, offset: Value) -> None:
        writer, shape = self._writer, self._shape
        skipped = writer.binary("lshr", writer.mul(chunk, CHUNK_BYTES), shape.element_bits)
        first = writer.add(shape.origin[0], skipped)
        address = writer.add(row, writer.binary("shl", first, shape.element_bits))
        length = writer.binary("shl", shape.lengths[0], shape.element_bits)
        begin = writer.binary("shl", first, shape.element_bits)
        low = self._clamped(writer.sub(i64(0), begin))
        high = writer.select(inside, self._clamped(writer.sub(length, begin)), i64(0))
        whole = writer.both(writer.compare("eq", low, 0), writer.compare("eq", high, CHUNK_BYTES))
        aligned = writer.compare("eq", writer.both(address, _WORDS - 1), 0)
        whole = writer.both(whole, aligned)
        if self._kind is Kind.REDUCE:
            whole = constant("i1", 0)
        with writer.when(whole):
            count = writer.load("i64", self._count)
            writer.store(address, writer.item(self._addresses, "i64", count))
            writer.store(offset, writer.item(self._offsets, "i64", count))
            writer.store(writer.add(count, 1), self._count)
            with writer.when(writer.compare("eq", count, LANES - 1)):
                self._flush()
        with writer.when(writer.invert(whole)):
            self._ragged(address, low, high, offset)

    def _clamped(self, value: Value) -> Value:
        writer = self._writer
        positive = writer.call("i64", "llvm.smax.i64", value, i64(0))
        return writer.call("i64", "llvm.smin.i64", positive, i64(CHUNK_BYTES))

    def _flush(self) -> None:
        """Move the whole chunks that have been collected."""
        writer = self._writer
        count = writer.load("i64", self._count)
        with writer.when(writer.compare("ne", count, 0)):
            addresses = writer.load(vector("i64"), self._addresses, 8)
            lanes = writer.compare("ult", constants("i64", range(LANES)), writer.splat(count))
            access = global_access(writer, self._context, addresses, lanes, self._site)
            types = [vector("i32")] * _WORDS
            if self._kind is Kind.LOAD:
                name = loader(writer.module, 32, _WORDS)
                zeros = [constant(type_, 0) for type_ in types]
                found = writer.call(struct_type(types), name, *access.values(), *zeros)
                for word, value in enumerate(writer.unpack(found, types)):
                    writer.store(value, self._word(word), 4)
            with writer.repeat(count) as lane:
                offset = writer.load("i64", writer.item(self._offsets, "i64", lane))
                places = [writer.item(self._word(word), "i32", lane) for word in range(_WORDS)]
                self._move(offset, places)
            if self._kind is Kind.STORE:
                values = [writer.load(types[0], self._word(word), 4) for word in range(_WORDS)]
                name = storer(writer.module, 32, _WORDS)
                writer.call("void", name, *access.values(), *values)
            writer.store(i64(0), self._count)

    def _word(self, word: int) -> Value:
        return self._writer.item(self._words, "i32", word * LANES)

    def _move(self, offset: Value, places: list[Value]) -> None:
        """A chunk between shared memory and words."""
        writer = self._writer
        type_ = vector("i32", _WORDS)
        if self._kind is Kind.LOAD:
            value = Value(type_, "poison")
            for word, place in enumerate(places):
                value = writer.insert(value, writer.load("i32", place, 4), word)
            self._chunks.write(offset, value)
            return
        value = self._chunks.read(offset, type_)
        for word, place in enumerate(places):
            writer.store(writer.extract(value, word), place, 4)

    def _ragged(self, address: Value, low: Value, high: Value, offset: Value) -> None:
        """A chunk of which only some bytes lie in the tensor."""
        writer = self._writer
        lanes = constants("i64", range(LANES))
        mask = writer.both(
            writer.compare("uge", lanes, writer.splat(low)),
            writer.compare("ult", lanes, writer.splat(high)),
        )
        addresses = writer.add(writer.splat(address), lanes)
        access = global_access(writer, self._context, addresses, mask, self._site)
        bytes_ = vector("i8", CHUNK_BYTES)
        if self._kind is Kind.LOAD:
            name = loader(writer.module, 8, 1)
            found = writer.call(vector("i8"), name, *access.values(), self._fill())
            self._chunks.write(offset, writer.shuffle(found, range(CHUNK_BYTES)))
            return
        value = self._chunks.read(offset, bytes_)
        if self._update is not None:
            self._update(writer, self._operation, access, value, self._shape)
            return
        spread = writer.shuffle(value, [lane % CHUNK_BYTES for lane in range(LANES)])
        name = storer(writer.module, 8, 1)
        writer.call("void", name, *access.values(), spread)

    def _fill(self) -> Value:
        """What bytes outside the tensor become: zeros, or those of a NaN."""
        writer, shape = self._writer, self._shape
        last = writer.sub(writer.binary("shl", i64(1), shape.element_bits), 1)
        lanes = constants("i64", range(LANES))
        masked = writer.both(lanes, writer.splat(last))
        top = writer.compare("eq", masked, writer.splat(last))
        nan = writer.select(top, constant(vector("i8"), 0x7F), constant(vector("i8"), 0xFF))
        zero = constant(vector("i8"), 0)
        return writer.select(writer.splat(shape.nan_fill), nan, zero)
