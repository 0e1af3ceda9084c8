"""Policies as the evaluation sees them: asked under a deadline, whatever they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..reward import extract_source
from .prompt import turn_prompt

Observation = Mapping[str, Any]


@runtime_checkable
class Policy(Protocol):
    """Anything that turns an observation into source text.

    A policy may also have `act_many(observations) -> sources`, which is then asked a whole batch
    at a time.
    """

    def act(self, observation: Observation) -> str:
        """The source text to submit."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What a policy did instead of answering."""

    status: str
    """`policy_error` or `policy_timeout`."""
    reason: str


def as_policy(kernels: Any) -> Policy | None:
    """A policy as it is, a text-generation pipeline as a policy, `None` for anything else."""
    if isinstance(kernels, Policy):
        return kernels
    if callable(kernels) and getattr(kernels, "task", None) == "text-generation":
        return PipelinePolicy(kernels)
    return None


def ask(policy: Policy, observations: Sequence[Observation], seconds: float) -> list[Any]:
    """One answer or `Failure` for each observation; never raises, never waits for ever.

    A thread that does not come back is left behind: Python cannot end it.

    Args:
        policy: whom to ask.
        observations: what to answer, each a dict of its own.
        seconds: deadline of one call of `act`; a call of `act_many` has as many times more.
    """
    together = getattr(policy, "act_many", None)
    if callable(together) and len(observations) > 1:
        answers = _call(together, list(observations), seconds * len(observations))
        if isinstance(answers, Failure) and answers.status == "policy_timeout":
            return [answers] * len(observations)
        if isinstance(answers, list | tuple) and len(answers) == len(observations):
            return list(answers)
    return [_call(policy.act, observation, seconds) for observation in observations]


def _call(function: Callable[[Any], Any], argument: Any, seconds: float) -> Any:
    answers: list[Any] = []

    def answer() -> None:
        try:
            answers.append(function(argument))
        except BaseException as error:  # noqa: BLE001 - whatever a policy raises is its row
            answers.append(Failure("policy_error", _sentence(error)))

    thread = threading.Thread(target=answer, daemon=True, name="lethe-policy")
    thread.start()
    thread.join(seconds)
    if not answers:
        return Failure("policy_timeout", f"the policy did not answer within {seconds:g} s")
    return answers[0]


def _sentence(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - an exception's own text can raise
        text = ""
    text = text.encode("utf-8", "replace").decode()
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


class PipelinePolicy:
    """A Hugging Face text-generation pipeline as a policy.

    Prompts go in as chats where the tokenizer has a chat template. Length and sampling are those
    of the pipeline's generation config.
    """

    def __init__(self, pipeline: Callable[..., Any]) -> None:
        self._pipeline = pipeline
        tokenizer = getattr(pipeline, "tokenizer", None)
        self._chat = bool(getattr(tokenizer, "chat_template", None))

    def act(self, observation: Observation) -> str:
        """Generate and take the source text out of the answer, empty if it has none."""
        return self.act_many([observation])[0]

    def act_many(self, observations: Sequence[Observation]) -> list[str]:
        """The same for a batch."""
        prompts = [self._prompt(observation) for observation in observations]
        generated = self._pipeline(prompts, return_full_text=False)
        return [_source(answer) for answer in generated]

    def _prompt(self, observation: Observation) -> str | list[dict[str, str]]:
        text = turn_prompt(observation)
        return [{"role": "user", "content": text}] if self._chat else text


def _source(answer: Any) -> str:
    first = answer[0] if isinstance(answer, list) else answer
    return extract_source(first["generated_text"]).source or ""
