"""The warm server: a process with torch and triton imported, which forks one cell after another.

Run as `python -m lethe_env.cell.server <descriptor>` with one end of a Unix socket pair. It is
started by exec and stays single-threaded, so forking it is safe whatever the judge has running.
When the judge's end of the socket closes, everything is killed.
"""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import linux
from .protocol import ClosedError, receive, send
from .sandbox import Confinement, Containment, confine, leave_namespaces

ARCHITECTURES = (80, 90, 100)
"""What kernels can be compiled for ahead of time."""
_FIRST_WITH_UNITS = 90
"""Its kernels may need the code of units that work on their own."""


@dataclass(frozen=True)
class _Child:
    cell: int
    process: int
    watch: int
    folder: Path


class Server:
    """Forks cells, reports how they ended, and leaves nothing behind."""

    def __init__(self, judge: socket.socket, settings: dict[str, Any]) -> None:
        self._judge = judge
        self._settings = settings
        self._root = Path(settings["folder"])
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(judge, selectors.EVENT_READ)
        linux.prctl(linux.PR_SET_DUMPABLE, 0)
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
        network, ipc, missing = (False, False, ("private network and queues (CUDA device)",))
        if settings["device"] != "cuda":
            network, ipc, missing = leave_namespaces()
        self._containment = Containment(network=network, ipc=ipc, not_enforced=missing)

    def serve(self) -> None:
        """Work until the judge is gone."""
        settings = self._settings
        import_everything(settings["device"], Path(settings["cache"]), settings["architecture"])
        for name in settings["prepare"]:
            pkgutil.resolve_name(name)()
        gc.collect()
        gc.freeze()
        try:
            send(self._judge, {"event": "ready"})
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._judge:
                        self._obey()
                    else:
                        self._bury(key.data)
        except ClosedError:
            return
        finally:
            self._end_all()

    def _obey(self) -> None:
        files: list[int] = []
        order = receive(self._judge, files=files)
        if order["order"] == "open":
            self._open(order["cell"], order["task"], files)
        elif order["order"] == "kill" and order["cell"] in self._children:
            kill_group(self._children[order["cell"]].process)

    def _open(self, cell: int, task: str, files: list[int]) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"cell-{cell}-", dir=self._root))
        process = os.fork()
        if process == 0:
            self._become_cell(task, folder, files)
        for descriptor in files:
            os.close(descriptor)
        watch = os.pidfd_open(process)
        child = _Child(cell, process, watch, folder)
        self._children[cell] = child
        self._selector.register(watch, selectors.EVENT_READ, child)
        send(self._judge, {"event": "opened", "cell": cell})

    def _bury(self, child: _Child) -> None:
        self._selector.unregister(child.watch)
        os.close(child.watch)
        kill_group(child.process)  # before waiting: until then nobody else can have its number
        _, status = os.waitpid(child.process, 0)
        self._sweep()
        shutil.rmtree(child.folder, ignore_errors=True)
        del self._children[child.cell]
        code = os.waitstatus_to_exitcode(status)
        send(self._judge, {"event": "ended", "cell": child.cell, "status": code})

    def _sweep(self) -> None:
        """Kill and wait for whatever a dead cell left behind; it is our child now."""
        known = {child.process for child in self._children.values()}
        while strangers := children_of(os.getpid()) - known:
            for process in strangers:
                kill(process)
                os.waitpid(process, 0)

    def _end_all(self) -> None:
        for child in self._children.values():
            kill_group(child.process)
        for child in self._children.values():
            os.waitpid(child.process, 0)
        self._children = {}
        self._sweep()
        shutil.rmtree(self._root, ignore_errors=True)

    def _become_cell(self, task: str, folder: Path, files: list[int]) -> None:
        status = 70
        try:
            linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            linux.prctl(linux.PR_SET_DUMPABLE, 1)  # else its own /proc entries belong to root
            self._selector.close()
            for child in self._children.values():
                os.close(child.watch)
            self._judge.close()
            run_cell(self._settings, task, folder, files, self._containment)
            status = 0
        except BaseException:  # noqa: BLE001 - a forked child must never return into the server
            traceback.print_exc()
        finally:
            os._exit(status)


