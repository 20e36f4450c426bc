"""Loans of a process come back, after every end of its receivers."""

from __future__ import annotations

from typing import Any

from mray._runtime.objects.device_loans import _Loans


class Device:
    """Of a receiver that is dead before its event was opened."""

    index = 0

    def open_event(self, _handle: bytes) -> Any:
        raise RuntimeError("the process is gone")


class Shipment:
    """Notes with which events it has ended."""

    device = Device()

    def __init__(self) -> None:
        self.ended: list[list[Any]] = []

    def end(self, events: Any = ()) -> None:
        self.ended.append(list(events))


def test_a_loan_ends_also_when_the_event_that_ends_it_is_gone() -> None:
    loans, shipment = _Loans(), Shipment()
    told: list[int] = []
    lent: Any = 7, shipment, told.append
    loans.lent[3] = lent
    loans.end(3, 7, b"handle")
    loans.end(3, 7, b"handle")
    assert (shipment.ended, told, loans.spare, loans.lent) == ([[]], [-1], [3], {})
