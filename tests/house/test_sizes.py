"""The package does not grow: lines of code and statements of each room are bounded by a record that only falls."""

from __future__ import annotations

import ast

from tests.house import sizes
from tests.house.sizes import SLACK, Size


def test_no_room_is_larger_than_its_record_nor_much_smaller() -> None:
    assert not list(sizes.faults(sizes.rooms(), sizes.recorded()))


def test_blanks_comments_and_docstrings_are_no_code() -> None:
    source = '"""Of the module.\n\nTwo paragraphs.\n"""\n\n# Comment\nx = 1  # one\n\ndef f():\n    "Of it."\n    return """\n    text"""\n'
    assert sizes.size(ast.parse(source), source) == Size(lines=4, statements=5)


def test_growth_is_told_and_so_is_a_record_that_is_out_of_date() -> None:
    record = {"_ipc": Size(100, 50), "cli": Size(100, 50)}
    assert not list(sizes.faults({"_ipc": Size(100, 50), "cli": Size(100 - SLACK, 50)}, record))
    (grown,) = sizes.faults({"_ipc": Size(100, 51), "cli": Size(100, 50)}, record)
    assert grown.startswith("_ipc has grown: 51 statements")
    (shrunk,) = sizes.faults({"_ipc": Size(99 - SLACK, 50), "cli": Size(100, 50)}, record)
    assert shrunk.startswith("_ipc has shrunk: 84 lines")


def test_a_room_that_is_not_on_record_has_grown_and_one_that_is_gone_has_shrunk() -> None:
    told = list(sizes.faults({"new": Size(2, 1)}, {"old": Size(100, 50)}))
    assert [line.split(":")[0] for line in told] == ["new has grown", "new has grown", "old has shrunk", "old has shrunk"]


def test_recording_lowers_the_record_and_never_raises_it() -> None:
    record = {"_ipc": Size(100, 50), "cli": Size(100, 50), "gone": Size(9, 5)}
    assert sizes.lower({"_ipc": Size(90, 60), "cli": Size(110, 40)}, record) == {"_ipc": Size(90, 50), "cli": Size(100, 40)}
