"""Landlock: which paths a candidate may read, and the one folder it may write to.

System calls and structures follow linux/landlock.h; what the running kernel does not know is left
out, and the version that was used is returned.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from .linux import syscall

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every architecture

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_VERSION_1 = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_TCP = 3
_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 3


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The kernel's Landlock version.

    Raises:
        OSError: there is none.
    """
    return syscall(_CREATE, None, 0, 1)


def restrict(
    readable: Iterable[Path], writable: Iterable[Path], devices: Iterable[Path]
) -> tuple[int, tuple[str, ...]]:
    """Restrict the calling process and everything it starts, for good.

    Needs no-new-privileges. Paths that do not exist are left out.

    Args:
        readable: folders and files that may be read and executed.
        writable: folders below which everything is allowed.
        devices: device files that may be read, written and controlled.

    Returns:
        The version in force, and what it cannot restrict.

    Raises:
        OSError: the kernel has no Landlock or refused.
    """
    known = version()
    handled = _ALL_OF_VERSION_1
    handled |= _REFER if known >= 2 else 0
    handled |= _TRUNCATE if known >= 3 else 0
    handled |= _IOCTL_DEVICE if known >= 5 else 0
    network = _TCP if known >= 4 else 0
    scoped = _SCOPE_ABSTRACT_SOCKET_AND_SIGNAL if known >= 6 else 0
    size_bytes = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = syscall(_CREATE, _Ruleset(handled, network, scoped), size_bytes, 0)
    try:
        for paths, allowed in (
            (readable, _READ),
            (writable, handled),
            (devices, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEVICE),
        ):
            for path in paths:
                _add(ruleset, path, allowed & handled)
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return known, _unrestricted(known)


def _unrestricted(known: int) -> tuple[str, ...]:
    return tuple(
        what
        for since, what in (
            (3, "truncating files (Landlock 3)"),
            (5, "device control calls (Landlock 5)"),
            (6, "signals and abstract sockets (Landlock 6)"),
        )
        if known < since
    )


def _add(ruleset: int, path: Path, allowed: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            allowed &= _ON_FILES
        syscall(_ADD_RULE, ruleset, 1, _PathRule(allowed, descriptor), 0)
    finally:
        os.close(descriptor)
