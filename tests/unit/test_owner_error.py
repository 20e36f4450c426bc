"""Errors about an owner that has ended."""

from __future__ import annotations

import pytest

from mray._runtime.connections import deaths
from mray.exceptions import OwnerDiedError, RaySystemError


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(deaths, "_ends", {})
    monkeypatch.setattr(deaths, "_breaks", {})


def test_an_owner_that_ended_after_its_conversation_broke_is_told_with_the_reason():
    deaths.note_break("8c62cb31", RaySystemError("The handler of BORROWED failed"))
    deaths.note_end("8c62cb31", "the worker", 0, 0)
    error = deaths.owner_error("8c62cb31", b"\x01")
    assert isinstance(error, OwnerDiedError)
    assert "Its owner, process 8c62cb31" in str(error)
    assert "had broken before: System error: The handler of BORROWED failed" in str(error)
    assert "broken" not in str(deaths.owner_error("another"))


def test_only_so_many_breaks_are_remembered(monkeypatch):
    monkeypatch.setattr(deaths, "_MOST_ENDS", 2)
    for process in "abc":
        deaths.note_break(process, RaySystemError(f"broke with {process}"))
    assert "broke with a" not in str(deaths.owner_error("a"))
    assert "broke with c" in str(deaths.owner_error("c"))
