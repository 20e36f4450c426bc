"""The words that processes say to each other."""

from __future__ import annotations

from collections import Counter

from mray._common import messages


def test_each_code_means_one_thing() -> None:
    forms = {"PICKLED", "PACKED", "SEGMENT", "FAILED", "TENSORS", "NOTE_STREAM"}
    codes = {name: value for name, value in vars(messages).items() if name.isupper() and isinstance(value, int) and name not in forms}
    twice = {value for value, count in Counter(codes.values()).items() if count > 1}
    assert {name for name, value in codes.items() if value in twice} == set()
