"""The view that `inspect`, `help` and completion have of remote functions, actor classes, methods and options."""

from __future__ import annotations

import ast
import gc
import inspect
import pydoc
import re
import weakref
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import mray
from mray._api.actor import ActorMethod, make_handle
from mray._api.remote_function import RemoteFunction
from mray._common.options import ACTOR_OPTIONS, METHOD_OPTIONS, TASK_OPTIONS


@mray.remote
def scale(values: list[float], factor: float = 2.0, *, name: str = "x") -> list[float]:
    """Multiplies."""
    return [each * factor for each in values]


@mray.remote
class Counter:
    """Counts."""

    def __init__(self, start: int = 7) -> None:
        """Begins somewhere."""

    def add(self, amount: int, *, self_: bool = False) -> int:
        """Adds."""
        return amount

    @staticmethod
    def of(text: str) -> int:
        """Parses."""
        return int(text)

    def bare(self):
        pass


@pytest.fixture
def handle() -> Any:
    return make_handle(Counter._blueprint, b"x" * 16, None, {})


def shown(what: Any) -> tuple[str, str | None]:
    return str(inspect.signature(what)), inspect.getdoc(what)


def test_a_remote_function_is_shown_as_the_users(handle: Any) -> None:
    expected = (
        "(values: 'list[float]', factor: 'float' = 2.0, *, name: 'str' = 'x') -> 'list[float]'",
        "Multiplies.",
    )
    assert shown(scale) == shown(scale.remote) == expected


def test_an_actor_class_is_shown_with_its_constructor(handle: Any) -> None:
    assert shown(Counter)[0] == shown(Counter.remote)[0] == "(start: 'int' = 7)" + ("" if "->" not in shown(Counter)[0] else " -> 'None'")
    assert shown(Counter)[1] == "Counts."
    assert shown(Counter.remote)[1] == "Counts.\n\nBegins somewhere."


def test_help_of_a_function_or_class_has_the_users_alone() -> None:
    shown = pydoc.render_doc(scale, renderer=pydoc.plaintext).splitlines()
    assert shown[2:] == ["scale(values: 'list[float]', factor: 'float' = 2.0, *, name: 'str' = 'x') -> 'list[float]'", "    Multiplies."]
    shown = pydoc.render_doc(Counter, renderer=pydoc.plaintext).splitlines()
    assert shown[2] == "class Counter(builtins.object)"
    assert not [line for line in shown if "options" in line or "RemoteFunction" in line]


def test_methods_of_handles_are_shown_as_the_users(handle: Any) -> None:
    for _ in range(2):  # the first look makes what the second finds
        # What is not evaluated by whoever looks says it, too.
        assert type(handle).add.__doc__ == "add(amount: 'int', *, self_: 'bool' = False)\n\nAdds."
        assert shown(handle.add) == shown(handle.add.remote) == ("(amount: 'int', *, self_: 'bool' = False) -> 'int'", "Adds.")
    assert shown(handle.of.remote) == ("(text: 'str') -> 'int'", "Parses.")
    assert str(inspect.signature(handle.bare.remote)) == "()"
    assert shown(handle.bare.remote)[1] == inspect.getdoc(ActorMethod.remote)
    assert inspect.unwrap(handle.add.remote.__wrapped__).__name__ == "add"


def test_the_source_that_is_shown_is_the_users() -> None:
    for what in (scale, scale.remote.__wrapped__):
        assert inspect.getsource(inspect.unwrap(what)).startswith("@mray.remote\ndef scale(")


def test_handles_without_the_class_still_show_parameters() -> None:
    blueprint = type(Counter._blueprint)(None, "C", "m", b"u", False, Counter._blueprint.init, {"add": Counter._blueprint.methods["add"]})
    there = make_handle(blueprint, b"y" * 16, None, {})
    assert str(inspect.signature(there.add.remote)).startswith("(amount")
    assert not hasattr(there.add.remote, "__wrapped__")


def test_classes_of_mray_are_shown_as_themselves() -> None:
    assert "spec" in str(inspect.signature(ActorMethod))
    assert "function" in str(inspect.signature(RemoteFunction))
    assert (ActorMethod.__doc__ or "").startswith("``handle.m``")


def test_methods_and_functions_keep_their_types_and_travel(handle: Any) -> None:
    assert isinstance(scale, RemoteFunction)
    assert isinstance(handle.add, ActorMethod)
    assert cloudpickle.loads(cloudpickle.dumps(scale)).name == "scale"
    assert cloudpickle.loads(cloudpickle.dumps(scale.remote)).__self__.name == "scale"
    assert repr(handle.add).startswith("ActorMethod(Actor(Counter, ")


