"""Of what type checkers are told (see ``typed.pyi`` beside this): the names that are there while a program runs."""

from __future__ import annotations

from typing import Any, Optional, TypeVar, Union

T = TypeVar("T")

#: The result of `ActorClass.remote`, for annotations: a handle on which the methods that `method` decorates are typed.
ActorProxy = Union["ActorHandle[T]", type[T]]  # noqa: F821

#: In annotations, where these are evaluated: anything.
ActorOptions = InitOptions = Any
CompiledGraph = Unpack = Optional
