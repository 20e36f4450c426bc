"""Descriptors that are none of ours any more."""

from __future__ import annotations

import errno
import os

import pytest

from mray._ipc.torn import Tear
from mray.exceptions import RaySystemError


@pytest.fixture
def told() -> tuple[Tear, list[Exception]]:
    tear, errors = Tear(), []
    tear.tell = errors.append
    return tear, errors


def test_one_that_the_program_has_closed_is_told_once(told: tuple[Tear, list[Exception]]) -> None:
    tear, errors = told
    read, write = os.pipe()
    for fd in (read, write):
        os.close(fd)
    for _ in range(2):
        tear.look({read: None, write: None})
    assert len(errors) == 1 and isinstance(tear.error, RaySystemError)


def test_one_that_another_thread_has_closed_since_is_no_tear(told: tuple[Tear, list[Exception]], monkeypatch: pytest.MonkeyPatch) -> None:
    tear, errors = told
    read, write = os.pipe()
    watched = {read: None, write: None}

    def fstat(fd: int) -> None:
        del watched[fd]  # as the other thread does, between the look and what it finds
        os.close(fd)
        raise OSError(errno.EBADF, "closed")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fstat)
        tear.look(watched)
    assert not watched and not errors and tear.error is None
