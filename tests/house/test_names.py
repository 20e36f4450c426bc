"""The public names: Ray's, each exported once by a module, each really there."""

from __future__ import annotations

import importlib
import pkgutil
import typing
from collections import Counter
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest

import mray
from tests.house.ray_names import OWN, RAY

#: Packages of mray that Ray does not have, or that are programs, or imported for their effect.
NOT_RAYS = {
    "mray.as_ray",
    "mray.cli",
    "mray.examples",
    "mray.libraries",
    "mray.mypy_plugin",
    "mray.proxy",
    "mray.__main__",
    "mray.pytest_plugin",
    "mray.testing",
}


def public_modules() -> list[str]:
    """Every module without an underscore in its path, except those that are no counterpart of a module of Ray."""
    found = ["mray", *(module.name for module in pkgutil.walk_packages(mray.__path__, "mray."))]
    return [name for name in found if "._" not in name and not any(name == other or name.startswith(f"{other}.") for other in NOT_RAYS)]


def exported(module: ModuleType) -> list[str]:
    """The names in ``__all__``, or else the classes and functions that the module itself defines."""
    own = [name for name, value in vars(module).items() if name[0] != "_" and getattr(value, "__module__", None) == module.__name__]
    names: list[str] = getattr(module, "__all__", own)
    return names


@pytest.mark.parametrize("name", public_modules())
def test_exports_exist_and_stand_once(name: str) -> None:
    module = importlib.import_module(name)
    assert not [export for export, count in Counter(exported(module)).items() if count > 1]
    assert not [export for export in exported(module) if not hasattr(module, export)]


@pytest.mark.parametrize("name", public_modules())
def test_exports_are_names_of_ray(name: str) -> None:
    module = importlib.import_module(name)
    assert not set(exported(module)) - set(RAY.get(name, "").split()) - set(OWN.get(name, {}))


@pytest.mark.parametrize("name", public_modules())
def test_annotations_of_exports_can_be_evaluated(name: str) -> None:
    """As frameworks do that make schemas, command lines or injected arguments of functions and classes."""
    module = importlib.import_module(name)
    for export in exported(module):
        for annotated in _annotated(getattr(module, export)):
            assert isinstance(typing.get_type_hints(annotated), dict)


def _annotated(value: Any) -> Iterator[Any]:
    """A function of mray's, or a class and the functions that it has, also of its bases."""
    found = [value]
    for base in value.__mro__ if isinstance(value, type) else ():
        found += [base, *vars(base).values()]
    for each in found:
        plain = each.fget if isinstance(each, property) else getattr(each, "__func__", each)
        if isinstance(plain, (type, FunctionType)) and plain.__module__.startswith("mray."):
            yield plain


def test_dir_of_mray_offers_every_export() -> None:
    assert set(exported(mray)) <= set(dir(mray))
