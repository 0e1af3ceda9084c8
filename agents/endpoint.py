"""A policy behind an OpenAI-compatible endpoint, such as a hosted model, vLLM or llama.cpp."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import chat
from .policy import PolicyError

if TYPE_CHECKING:
    from openai import OpenAI


@dataclass(slots=True, kw_only=True)
class EndpointPolicy:
    """Asks a chat model over HTTP. Needs the `openai` package (`pip install lethe_env[endpoint]`).

    The key is read from `OPENAI_API_KEY`; servers that want none get a placeholder.
    """

    model: str
    base_url: str | None = None
    """For example `http://localhost:8000/v1`; `None` is the client's own default."""
    example: bool = True
    """Show one worked example first."""
    temperature: float = 1.0
    max_tokens: int = 8192
    timeout_s: float = 300.0
    """Longest wait for one answer; after `retries` of them `act` raises."""
    retries: int = 2
    _client: OpenAI | None = field(default=None, repr=False)

    def act(self, observation: Mapping[str, Any]) -> str:
        """The source text in the model's answer, or a comment that says why there is none.

        Raises:
            PolicyError: the endpoint cannot be reached, refuses, or takes too long.
        """
        from openai import OpenAIError

        try:
            reply = self._connected().chat.completions.create(
                model=self.model,
                messages=chat.messages(observation, example=self.example),  # type: ignore[arg-type]
                temperature=self.temperature,
                max_tokens=self.max_tokens,
            )
        except OpenAIError as error:
            where = self.base_url or "the default endpoint"
            raise PolicyError(f"{self.model} at {where}: {error}") from error
        if not reply.choices:
            raise PolicyError(f"{self.model} at {self.base_url}: the reply has no choices")
        return chat.answer(reply.choices[0].message.content or "")

    def _connected(self) -> OpenAI:
        if self._client is None:
            try:
                from openai import OpenAI
            except ImportError as error:
                raise PolicyError("install lethe_env[endpoint] to ask an endpoint") from error
            self._client = OpenAI(
                base_url=self.base_url,
                api_key=os.environ.get("OPENAI_API_KEY", "none"),
                timeout=self.timeout_s,
                max_retries=self.retries,
            )
        return self._client
