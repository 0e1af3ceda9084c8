"""Sixteen bytes of shared memory that a unit reads or writes, with all checks."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

from .cluster_memory import FOREIGN, home_access, is_foreign, touch
from .emit import Module, Writer
from .layout import Context, Fiber, Site
from .sectors import CELL_BYTES, LOW_MARK, joined
from .shadow import UNIT_WARP, WARP_BITS, Touch, shared_marks
from .units import Misuse
from .values import Value, constant, constants, declared, i32, i64, vector
from .windows import ASYNCHRONOUS, BARRIER, OUT_OF_BOUNDS, UNINITIALISED_READ, report

CHUNK_BYTES = 16
_CELLS = 4
"""Cells looked at together; a chunk has as many at least."""
_DEFINED = int.from_bytes(b"\1" * 8, "little")


class Chunks:
    """The chunks that one operation touches, in the name of the context's current warp.

    They lie in the shared memory of one block, this one or another of the cluster.
    """

    def __init__(
        self, writer: Writer, context: Value, site: Value, home: Value | None = None
    ) -> None:
        """Read what all chunks share.

        Args:
            writer: Where to write.
            context: Of the block whose operation it is.
            site: Of its instruction.
            home: Context of the block whose memory it is, if that may be another.
        """
        self._writer, self._context, self._site = writer, context, site
        self._home = context if home is None else home
        foreign = is_foreign(writer, context, self._home)
        self._window = writer.field(self._home, Context, "shared_window")
        self._size, self._host, self._defined, shadow = (
            writer.read(self._window, Site, name) for name in ("size", "host", "defined", "shadow")
        )
        # Where this is not zero, nothing else has to be asked.
        self._own_shadow = writer.select(foreign, i64(0), shadow)
        self._foreign_shadow = writer.select(foreign, shadow, i64(0))
        self._marks = shared_marks(writer, context)
        self._unit_mark = writer.either(self._marks.oldest, UNIT_WARP)
        fenced = writer.read(self._home, Context, "fenced")
        self._fenced_mark = writer.shift_left(fenced, WARP_BITS)
        bits = writer.read(context, Context, "shared_granule_bits")
        self._granule_bits = writer.resize(bits, "i64")

    def read(self, offset: Value, type_: str) -> Value:
        """A chunk's bytes as a vector of a type; those of a stray chunk are all ones."""
        writer = self._writer
        result = writer.variable(constant(vector("i64", 2), -1))
        with writer.when(self._fits(offset)):
            with writer.when(writer.compare("ne", self._defined, 0)):
                self._check_defined(offset)
            self._note(offset, writes=False)
            place = writer.cast("inttoptr", writer.add(self._host, offset), "ptr")
            writer.store(writer.load(vector("i64", 2), place, 1), result)
        return writer.cast("bitcast", writer.load(vector("i64", 2), result), type_)

    def write(self, offset: Value, value: Value) -> None:
        """Set a chunk's bytes; a stray chunk is dropped."""
        writer = self._writer
        with writer.when(self._fits(offset)):
            self._mark(offset, defined=True)
            place = writer.cast("inttoptr", writer.add(self._host, offset), "ptr")
            writer.store(value, place, 1)

    def claim(self, offset: Value, defined: bool) -> None:
        """Note that a chunk is written, or is going to be."""
        with self._writer.when(self._fits(offset)):
            self._mark(offset, defined)

    def _mark(self, offset: Value, defined: bool) -> None:
        writer = self._writer
        self._note(offset, writes=True)
        with writer.when(writer.compare("ne", self._defined, 0)):
            place = writer.cast("inttoptr", writer.add(self._defined, offset), "ptr")
            marks = constant(vector("i64", 2), _DEFINED if defined else 0)
            writer.store(marks, place, 1)

    def _fits(self, offset: Value) -> Value:
        writer = self._writer
        end = writer.add(offset, CHUNK_BYTES)
        fits = writer.compare("ule", end, self._size)
        with writer.when(writer.invert(fits)):
            self._report(OUT_OF_BOUNDS, offset, i64(CHUNK_BYTES))
        return fits

    def _check_defined(self, offset: Value) -> None:
        writer = self._writer
        place = writer.cast("inttoptr", writer.add(self._defined, offset), "ptr")
        found = writer.load(vector("i64", 2), place, 1)
        bad = writer.compare("ne", found, constant(found.type, _DEFINED))
        with writer.when(writer.any(bad)):
            self._report(UNINITIALISED_READ, offset, i64(0))

    def _note(self, offset: Value, writes: bool) -> None:
        """Mark the cells of a chunk, and report whom nothing orders with this access."""
        writer = self._writer
        own, other, after = (writer.name(stem) for stem in ("own", "other", "after"))
        writer.branch(writer.compare("ne", self._own_shadow, 0), own, other)
        writer.label(own)
        with self._cells(self._own_shadow, offset) as place:
            self._note_cells(offset, place, writes)
        writer.jump(after)
        writer.label(other)
        with writer.when(writer.compare("ne", self._foreign_shadow, 0)):
            if not writes:
                with self._cells(self._foreign_shadow, offset) as place:
                    marks = writer.load(vector("i32", 2 * _CELLS), place, CELL_BYTES)
                    wrote = writer.shuffle(marks, range(0, 2 * _CELLS, 2))
                    self._check_fenced(offset, writer.both(wrote, LOW_MARK))
            how, size = Touch.WRITE if writes else Touch.READ, i64(CHUNK_BYTES)
            touch(writer, self._context, self._home, offset, size, how, self._site, by_unit=True)
        writer.jump(after)
        writer.label(after)

    @contextmanager
    def _cells(self, shadow: Value, offset: Value) -> Iterator[Value]:
        """Code for the cells of a chunk, some at a time; gives where they lie."""
        writer = self._writer
        cells = writer.binary("lshr", i64(CHUNK_BYTES), self._granule_bits)
        first = writer.binary("lshr", offset, self._granule_bits)
        start = writer.add(shadow, writer.mul(first, CELL_BYTES))
        with writer.repeat(writer.shift_right(cells, _CELLS.bit_length() - 1)) as piece:
            step = writer.mul(piece, CELL_BYTES * _CELLS)
            yield writer.cast("inttoptr", writer.add(start, step), "ptr")

    def _note_cells(self, offset: Value, place: Value, writes: bool) -> None:
        writer, words = self._writer, 2 * _CELLS
        own, several, oldest = (writer.splat(mark, words) for mark in self._marks)
        old = writer.load(vector("i32", words), place, CELL_BYTES)
        mark = writer.both(old, LOW_MARK)
        recent = writer.compare("uge", mark, oldest)
        foreign = writer.both(recent, writer.compare("ne", mark, own))
        unit = writer.splat(self._unit_mark, words)
        foreign = writer.both(foreign, writer.compare("ne", mark, unit))
        watched = constants("i1", [int(writes or not k % 2) for k in range(words)])
        bad = writer.bits(writer.both(foreign, watched))
        touched = constants("i1", [int(k % 2 != writes) for k in range(words)])
        if writes:
            new = writer.splat(self._unit_mark, words)
        else:
            new = writer.select(foreign, joined(writer, mark, several), own)
            self._check_fenced(offset, writer.shuffle(mark, range(0, words, 2)))
        writer.store(writer.select(touched, new, old), place, CELL_BYTES)
        with writer.when(writer.compare("ne", bad, 0)):
            wide = writer.resize(bad, "i32")
            which = writer.call("i32", "llvm.cttz.i32", wide, constant("i1", 0))
            other = writer.extract(mark, writer.resize(which, "i64"))
            self._report(BARRIER, offset, writer.resize(other, "i64"))

    def _check_fenced(self, offset: Value, wrote: Value) -> None:
        """Report cells whose writer has not been followed by a `fence.proxy.async`."""
        writer = self._writer
        late = writer.compare("uge", wrote, writer.splat(self._fenced_mark, _CELLS))
        with writer.when(writer.any(late)):
            name = _fence_checker(writer.module)
            writer.call("void", name, self._context, self._home, self._site, offset, wrote)

    def _report(self, kind: int, offset: Value, other: Value) -> None:
        writer = self._writer
        access = home_access(writer, self._context, self._home, offset, self._site)
        report(writer, access, kind, i32(1), other)


