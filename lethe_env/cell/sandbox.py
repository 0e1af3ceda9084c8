"""Hardening: what a freshly forked process gives up before it sees a candidate."""

from __future__ import annotations

import os
import resource
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import landlock, linux, seccomp

_SYSTEM_PATHS = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/sys"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version"),
    *("/proc/filesystems", "/proc/devices", "/proc/driver", "/proc/sys/vm", "/proc/sys/kernel"),
    *("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/nsswitch.conf"),
    *("/etc/passwd", "/etc/group"),
)
_HARMLESS_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, kw_only=True)
class Containment:
    """What confines the candidates on this machine."""

    no_new_privileges: bool = False
    system_calls: bool = False
    """Whether the system call filter is in force."""
    file_access: int = 0
    """Landlock version in force; 0: none, files are protected by their permissions alone."""
    network: bool = False
    """Whether cells have a network namespace of their own, with nothing in it."""
    ipc: bool = False
    """Whether System V and POSIX queues are in a namespace of their own."""
    not_enforced: tuple[str, ...] = ()
    """What this kernel could not enforce, in words."""

    def to_json(self) -> dict[str, Any]:
        """JSON-ready mapping, read back by `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Containment:
        """Rebuild from `to_json`."""
        return cls(**{**data, "not_enforced": tuple(data["not_enforced"])})


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """How one process is to be confined."""

    folder: Path
    """The private folder: the only place it may write to."""
    memory_bytes: int
    """On top of what it uses now."""
    cpu_seconds: float
    file_bytes: int
    open_files: int
    processes: int
    allow_processes: bool = False
    """A compiler must be able to start the assembler."""
    devices: tuple[Path, ...] = ()
    """Device files of the accelerator. If any, private data is limited, not address space:
    CUDA reserves far more address space than it uses."""


def leave_namespaces() -> tuple[bool, bool, tuple[str, ...]]:
    """Give the calling process its own empty network and its own queues.

    Returns:
        Whether the network and the queues are private, and what could not be done.
    """
    flags = linux.CLONE_NEWNET | linux.CLONE_NEWIPC
    user, group = os.getuid(), os.getgid()
    if user != 0:
        flags |= linux.CLONE_NEWUSER
    try:
        linux.unshare(flags)
    except OSError as error:
        return False, False, (f"private network and queues ({error.strerror})",)
    if user != 0:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    return True, True, ()


def confine(plan: Confinement, server: Containment) -> Containment:
    """Give up everything a candidate does not need. There is no way back.

    Args:
        plan: how.
        server: what the server has already given up for all its children.

    Returns:
        What is now in force.
    """
    missing = list(server.not_enforced)

    def attempt(what: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (OSError, ValueError, seccomp.UnsupportedError) as error:
            missing.append(f"{what} ({error})")
        return None

    os.umask(0o077)
    attempt("first victim when memory runs out", _volunteer_for_the_memory_killer)
    _limit_resources(plan, attempt, missing)
    # root keeps reading packages that belong to someone else; the file rules still apply
    attempt("dropped capabilities", lambda: linux.keep_capabilities(1 << linux.CAP_DAC_READ_SEARCH))
    privileges = attempt(
        "no new privileges", lambda: linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1) or True
    )
    files = attempt("file access rules", lambda: _restrict_files(plan))
    if files:
        missing.extend(files[1])
    calls = attempt(
        "system call filter",
        lambda: seccomp.install(allow_processes=plan.allow_processes) or True,
    )
    return Containment(
        no_new_privileges=bool(privileges),
        system_calls=bool(calls),
        file_access=files[0] if files else 0,
        network=server.network,
        ipc=server.ipc,
        not_enforced=tuple(missing),
    )


def readable_paths() -> list[Path]:
    """Where Python, its packages and the system's libraries lie."""
    own = Path(__file__).resolve().parents[2]
    paths = [Path(folder) for folder in _SYSTEM_PATHS]
    paths += [Path(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    paths += [Path(path) for path in sysconfig.get_paths().values()]
    paths += [Path(entry) for entry in sys.path if entry]
    return [path for path in dict.fromkeys(paths) if path.resolve() != own]


def _volunteer_for_the_memory_killer() -> None:
    Path("/proc/self/oom_score_adj").write_text("1000")


def _restrict_files(plan: Confinement) -> tuple[int, tuple[str, ...]]:
    devices = [*map(Path, _HARMLESS_DEVICES), *plan.devices]
    return landlock.restrict(readable_paths(), [plan.folder], devices)


def _limit_resources(
    plan: Confinement, attempt: Callable[[str, Callable[[], Any]], Any], missing: list[str]
) -> None:
    def limit(what: str, kind: int, value: int) -> None:
        attempt(what, lambda: resource.setrlimit(kind, (value, value)))

    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    if plan.devices:
        limit("private memory limit", resource.RLIMIT_DATA, used_bytes + plan.memory_bytes)
    else:
        limit("address space limit", resource.RLIMIT_AS, used_bytes + plan.memory_bytes)
    limit("processor time limit", resource.RLIMIT_CPU, max(1, int(plan.cpu_seconds)))
    limit("file size limit", resource.RLIMIT_FSIZE, plan.file_bytes)
    limit("open file limit", resource.RLIMIT_NOFILE, plan.open_files)
    limit("no core dumps", resource.RLIMIT_CORE, 0)
    if not plan.allow_processes:
        return
    if os.getuid() == 0:
        missing.append("process count limit (the kernel exempts root)")
    else:
        limit("process count limit", resource.RLIMIT_NPROC, _tasks_of_user() + plan.processes)


def _tasks_of_user() -> int:
    """Processes and threads of this user, which is what the kernel's limit counts."""
    user, count = os.getuid(), 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    count += sum(1 for _ in (entry / "task").iterdir())
            except OSError:  # it ended meanwhile
                continue
    return count
