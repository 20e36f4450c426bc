"""Descriptors that are none of ours any more."""

from __future__ import annotations

import errno
import os

import pytest

from mray._common import kept
from mray._ipc.closed_descriptors import ClosedDescriptors
from mray.exceptions import RaySystemError


@pytest.fixture
def told() -> tuple[ClosedDescriptors, list[Exception]]:
    closed_descriptors, errors = ClosedDescriptors(), []
    closed_descriptors.tell = errors.append
    return closed_descriptors, errors


def test_one_that_the_program_has_closed_is_told_once(told: tuple[ClosedDescriptors, list[Exception]]) -> None:
    closed_descriptors, errors = told
    read, write = os.pipe()
    for fd in (read, write):
        os.close(fd)
    for _ in range(2):
        closed_descriptors.look({read: None, write: None})
    assert len(errors) == 1 and isinstance(closed_descriptors.error, RaySystemError)


def test_one_that_another_thread_has_closed_since_is_no_tear(
    told: tuple[ClosedDescriptors, list[Exception]], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_descriptors, errors = told
    read, write = os.pipe()
    watched = {read: None, write: None}

    def fstat(fd: int) -> None:
        del watched[fd]  # as the other thread does, between the look and what it finds
        os.close(fd)
        raise OSError(errno.EBADF, "closed")

    with monkeypatch.context() as patch:
        patch.setattr(kept.os, "fstat", fstat)
        closed_descriptors.look(watched)
    assert not watched and not errors and closed_descriptors.error is None
