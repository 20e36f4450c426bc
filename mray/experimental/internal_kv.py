"""A table of small values that all processes of the session share, under the names Ray's libraries use.

Each call is one round trip to the node, and atomic. Keys, values and namespaces are bytes, or str, encoded as UTF-8. RaySystemError
without a session.
"""

from __future__ import annotations

from typing import Any

from mray._api.current import backend_if_started, started_backend

__all__ = [
    "_internal_kv_del",
    "_internal_kv_exists",
    "_internal_kv_get",
    "_internal_kv_initialized",
    "_internal_kv_list",
    "_internal_kv_put",
]

Text = str | bytes


def _internal_kv_initialized() -> bool:
    """Whether a session, and so a table, exists."""
    return backend_if_started() is not None


def _internal_kv_get(key: Text, *, namespace: Text | None = None) -> bytes | None:
    """The value of a key; None if it has none."""
    value: bytes | None = _ask("get", namespace, key)
    return value


def _internal_kv_exists(key: Text, *, namespace: Text | None = None) -> bool:
    """Whether a key has a value."""
    return _ask("get", namespace, key) is not None


def _internal_kv_put(key: Text, value: Text, overwrite: bool = True, *, namespace: Text | None = None) -> bool:
    """Set the value of a key; an existing value is replaced only with `overwrite`. Returns whether it had one."""
    existed: bool = _ask("put", namespace, key, _bytes(value), bool(overwrite))
    return existed


def _internal_kv_del(key: Text, *, del_by_prefix: bool = False, namespace: Text | None = None) -> int:
    """Delete a key, or all keys that begin with it. Returns the number of deleted keys."""
    count: int = _ask("delete", namespace, key, del_by_prefix)
    return count


def _internal_kv_list(prefix: Text, *, namespace: Text | None = None) -> list[bytes]:
    """The keys that begin with `prefix`."""
    keys: list[bytes] = _ask("keys", namespace, prefix)
    return keys


def _ask(verb: str, namespace: Text | None, key: Text, *rest: Any) -> Any:
    return started_backend().query("key_values", verb, None if namespace is None else _bytes(namespace), _bytes(key), *rest)


def _bytes(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    assert isinstance(text, bytes), f"a key, value or namespace is str or bytes, not {type(text)}"
    return text
