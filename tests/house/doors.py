"""The names that rooms beside the kernel take from private modules of others, past the doors."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from tests.house.rooms import guest_of
from tests.house.source import mray_imports, nodes

#: Private packages that every room may use.
DOORS = ("_api", "_common", "_inside")


def deep_names(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Of each room beside the kernel, the names that it imports from private modules other than its own and the doors."""
    found: dict[str, set[str]] = {}
    for path, tree in trees.items():
        room = guest_of(path.removeprefix("mray/"))
        if room is not None and room not in DOORS:
            found.setdefault(room, set()).update(name for name in mray_imports(tree) if _is_deep(name, room))
    return found


def _is_deep(name: str, room: str) -> bool:
    parts = name.split(".")[1:]
    is_private = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return is_private and parts[0] not in DOORS and guest_of("/".join(parts)) != room


def exports(trees: Iterable[ast.Module]) -> set[str]:
    """The names in the ``__all__`` of modules."""
    found: set[str] = set()
    for tree in trees:
        for node in nodes(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                found.update(ast.literal_eval(node.value))
    return found
