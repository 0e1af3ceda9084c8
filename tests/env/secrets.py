"""What feedback must not tell: a verdict's hidden parts, and the same verdict with others."""

from __future__ import annotations

import re
from dataclasses import replace

from lethe_env.env.feedback import feedback
from lethe_env.gates.verdict import Evidence, Finding, Verdict

_OPEN = re.compile(
    r"`[^`\n]*`|line \d+|10\^\d+|\d+ %|[A-Z]{3}-0\d|(?:b?float|int)\d+|configuration [\w=, ]*"
)
"""Numbers that feedback may hold: the source's own lines, powers, shares, gates and dtypes."""


def assert_nothing_hidden(verdict: Verdict) -> None:
    """Feedback holds no number of its own, and does not depend on any hidden part."""
    told = feedback(verdict)
    rest = _OPEN.sub("", re.sub(r"asks for more than \d+", "", told))
    assert not re.search(r"\d", rest), told
    assert feedback(scrambled(verdict)) == told


def scrambled(verdict: Verdict) -> Verdict:
    """The same failures of the same kinds, at other seeds, elements, values and sizes."""
    task = {**verdict.task, "family": _moved_family(verdict.task["family"])}
    channels = {
        name: re.sub(r"^.*?: (?=\w+ in line )", "elsewhere: ", text)
        for name, text in verdict.channels.items()
    }
    findings = tuple(_scrambled_finding(finding) for finding in verdict.findings)
    return replace(verdict, task=task, channels=channels, findings=findings)


def _scrambled_finding(finding: Finding) -> Finding:
    evidence = tuple(_scrambled_evidence(item) for item in finding.evidence)
    return replace(finding, reason="another sentence: 8.125", evidence=evidence)


def _scrambled_evidence(evidence: Evidence) -> Evidence:
    probe = dict(evidence.probe)
    if probe:
        probe |= {"seed": probe["seed"] + 77_041, "sizes": _moved(probe["sizes"]), "repeat": 0}
    note = re.sub(r"a repeat gave .*", "a repeat gave 4.5 after 4.25", evidence.note)
    note = re.sub(r"shape .* instead of .*", "shape (7,) instead of (9, 11)", note)
    return replace(
        evidence,
        probe=probe,
        label="another label 12345",
        index=tuple(i + 3 for i in evidence.index),
        got=None if evidence.got is None else 1.0625,
        expected=None if evidence.expected is None else -2.3125,
        allowed=None if evidence.allowed is None else 0.75,
        elements=evidence.elements + 5,
        note=note,
    )


def _moved_family(family: dict) -> dict:
    return {**family, "base": _moved(family["base"]), "long": _moved(family["long"])}


def _moved(sizes: dict[str, int]) -> dict[str, int]:
    return {name: 3 * size + 1 for name, size in sizes.items()}
