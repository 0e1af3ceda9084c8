"""A worker: one process with one warm grader, which takes one job after another.

Run as `python -m lethe_env.service.worker <parent> <descriptor>` with one end of a Unix socket
pair. It is started by exec, so it does not matter what its parent has running: CUDA, threads, a
model server. It ends with its parent, however that ends.
"""

from __future__ import annotations

import os
import socket
import sys

from ..cell import linux
from ..cell.protocol import ClosedError, receive, send
from ..grader import Grader
from .options import GraderOptions
from .wire import job_from_json, verdict_to_json


def environment(grader: Grader) -> dict[str, str]:
    """Where this worker judges: the device, and on CUDA which hardware that is."""
    found = {"device": grader.device_name, "machine": os.uname().machine}
    if grader.device_name == "cuda":
        found["hardware"] = ",".join(sorted(_gpu_models())) or "unknown"
    return found


def _gpu_models() -> set[str]:
    """Models by the driver's word, since asking CUDA would take memory on the device."""
    from pathlib import Path

    models = set()
    for path in Path("/proc/driver/nvidia/gpus").glob("*/information"):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "Model":
                models.add(value.strip())
    return models


def main() -> None:
    """Entry point."""
    parent, descriptor = (int(argument) for argument in sys.argv[1:3])
    linux.die_with(parent)
    os.dup2(2, 1)  # a task's reference may print, and results are not on standard output
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    options = GraderOptions.from_json(receive(channel))
    with options.grader() as grader:
        send(channel, {"environment": environment(grader)})
        while True:
            try:
                job = job_from_json(receive(channel))
                (verdict,) = grader.grade_many([job])
                send(channel, verdict_to_json(verdict))
            except ClosedError:
                return


if __name__ == "__main__":
    main()
