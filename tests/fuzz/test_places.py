"""The list of decoders and the source say the same."""

from __future__ import annotations

from tests.fuzz.decoders import DECODERS
from tests.fuzz.places import NOT_TRIED, TRIED, reads
from tests.house.source import places


def test_every_place_that_takes_bytes_apart_is_tried_or_says_why_not() -> None:
    named = [place for listed in (*TRIED.values(), *NOT_TRIED.values()) for place in listed]
    assert len(named) == len(set(named))
    assert sorted(set(places(reads))) == sorted(named)


def test_every_decoder_that_is_named_is_tried() -> None:
    assert set(TRIED) - {"tensor"} <= set(DECODERS)
