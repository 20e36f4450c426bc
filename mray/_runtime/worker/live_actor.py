"""`LiveActor`: the actor that lives in this worker, as the parts that run its calls share it."""

from __future__ import annotations

from typing import Any


class LiveActor:
    """The actor of a worker, if it is one. Set by the executor as it becomes one, and as the actor goes."""

    def __init__(self) -> None:
        self.instance: Any = None
        #: Its class, whose methods its calls are of. (The instance may take on another one.)
        self.cls: type[Any] = object
        #: The beginnings of the names of its methods: with its class's name, and with module and qualified name.
        self.prefix = ""
        self.qualified_prefix = ""
        #: Its repr at its beginning, for listings.
        self.repr = ""
        #: Whether calls go to concurrency groups, whose names are checked there.
        self.has_groups = False

    def repr_now(self) -> str:
        """The instance's own repr, for texts."""
        if self.instance is None:
            return self.repr
        try:
            return repr(self.instance)
        except Exception:
            return object.__repr__(self.instance)
