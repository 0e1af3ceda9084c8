"""The broker: one pool for every process of one user on one node.

Run as `python -m lethe_env.service.broker <socket>` with its orders on standard input; the command
returns as soon as the broker listens in the background. Messages are those of `cell.protocol`:
four bytes of length, then a JSON object.

    {"op": "grade", "id": 7, "job": …}   answered, in any order, by {"id": 7, "verdict": …}
    {"op": "status"}                     answered by {"status": …}
    {"op": "stop"}                       ends the broker

Every few seconds a client is sent {"alive": true}, so that it need not wait for one that hangs.
A client that goes away takes its waiting jobs with it, unless another client wants them too.
Without clients the broker ends itself after some time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..cell.protocol import MESSAGE_BYTES
from ..tasks.model import TaskError
from .options import GraderOptions
from .pool import Pool
from .rendezvous import locked, peer
from .wire import SIGN_OF_LIFE, job_from_json, verdict_to_json

log = logging.getLogger(__name__)

SIGN_OF_LIFE_SECONDS = 10.0
_LENGTH_BYTES = 4


class Broker:
    """Serves one pool on one socket."""

    def __init__(self, pool: Pool, path: Path, idle_seconds: float) -> None:
        """Serve nobody yet.

        Args:
            pool: what judges.
            path: of the socket; removed at the end.
            idle_seconds: time without clients after which the broker ends.
        """
        self._pool = pool
        self._path = path
        self._idle_seconds = idle_seconds
        self._sessions: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._started = self._last_seen = time.monotonic()
        self._ended = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Work until told to stop or nobody has come for a while."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        server = await asyncio.start_unix_server(self._meet, sock=listener)
        while not self._ended.is_set():
            now = time.monotonic()
            if self._sessions:
                self._last_seen = now
            rest_s = self._last_seen + self._idle_seconds - now
            if rest_s <= 0:
                break
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), rest_s)
        with locked(self._path):  # until it is gone, nobody starts a successor
            self._path.unlink(missing_ok=True)
            server.close()
        for writer in self._sessions.values():
            writer.transport.abort()
        await asyncio.gather(*self._sessions)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it goes away."""
        _, user = peer(writer.get_extra_info("socket"))
        if user != os.getuid():
            log.warning("user %d was turned away", user)
            writer.close()
            return
        session = asyncio.current_task()
        if session is None:
            raise RuntimeError("a session is a task of its own")
        self._sessions[session] = writer
        answers: set[asyncio.Task[None]] = {asyncio.create_task(_live(writer))}
        try:
            while (message := await _read(reader)) is not None:
                answer = asyncio.create_task(self._answer(message, writer))
                answers.add(answer)
                answer.add_done_callback(answers.discard)
        finally:
            for answer in answers:
                answer.cancel()
            del self._sessions[session]
            self._last_seen = time.monotonic()
            writer.close()

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        match message.get("op"):
            case "grade":
                reply = await self._grade(message)
            case "status":
                reply = {"status": self._status()}
            case "stop":
                self._ended.set()
                return
            case unknown:
                reply = {"error": f"nothing is known of {unknown!r}"}
        with suppress(ConnectionError):  # it went away; `_meet` notices
            writer.write(_packed(reply))
            await writer.drain()

    async def _grade(self, message: dict[str, Any]) -> dict[str, Any]:
        number = message.get("id")
        try:
            job = job_from_json(message["job"])
        except (TaskError, KeyError, TypeError, ValueError) as error:
            return {"id": number, "error": f"not a job: {type(error).__name__}: {error}"}
        try:
            verdict = await asyncio.wrap_future(self._pool.submit(job))
            return {"id": number, "verdict": verdict_to_json(verdict)}
        except Exception as error:  # the client waits for an answer
            log.exception("the broker broke on task %s", job.task.id)
            return {"id": number, "error": f"the broker broke: {type(error).__name__}: {error}"}

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "device": self._pool.options.device,
            "workers_limit": self._pool.workers,
            "clients": len(self._sessions) - 1,  # whoever asks is none
            "up_s": round(time.monotonic() - self._started, 1),
            **self._pool.counts().to_json(),
        }


async def _live(writer: asyncio.StreamWriter) -> None:
    """Tell a client now and then that somebody is there."""
    with suppress(ConnectionError):
        while True:
            await asyncio.sleep(SIGN_OF_LIFE_SECONDS)
            writer.write(_packed(SIGN_OF_LIFE))
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> dict[str, Any] | None:
    """The next message; `None` if the client is gone or does not keep to the form."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "little")
        if length > MESSAGE_BYTES:
            raise ValueError(f"a message of {length} bytes was announced")
        message = json.loads(await reader.readexactly(length))
        if not isinstance(message, dict):
            raise ValueError("a message was no JSON object")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    except (ValueError, RecursionError) as error:
        log.warning("a client was sent away: %s", error)
        return None
    return message


def _packed(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, allow_nan=False).encode()
    return len(body).to_bytes(_LENGTH_BYTES, "little") + body


def main() -> None:
    """Entry point: listen, leave the foreground, serve."""
    logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
    path = Path(sys.argv[1])
    orders = json.load(sys.stdin)
    options = GraderOptions.from_json(orders["options"])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        if os.fork():
            os._exit(0)  # whoever started it need not wait for it ever again
        with Pool(options, orders["workers"]) as pool:
            asyncio.run(Broker(pool, path, orders["idle_seconds"]).serve(listener))


if __name__ == "__main__":
    main()
