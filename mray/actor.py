"""Actors: what ``ray.actor`` has."""

from __future__ import annotations

from typing import TypeVar

from mray._api.actor import (
    ActorClass,
    ActorClassInheritanceException,
    ActorHandle,
    ActorMethod,
    exit_actor,
    method,
)

__all__ = ["ActorClass", "ActorClassInheritanceException", "ActorHandle", "ActorMethod", "ActorProxy", "exit_actor", "method"]

T = TypeVar("T")
#: For annotations of programs: a handle to an actor of some class, with the methods of that class.
ActorProxy = ActorHandle | type[T]
