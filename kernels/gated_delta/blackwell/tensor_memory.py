"""Rows of tensor memory: each of 128 threads exchanges its own lane's columns with registers."""

import cutlass.cute as cute
from cutlass import Float32
from cutlass._mlir.dialects import nvvm
from cutlass.cute.nvgpu import tcgen05
from cutlass.cutlass_dsl import dsl_user_op

LANES, LANE_STRIDE = 128, 1 << 16
"""Lanes, and how far apart they lie in addresses of tensor memory."""


@dsl_user_op
def before_sync(*, loc=None, ip=None):
    """What this thread has asked of tensor memory comes before a barrier that follows."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, loc=loc, ip=ip)


@dsl_user_op
def after_sync(*, loc=None, ip=None):
    """What this thread will ask of tensor memory comes after a barrier that precedes."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, loc=loc, ip=ip)


def load_row(place, row, thread):
    """Load a lane's columns; asynchronous, until `fence_view_async_tmem_load`.

    Args:
        place: pointer to the first column.
        row: registers for them, float32; a power of two of at most 64.
        thread: which lane it is, of 128.
    """
    width = cute.size(row)
    atom = cute.make_copy_atom(tcgen05.Ld32x32bOp(_repetition(width)), Float32)
    columns = _columns(place, width)
    copy = tcgen05.make_tmem_copy(atom, columns).get_slice(thread)
    shape = copy.partition_D(cute.make_identity_tensor((LANES, width))).shape
    cute.copy(
        copy, copy.partition_S(columns), cute.make_tensor(row.iterator, cute.make_layout(shape))
    )


def store_row(row, place, thread):
    """The reverse; asynchronous, until `fence_view_async_tmem_store`."""
    _store(row.iterator, place, thread, cute.size(row))


def store_factor(halves, place, thread):
    """Store registers of float16, two to a column, as products read a left factor."""
    pairs = cute.recast_ptr(halves.iterator, dtype=Float32)
    _store(pairs, place, thread, cute.size(halves) // 2)


def rounded(row, element_type):
    """A row's registers in another type."""
    result = cute.make_rmem_tensor((cute.size(row),), element_type)
    result.store(row.load().to(element_type))
    return result


def _store(values, place, thread, width):
    atom = cute.make_copy_atom(tcgen05.St32x32bOp(_repetition(width)), Float32)
    columns = _columns(place, width)
    copy = tcgen05.make_tmem_copy(atom, columns).get_slice(thread)
    shape = copy.partition_S(cute.make_identity_tensor((LANES, width))).shape
    cute.copy(copy, cute.make_tensor(values, cute.make_layout(shape)), copy.partition_D(columns))


def _repetition(width):
    """What moves so many columns at once."""
    return getattr(tcgen05.Repetition, f"x{width}")


def _columns(place, width):
    return cute.make_tensor(place, cute.make_layout((LANES, width), stride=(LANE_STRIDE, 1)))
