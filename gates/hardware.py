"""RES-02: every kernel fits the hardware it is meant for.

Claim:   every kernel the candidate launched compiles ahead of time for each target, and asks for
         no more shared memory, tensor memory, registers and threads than one block may have. Of
         the configurations of an autotuned kernel one has to fit: a tuner skips the others.
Catches: tiles that overflow shared memory or the 512 tensor-memory columns of sm_100, launches
         that no real device accepts, kernels that only an interpreter runs.
Misses:  occupancy and speed; registers and spills are reported, not judged, while the compiler
         can still spill. A kernel that a function makes is compiled by itself: one that needs the
         function's own variables, or shares its name with another, is left out, and said to be.

Limits per thread block: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability" (shared memory 163 KiB on 8.0, 227 KiB on 9.0 and 10.0; 255 registers a thread;
1,024 threads), PTX ISA "Tensor Memory" (512 columns a CTA).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ..tasks.model import Task
from ..tasks.observation import KernelResources
from ..tasks.probe import Probe
from .results import Results
from .verdict import Evidence, Finding, failed, not_applicable, passed

NAME = "RES-02"

SHARED_LIMIT_BYTES = {"sm_80": 166_912, "sm_90": 232_448, "sm_100": 232_448}
TENSOR_MEMORY_LIMIT_COLUMNS = {"sm_80": 0, "sm_90": 0, "sm_100": 512}
REGISTER_LIMIT = 255
THREAD_LIMIT = 1024


def plan(task: Task) -> tuple[Probe, ...]:
    """Nothing of its own: the launches of every other gate's probes are compiled."""
    return ()


def judge(results: Results) -> Finding:
    """Hold every compile against the limits of its target."""
    if not results.resources:
        return not_applicable(NAME, results.resources_note or "the candidate launched no kernel")
    skipped = _skipped(results.resources)
    judged = [item for item in results.resources if item not in skipped]
    wrong = [(item, reason) for item in judged for reason in excesses(item)]
    measured = _measured(judged)
    if not wrong:
        kernels = len({item.kernel for item in judged})
        targets = ", ".join(dict.fromkeys(item.target for item in judged))
        notes = [f"{kernels} kernels fit {targets}", *_words(skipped), results.resources_note]
        return passed(NAME, "; ".join(filter(None, notes)), **measured)
    failing = {id(item) for item, _ in wrong}
    return failed(
        NAME,
        "; ".join(f"{item.kernel} on {item.target}: {reason}" for item, reason in wrong[:3]),
        score=1 - len(failing) / len(judged),
        evidence=tuple(_evidence(item, reason) for item, reason in wrong[:3]),
        **measured,
    )


def excesses(item: KernelResources) -> list[str]:
    """Every limit that one compile breaks, in words."""
    if item.error:
        return [item.error]
    limits: list[tuple[str, int, Mapping[str, int] | int]] = [
        ("bytes of shared memory", item.shared_bytes, SHARED_LIMIT_BYTES),
        ("tensor-memory columns", item.tensor_memory_columns, TENSOR_MEMORY_LIMIT_COLUMNS),
        ("registers a thread", item.registers, REGISTER_LIMIT),
        ("threads a block", item.threads, THREAD_LIMIT),
    ]
    found = []
    for what, used, limit in limits:
        allowed = limit if isinstance(limit, int) else limit[item.target]
        if used > allowed:
            found.append(f"{used} {what}, the limit is {allowed}")
    return found


def undecided(resources: Sequence[KernelResources]) -> set[str]:
    """Choices of a tuner (`KernelResources.choice`) of which no configuration fits some target."""
    misfits = {(item.choice, item.target) for item in resources if _can_be_skipped(item)}
    return {choice for choice, _ in misfits - _fitting(resources)}


def _skipped(resources: Sequence[KernelResources]) -> list[KernelResources]:
    """Configurations that a tuner leaves for another one on a target they do not fit."""
    fitting = _fitting(resources)
    return [i for i in resources if _can_be_skipped(i) and (i.choice, i.target) in fitting]


def _fitting(resources: Sequence[KernelResources]) -> set[tuple[str, str]]:
    return {(item.choice, item.target) for item in resources if not excesses(item)}


def _can_be_skipped(item: KernelResources) -> bool:
    return bool(item.choice and not item.error and excesses(item))


def _words(skipped: Sequence[KernelResources]) -> list[str]:
    count = Counter(item.target for item in skipped)
    return [f"a tuner skips {n} of the configurations on {target}" for target, n in count.items()]


def _measured(resources: Sequence[KernelResources]) -> dict[str, float]:
    return {
        "compiles": float(len(resources)),
        "registers": float(max(item.registers for item in resources)),
        "spill_bytes": float(max(item.spill_bytes for item in resources)),
        "shared_bytes": float(max(item.shared_bytes for item in resources)),
        "tensor_memory_columns": float(max(item.tensor_memory_columns for item in resources)),
    }


def _evidence(item: KernelResources, reason: str) -> Evidence:
    return Evidence(probe={}, label=f"{item.kernel} for {item.target}", note=reason)
