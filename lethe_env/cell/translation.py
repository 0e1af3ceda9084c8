"""From PTX to native code, away from the candidate: a cell asks, the judge answers.

What a cell compiles for itself nobody else may run, so a cell never compiles: it sends PTX to the
judge, who looks in the cache or has a fresh confined process translate that one text.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ..vgpu.cache import ObjectCache
from ..vgpu.cores import default_threads
from ..vgpu.machine import program
from ..vgpu.ptx.model import UnsupportedError
from .conversation import Conversation, LostError, serve
from .protocol import digest_of, receive, send
from .requests import Limits

_CHARACTERS = 300
_TEXTS_KEPT = 256
_PREFIX = str(UnsupportedError(""))


class Client:
    """In the candidate's cell: turns PTX into native code by asking the judge."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def __call__(self, ptx: str) -> bytes:
        """Native code of a kernel.

        Raises:
            UnsupportedError: the virtual GPU does not implement something in it.
            BrokenError: the virtual GPU failed.
        """
        send(self._channel, {"ask": "translate", "ptx": ptx})
        return _native(receive(self._channel))

    def prepare(self, texts: Sequence[str]) -> None:
        """Have the judge translate several kernels at once, for when they are asked for."""
        send(self._channel, {"ask": "prepare", "ptx": list(texts)})
        receive(self._channel)


class BrokenError(Exception):
    """The virtual GPU itself failed at a kernel: nobody knows whether it could have run."""


class Desk:
    """At the judge: translates for cells, from the cache where it can."""

    def __init__(self, converse: Callable[[str], Conversation], limits: Limits) -> None:
        """Prepare.

        Args:
            converse: forks a cell for a task.
            limits: how long one translation may take.
        """
        self._converse = converse
        self._limits = limits
        self._cache = ObjectCache(translate=self._translate)
        self._texts: dict[str, str] = {}

    def clerk(self) -> Clerk:
        """Someone who answers one cell, and remembers what it could not be given."""
        return Clerk(self._native, self._prepare)

    def find(self, digest: str) -> str | None:
        """The PTX of this digest, if it was among the last to be translated for a cell."""
        return self._texts.get(digest)

    def _native(self, ptx: str) -> bytes:
        native = self._cache(ptx)
        self._texts[digest_of(ptx)] = ptx
        while len(self._texts) > _TEXTS_KEPT:
            del self._texts[next(iter(self._texts))]
        return native

    def _prepare(self, texts: Sequence[str]) -> None:
        """Fill the cache; what cannot be translated is found out again when it is asked for.

        No more than can be translated at once: a cell may ask as often for one text as for many.
        """
        threads = default_threads()

        def attempt(ptx: str) -> None:
            with suppress(UnsupportedError, BrokenError):
                self._cache(ptx)

        with ThreadPoolExecutor(threads, "translate") as pool:
            list(pool.map(attempt, list(dict.fromkeys(texts))[:threads]))

    def _translate(self, ptx: str) -> bytes:
        conversation = self._converse("translate")  # one text each: it may have been broken by it
        try:
            question = {"op": "translate", "ptx": ptx}
            return _native(conversation.ask(question, self._limits.compile_seconds))
        except LostError as lost:
            reason = lost.reason or f"the translator ended with status {lost.status}"
            raise BrokenError(reason) from lost
        finally:
            if conversation.open:
                conversation.close()


class Clerk:
    """Answers the questions of one cell; what it says of them is the judge's own knowledge."""

    def __init__(
        self, translate: Callable[[str], bytes], prepare: Callable[[Sequence[str]], None]
    ) -> None:
        self._translate = translate
        self._prepare = prepare
        self._denial: tuple[str, str] | None = None

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a cell's question; never raises for what the cell sent."""
        ptx = question.get("ptx")
        if isinstance(ptx, list):
            self._prepare([text for text in ptx if isinstance(text, str)])
            return {}
        if not isinstance(ptx, str):
            return {"unsupported": "a question without PTX"}
        try:
            return {"native": base64.b64encode(self._translate(ptx)).decode()}
        except UnsupportedError as error:
            self._denial = ("unsupported", str(error))
            return {"unsupported": str(error).removeprefix(_PREFIX)}
        except BrokenError as error:
            self._denial = ("harness", f"the virtual GPU failed at a kernel: {error}")
            return {"broken": str(error)}

    def take_denial(self) -> tuple[str, str] | None:
        """Kind of fault and reason of the last kernel that was not translated, told once."""
        denial, self._denial = self._denial, None
        return denial


class Translator:
    """In a process of its own: translates what the judge sends."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def serve(self) -> None:
        """Answer requests one after the other."""
        serve(self._channel, {"translate": self._translate})

    def _translate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return {"native": base64.b64encode(program.translate(request["ptx"])).decode()}
        except UnsupportedError as error:
            return {"unsupported": str(error).removeprefix(_PREFIX)}
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the translator's
            return {"broken": f"{type(error).__name__}: {error}"[:_CHARACTERS]}


def _native(reply: Mapping[str, Any]) -> bytes:
    if "native" in reply:
        return base64.b64decode(reply["native"])
    if "broken" in reply:
        raise BrokenError(str(reply["broken"]))
    raise UnsupportedError(str(reply.get("unsupported", "no answer")))
