"""Feedback: what a policy is told about a verdict.

A verdict names seeds, elements and expected values so that a person can repeat a failure. A policy
that learned them could answer from memory. So a line of feedback is built from fields with a fixed
vocabulary (gate, input family, dtype, layout, source line) and never from a finding's own text;
what is not recognised is left out. Two verdicts that differ only in seeds, sizes, indices and
values have the same feedback.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from ..gates.comparison import EVIDENCE_LIMIT
from ..gates.verdict import FATAL_CHANNELS, Evidence, Finding, Status, Verdict
from .fault_text import describe_fault, read_fault, source_line
from .prompt import CLAIMS

KINDS = {
    "own": "the reference's own inputs",
    "normal": "normal values",
    "log_uniform": "values over many magnitudes",
    "ties": "repeated values",
    "constant": "constant values",
    "sparse": "mostly zeros",
    "zeros": "zeros",
    "huge": "huge values",
    "tiny": "tiny values",
    "subnormal": "subnormal values",
    "signed_zero": "signed zeros",
    "offset": "a large mean",
    "alternating": "large values of alternating sign",
    "stagnating": "terms too small to move a half-precision total",
    "cancelling_last": "terms that cancel along the last dimension",
    "cancelling_inner": "terms that cancel along the last but one dimension",
    "cancelling_first": "terms that cancel along the first dimension",
    "nan": "some NaN",
    "positive_infinity": "some +inf",
    "negative_infinity": "some -inf",
    "non_finite": "many NaN and infinities",
    "nan_rows": "rows of NaN",
    "infinite_rows": "rows of -inf",
}
"""Input families in words."""

_LAYOUTS = {
    "transposed": "transposed inputs",
    "offset": "inputs that start inside a larger buffer",
    "expanded": "expanded inputs",
}
_WEIGHTS = {
    "noised": "weights with noise",
    "replaced": "weights loaded after construction",
    "corrupted": "weights with NaN and infinities",
}
_DTYPES = ("float16", "bfloat16", "float32", "float64")

_NOTES = (
    (r"missing", "an output is missing"),
    (r"shape .* instead of .*", "an output has the wrong shape"),
    (r"the reference returns no such output", "an output too many"),
    (r"moved off the device of the inputs", "an output was moved off the inputs' device"),
    (r"shape or dtype differs between repeats", "shape or dtype differs between equal calls"),
    (r"bytes differ between repeats.*|a repeat gave .*", "equal calls return different bytes"),
    (r"shares memory with .*", "an output is memory of an input, a parameter or an earlier output"),
    (r"the call changed its input", "the call changed its input"),
    (r"no gradient came back.*", "no gradient came back: the graph is severed"),
    (r"−0 where the reference has \+0", "a zero has the wrong sign"),
)
_CONFIGURATION = re.compile(r"(\w+) with ((?:\w+=\d+(?:, |$))+)")
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_DTYPE_NOTE = re.compile(r"dtype (\w+) instead of (\w+)")
_EXCESS = re.compile(
    r"\d+ (bytes of shared memory|tensor-memory columns|registers a thread|threads a block), "
    r"the limit is (\d+)"
)

_TRACES = {
    "crash": "the call took its process down",
    "asynchronous": "an asynchronous unit was misused",
    "aliasing": "an output is memory of an input, a parameter or an earlier output",
    "out_of_bounds": "memory outside a tensor was accessed",
    "device": "an output was moved to the host",
    "uninitialised_read": "memory that nobody had written was read",
    "race": "the same memory is reached from two sides in no certain order",
}
_TRACE_LINE = re.compile(r": \w+ in line (\d+): \d+ threads ")

_ROLES = {
    "decoy": "The output is right without your kernels: they do not do the work.",
    "none": "No Triton kernel was launched.",
    "triton": "",
}


def feedback(verdict: Verdict) -> str:
    """What went wrong, without anything from which hidden inputs or answers could be rebuilt.

    Named are the failed gates, the kind of input, exceptions with their source line, and the lines
    at which the sanitizers saw a fault. There is always at least one line.
    """
    if verdict.errored:
        return "The verifier broke down; this attempt was not judged."
    if verdict.fault:
        return f"Not judged: {describe_fault(read_fault(verdict.fault), verdict.source)}"
    lines = [_headline(verdict)]
    for finding in verdict.findings:
        if finding.status is Status.FAIL:
            lines.extend(_gate_lines(finding, verdict))
    lines.extend(_trace_lines(verdict))
    if _ROLES[verdict.kernel]:
        lines.append(_ROLES[verdict.kernel])
    return "\n".join(lines)


def _headline(verdict: Verdict) -> str:
    if verdict.passed:
        return "Accepted: nothing speaks against this kernel."
    return f"Rejected by {', '.join(verdict.rejected_by) or 'no gate, but none passed'}."


def _gate_lines(finding: Finding, verdict: Verdict) -> Iterator[str]:
    claim = CLAIMS.get(finding.gate, "")
    yield f"{finding.gate} asks that {claim}." if claim else f"{finding.gate}:"
    yield f"  {_extent(finding)}"
    seen = dict.fromkeys(_evidence_line(evidence, verdict) for evidence in finding.evidence)
    for line in list(seen)[:EVIDENCE_LIMIT]:
        yield f"  * {line}"


def _extent(finding: Finding) -> str:
    passed = f"{100 * min(max(finding.score, 0.0), 1.0):.0f} % of its checks passed"
    ratio = finding.measured.get("worst_ratio", math.inf)
    if not math.isfinite(ratio) or ratio <= 1:
        return passed
    power = math.ceil(math.log10(ratio))
    return f"{passed}, the error is up to 10^{power} times what is allowed"


def _evidence_line(evidence: Evidence, verdict: Verdict) -> str:
    what = _what(evidence, verdict.source)
    kind = _kind(evidence, verdict)
    return f"{kind}: {what}" if kind else what


def _what(evidence: Evidence, source: str) -> str:
    note = evidence.note
    if not note:
        wrong = "gradients are" if evidence.path.startswith("grad ") else "values are"
        return f"{wrong} outside the bound"
    for pattern, words in _NOTES:
        if re.fullmatch(pattern, note, re.DOTALL):
            return words
    dtype = _DTYPE_NOTE.fullmatch(note)
    if dtype is not None:
        return f"an output has the wrong dtype ({dtype[2]} is wanted)"
    excess = _EXCESS.fullmatch(note)
    if excess is not None:
        return f"a kernel asks for more than {excess[2]} {excess[1]}"
    if not evidence.probe:
        return f"a kernel does not compile: {describe_fault(read_fault(note), source)}"
    fault = read_fault(note)
    return describe_fault(fault, source) if fault.phase else "the call went wrong"


def _kind(evidence: Evidence, verdict: Verdict) -> str:
    """The kind of input: family, dtype, how the shape relates to the task's, layout, weights."""
    probe = evidence.probe
    if not probe:
        return ""
    dtype = probe.get("dtype")
    parts = [
        KINDS.get(str(probe.get("values")), "inputs"),
        dtype if dtype in _DTYPES else "",
        _shape(dict(probe.get("sizes") or {}), verdict),
        _LAYOUTS.get(str(probe.get("layout")), ""),
        _WEIGHTS.get(str(probe.get("weights")), ""),
        _configurations(evidence.configuration, verdict.source),
    ]
    return ", ".join(filter(None, parts))


