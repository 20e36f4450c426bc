"""The session's table of small values, for `mray.experimental.internal_kv`. The node's one thread makes every operation atomic."""

from __future__ import annotations

from typing import Any

#: (namespace or None, key)
_Key = tuple[bytes | None, bytes]


class KeyValues:
    """Bytes by namespace and key."""

    def __init__(self) -> None:
        self._values: dict[_Key, bytes] = {}

    def clear(self) -> None:
        self._values.clear()

    def answer(self, verb: str, namespace: bytes | None, key: bytes, *rest: Any) -> Any:
        """Carry out a request. Raises ValueError for an unknown verb."""
        values = self._values
        if verb == "get":
            return values.get((namespace, key))
        if verb == "put":
            value, overwrite = rest
            existed = (namespace, key) in values
            if overwrite or not existed:
                values[namespace, key] = value
            return existed
        if verb == "delete":
            if not rest[0]:
                return int(values.pop((namespace, key), None) is not None)
            gone = self._with_prefix(namespace, key)
            for each in gone:
                del values[namespace, each]
            return len(gone)
        if verb == "keys":
            return self._with_prefix(namespace, key)
        raise ValueError(f"the table of values has no operation {verb!r}")

    def _with_prefix(self, namespace: bytes | None, prefix: bytes) -> list[bytes]:
        return [key for space, key in self._values if space == namespace and key.startswith(prefix)]
