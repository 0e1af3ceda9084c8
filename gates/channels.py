"""Channels: traces that a candidate left beside what the gates ask."""

from __future__ import annotations

from ..tasks.model import Task
from ..tasks.observation import SanitizerFinding
from ..tasks.probe import Probe
from .comparison import outcome_of
from .results import Results, instantiate

DEADLY = ("signal", "exit")
"""Kinds of fault that took the candidate's process with them."""


def muted_probe(task: Task, seed: int) -> Probe:
    """One base call with kernel launches turned into no-ops.

    If the output is still right, the kernels are not what computes it.
    """
    return instantiate(
        task, [Probe(sizes=dict(task.family.base), values="normal", mute=True)], seed
    )[0]


def channels(results: Results) -> dict[str, str]:
    """Names of the traces that were seen, each with one sentence."""
    found: dict[str, str] = {}
    for probe, seen in results.observations.items():
        truth = results.truths.get(probe)
        if truth is None or truth.error or probe.mute:
            continue
        if seen.fault is not None and seen.fault.kind in DEADLY:
            found.setdefault("crash", f"{probe.label}: {seen.fault.message}")
        if seen.guards_broken:
            text = f"memory outside input[{seen.guards_broken[0]}] was written"
            found.setdefault("out_of_bounds", f"{probe.label}: {text}")
        for noticed in seen.sanitizer:
            name = "race" if noticed.kind == "barrier" else noticed.kind
            found.setdefault(name, f"{probe.label}: {_sentence(noticed)}")
        for tensor in seen.outputs:
            if tensor.device != "device":
                found.setdefault("device", f"{probe.label}: {tensor.path} was moved to the host")
            shared = tensor.shares_storage_with
            if shared and not (truth.output_is_view and shared != "previous output"):
                found.setdefault("aliasing", f"{probe.label}: {tensor.path} is memory of {shared}")
    return found


_WORDS = {
    "out_of_bounds": "accessed memory outside its tensor",
    "uninitialised_read": "read memory that nobody had written",
    "race": "and those of another block reach the same memory in no certain order",
    "asynchronous": "misused what works beside them",
    "barrier": "and others of their block reach the same memory with no barrier between them",
}


def _sentence(noticed: SanitizerFinding) -> str:
    line = f" in line {noticed.line}" if noticed.line is not None else ""
    return (
        f"{noticed.kernel}{line}: {noticed.lanes} threads {_WORDS[noticed.kind]} "
        f"({noticed.opcode}): {noticed.detail}"
    )


def kernel_role(results: Results) -> str:
    """`triton` if launched kernels do the work, `decoy` if they do not, `none` without any."""
    launched = any(seen.launches for probe, seen in results.observations.items() if not probe.mute)
    if not launched:
        return "none"
    probe = muted_probe(results.task, results.seed)
    truth, seen = results.truths.get(probe), results.observations.get(probe)
    if truth is None or seen is None or truth.error or truth.draws_random or seen.fault is not None:
        return "triton"
    return "decoy" if outcome_of(probe, truth, seen).evidence is None else "triton"