def _fence_checker(module: Module) -> str:
    """`check(context, home, site, offset, wrote)`: of cells by their writers, warps of `home`.

    A warp's fence covers what it wrote in the same epoch or before; if it came first, that is not
    seen. What a unit wrote needs none.
    """

    def build(
        writer: Writer, context: Value, home: Value, site: Value, offset: Value, wrote: Value
    ) -> None:
        fibers = writer.read(home, Context, "fibers")
        with writer.repeat(i64(_CELLS)) as cell:
            mark = writer.extract(wrote, cell)
            warp = writer.both(mark, (1 << WARP_BITS) - 1)
            thread = writer.compare("ult", writer.sub(warp, 1), UNIT_WARP - 1)
            own = writer.compare("eq", writer.both(mark, FOREIGN), 0)
            thread = writer.both(thread, own)
            with writer.when(thread):
                index = writer.resize(writer.sub(warp, 1), "i64")
                fiber = writer.item(fibers, f"[{ctypes.sizeof(Fiber)} x i8]", index)
                fenced = writer.read(fiber, Fiber, "fenced")
                epoch = writer.shift_right(mark, WARP_BITS)
                with writer.when(writer.compare("ult", fenced, epoch)):
                    access = home_access(writer, context, home, offset, site)
                    how = i64(int(Misuse.NO_FENCE))
                    report(writer, access, ASYNCHRONOUS, i32(1), how)
        writer.give()

    parameters = declared("ptr context, ptr home, i32 site, i64 offset")
    parameters.append((vector("i32", _CELLS), "wrote"))
    return module.function("chunk.fenced", "void", parameters, build)
