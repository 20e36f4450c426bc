"""`LiveActor`: the actor of this worker, shared by the parts that run its calls."""

from __future__ import annotations

from typing import Any


class LiveActor:
    def __init__(self) -> None:
        self.instance: Any = None
        #: The class of its methods. (User code may change the instance's class.)
        self.cls: type[Any] = object
        #: The class's name; its module and qualified name.
        self.prefix = ""
        self.qualified_prefix = ""
        #: Its repr after its constructor, for listings.
        self.repr = ""
        #: Whether calls go to concurrency groups, whose names are checked there.
        self.has_groups = False

    def repr_now(self) -> str:
        if self.instance is None:
            return self.repr
        try:
            return repr(self.instance)
        except Exception:
            return object.__repr__(self.instance)
