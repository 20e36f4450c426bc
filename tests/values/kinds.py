"""All kinds of values, by family and name: those of packages that are not installed are left out.

The oracle is cloudpickle: `wanted` describes its copy of a value of the kind.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import pickle
from typing import Any, NamedTuple

import cloudpickle

from tests.values.description import Words, describe
from tests.values.kinds_of_python import Kinds

FAMILIES: dict[str, Kinds] = {}
for _module in ("python", "numpy", "torch", "tables"):
    with contextlib.suppress(ModuleNotFoundError):
        FAMILIES.update(importlib.import_module(f"tests.values.kinds_of_{_module}").FAMILIES)


def make(family: str, name: str) -> Any:
    """A new value of this kind."""
    return FAMILIES[family][name]()


class Wanted(NamedTuple):
    """The right results of sending a value of a kind."""

    #: Any of these is right: as cloudpickle has it, and as it was made.
    words: tuple[Words, ...]
    #: Or an error is, where it is sent or where it arrives.
    error: bool


@functools.cache
def wanted(family: str, name: str, messages: int = 1) -> Wanted:
    """The descriptions of cloudpickle's copy and of the original; an error is right where cloudpickle has one.

    Of a value that travels in so many `messages` it is the copy of the copy.
    """
    value, words, error = make(family, name), [], False
    for _ in range(messages):
        try:
            pickled = cloudpickle.dumps(value, 5)
        except Exception:
            return Wanted((), error=True)
        try:
            value = pickle.loads(pickled)
        except Exception:
            error = True
            break
    if not error:
        words.append(describe(value))
    with contextlib.suppress(Exception):  # of what is made in a way that does not pickle, such as a mapped file's
        words.append(describe(make(family, name)))
    return Wanted(tuple(words), error)
