"""Actors: what ``ray.actor`` has."""

from __future__ import annotations

from mray._api.actor import (
    ActorClass,
    ActorClassInheritanceException,
    ActorHandle,
    ActorMethod,
    exit_actor,
    method,
)

__all__ = ["ActorClass", "ActorClassInheritanceException", "ActorHandle", "ActorMethod", "exit_actor", "method"]
