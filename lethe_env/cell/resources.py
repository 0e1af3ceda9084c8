"""Registers, shared memory and tensor memory of kernels, compiled ahead of time in a cell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from ..tasks.observation import KernelResources, Launch
from ..vgpu.store import Store, cache_root
from .conversation import Conversation, LostError
from .fork_server import ForkServer
from .requests import Limits

TARGETS = ("sm_80", "sm_90", "sm_100")
_FIGURES = ("registers", "spill_bytes", "shared_bytes", "tensor_memory_columns", "threads")
_FORMAT = 3

Find = Callable[[Launch, str], str | None]
"""From a launch and a target to the PTX that ran, if it did there."""


class CompilerPool:
    """Compiles kernels of candidates in confined processes; results are kept on disk."""

    def __init__(
        self, server: ForkServer, limits: Limits, find: Find = lambda launch, target: None
    ) -> None:
        """Prepare.

        Args:
            server: forks compilers and assemblers.
            limits: how long each may take.
            find: the PTX of a launch on a target, if it is known; any other is compiled.
        """
        self._server = server
        self._limits = limits
        self._find = find

    def resources(
        self, source: str, launches: Sequence[Launch], targets: Sequence[str]
    ) -> tuple[KernelResources, ...]:
        """See `Workshop.resources`; a kernel that only its maker could compile is left out."""
        for target in targets:
            if target not in TARGETS:
                raise ValueError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
        results: dict[str, KernelResources | None] = {}
        store = Store(cache_root() / "resources")
        session = _Session(self._server, self._limits, source, self._find)
        try:
            for launch, target in _pairs(launches, targets):
                key = _key(source, launch, target)
                if key not in results:
                    results[key] = _one(store, session, launch, target, key)
        finally:
            session.close()
        found = (results[_key(source, *pair)] for pair in _pairs(launches, targets))
        return tuple(item for item in found if item is not None)

    def close(self) -> None:
        """End the server."""
        self._server.close()


class _Session:
    """One candidate, loaded once, and an assembler beside it; renewed after a crash."""

    def __init__(self, server: ForkServer, limits: Limits, source: str, find: Find) -> None:
        self._server = server
        self._limits = limits
        self._source = source
        self._find = find
        self._open: dict[str, Conversation] = {}

    def compile(self, launch: Launch, target: str) -> dict[str, Any]:
        ran, ptx = launch.compiled, self._find(launch, target)
        if ran is not None and ptx is not None:
            compiled = asdict(ran) | {"ptx": ptx}
        else:
            compiled = self._from_source(launch, target)
        ptx = compiled.pop("ptx", None)
        if "error" in compiled or "unknown" in compiled or not isinstance(ptx, str):
            return compiled
        assembler, _ = self._conversation("assemble")
        question = {"op": "assemble", "ptx": ptx, "target": target}
        return compiled | assembler.ask(question, self._limits.compile_seconds)

    def _from_source(self, launch: Launch, target: str) -> dict[str, Any]:
        conversation, fresh = self._conversation("compile")
        if fresh:
            load = {"op": "load", "source": self._source}
            reply = conversation.ask(load, self._limits.load_seconds)
            if "error" in reply:
                conversation.close()
                return reply
        question = {"op": "compile", "launch": _description(launch), "target": target}
        return conversation.ask(question, self._limits.compile_seconds)

    def close(self) -> None:
        for conversation in self._open.values():
            if conversation.open:
                conversation.close()

    def _conversation(self, task: str) -> tuple[Conversation, bool]:
        current = self._open.get(task)
        if current is not None and current.open:
            return current, False
        self._open[task] = self._server.converse(task)
        return self._open[task], True


def _one(
    store: Store, session: _Session, launch: Launch, target: str, key: str
) -> KernelResources | None:
    reply = _decoded(store.get(key))
    if reply is None:
        try:
            reply = session.compile(launch, target)
            store.put(key, _encoded(reply))
        except LostError as lost:  # says nothing certain about the kernel, so it is not kept
            reason = lost.reason or f"the compiler ended with status {lost.status}"
            reply = {"error": reason}
    return None if "unknown" in reply else _resources(launch, target, reply)


def _pairs(launches: Sequence[Launch], targets: Sequence[str]) -> Iterator[tuple[Launch, str]]:
    for launch in launches:
        for target in targets:
            yield launch, target


def _description(launch: Launch) -> dict[str, Any]:
    """The launch without what does not enter the compile."""
    content = asdict(launch)
    del content["grid"], content["tuned"], content["compiled"]
    return content


def _key(source: str, launch: Launch, target: str) -> str:
    parts = [_FORMAT, source, _description(launch), target, version("triton")]
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _resources(launch: Launch, target: str, reply: dict[str, Any]) -> KernelResources:
    options = dict(launch.options)
    error = reply.get("error")
    figures = {name: reply.get(name) for name in _FIGURES}
    if error is None and any(type(value) is not int for value in figures.values()):
        error = "the compiler's answer was malformed"
    if error is not None:
        figures = {"error": str(error)[:1000]}
    return KernelResources(
        kernel=launch.kernel, target=target, options=options, choice=launch.choice, **figures
    )


def _decoded(content: bytes | None) -> dict[str, Any] | None:
    reply = None if content is None else json.loads(content)
    return reply if isinstance(reply, dict) else None


def _encoded(reply: dict[str, Any]) -> bytes:
    kept = {name: reply[name] for name in ("error", "unknown", *_FIGURES) if name in reply}
    return json.dumps(kept).encode()
