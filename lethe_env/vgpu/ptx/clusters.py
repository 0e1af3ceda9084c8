"""Whether a kernel tells clusters of blocks from blocks on their own."""

from __future__ import annotations

from .model import Address, Kernel, Operand, Register, Vector

_OPCODES = frozenset(("mapa", "getctarank", "clusterlaunchcontrol"))
_MODIFIERS = frozenset(("cta_group::2", "multicast::cluster", "multicast::cluster::all"))


def uses_clusters(kernel: Kernel) -> bool:
    """Whether it can see the other blocks of its cluster, or what the cluster is like.

    All others do the same in any cluster.
    """
    return kernel.cluster is not None or any(
        i.opcode[0] in _OPCODES
        or i.opcode[:2] == ("barrier", "cluster")
        or not _MODIFIERS.isdisjoint(i.opcode)
        or any(map(_names_cluster, i.operands))
        for i in kernel.body
    )


def _names_cluster(operand: Operand) -> bool:
    match operand:
        case Register(name):
            return name.startswith("%") and "cluster" in name
        case Vector(items):
            return any(map(_names_cluster, items))
        case Address(base, _, further):
            return any(map(_names_cluster, (base, *further)))
    return False
