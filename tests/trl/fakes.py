"""A verifier that reads its verdict from the source."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from lethe_env.gates.battery import GATE_NAMES
from lethe_env.gates.speed import Speed
from lethe_env.gates.verdict import Verdict, errored, failed, passed
from lethe_env.service.jobs import Job

AS_EAGER = Speed(kind="modelled", target="A100", probe="x", candidate_us=1.0, eager_us=1.0)
TASK = "softmax/softmax"
MODEL = "class ModelNew:\n    '{}'\n"


def source(*words: str) -> str:
    """Source of which the fake verifier makes a verdict: names of gates that fail, `allclose` if
    that rejects, `void`, `plain` for no kernel."""
    return MODEL.format(" ".join(words))


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


class FakeVerifier:
    """Reads from the words in a source what to say of it."""

    def __init__(self) -> None:
        self.batches: list[list[Job]] = []
        self.broken = False
        self.void = False
        self.gate = threading.Event()
        self.gate.set()

    @property
    def judged(self) -> list[str]:
        return [job.source for batch in self.batches for job in batch]

    def grade_many(self, jobs: Sequence[Job], progress=None) -> list[Verdict]:
        self.batches.append(list(jobs))
        self.gate.wait(10)
        if self.broken:
            raise OSError("the broker is gone")
        return [self._verdict(job) for job in jobs]

    def close(self) -> None:
        pass

    def _verdict(self, job: Job) -> Verdict:
        text = job.source
        ratio = {"worst_ratio": 100.0, "calls": 3.0}
        findings = [
            failed(gate, "wrong", score=0.5, **ratio)
            if gate in text
            else passed(gate, "fine", calls=3.0)
            for gate in GATE_NAMES
        ]
        if self.void or "void" in text:
            findings = [errored(gate, "broke") for gate in GATE_NAMES]
        rejected = failed("allclose", "differs", largest_difference=1.0)
        return Verdict(
            task=job.task.to_json(),
            source=job.source,
            findings=tuple(findings),
            kernel="none" if "plain" in text else "triton",
            allclose=rejected if "allclose" in text else passed("allclose", "ok", trials=5.0),
            speed=AS_EAGER,
        )
