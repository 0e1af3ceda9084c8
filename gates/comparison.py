"""Comparison of one observed tensor with its truth, and of a gate's probes one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..tasks.observation import Fault, Observation, OutputTensor
from ..tasks.probe import Probe
from .results import Results
from .truth import Truth, TruthTensor
from .verdict import Evidence, Finding, failed, not_applicable, passed

EVIDENCE_LIMIT = 3
"""Failing probes that a finding describes; further ones are only counted."""
REFUSALS = (
    "TypeError",
    "ValueError",
    "NotImplementedError",
    "AssertionError",
    "RuntimeError",
    "CompilationError",
)
"""Exceptions with which honest code, or Triton on its behalf, refuses a dtype."""
DTYPE_WORDS = (
    "dtype",
    "float16",
    "bfloat16",
    "float32",
    "fp16",
    "bf16",
    "fp32",
    "half",
    "precision",
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one probe went: its evidence if it failed, and the worst error over allowed error.

    The ratio is infinite where no multiple of the bound would excuse the failure.
    """

    probe: Probe
    worst_ratio: float
    evidence: Evidence | None


def evidence_of(probe: Probe, **fields: object) -> Evidence:
    """Evidence that names its probe."""
    return Evidence(probe=probe.to_json(), label=probe.label, **fields)  # type: ignore[arg-type]


def compare(
    probe: Probe, truth: TruthTensor, got: OutputTensor | None, *, subnormal: bool = False
) -> Outcome:
    """Compare every charged element of one tensor.

    A finite truth asks for a value within the allowed difference, a NaN for a NaN, an infinity
    for the same infinity.

    Args:
        probe: the call.
        truth: what the tensor has to be.
        got: what came back, `None` if nothing did.
        subnormal: judge without the allowance of one smallest normal number.
    """
    if got is None:
        return Outcome(probe, torch.inf, evidence_of(probe, path=truth.path, note="missing"))
    if got.data.shape != truth.values.shape:
        note = f"shape {tuple(got.data.shape)} instead of {tuple(truth.values.shape)}"
        return Outcome(probe, torch.inf, evidence_of(probe, path=truth.path, note=note))
    allowed = truth.allowed_subnormal if subnormal else truth.allowed
    want, have = truth.values.double(), got.data.double()
    if not truth.values.is_floating_point() or not got.data.is_floating_point():
        wrong = truth.charged & (have != want)
        ratio = torch.where(wrong, torch.inf, 0.0)
        return _outcome(probe, truth.path, wrong, ratio.double(), have, want, allowed)
    error = _error(have, want, allowed, torch.finfo(got.data.dtype).max)
    same_special = (have.isnan() & want.isnan()) | (have == want)
    within = torch.where(want.isfinite(), error <= allowed, same_special)
    wrong = truth.charged & ~within
    ratio = torch.where(want.isfinite(), error / allowed.clamp_min(_SMALLEST), 0.0)
    beyond = wrong & ~(ratio.isfinite() & want.isfinite())
    ratio = torch.where(beyond, torch.inf, ratio.nan_to_num(nan=0.0))
    ratio = torch.where(truth.charged, ratio, 0.0)
    return _outcome(probe, truth.path, wrong, ratio, have, want, allowed)


def _error(
    have: torch.Tensor, want: torch.Tensor, allowed: torch.Tensor, largest: float
) -> torch.Tensor:
    """Absolute difference; an overflow counts as the largest finite number of the dtype.

    That is enough where the bound reaches beyond it: a value there has no other representation.
    """
    reaches = want.isfinite() & (want.abs() + allowed > largest)
    overflowed = reaches & have.isinf() & (have.sign() == want.sign())
    return (torch.where(overflowed, have.sign() * largest, have) - want).abs()


_SMALLEST = 5e-324  # keeps 0/0 out of the ratio where nothing is allowed and nothing is wrong


def _outcome(
    probe: Probe,
    path: str,
    wrong: torch.Tensor,
    ratio: torch.Tensor,
    have: torch.Tensor,
    want: torch.Tensor,
    allowed: torch.Tensor,
) -> Outcome:
    worst = float(ratio.max()) if ratio.numel() else 0.0
    if not wrong.any():
        return Outcome(probe, worst, None)
    flat = int(torch.where(wrong, ratio, -1.0).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), wrong.shape))
    finite = bool(want[index].isfinite())
    evidence = evidence_of(
        probe,
        path=path,
        index=index,
        got=have[index].item(),
        expected=want[index].item(),
        allowed=allowed[index].item() if finite else None,
        elements=int(wrong.sum()),
    )
    return Outcome(probe, max(worst, 1.0), evidence)


