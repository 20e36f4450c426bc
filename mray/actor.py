"""Actors: what ``ray.actor`` has."""

from __future__ import annotations

from mray._api.actor import (
    ActorClass,
    ActorClassInheritanceException,
    ActorHandle,
    ActorMethod,
    ActorProxy,
    exit_actor,
    method,
)

__all__ = ["ActorClass", "ActorClassInheritanceException", "ActorHandle", "ActorMethod", "ActorProxy", "exit_actor", "method"]
