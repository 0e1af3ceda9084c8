"""Stand-ins for tensors when a host function is compiled."""

from lethe_env.vgpu.cute import toolkit


def fake(dtype, *shape, align=16):
    """Of contiguous tensors; `None` is a length that is not known."""
    cutlass, cute = toolkit.load("cutlass"), toolkit.load()
    sizes = tuple(cute.sym_int() if size is None else size for size in shape)
    order = tuple(reversed(range(len(shape))))
    make = toolkit.load("cutlass.cute.runtime").make_fake_compact_tensor
    return make(getattr(cutlass, dtype), sizes, stride_order=order, assumed_align=align)
