"""Of what type checkers are told (see ``typed.pyi`` beside this): the one name that programs use while they run."""

from __future__ import annotations

from typing import TypeVar, Union

T = TypeVar("T")

#: The result of `ActorClass.remote`, for annotations: a handle on which the methods that `method` decorates are typed.
ActorProxy = Union["ActorHandle[T]", type[T]]  # noqa: F821
