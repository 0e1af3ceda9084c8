"""A system call filter: what a candidate asks of the kernel and must not get.

Filters are classic BPF programs over `struct seccomp_data` (linux/seccomp.h, linux/filter.h).
"""

from __future__ import annotations

import ctypes
import errno
import os

from .linux import MACHINE, PR_SET_SECCOMP, prctl

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_COLUMN = {"x86_64": 0, "aarch64": 1}

# Numbers on x86-64 and aarch64 (asm/unistd_64.h, asm-generic/unistd.h); None: does not exist.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "tkill": (200, 130),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "seccomp": (317, 277),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "open_by_handle_at": (304, 265),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
}
_STARTS_PROCESSES = ("fork", "vfork", "execve", "execveat", "clone", "clone3")
_ONLY_ONESELF = ("kill", "tgkill", "prlimit64")
_CLONE_THREAD = 0x00010000
_X32_BIT = 0x40000000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENT = 0, 4, 16


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


class UnsupportedError(Exception):
    """This machine's system call numbers are not known."""


def install(*, allow_processes: bool) -> None:
    """Filter the calling process and everything it starts, for good.

    Args:
        allow_processes: whether starting processes stays possible (a compiler needs it).

    Raises:
        UnsupportedError: the machine is neither x86-64 nor aarch64.
        OSError: the kernel refused.
    """
    if MACHINE not in _AUDIT_ARCH:
        raise UnsupportedError(f"no system call numbers for {MACHINE}")
    instructions = _program(allow_processes)
    block = (_Instruction * len(instructions))(*(_Instruction(*item) for item in instructions))
    prctl(PR_SET_SECCOMP, 2, _Program(len(instructions), block))


def _program(allow_processes: bool) -> list[tuple[int, int, int, int]]:
    denied = _ERRNO | errno.EPERM
    program = [
        (_LOAD, 0, 0, _OFFSET_ARCH),
        (_EQUAL, 1, 0, _AUDIT_ARCH[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _OFFSET_NUMBER),
    ]
    if MACHINE == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, denied)]
    for name, numbers in _NUMBERS.items():
        number = numbers[_COLUMN[MACHINE]]
        if number is None or (allow_processes and name in _STARTS_PROCESSES):
            continue
        if name == "clone":
            body = [
                (_LOAD, 0, 0, _OFFSET_ARGUMENT),
                (_ANY_BIT, 1, 0, _CLONE_THREAD),
                (_RETURN, 0, 0, denied),
                (_RETURN, 0, 0, _ALLOW),
            ]
        elif name == "clone3":  # its flags lie behind a pointer; without it libc uses clone
            body = [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
        elif name in _ONLY_ONESELF:
            body = _only_oneself(name)
        else:
            body = [(_RETURN, 0, 0, denied)]
        program += [(_EQUAL, 0, len(body), number), *body]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _only_oneself(name: str) -> list[tuple[int, int, int, int]]:
    accepted = [0, os.getpid()] if name == "prlimit64" else [os.getpid()]
    body = [(_LOAD, 0, 0, _OFFSET_ARGUMENT)]
    for index, value in enumerate(accepted):
        body.append((_EQUAL, len(accepted) - index, 0, value))
    return [*body, (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
