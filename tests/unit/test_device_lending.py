"""Streams that are lent are used again, single ones and pairs each by themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from mray._common.settings import NullDevices
from mray._device.lending import lend_stream, lend_streams, return_stream, return_streams
from mray.testing.null import NullDevice, NullPlatform


@pytest.fixture
def devices() -> Iterator[list[NullDevice]]:
    platform = NullPlatform(NullDevices(2, scope=f"lending{os.getpid()}"))
    yield list(platform.devices)
    platform.close()


KINDS = {"streams": (lend_stream, return_stream), "pairs": (lend_streams, return_streams)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_returned_last_is_lent_first_and_only_on_its_device(devices: list[NullDevice], kind: str) -> None:
    lend, give_back = KINDS[kind]
    one, other = lend(devices[0]), lend(devices[0])
    assert one != other
    give_back(devices[0], other)
    give_back(devices[0], one)
    assert lend(devices[1]) not in (one, other)
    assert [lend(devices[0]), lend(devices[0])] == [one, other]


def test_a_pair_that_was_returned_is_no_single_stream(devices: list[NullDevice]) -> None:
    return_streams(devices[0], lend_streams(devices[0]))
    single = lend_stream(devices[0])
    devices[0].streams.get(single)
    return_stream(devices[0], single)
    assert all(devices[0].streams.get(each) for each in lend_streams(devices[0]))
