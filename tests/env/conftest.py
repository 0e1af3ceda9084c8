"""A verifier that reads its verdict off the candidate's first line, for speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.speed import Speed
from lethe_env.gates.verdict import Evidence, Verdict, errored, failed, passed
from lethe_env.service.jobs import Job
from lethe_env.tasks.probe import Probe

GOOD = "# passes\n"
LUCKY = "# fails EXC-01\n"
WORSE = "# fails EXC-01 ORD-02 CMP-01 allclose\n"
VOID = "# void\n"


class FakeVerifier:
    """`# passes`, `# void`, or `# fails GATE …`, with `allclose` among what may fail."""

    def __init__(self) -> None:
        self.batches: list[tuple[Job, ...]] = []
        self.closed = 0

    def grade_many(
        self, jobs: Sequence[Job], progress: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        self.batches.append(tuple(jobs))
        verdicts = []
        for number, job in enumerate(jobs, start=1):
            verdicts.append(fake_verdict(job))
            if progress is not None:
                progress(number, len(jobs))
        return verdicts

    def close(self) -> None:
        self.closed += 1

    @property
    def graded(self) -> int:
        return sum(map(len, self.batches))


def fake_verdict(job: Job) -> Verdict:
    words = job.source.partition("\n")[0].removeprefix("#").split()
    common = {"task": job.task.to_json(), "source": job.source, "time_s": {"probes": 0.25}}
    if words[:1] == ["void"]:
        return Verdict(
            findings=tuple(errored(gate, "the harness broke") for gate in GATE_NAMES), **common
        )
    if words[:1] not in (["passes"], ["fails"]):
        text = "the source defines no ModelNew"
        findings = tuple(failed(gate, f"not judged: {text}") for gate in GATE_NAMES)
        return Verdict(findings=findings, fault=text, allclose=failed("allclose", text), **common)
    evidence = Evidence(probe=Probe(values="nan", seed=424_242).to_json(), label="x", got=3.25)
    findings = tuple(
        failed(gate, "wrong", score=0.5, evidence=(evidence,), worst_ratio=100.0)
        if gate in words
        else passed(gate, "fine", probes=4.0, calls=4.0)
        for gate in GATE_NAMES
    )
    near = failed("allclose", "no") if "allclose" in words else passed("allclose", "yes", trials=5)
    speed = Speed(kind="modelled", target="A100", probe="x", candidate_us=2.0, eager_us=8.0)
    return Verdict(findings=findings, kernel="triton", allclose=near, speed=speed, **common)


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier()
