"""Jobs and verdicts as JSON. A verdict travels without what the asker knows: task and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..cell.policy import SOURCE_CHARACTERS
from ..gates.kernelbench_rule import Rule
from ..gates.verdict import Verdict
from ..tasks.model import Task
from .jobs import Job

SIGN_OF_LIFE = {"alive": True}
"""What a broker says while it has nothing else to say."""


def job_to_json(job: Job) -> dict[str, Any]:
    """A JSON-ready mapping; of a source too long to be judged, enough to refuse it."""
    rule = None if job.rule is None else job.rule.to_json()
    source = job.source[: SOURCE_CHARACTERS + 1]
    return {"task": job.task.to_json(), "source": source, "rule": rule}


def job_from_json(data: Mapping[str, Any]) -> Job:
    """Rebuild from `job_to_json`.

    Raises:
        TaskError: the task contradicts itself.
        KeyError, TypeError, ValueError: the mapping is not of that form.
    """
    if not isinstance(data, Mapping):
        raise TypeError(f"a job is a mapping, not {type(data).__name__}")
    rule = data.get("rule")
    asked = None if rule is None else Rule(**rule)
    return Job(Task.from_json(data["task"]), str(data["source"]), asked)


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    """A JSON-ready mapping without task and source."""
    data = verdict.to_json()
    del data["task"], data["source"]
    return data


def verdict_from_json(job: Job, data: Mapping[str, Any]) -> Verdict:
    """Rebuild the verdict about a job from `verdict_to_json`.

    Raises:
        ValueError, KeyError, TypeError: the mapping is not of that form.
    """
    return Verdict.from_json({**data, "task": job.task.to_json(), "source": job.source})


def addressed(verdict: Verdict, job: Job) -> Verdict:
    """The verdict as the answer to an equal job: with that one's task and source."""
    return replace(verdict, task=job.task.to_json(), source=job.source)
