"""Streams that are lent are used again, those of edges and of communicators each by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mray._common.settings import NullDevices
from mray._device.lending import lend_stream, return_stream
from mray.testing.null import NullDevice, NullPlatform


@pytest.fixture
def devices() -> Iterator[list[NullDevice]]:
    platform = NullPlatform(NullDevices(2, scope=f"lending{os.getpid()}"))
    yield list(platform.devices)
    platform.close()


def test_the_one_returned_last_is_lent_first_and_only_on_its_device(devices: list[NullDevice]) -> None:
    one, other = lend_stream(devices[0]), lend_stream(devices[0])
    assert one != other
    return_stream(devices[0], other)
    return_stream(devices[0], one)
    assert lend_stream(devices[1]) not in (one, other)
    assert [lend_stream(devices[0]), lend_stream(devices[0])] == [one, other]


def test_a_stream_that_a_communicator_has_returned_is_no_edge_s(devices: list[NullDevice]) -> None:
    returned = lend_stream(devices[0], "communicators")
    return_stream(devices[0], returned, "communicators")
    assert lend_stream(devices[0]) != returned
    assert lend_stream(devices[0], "communicators") == returned
