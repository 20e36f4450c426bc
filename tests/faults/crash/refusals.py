"""System calls that fail: what this process, and whatever it starts from now on, asks the kernel for is refused, with an error of choice.

A filter of seccomp, which nobody can take away again. It stands for what only the whole machine can run out of.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

#: Numbers of the system calls that open something, on x86-64 and on aarch64.
OPENING = {
    "openat": (257, 56),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "accept4": (288, 242),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "pipe2": (293, 59),
    "memfd_create": (319, 279),
    "pidfd_open": (434, 434),
    "dup": (32, 23),
}
_MACHINES = ("x86_64", "aarch64")
#: Number of the system call seccomp itself.
_SECCOMP = (317, 277)
_SET_MODE_FILTER, _OF_ALL_THREADS, _NO_NEW_PRIVILEGES = 1, 1, 38
#: Instructions of the kernel's packet filter, and what they return.
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_INSTRUCTION = struct.Struct("HBBI")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse(names: Iterable[str], number: int) -> None:
    """From now on these system calls fail with this errno, in all threads. OSError where the kernel has no such filters."""
    machine = _MACHINES.index(os.uname().machine)
    calls = [OPENING[name][machine] for name in names]
    code = [_INSTRUCTION.pack(_LOAD, 0, 0, 0)]
    code += [_INSTRUCTION.pack(_JUMP_IF_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    code += [_INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW), _INSTRUCTION.pack(_RETURN, 0, 0, _REFUSE | number)]
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(code), b"".join(code))
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        _SECCOMP[machine], _SET_MODE_FILTER, _OF_ALL_THREADS, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "there are no filters of system calls")
