"""`tcgen05`: which function writes which of its instructions."""

from __future__ import annotations

from ..ptx.model import Instruction
from .lowering import Lowering
from .tensor_allocation import lower_alloc, lower_dealloc, lower_relinquish
from .tensor_fragments import FRAGMENTS
from .tensor_memory import lower_access, lower_store_wait
from .tensor_products import lower_commit, lower_tensor_product

_SHAPES = ("32x32b", "16x32bx2", *FRAGMENTS)
_HINTS = ([], ["collector::a::discard"])
"""Whether the left factor is kept for later products, which no result shows."""
_KINDS = ("kind::f16", "kind::tf32", "kind::f8f6f4")


def lower_tensor(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05`."""
    match instruction.opcode[1:]:
        case ("alloc", "cta_group::1", "sync", "aligned", "shared::cta", "b32"):
            lower_alloc(lowering, instruction)
        case ("dealloc", "cta_group::1", "sync", "aligned", "b32"):
            lower_dealloc(lowering, instruction)
        case ("ld" | "st", "sync", "aligned", shape, _, "b32") if shape in _SHAPES:
            lower_access(lowering, instruction)
        case ("wait::st", "sync", "aligned"):
            lower_store_wait(lowering, instruction)
        case ("mma", "cta_group::1", kind, *hints) if kind in _KINDS and hints in _HINTS:
            lower_tensor_product(lowering, instruction)
        case ("commit", "cta_group::1", "mbarrier::arrive::one", "shared::cluster", "b64"):
            lower_commit(lowering, instruction)
        case ("relinquish_alloc_permit", "cta_group::1", "sync", "aligned"):
            lower_relinquish(lowering, instruction)
        case ("wait::ld", "sync", "aligned") | (
            "fence::before_thread_sync" | "fence::after_thread_sync",
        ):
            pass
        case _:
            raise lowering.unsupported(instruction)
