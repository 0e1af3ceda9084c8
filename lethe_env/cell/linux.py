"""The few Linux calls that Python's standard library does not offer."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys

MACHINE = platform.machine()

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

CAP_DAC_READ_SEARCH = 2
_CAPABILITY_VERSION_3 = 0x20080522

CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, name: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0, pointer: ctypes.Array | ctypes.Structure | None = None):
    """Call `prctl(option, value, pointer)`.

    Raises:
        OSError: the kernel refused.
    """
    address = ctypes.c_void_p(ctypes.addressof(pointer) if pointer is not None else None)
    _check(_libc.prctl(option, ctypes.c_ulong(value), address, None, None), f"prctl {option}")


def syscall(number: int, *arguments: int | ctypes.Structure | None) -> int:
    """Call a system call by number; structures are passed by address.

    Raises:
        OSError: the kernel refused.
    """
    words = [
        ctypes.byref(a) if isinstance(a, ctypes.Structure) else ctypes.c_void_p(a)
        for a in arguments
    ]
    return _check(_libc.syscall(ctypes.c_long(number), *words), f"system call {number}")


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent: the process it belongs to. If that is gone already, this one ends at once.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"process {parent}, which started this one, is gone")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _CapabilitySets(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def keep_capabilities(kept: int) -> None:
    """Drop every capability but these.

    Args:
        kept: bit set of capability numbers below 32.

    Raises:
        OSError: the kernel refused.
    """
    header = _CapabilityHeader(_CAPABILITY_VERSION_3, 0)
    current = (_CapabilitySets * 2)()
    _check(_libc.capget(ctypes.byref(header), current), "capget")
    left = current[0].permitted & kept
    sets = (_CapabilitySets * 2)(_CapabilitySets(left, left, 0), _CapabilitySets(0, 0, 0))
    _check(_libc.capset(ctypes.byref(header), sets), "capset")


def unshare(flags: int) -> None:
    """Leave namespaces.

    Raises:
        OSError: the kernel refused.
    """
    _check(_libc.unshare(flags), "unshare")
