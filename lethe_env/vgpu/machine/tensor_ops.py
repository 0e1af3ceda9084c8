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
_GROUPS = ("cta_group::1", "cta_group::2")
_TO: tuple[list[str], ...] = ([], ["multicast::cluster"])
_KINDS = ("kind::f16", "kind::tf32", "kind::f8f6f4")


def lower_tensor(lowering: Lowering, instruction: Instruction) -> None:
    """Write `tcgen05`."""
    used = [i.opcode for i in lowering.kernel.body if i.opcode[0] == "tcgen05"]
    if all(any(group in opcode for opcode in used) for group in _GROUPS):
        raise lowering.unsupported(instruction, "groups of one block and of two in one kernel")
    match instruction.opcode[1:]:
        case ("alloc", group, "sync", "aligned", "shared::cta", "b32") if group in _GROUPS:
            lower_alloc(lowering, instruction)
        case ("dealloc", group, "sync", "aligned", "b32") if group in _GROUPS:
            lower_dealloc(lowering, instruction)
        case ("ld" | "st", "sync", "aligned", shape, _, "b32") if shape in _SHAPES:
            lower_access(lowering, instruction)
        case ("wait::st", "sync", "aligned"):
            lower_store_wait(lowering, instruction)
        case ("mma", group, kind, *hints) if (
            group in _GROUPS and kind in _KINDS and hints in _HINTS
        ):
            lower_tensor_product(lowering, instruction)
        case ("commit", group, "mbarrier::arrive::one", "shared::cluster", *multicast, "b64") if (
            group in _GROUPS and multicast in _TO
        ):
            lower_commit(lowering, instruction)
        case ("relinquish_alloc_permit", group, "sync", "aligned") if group in _GROUPS:
            lower_relinquish(lowering, instruction)
        case ("wait::ld", "sync", "aligned") | (
            "fence::before_thread_sync" | "fence::after_thread_sync",
        ):
            pass
        case _:
            raise lowering.unsupported(instruction)
