"""How a variable tells who asks for an attribute, by the caller's instruction. Needs no interpreter."""

from __future__ import annotations

import functools
import operator
import sys
from typing import Any

import pytest

from mray.proxy._lookup import wants_answer


class Probe:
    """Every attribute is whether the caller is told at once."""

    def __getattr__(self, name: str) -> Any:
        return wants_answer(1)


def test_an_attribute_in_the_user_s_text_is_lazy() -> None:
    probe = Probe()
    assert probe.name is False
    assert [probe.name for _ in range(3)] == [False] * 3
    assert (lambda: probe.name)() is False
    assert eval("probe.name") is False


def test_a_method_call_in_the_user_s_text_is_lazy() -> None:
    seen = []

    class Calls:
        def __getattr__(self, name: str) -> Any:
            seen.append(wants_answer(1))
            return lambda *args, **kwargs: None

    calls = Calls()
    calls.method(1)
    calls.method(1, key=2)
    calls.method(*[1])
    assert seen == [False] * 3


def test_functions_in_c_are_told_at_once() -> None:
    probe = Probe()
    seen = []

    class Asked:
        def __getattr__(self, name: str) -> Any:
            seen.append(wants_answer(1))
            raise AttributeError(name)

    assert getattr(probe, "name") is True  # noqa: B009
    assert getattr(probe, "name", None) is True
    assert operator.attrgetter("name")(probe) is True
    assert list(map(functools.partial(getattr, probe), ["name"])) == [True]
    assert not hasattr(Asked(), "name")
    assert seen == [True]


def test_instructions_that_were_specialised_say_the_same() -> None:
    probe = Probe()

    def both(probe: Probe) -> tuple[Any, Any]:
        return probe.name, getattr(probe, "name")  # noqa: B009

    assert {both(probe) for _ in range(5000)} == {(False, True)}


def test_instructions_that_are_traced_say_the_same() -> None:
    probe = Probe()
    before = sys.gettrace()

    def traced() -> tuple[Any, Any]:
        return probe.name, getattr(probe, "name")  # noqa: B009

    sys.settrace(lambda *_: lambda *_: None)
    try:
        found = traced()
    finally:
        sys.settrace(before)
    assert found == (False, True)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring came with Python 3.12")
def test_instructions_that_are_monitored_say_the_same() -> None:
    probe = Probe()

    def monitored() -> tuple[Any, Any]:
        return probe.name, getattr(probe, "name")  # noqa: B009

    monitoring = sys.monitoring
    monitoring.use_tool_id(4, "test")
    monitoring.set_events(4, monitoring.events.INSTRUCTION | monitoring.events.LINE | monitoring.events.CALL)
    try:
        found = monitored()
    finally:
        monitoring.set_events(4, 0)
        monitoring.free_tool_id(4)
    assert found == (False, True)
