"""Which class is which backend, in this process."""

from __future__ import annotations

from mray.util.collective.collective_group._shared_memory import SharedMemoryGroup
from mray.util.collective.collective_group.base_collective_group import BaseGroup
from mray.util.collective.collective_group.nccl_collective_group import NCCLGroup
from mray.util.collective.types import Backend

__all__ = ["register_collective_backend"]

_classes: dict[str, type[BaseGroup]] = {"GLOO": SharedMemoryGroup, "NCCL": NCCLGroup}


def register_collective_backend(name: str, group_cls: type[BaseGroup]) -> None:
    """Make a backend known by this name (in any case) in this process; every process of a group must do so.

    Raises TypeError when the class is no `BaseGroup`, ValueError when the name is taken.
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
    """Whether there is a backend of that name, usable or not."""
    return _canonical(name) in _classes


def check_backend(name: str) -> bool:
    """Whether there is a backend of that name that can be used here."""
    found = _classes.get(_canonical(name))
    return found is not None and found.check_backend_availability()


def why_unavailable(name: str) -> str:
    """The advice where `check_backend` fails."""
    return _classes[_canonical(name)].why_unavailable()


def backend_class(name: str) -> type[BaseGroup]:
    """The class of a backend. Raises ValueError when there is none of that name, RuntimeError when it cannot be used here."""
    canonical = _canonical(name)
    found = _classes.get(canonical)
    if found is None:
        raise ValueError(f"Backend {canonical} not registered")
    if not found.check_backend_availability():
        raise RuntimeError(f"Backend {canonical} is not available. {found.why_unavailable()}")
    return found
