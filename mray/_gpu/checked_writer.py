"""A writer that checks the user's promises about the tensors of an edge before it writes.

For device edges; edges through communicators check by themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mray._api.dag_scan import ObjectScanner
from mray._inside.transports import ChannelWriter, Failed, WrappedWriter
from mray._inside.transports import communicator_edge as edge


class CheckedWriter(WrappedWriter):
    """A value that breaks a promise is a failure that ends the graph. `types`: the classes of tensors."""

    __slots__ = ("_failure", "_rules", "_scanner")

    def __init__(
        self, inner: ChannelWriter, rules: edge.EdgeRules, types: tuple[type, ...], failure: Callable[[BaseException], bytes]
    ) -> None:
        super().__init__(inner)
        self._rules = rules
        self._scanner = ObjectScanner(types)
        self._failure = failure

    def try_write(self, value: Any) -> bool:
        return self._inner.try_write(self._broken(value) or value)

    def _broken(self, value: Any) -> Failed | None:
        if value.__class__ is Failed or not self._inner.has_room():
            return None
        try:
            self._rules.check(value, self._scanner.find_nodes(value))
        except ValueError as error:
            return Failed.fatally(self._failure(error))
        finally:
            self._scanner.clear()
        return None
