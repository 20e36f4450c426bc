"""Private is private: the part of it that ruff's SLF001 cannot say."""

from __future__ import annotations

import ast

from tests.house.source import places, places_in

#: State of the engines in objects that are the user's, refs and handles (`extend-ignore-names` of ruff's flake8-self).
ENGINES_STATE = {"_entry", "_id", "_blueprint", "_token"}
#: The packages that make up the engines, and the one that has the objects.
ENGINES = ("_api.", "_backends.", "_gpu.", "_objects.", "_runtime.")
#: So many places do, on hot paths, where a door would cost a call; others go by `ref.binary()`, `__actor_outline__` ...
MOST = 60


def _touches(node: ast.AST) -> bool:
    """Whether this is state of the engines, in an object other than the one whose method it is in."""
    return isinstance(node, ast.Attribute) and node.attr in ENGINES_STATE and ast.unparse(node.value) not in ("self", "cls")


def test_engines_alone_touch_their_state_in_refs_and_handles() -> None:
    found = list(places(_touches))
    assert [place for place in found if not place.startswith(ENGINES)] == ["_common.ids:BaseID.__eq__"]
    assert len(found) < MOST


def test_such_a_place_is_seen() -> None:
    assert list(places_in(ast.parse("def f(ref):\n    return ref._entry.form"), _touches)) == ["f"]
    assert not list(places_in(ast.parse("def f(self):\n    return self._entry.form"), _touches))
