"""The backends of collective groups, by name."""

from __future__ import annotations

from mray.util.collective.collective_group._shared_memory import SharedMemoryGroup
from mray.util.collective.collective_group.base_collective_group import BaseGroup
from mray.util.collective.collective_group.nccl_collective_group import NCCLGroup
from mray.util.collective.types import Backend

__all__ = ["register_collective_backend"]

_classes: dict[str, type[BaseGroup]] = {"GLOO": SharedMemoryGroup, "NCCL": NCCLGroup}


def register_collective_backend(name: str, group_cls: type[BaseGroup]) -> None:
    """Register a backend in this process, under a name in any case; every process of a group must do so.

    TypeError when the class is not a `BaseGroup`, ValueError when the name is taken.
    """
    name = name.upper()
    if not issubclass(group_cls, BaseGroup):
        raise TypeError(f"{group_cls} is not a subclass of BaseGroup")
    if name in _classes:
        raise ValueError(f"Backend {name} already registered")
    _classes[name] = group_cls
    if not hasattr(Backend, name):
        setattr(Backend, name, name)


def _canonical(name: str) -> str:
    return "GLOO" if name.upper() == "TORCH_GLOO" else name.upper()


def is_registered(name: str) -> bool:
    """Whether a backend has that name."""
    return _canonical(name) in _classes


def check_backend(name: str) -> bool:
    """Whether a backend has that name and can be used here."""
    found = _classes.get(_canonical(name))
    return found is not None and found.check_backend_availability()


def why_unavailable(name: str) -> str:
    """The advice where `check_backend` fails."""
    return _classes[_canonical(name)].why_unavailable()


def backend_class(name: str) -> type[BaseGroup]:
    """The class of a backend. ValueError for an unknown name, RuntimeError when the backend cannot be used here."""
    canonical = _canonical(name)
    found = _classes.get(canonical)
    if found is None:
        raise ValueError(f"Backend {canonical} not registered")
    if not found.check_backend_availability():
        raise RuntimeError(f"Backend {canonical} is not available. {found.why_unavailable()}")
    return found
