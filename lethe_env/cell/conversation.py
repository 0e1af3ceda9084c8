"""Asking an untrusted process something, and finding out what became of it."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from .protocol import ClosedError, DeadlineError, HarnessError, ProtocolError, receive, send
from .sandbox import Containment

_START_SECONDS = 30.0
_QUESTIONS_BACK = 256


Answer = Callable[[Mapping[str, Any]], dict[str, Any]]


def serve(channel: socket.socket, answers: Mapping[str, Answer]) -> None:
    """Answer questions by their `op` until the other side closes the channel."""
    while True:
        try:
            question = receive(channel)
        except ClosedError:
            return
        send(channel, {**answers[question["op"]](question), "id": question["id"]})


class LostError(Exception):
    """The process is gone, or had to be killed."""

    def __init__(self, kind: str, reason: str, status: int) -> None:
        """Say what became of it.

        Args:
            kind: `timeout`, `protocol`, or `ended` if it went by itself.
            reason: one sentence, empty if it went by itself.
            status: its exit code; negative: the signal that ended it.
        """
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.status = status


class Conversation:
    """One channel to one process: a question, an answer, never two at once."""

    def __init__(self, channel: socket.socket, end: Callable[[], int]) -> None:
        """Wait until the process has confined itself.

        Args:
            channel: the socket to it.
            end: kills the process, waits for it and returns its exit code.

        Raises:
            HarnessError: it did not come up.
        """
        self.open = True
        self.answering_seconds = 0.0
        """Time spent so far on questions that came back."""
        self._channel = channel
        self._end = end
        try:
            ready = receive(channel, time.monotonic() + _START_SECONDS)
        except (ClosedError, DeadlineError, ProtocolError) as error:
            self.close()
            raise HarnessError("a new cell did not come up") from error
        self.containment = Containment.from_json(ready["containment"])

    def ask(
        self, message: Mapping[str, Any], seconds: float, answer: Answer | None = None
    ) -> dict[str, Any]:
        """Send a question and wait for its answer.

        Args:
            message: the question.
            seconds: how long the answer may take, answering questions that come back not counted.
            answer: answers questions that come back; without it none may.

        Raises:
            LostError: there was none, or none that answers this question. The process is gone.
        """
        number = secrets.randbits(48)
        deadline = time.monotonic() + seconds
        try:
            self._tell({**message, "id": number}, seconds)
            reply = receive(self._channel, deadline)
            for _ in range(_QUESTIONS_BACK):
                if answer is None or "ask" not in reply:
                    break
                started = time.monotonic()
                self._tell(answer(reply), seconds)
                spent = time.monotonic() - started
                self.answering_seconds += spent
                deadline += spent
                reply = receive(self._channel, deadline)
        except (DeadlineError, TimeoutError):
            raise self._lost("timeout", f"no answer within {seconds:g} seconds") from None
        except ClosedError:
            raise self._lost("ended", "") from None
        except ProtocolError as error:
            raise self._lost("protocol", f"the answer was malformed: {error}") from None
        if reply.get("id") != number:
            raise self._lost("protocol", "an answer came that nobody asked for")
        return reply

    def close(self) -> int:
        """Kill the process; returns its exit code."""
        self.open = False
        self._channel.close()
        return self._end()

    def _tell(self, message: dict[str, Any], seconds: float) -> None:
        """Send, but wait no longer than that for someone who does not read."""
        self._channel.settimeout(seconds)
        send(self._channel, message)
        self._channel.settimeout(None)

    def _lost(self, kind: str, reason: str) -> LostError:
        return LostError(kind, reason, self.close())