def import_everything(device: str, cache: Path, architecture: int) -> None:
    """Import what cells need, so that they find it in their memory.

    Args:
        device: whose cells are to be forked.
        cache: where this process, which runs no candidate, may keep what it compiles.
        architecture: whose code cells run where they have no GPU.
    """
    import torch

    torch.set_num_threads(1)
    from . import agent, assembler, compiler, cuda_runtime  # noqa: F401

    importlib.import_module("triton.experimental.gluon")  # Triton would at the first launch

    if device != "compiler":
        from ..vgpu.operations import operations_of

        operations_of(lambda: torch.zeros(1).relu())  # imports hundreds of modules the first time
    if device in ("compiler", "vgpu"):
        from . import warm_up

        ask_assemblers_for_their_versions()
        ptx = warm_up.compile_to_ptx(architecture)
    if device == "vgpu":
        from ..vgpu.cache import link_shared_code, link_unit_code
        from ..vgpu.machine import program
        from . import translation, virtual  # noqa: F401

        link_shared_code(cache / "objects")
        if architecture >= _FIRST_WITH_UNITS:
            link_unit_code(cache / "objects")
        program.compile(ptx)
    if device != "cuda":
        cuda_runtime.install_runtime(architecture)
        cuda_runtime.install_driver(architecture)


def ask_assemblers_for_their_versions() -> None:
    """Triton keeps the answers; a compiler's cell could not start a process to ask."""
    from triton.backends.nvidia.compiler import get_ptxas, get_ptxas_version

    for architecture in ARCHITECTURES:
        get_ptxas_version(architecture)
        get_ptxas(architecture)


def run_cell(
    settings: dict[str, Any], task: str, folder: Path, files: list[int], containment: Containment
) -> None:
    """Be a cell: confine this process, then serve the judge.

    Args:
        settings: the server's settings, see `workshop.Workshop`.
        task: `candidate`, `compile`, `assemble` or `translate`.
        folder: the private folder.
        files: the channel, and for a candidate the two memories.
        containment: what the server has given up already.
    """
    from .agent import Agent
    from .arena import CellMemory
    from .assembler import Assembler
    from .compiler import Compiler
    from .device import accelerator_files, open_device

    silence(folder)
    channel = socket.socket(fileno=files[0])
    device, limits = settings["device"], settings["limits"]
    architecture = settings["architecture"]
    plan = Confinement(
        folder=folder,
        memory_bytes=limits["memory_bytes"] + limits["input_bytes"] + limits["output_bytes"],
        cpu_seconds=limits["verdict_seconds"],
        file_bytes=limits["file_bytes"],
        open_files=limits["open_files"],
        processes=limits["processes"],
        allow_processes=task == "assemble" or device == "cuda",
        devices=accelerator_files(device),
    )
    if task == "candidate":
        memory = CellMemory(files[1], files[2])
        worker = Agent(channel, memory, open_device(device, channel, architecture), folder)
    elif task == "compile":
        worker = Compiler(channel, folder)
    elif task == "translate":
        from .translation import Translator

        worker = Translator(channel)
    else:
        worker = Assembler(channel)
    send(channel, {"containment": confine(plan, containment).to_json()})
    worker.serve()


def silence(folder: Path) -> None:
    """Drop whatever is printed, read nothing, and call the private folder home."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    os.chdir(folder)
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        os.environ[name] = str(folder)
    os.environ["TRITON_CACHE_DIR"] = str(folder / "triton")
    tempfile.tempdir = str(folder)


def kill(process: int) -> None:
    """Kill one process, if it is still there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def kill_group(leader: int) -> None:
    """Kill a process and its group; cells cannot leave the group they lead."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:  # it has not become a leader yet
        kill(leader)


def children_of(process: int) -> set[int]:
    """Direct children, dead ones included."""
    listing = Path(f"/proc/{process}/task/{process}/children")
    return {int(word) for word in listing.read_text().split()}


def main() -> None:
    """Entry point."""
    judge = socket.socket(fileno=int(sys.argv[1]))
    judge.set_inheritable(False)
    Server(judge, receive(judge)).serve()


if __name__ == "__main__":
    main()