def test_what_a_function_refers_to_goes_with_the_last_reference() -> None:
    """An actor whose handle hangs on a function must not live until the garbage collector comes."""

    class Thing:
        pass

    def make() -> tuple[Any, Any]:
        thing = Thing()

        def f(x: Any = thing) -> Any:
            return thing, x

        return mray.remote(f), weakref.ref(thing)

    gc.disable()
    try:
        remote, thing = make()
        assert "Thing object" in str(inspect.signature(remote.remote))
        assert thing() is not None
        del remote
        assert thing() is None
    finally:
        gc.enable()


# ------------------------------------------------------------------------------------------------ options
OPTION = re.compile(r"^``(\w+)=(.+)``\n {4}(.+?); default (.+?)(?:\.|: .+?\.)( .+)?$", re.MULTILINE)


def described() -> dict[str, tuple[str, str, str]]:
    """Option -> its example, its type with the unit, its default."""
    doc = inspect.getdoc(mray.remote)
    assert doc is not None
    found = OPTION.findall(doc)
    assert len(found) == len({name for name, *_rest in found})
    assert len(found) == len(re.findall(r"^``\w+=", doc, re.MULTILINE))
    return {name: (example, kind, default) for name, example, kind, default, _text in found}


def test_help_has_every_option_and_no_other() -> None:
    assert set(described()) == {*TASK_OPTIONS, *ACTOR_OPTIONS}


@pytest.mark.parametrize("name", [*dict.fromkeys((*TASK_OPTIONS, *ACTOR_OPTIONS))])
def test_help_tells_the_type_the_default_and_an_example_of(name: str) -> None:
    example, kind, default = described()[name]
    option = {**TASK_OPTIONS, **ACTOR_OPTIONS}[name]  # what both have is an actor's here
    types = option.types if isinstance(option.types, tuple) else (option.types,)
    # An option that takes floats takes ints.
    wanted = {each.__name__ for each in types if isinstance(each, type) and each is not type(None)} - ({"int"} if float in types else set())
    assert wanted <= set(re.findall(r"\w+", kind)), f"{name} takes {wanted}"
    assert eval(default) == option.default
    value = eval(example)
    assert name == "placement_group" or value != option.default
    assert isinstance(value, tuple(each for each in types if isinstance(each, type)))
    assert option.check is None or name == "object_store_memory" or option.check(name, value) is None


def test_the_words_of_help_are_grouped_by_what_takes_them() -> None:
    doc = inspect.getdoc(mray.remote) or ""
    _head, both, tasks, actors = re.split(r"^Options of .+:$", doc, flags=re.MULTILINE)
    names = [re.findall(r"^``(\w+)=", part, re.MULTILINE) for part in (both, tasks, actors)]
    assert set(names[0]) == set(TASK_OPTIONS) & set(ACTOR_OPTIONS)
    assert set(names[1]) == set(TASK_OPTIONS) - set(ACTOR_OPTIONS)
    assert set(names[2]) == set(ACTOR_OPTIONS) - set(TASK_OPTIONS)


def typed_options(name: str) -> set[str]:
    """The fields of a dict of options in ``typed.pyi``, and of its bases."""
    stub = ast.parse((Path(mray.__path__[0]) / "_api" / "typed.pyi").read_text())
    (found,) = (each for each in ast.walk(stub) if isinstance(each, ast.ClassDef) and each.name == name)
    own = {each.target.id for each in found.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)}
    return own.union(*(typed_options(base.id) for base in found.bases if isinstance(base, ast.Name) and base.id != "TypedDict"))


def test_type_checkers_know_every_option() -> None:
    assert typed_options("RemoteOptions") == {*TASK_OPTIONS, *ACTOR_OPTIONS}
    assert typed_options("TaskOptions") == {*TASK_OPTIONS} - {"max_calls", "_num_objects_per_yield"}
    assert typed_options("ActorOptions") == {*ACTOR_OPTIONS} - {"concurrency_groups"}
    assert typed_options("MethodOptions") == {"name", *METHOD_OPTIONS} - {"_num_objects_per_yield"}


def test_keywords_can_be_completed(handle: Any) -> None:
    def keywords(what: Any) -> set[str]:
        return {each.name for each in inspect.signature(what).parameters.values() if each.kind is each.KEYWORD_ONLY}

    assert keywords(mray.remote) == {*TASK_OPTIONS, *ACTOR_OPTIONS}
    assert keywords(scale.options) == {*TASK_OPTIONS} - {"max_calls", "_num_objects_per_yield"}
    assert keywords(Counter.options) == {*ACTOR_OPTIONS} - {"concurrency_groups"}
    assert keywords(handle.add.options) == keywords(mray.method) == {*METHOD_OPTIONS}
    assert keywords(scale.remote) == {"name"}
