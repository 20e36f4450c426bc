"""The run-time names of what type checkers read in ``typed.pyi``."""

from __future__ import annotations

from typing import Any, Optional, TypeVar, Union

T = TypeVar("T")

#: The result of `ActorClass.remote`, for annotations: a handle on which the methods that `method` decorates are typed.
ActorProxy = Union["ActorHandle[T]", type[T]]  # noqa: F821

#: In annotations that are evaluated: anything.
ActorOptions = InitOptions = Any
CompiledGraph = Unpack = Optional