def outcome_of(
    probe: Probe,
    truth: Truth,
    seen: Observation,
    *,
    gradients: bool = False,
    subnormal: bool = False,
) -> Outcome:
    """Compare all outputs, or all gradients, of one probe; the first failure is the evidence."""
    outcome = _outcome_of(probe, truth, seen, gradients=gradients, subnormal=subnormal)
    if outcome.evidence is None or not seen.tunings:
        return outcome
    launched = "; ".join(f"{tuning.kernel} with {tuning.chosen}" for tuning in seen.tunings)
    return replace(outcome, evidence=replace(outcome.evidence, configuration=launched))


def _outcome_of(
    probe: Probe, truth: Truth, seen: Observation, *, gradients: bool, subnormal: bool
) -> Outcome:
    if seen.fault is not None:
        return Outcome(probe, torch.inf, evidence_of(probe, note=fault_text(seen.fault)))
    given = seen.gradients if gradients else seen.outputs
    expected = truth.gradients if gradients else truth.outputs
    by_path = {tensor.path: tensor for tensor in given}
    outcomes = [
        compare(probe, tensor, by_path.get(tensor.path), subnormal=subnormal) for tensor in expected
    ]
    worst = max((outcome.worst_ratio for outcome in outcomes), default=0.0)
    evidence = next((o.evidence for o in outcomes if o.evidence is not None), None)
    surplus = sorted(by_path.keys() - {tensor.path for tensor in expected})
    if evidence is None and surplus and not gradients:
        evidence = evidence_of(probe, path=surplus[0], note="the reference returns no such output")
        worst = torch.inf
    return Outcome(probe, worst, evidence)


def fault_text(fault: Fault) -> str:
    """A fault in one sentence with its line."""
    where = f" (line {fault.line})" if fault.line is not None else ""
    kind = f"{fault.exception}: " if fault.exception and fault.kind == "exception" else ""
    return f"{fault.phase}: {kind}{fault.message}{where}"


def refuses_dtype(fault: Fault) -> bool:
    """Whether a fault is an honest refusal: said before any launch, and about the dtype."""
    text = fault.message.lower()
    return (
        fault.kind == "exception"
        and fault.launches == 0
        and fault.exception in REFUSALS
        and fault.phase in ("construct", "forward")
        and any(word in text for word in DTYPE_WORDS)
    )


def askable(results: Results, probes: Sequence[Probe]) -> tuple[list[Probe], str]:
    """Probes that can be charged, and the reason why the others cannot."""
    reason = "no probe of this gate fits the device"
    kept = []
    for probe in results.asked(probes):
        truth = results.truths.get(probe)
        seen = results.observations.get(probe)
        if truth is None or seen is None:
            continue
        if truth.error:
            reason = f"the reference itself cannot take these inputs: {truth.error}"
        elif truth.draws_random:
            reason = "the reference draws random numbers, so its values cannot be compared"
        elif probe.weights in ("replaced", "corrupted") and not seen.weights_matched:
            reason = "the candidate's parameters cannot be matched with the reference's"
        else:
            kept.append(probe)
    return kept, reason


def judge_probes(gate: str, outcomes: Sequence[Outcome], reason: str, claim: str) -> Finding:
    """Turn outcomes into a finding.

    Args:
        gate: the gate's name.
        outcomes: one per charged probe.
        reason: why nothing could be asked, used if there are no outcomes.
        claim: what holds if all passed, as the end of "N probes: …".
    """
    if not outcomes:
        return not_applicable(gate, reason)
    worst = max(outcome.worst_ratio for outcome in outcomes)
    wrong = [outcome.evidence for outcome in outcomes if outcome.evidence is not None]
    count = len(outcomes)
    measured = {"probes": float(count), "worst_ratio": worst}
    if not wrong:
        return passed(gate, f"{count} probes: {claim}", **measured)
    first = wrong[0]
    return failed(
        gate,
        f"{len(wrong)} of {count} probes fail, first {describe(first)}",
        score=1 - len(wrong) / count,
        evidence=tuple(wrong[:EVIDENCE_LIMIT]),
        **measured,
    )


def describe(evidence: Evidence) -> str:
    """One line about a failure."""
    label = evidence.label
    if evidence.configuration:
        label += f", {evidence.configuration}"
    where = f"{label}: {evidence.path}{list(evidence.index) or ''}".rstrip(": ")
    if evidence.note:
        return f"{where}: {evidence.note}"
    text = f"{where} is {evidence.got:.6g}, expected {evidence.expected:.6g}"
    if evidence.allowed is not None:
        text += f" ± {evidence.allowed:.2g}"
    return f"{text} ({evidence.elements} elements)"
