"""Resource limits that a process has reached, as error texts that say what to do."""

from __future__ import annotations

import contextlib
import errno
import resource
from collections.abc import Iterator

from mray._common.kept import os
from mray.exceptions import RaySystemError

#: Files, descriptors in flight, or the system's limit.
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ETOOMANYREFS)
#: Descriptors left free for short needs.
SPARE = 16


def is_exhausted(error: OSError) -> bool:
    """Whether this process lacks a descriptor; says nothing about its peer."""
    return error.errno in _NO_DESCRIPTOR


def lacks_descriptor(error: BaseException) -> bool:
    """As `is_exhausted`, where lack of memory is another matter."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def is_passing(error: OSError) -> bool:
    """Whether the shortage may pass by itself."""
    return error.errno == errno.EAGAIN or is_exhausted(error)


def advice(error: OSError) -> str:
    """The exhausted resource and how to get more of it; otherwise the error's text."""
    text = os.strerror(error.errno or 0)
    if error.errno == errno.EMFILE:
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"{text}: process {os.getpid()} may have {soft}. Close some there, or raise the limit (ulimit -n)"
    if error.errno == errno.ETOOMANYREFS:
        return f"{text}: as many are in flight between this user's processes as are allowed. Raise the limit (ulimit -n)"
    if error.errno == errno.ENFILE:
        return f"{text}: raise fs.file-max (sysctl)"
    if error.errno == errno.EFBIG:
        most, _hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if most != resource.RLIM_INFINITY:
            many = f"process {os.getpid()} may create none of more than {most} bytes (RLIMIT_FSIZE), shared memory included"
            return f"{text}: {many}. Raise the limit (ulimit -f)"
    if error.errno == errno.EAGAIN:
        many = "this user, or this container, has as many processes and threads as it may have"
        return f"{text}: {many}. End some, or raise the limit (ulimit -u, or pids.max of the cgroup)"
    return text if error.errno == errno.ENOMEM else str(error)


def exhausted(error: BaseException, what: str) -> OSError:
    """The same error; its text says `what` could not be done, and what to do."""
    assert isinstance(error, OSError)
    return OSError(error.errno, f"{advice(error)}. {what}")


def kept(fd: int) -> int:
    """Return a new descriptor. Raises OSError, and closes it, if it is among the last `SPARE`."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if fd >= soft - SPARE:  # the lowest free number
        os.close(fd)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return fd


@contextlib.contextmanager
def above_limit() -> Iterator[None]:
    """Context manager and decorator: raise the soft limit of descriptors to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        if resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard):  # else the program has changed it
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def explaining(what: str) -> Iterator[None]:
    """Context manager: add `what` and advice to errors that are a lack of descriptors, processes, memory or file size."""
    try:
        yield
    except OSError as error:
        if is_passing(error) or (error.errno == errno.EFBIG and what not in str(error)):
            raise exhausted(error, what) from error
        raise
    except RuntimeError as error:
        if type(error) is RuntimeError and "start new thread" in str(error):
            raise RaySystemError(f"{advice(BlockingIOError(errno.EAGAIN, ''))}. {what}") from error
        raise