def _configurations(text: str, source: str) -> str:
    """Autotune configurations as the source lists them: names from it, sizes that are its own."""
    if not text:
        return ""
    names = {*re.findall(r"[^\W\d]\w*", source), *_OPTIONS}
    literals = set(re.findall(r"\d+", source))
    told = []
    for part in text.split("; "):
        found = _CONFIGURATION.fullmatch(part)
        settings = [pair.split("=") for pair in found[2].split(", ")] if found else []
        own = all(n in names and (v in literals or _is_usual(n, int(v))) for n, v in settings)
        told.append(f"configuration {found[2]}" if found and own else "one of its configurations")
    return ", ".join(dict.fromkeys(told))


def _is_usual(name: str, value: int) -> bool:
    return value <= 8 if name in _OPTIONS else value.bit_count() == 1 and value <= 1024


def _shape(sizes: dict[str, int], verdict: Verdict) -> str:
    family = verdict.task.get("family") or {}
    if not sizes:
        return "the reference's own shape"
    if sizes == dict(family.get("base") or {}):
        return "a small shape"
    if sizes == dict(family.get("long") or {}):
        return "the shape with the longest reduction"
    return "another shape"


def _trace_lines(verdict: Verdict) -> Iterator[str]:
    for name in FATAL_CHANNELS:
        text = verdict.channels.get(name)
        if text is None:
            continue
        found = _TRACE_LINE.search(text)
        where = source_line(verdict.source, int(found[1])) if found else ""
        yield f"{name}: {_TRACES[name]}{f', at {where}' if where else ''}"
