"""Plays programs: lists of steps that are data, on whichever engine ``DIFFERENTIAL_ENGINE`` names, and says what came out.

In a driver and in its workers: what a task or a method does is a program too. A step is a dictionary; ``do`` is its verb (a method
``do_...`` of `Stage`), ``to`` a name for what it makes. Values in steps are JSON, where ``{"$": kind, ...}`` stands for what JSON has not
(see `Stage.build`). The outcome of a step is JSON without anything of a process, a time or an engine: ids, pids and addresses are scrubbed,
and of errors that tell of a death, whose texts are each engine's own, the class counts.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import json
import os
import re
import sys
import time
import traceback
import types
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ENGINE = os.environ.get("DIFFERENTIAL_ENGINE", "mray")
engine: Any = importlib.import_module(ENGINE)
importlib.import_module(f"{ENGINE}.exceptions")
importlib.import_module(f"{ENGINE}.util")
importlib.import_module(f"{ENGINE}.util.placement_group")
importlib.import_module(f"{ENGINE}.util.scheduling_strategies")
for _name in ("dag", "util.queue", "util.multiprocessing", "util.state"):
    importlib.import_module(f"{ENGINE}.{_name}")

#: Seconds that what should come may take.
PATIENCE = 10.0

#: Seconds after which what is free is taken to stay as it is. Ray's resources come back late.
REST = 1.0 if ENGINE == "ray" else 0.2

Json = Any


@dataclass(frozen=True)
class Body:
    """The body of a function or method: steps, and its end."""

    folder: str
    what: Json

    def __repr__(self) -> str:
        return "Body"


@dataclass(frozen=True)
class Played:
    """The outcome of a step, as a value."""

    outcome: Json


# ------------------------------------------------------------------------------------------------ words
#: In this order: paths before what is in them.
_SCRUBS = [
    (re.compile(r"/[\w./-]*site-packages/"), "<packages>/"),
    (re.compile(r"/[\w./-]*/lib/python3\.\d+/"), "<python>/"),
    (re.compile(r"https?://[^\s'\")]+"), "<url>"),
    (re.compile(r"tcp://[\d.:]+|\b\d+\.\d+\.\d+\.\d+(:\d+)?\b"), "<address>"),
    (re.compile(r"0x[0-9a-f]+"), "<0x>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b"), "<id>"),
    (re.compile(r"\bf{16,}\b"), "<id>"),
    (re.compile(r"\bpid[= ]\d+"), "pid=<n>"),
    (re.compile(r"\bp\d+-"), "p-"),
    (re.compile(r"_p\d+\b"), "_p"),
    (re.compile(r"/tmp/differential-\w+"), "<programs>"),
    (re.compile(r"\bmray\b"), "ray"),
    (re.compile(r"\bMRAY_"), "RAY_"),
    (re.compile(r"\[\d+m|\x1b"), ""),
    (re.compile(r"[ \t]+\n"), "\n"),
    (re.compile(r"^\s*[\^~]+\s*$\n?", re.MULTILINE), ""),
]
_ROOT = str(Path(__file__).resolve().parents[2])
#: A frame of an engine's own files, with its line of source.
_OWN_FILES = "<packages>/ray|<packages>/cloudpickle|<root>/mray|python/ray|<python>/concurrent/futures|<python>/asyncio"
_OWN_FRAME = re.compile(rf'^  File "[^"]*(?:{_OWN_FILES})/[^"]*", line \d+.*\n(?:    .*\n)*', re.MULTILINE)
#: A frame of this file, which says how a program is played.
_STAGE_FRAME = re.compile(r'^  File "<root>/tests/differential/stage.py", line \d+.*\n(?:    .*\n)*', re.MULTILINE)
_LINE = re.compile(r'(File "<root>/tests/differential/\w+.py", line )\d+')
#: Ray leaves out the first line of a generator's frames.
_GENERATOR_FRAME = re.compile(r"(ray::[\w.]+\(\) \(pid=[^)]*\)\n)  File .*\n(?=    (?:yield from|async for) )")
#: Private classes.
_CLASSES = {
    "FuncWrapper": "function with options",
    "RemoteFunctionWithOptions": "function with options",
    "ActorOptionWrapper": "class with options",
    "ActorClassWithOptions": "class with options",
    "CompiledGraph": "CompiledDAG",
    "MapResult": "AsyncResult",
    "ApplyResult": "AsyncResult",
}
_WITHOUT_TEXT = {
    "ObjectRefGenerator",
    "DynamicObjectRefGenerator",
    "PlacementGroup",
    "Pool",
    "CompiledDAG",
    "CompiledDAGRef",
    "CompiledDAGFuture",
    "AsyncResult",
    *_CLASSES.values(),
}
#: Each engine has texts of its own about the end of a process, or of a wait.
DEATHS = (
    "RayActorError",
    "ActorDiedError",
    "ActorUnavailableError",
    "ActorUnschedulableError",
    "WorkerCrashedError",
    "TaskCancelledError",
    "GetTimeoutError",
    "TaskUnschedulableError",
    "TaskPlacementGroupRemoved",
    "ActorPlacementGroupRemoved",
    "RuntimeEnvSetupError",
    "OwnerDiedError",
    "ObjectLostError",
    "OutOfMemoryError",
    "ActorHandleNotFoundError",
    "RayChannelError",
    "RayChannelTimeoutError",
)
_DEATH_TEXT = re.compile(rf"(ray\.exceptions\.(?:RayTaskError\()?(?:{'|'.join(DEATHS)})\)?): (?!ray::).*", re.DOTALL)
_PHRASES = ("ray.kill", "exit_actor", "owner has died", "creation task", "restarting", "failed to look up")


def scrub(text: str, folder: str = "") -> str:
    """Without what belongs to a process, a machine or an engine."""
    if folder:
        text = text.replace(folder, "<folder>")
    text = text.replace(_ROOT, "<root>")
    for pattern, word in _SCRUBS[:2]:
        text = pattern.sub(word, text)
    text = _STAGE_FRAME.sub("", _OWN_FRAME.sub("", text))
    for pattern, word in _SCRUBS[2:]:
        text = pattern.sub(word, text)
    return _GENERATOR_FRAME.sub(r"\1", _LINE.sub(r"\1<n>", text))


def public_bases(kind: type) -> list[str]:
    """The names of those that `except` may name: builtin ones, Ray's, and the scenery's."""
    names = []
    for base in kind.__mro__[1:-1]:
        module = base.__module__
        if module == "builtins" or module.startswith((f"{ENGINE}.exceptions", "tests.differential", "asyncio")):
            names.append(base.__name__)
    return names


def describe_error(error: BaseException, depth: int = 0) -> Json:
    kind = type(error).__name__
    try:
        text = scrub(str(error))
    except BaseException as failure:
        text = f"<{type(failure).__name__}>"
    found: dict[str, Json] = {"error": kind, "bases": public_bases(type(error))}
    if kind in DEATHS:
        found["text"] = [phrase for phrase in _PHRASES if phrase in text]
        return found
    found["text"] = _DEATH_TEXT.sub(r"\1", text)
    cause = getattr(error, "cause", None)
    if depth < 4:
        if isinstance(cause, BaseException) and cause is not error:
            found["cause"] = describe_error(cause, depth + 1)
        if (
            isinstance(error.__cause__, BaseException)
            and error.__cause__ is not cause
            and not isinstance(error, engine.exceptions.RayError)
        ):
            found["from"] = type(error.__cause__).__name__
    if not isinstance(error, engine.exceptions.RayError):
        found["args"] = [describe(each) for each in error.args]
    names = ["code", "first", "kept", "number", "exceptions"]
    if "RayTaskError" not in kind:  # On Ray the cause's own, where Python keeps them in the instance.
        names += ["reason", "errno", "filename"]
    fields = {name: describe(getattr(error, name)) for name in names if hasattr(error, name)}
    if fields:
        found["fields"] = fields
    return found


def describe(value: Any, depth: int = 0) -> Json:
    """A description of a value that is the same on each engine."""
    if depth > 6:
        return "..."
    if value is None or (isinstance(value, (bool, int, float, complex)) and type(value).__module__ == "builtins"):
        return repr(value) if not (isinstance(value, int) and abs(value) > 1000) else "large int"
    if isinstance(value, (str, bytes, bytearray)) and type(value).__module__ == "builtins":
        return scrub(repr(value)) if len(value) < 400 else f"{type(value).__name__} of {len(value)}"
    if isinstance(value, Played):
        return value.outcome
    if isinstance(value, BaseException):
        return describe_error(value)
    if type(value) in (list, tuple):
        if depth and any(each is value for each in value):
            return "a cycle"
        return {type(value).__name__: [describe(each, depth + 1) for each in value]}
    if type(value) in (set, frozenset):
        return {type(value).__name__: sorted(str(describe(each, depth + 1)) for each in value)}
    if isinstance(value, dict):
        pairs = [[describe(key, depth + 1), describe(each, depth + 1)] for key, each in value.items()]
        return {"dict": sorted(pairs, key=str)}
    if isinstance(value, np.ndarray):
        total = repr(value.tolist()) if value.size < 10 else repr(value.sum().item()) if value.dtype.kind in "iuf" else ""
        return f"array {value.dtype} {value.shape} {total} {'' if value.flags.writeable else 'read-only'}"
    return _describe_thing(value)


def _describe_thing(value: Any) -> Json:
    kind = _CLASSES.get(type(value).__name__, type(value).__name__)
    if isinstance(value, engine.ObjectRef):
        return "ObjectRef"
    if isinstance(value, type):
        return f"class {'ray' if value.__module__.startswith(ENGINE) else value.__module__}.{value.__qualname__}"
    if kind == "ActorHandle":
        return scrub(repr(value))
    if isinstance(value, engine.dag.DAGNode):
        return kind
    if inspect.isfunction(value) or inspect.ismodule(value) or inspect.isbuiltin(value):
        return f"{kind} {scrub(value.__name__)}"
    if type(value).__repr__ is object.__repr__ or kind in _WITHOUT_TEXT:
        return kind
    return f"{kind} {scrub(repr(value))[:300]}"


# ------------------------------------------------------------------------------------------------ stage
class Stage:
    """Where one program is played: its variables, and a folder in which its processes see each other."""

    def __init__(self, folder: str, variables: dict[str, Any] | None = None) -> None:
        self.folder = folder
        self.variables = variables if variables is not None else {}

    def play(self, steps: list[Json]) -> list[Json]:
        return [self.step(step) for step in steps]

    def step(self, step: Json) -> Json:
        """The outcome of one step."""
        try:
            made = self.perform(step)
            return {"value": "bytes" if step["do"] == "dumps" else describe(made)}
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)) and not isinstance(error, engine.exceptions.RayError):
                raise
            outcome = describe_error(error)
            del error
            return outcome

    def perform(self, step: Json) -> Any:
        made = getattr(self, f"do_{step['do']}")(step)
        if "to" in step:
            self.variables[step["to"]] = made
            if isinstance(made, (list, tuple)):
                self.variables.update({f"{step['to']}.{number}": each for number, each in enumerate(made)})
        return made

    # ------------------------------------------------------------------------------------------ values
    def build(self, value: Json) -> Any:
        """The value that a piece of JSON stands for."""
        from tests.differential import scenery

        if isinstance(value, list):
            return [self.build(each) for each in value]
        if not isinstance(value, dict):
            return value
        if "$" not in value:
            return {key: self.build(each) for key, each in value.items()}
        kind, what = value["$"], value.get("v")
        if kind == "var":
            if what not in self.variables:
                raise LookupError(f"no variable {what}")
            return self.variables[what]
        if kind == "tuple":
            return tuple(self.build(each) for each in what)
        if kind == "body":
            return Body(self.folder, what)
        if kind == "odd":
            return scenery.VALUES[what]()
        if kind == "exception":
            return scenery.EXCEPTIONS[what]()
        if kind == "exception class":
            return type(scenery.EXCEPTIONS[what]())
        if kind == "function":
            return engine.remote(scenery.FUNCTIONS[what])
        if kind == "actor class":
            return engine.remote(scenery.CLASSES[what])
        if kind == "name":
            return f"{os.path.basename(self.folder)}-{what}"
        if kind == "alias":
            return f"{what}_{os.path.basename(self.folder)}"
        if kind == "plain function":
            return scenery.FUNCTIONS[what]
        if kind == "caller":  # what a pool of actors is given
            return lambda actor, value: getattr(actor, what).remote(value)
        if kind == "archive":
            return scenery.archive(Path(self.folder).parent, what)
        if kind == "sample":  # a folder or file that an environment takes
            return scenery.sample(Path(self.folder).parent, what)
        if kind == "strategy":
            return self._strategy(what)
        raise LookupError(f"no kind of value {kind}")

    def _strategy(self, what: Json) -> Any:
        strategies = engine.util.scheduling_strategies
        if what[0] == "group":
            return strategies.PlacementGroupSchedulingStrategy(self.build(what[1]), **self.build(what[2]))
        if what[0] == "node":
            node = engine.get_runtime_context().get_node_id() if what[1] else "f" * 56
            return strategies.NodeAffinitySchedulingStrategy(node, **self.build(what[2]))
        return strategies.NodeLabelSchedulingStrategy(**self.build(what[1]))

    def arguments(self, step: Json) -> tuple[list[Any], dict[str, Any]]:
        return self.build(step.get("args", [])), {key: self.build(each) for key, each in step.get("kwargs", {}).items()}

    def path(self, key: str) -> Path:
        return Path(self.folder, key)

    # ------------------------------------------------------------------------------------------- verbs
    def do_task(self, step: Json) -> Any:
        from tests.differential import scenery

        function = scenery.FUNCTIONS[step["f"]]
        if "alias" in step:  # a name that no other program has
            function = types.FunctionType(function.__code__, function.__globals__)
            function.__name__ = function.__qualname__ = self.build({"$": "alias", "v": step["alias"]})
        options = self.build(step.get("options", {}))
        args, kwargs = self.arguments(step)
        how = step.get("how", "options")
        if how == "_remote":
            return engine.remote(function)._remote(args=args, kwargs=kwargs, **options)
        if how == "decorator" and options:
            return engine.remote(**options)(function).remote(*args, **kwargs)
        return (engine.remote(function).options(**options) if options else engine.remote(function)).remote(*args, **kwargs)

    def do_actor(self, step: Json) -> Any:
        from tests.differential import scenery

        kind = {**scenery.CLASSES, **scenery.SPECIAL}[step["c"]]
        options = self.build(step.get("options", {}))
        args, kwargs = self.arguments(step)
        how = step.get("how", "options")
        if how == "decorator" and options:
            return engine.remote(**options)(kind).remote(*args, **kwargs)
        if how == "_remote":
            return engine.remote(kind)._remote(args=args, kwargs=kwargs, **options)
        return (engine.remote(kind).options(**options) if options else engine.remote(kind)).remote(*args, **kwargs)

    def do_call(self, step: Json) -> Any:
        method = getattr(self.build(step["a"]), step["m"])
        options = self.build(step.get("options", {}))
        args, kwargs = self.arguments(step)
        if options:
            method = method.options(**options)
        if step.get("crashes"):
            self.await_calls()
        made = method.remote(*args, **kwargs)
        if step.get("crashes"):
            try:
                return engine.get(made, timeout=PATIENCE)
            finally:
                self.settle(self.build(step["a"]))
        return made

    def do_get(self, step: Json) -> Any:
        what = self.build(step["what"])
        if isinstance(what, list):  # of several errors the first one is raised, which would be chance
            for ref in what:
                if isinstance(ref, engine.ObjectRef):
                    engine.wait([ref], timeout=PATIENCE)
        return engine.get(what, timeout=step.get("timeout", PATIENCE))

    def do_wait(self, step: Json) -> Any:
        refs = self.build(step["what"])
        options = self.build(step.get("options", {}))
        for ref in self.build(step.get("settled", [])):
            engine.wait([ref], timeout=PATIENCE)
        ready, rest = engine.wait(refs, **options)
        if len(ready) + len(rest) != len(refs) or not all(any(each is ref for ref in refs) for each in ready + rest):
            raise LookupError("others than were asked for")
        return {"ready": len(ready), "rest": len(rest)}

    def do_put(self, step: Json) -> Any:
        return engine.put(self.build(step["what"]))

    def do_kill(self, step: Json) -> Any:
        actor = self.build(step["what"])
        options = self.build(step.get("options", {}))
        self.await_calls()
        before = self._pid(actor)
        made = engine.kill(actor, **options)
        self.settle(actor, before)
        return made

    def await_calls(self) -> None:
        """Wait for whatever was asked for: a process that ends beside it may be in its way."""
        for value in list(self.variables.values()):
            if isinstance(value, engine.ObjectRef):
                engine.wait([value], timeout=PATIENCE)

    def _pid(self, actor: Any) -> Any:
        try:
            return engine.get(actor.pid.remote(), timeout=PATIENCE)
        except (engine.exceptions.RayError, AttributeError):
            return None

    def settle(self, actor: Any, before: Any = None) -> None:
        """Wait until an actor whose process may have ended answers again, or will never."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                if engine.get(actor.pid.remote(), timeout=PATIENCE) != before:
                    return
            except engine.exceptions.ActorUnavailableError:
                pass
            except (engine.exceptions.RayError, AttributeError):
                return
            time.sleep(0.02)

    def do_cancel(self, step: Json) -> Any:
        if "started" in step:
            self.await_file(f"{step['started']}.started")
        return engine.cancel(self.build(step["what"]), **self.build(step.get("options", {})))

    def do_started(self, step: Json) -> Any:
        self.await_file(f"{step['key']}.started")

    def do_release(self, step: Json) -> Any:
        self.path(f"{step['key']}.released").touch()

    def await_file(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self.path(name).exists():
            if time.monotonic() > deadline:
                raise LookupError(f"{name} did not come")
            time.sleep(0.005)

    def do_next(self, step: Json) -> Any:
        return next(self.build(step["what"]))

    def do_items(self, step: Json) -> Any:
        """All items of a generator, errors among them."""
        found: list[Any] = []
        for ref in self.build(step["what"]):
            try:
                found.append(engine.get(ref, timeout=PATIENCE))
            except BaseException as error:
                found.append(error)
            if len(found) > 50:
                break
        return found

    def do_each(self, step: Json) -> Any:
        """The value or error of each ref of a list."""
        found: list[Any] = []
        for ref in self.build(step["what"]):
            try:
                found.append(engine.get(ref, timeout=PATIENCE))
            except BaseException as error:
                found.append(error)
        return found

    def do_attribute(self, step: Json) -> Any:
        """An attribute of something; called, if the step has arguments."""
        found = self.build(step["what"])
        for word in step["name"].split("."):
            found = getattr(found, word)
        if "args" in step or "kwargs" in step:
            args, kwargs = self.arguments(step)
            found = found(*args, **kwargs)
        if "as" in step:
            found = sorted(found, key=repr) if step["as"] == "sorted" else list(found)
        return found

    def do_verb(self, step: Json) -> Any:
        """A function of the engine, with whatever arguments."""
        found = engine
        for word in step["name"].split("."):
            found = getattr(found, word)
        args, kwargs = self.arguments(step)
        return found(*args, **kwargs)

    def do_operator(self, step: Json) -> Any:
        import operator
        import pickle

        args, kwargs = self.arguments(step)
        name = step["name"]
        if name == "sorted":
            return sorted(*args, key=repr)
        if name == "pickle":
            return pickle.loads(pickle.dumps(*args))
        if name in ("repr", "str", "hash", "bool", "len", "iter", "next", "list", "dir"):
            found = __builtins__[name](*args) if isinstance(__builtins__, dict) else getattr(__builtins__, name)(*args)
            return [each for each in found if not each.startswith("_")] if name == "dir" else "a hash" if name == "hash" else found
        return getattr(operator, name)(*args, **kwargs)

    def do_make(self, step: Json) -> Any:
        return self.build(step["what"])

    def do_context(self, step: Json) -> Any:
        context = engine.get_runtime_context()
        found = getattr(context, step["name"])
        found = found() if callable(found) else found
        return bool(found) if step.get("is_there") else found

    def do_environ(self, step: Json) -> Any:
        return os.environ.get(step["name"])

    def do_group(self, step: Json) -> Any:
        args, kwargs = self.arguments(step)
        return engine.util.placement_group(*args, **kwargs)

    def do_ungroup(self, step: Json) -> Any:
        return engine.util.remove_placement_group(self.build(step["what"]))

    def do_table(self, step: Json) -> Any:
        table = engine.util.placement_group_table(self.build(step["what"]))
        return {key: describe(table.get(key)) for key in ("name", "bundles", "strategy", "state")}

    def do_named(self, step: Json) -> Any:
        """Names of this program's actors that are alive."""
        prefix = os.path.basename(self.folder)
        deadline = time.monotonic() + 2 * REST
        while True:  # Ray takes a while to forget.
            found = engine.util.list_named_actors(all_namespaces=bool(step.get("all")))
            names = [each["name"] if isinstance(each, dict) else each for each in found]
            mine = sorted(name for name in names if name and name.startswith(prefix))
            if time.monotonic() > deadline or len(mine) == step.get("expected"):
                return [name.removeprefix(prefix) for name in mine]
            time.sleep(0.05)

    def do_resources(self, step: Json) -> Any:
        """The free resources once they have come to rest."""
        before, since = None, time.monotonic()
        deadline = since + PATIENCE
        while True:
            found = {key: value for key, value in engine.available_resources().items() if key in ("CPU", "GPU", "custom")}
            if found != before:
                before, since = found, time.monotonic()
            if time.monotonic() - since > REST or time.monotonic() > deadline:
                return dict(sorted(found.items()))
            time.sleep(0.05)

    def do_clean(self, step: Json) -> Any:
        self.variables.pop(step["what"], None)
        gc.collect()

    def do_has_started(self, step: Json) -> Any:
        return self.path(f"{step['key']}.started").exists()

    def do_ready(self, step: Json) -> Any:
        """The names of those that `wait` calls ready, when those that are to be have been so for a while."""
        options = self.build(step.get("options", {}))
        for ref in self.build(step.get("settled", [])):
            engine.wait([ref], timeout=PATIENCE)
        names = [each["v"] for each in step["what"]]
        refs = self.build(step["what"])
        ready, rest = engine.wait(refs, **options)
        words = [sorted(names[[each is ref for each in refs].index(True)] for ref in part) for part in (ready, rest)]
        return words if len(ready) < options.get("num_returns", 1) or len(ready) == len(step.get("settled", [])) else len(ready)

    def do_gone(self, step: Json) -> Any:
        """Whether a name is free, some time after whoever had it went."""
        options = self.build(step.get("options", {}))
        deadline = time.monotonic() + step.get("patience", 5)
        while time.monotonic() < deadline:
            try:
                engine.get_actor(self.build(step["name"]), **options)
            except ValueError:
                return True
            time.sleep(0.05)
        return False

    def do_store(self, step: Json) -> Any:
        """Keep a value beyond this call, in the process that plays it."""
        KEPT[f"{self.folder} {step['key']}"] = self.build(step["what"])

    def do_load(self, step: Json) -> Any:
        return KEPT[f"{self.folder} {step['key']}"]

    def do_dumps(self, step: Json) -> Any:
        """Out of band: a reference as bytes."""
        return engine.cloudpickle.dumps(self.build(step["what"]))

    def do_loads(self, step: Json) -> Any:
        return engine.cloudpickle.loads(self.build(step["what"]))

    def do_finally(self, step: Json) -> Any:
        """Perform a step, and leave a word about how it ended."""
        word = "interrupted"
        try:
            made = self.perform(step["what"])
            word = "done"
            return made
        finally:
            self.path(f"{step['key']}.left").write_text(word)

    def do_left(self, step: Json) -> Any:
        self.await_file(f"{step['key']}.left")
        deadline = time.monotonic() + PATIENCE
        while not (word := self.path(f"{step['key']}.left").read_text()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return word

    def do_made(self, step: Json) -> Any:
        """How many of something were made when no more come."""
        before, since = -1, time.monotonic()
        deadline = since + PATIENCE
        while time.monotonic() < deadline:
            if (found := self.do_count(step)) != before:
                before, since = found, time.monotonic()
            if before >= step.get("least", 0) and time.monotonic() - since > REST:
                break
            time.sleep(0.02)
        return before

    def do_mark(self, step: Json) -> Any:
        with open(self.path(f"{step['key']}.attempts"), "a") as file:
            file.write("x")
        return step.get("value")

    def do_await(self, step: Json) -> Any:
        return asyncio.run(self.awaits(step))

    async def awaits(self, step: Json) -> Any:
        """Coroutines that use references."""
        what, how = self.build(step["what"]), step["how"]
        if how == "await":
            return await what
        if how == "gather":
            return await asyncio.gather(*what, return_exceptions=step.get("all", True))
        if how == "wait_for":
            return await asyncio.wait_for(what if step.get("bare") else asyncio.shield(_awaited(what)), step["timeout"])
        if how == "wait":
            done, rest = await asyncio.wait([asyncio.ensure_future(_awaited(each)) for each in what], timeout=step["timeout"])
            for each in rest:
                each.cancel()
            return [len(done), len(rest)]
        if how == "future":
            return await asyncio.wrap_future(what.future())
        if how == "async for":
            found: list[Any] = []
            async for ref in what:
                try:
                    found.append(await ref)
                except Exception as error:
                    found.append(error)
            return found
        if how == "anext":
            return await (await anext(what))  # (of Python 3.10)
        if how == "method":
            return await getattr(what, step["name"])(*self.build(step.get("args", [])))
        raise LookupError(how)

    # ------------------------------------------------------------------------------------------ graphs
    def do_input(self, step: Json) -> Any:
        with engine.dag.InputNode() as node:
            return node

    def do_bind(self, step: Json) -> Any:
        args, kwargs = self.arguments(step)
        if "f" in step:
            return self.build({"$": "function", "v": step["f"]}).bind(*args, **kwargs)
        method = getattr(self.build(step["a"]), step["m"])
        options = self.build(step.get("options", {}))
        made = (method.options(**options) if options else method).bind(*args, **kwargs)
        return [made[number] for number in range(step["unpack"])] if "unpack" in step else made

    def do_outputs(self, step: Json) -> Any:
        return engine.dag.MultiOutputNode(self.build(step["what"]))

    def do_compile(self, step: Json) -> Any:
        return self.build(step["what"]).experimental_compile(**self.build(step.get("options", {})))

    # ---------------------------------------------------------------------------------------- listings
    def do_state(self, step: Json) -> Any:
        """The answer of the state once it stays the same for a while."""
        before, since = None, time.monotonic()
        deadline = since + PATIENCE
        while True:
            try:
                found = self._state(step)
            except Exception as error:
                if type(error).__name__ != "ServerUnavailable":
                    raise
                found = repr(error)
            if found != before:
                before, since = found, time.monotonic()
            if time.monotonic() - since > (2 if ENGINE == "ray" else 1) * REST or time.monotonic() > deadline:
                return Played(found)
            time.sleep(0.1)

    def _state(self, step: Json) -> Json:
        args, kwargs = self.arguments(step)
        kwargs.setdefault("detail", True) if step["name"].startswith("list_") else None
        found = getattr(engine.util.state, step["name"])(*args, **kwargs)
        if step["name"].startswith("summarize"):
            name = self.build(step["of"])
            rows = found["cluster"]["summary"]
            mine = {key: each for key, each in rows.items() if name in key}
            return scrub(json.dumps(mine, sort_keys=True), self.folder)
        rows = found if isinstance(found, list) else [found]
        columns = step["columns"]
        words = []
        for row in rows:
            word = None if row is None else [self._column(row, column) for column in columns]
            if word not in words:
                words.append(word)
        return sorted(words, key=str)

    @staticmethod
    def _column(row: Any, column: str) -> str:
        found = getattr(row, column, "no such column")
        return scrub(str(dict(sorted(found.items())) if isinstance(found, dict) else found))

    # -------------------------------------------------------------------------------- environments
    def do_here(self, step: Json) -> Any:
        """Names of files in the working directory that are samples."""
        return sorted(name for name in os.listdir() if name.startswith("sample"))

    def do_import(self, step: Json) -> Any:
        return importlib.import_module(step["name"]).VALUE

    def do_read(self, step: Json) -> Any:
        return Path(step["name"]).read_text()

    # ------------------------------------------------------------------------------------- inside of bodies
    def do_raise(self, step: Json) -> Any:
        raise self.build(step["what"])

    def do_raise_from(self, step: Json) -> Any:
        raise self.build(step["what"]) from self.build(step["cause"])

    def do_exit(self, step: Json) -> Any:
        sys.exit(self.build(step["code"])) if "code" in step else sys.exit()

    def do_end(self, step: Json) -> Any:
        os._exit(step["code"])

    def do_leave(self, step: Json) -> Any:
        engine.actor.exit_actor()

    def do_block(self, step: Json) -> Any:
        """Say so, then wait to be released, or cancelled."""
        self.path(f"{step['key']}.started").touch()
        deadline = time.monotonic() + 4 * PATIENCE
        while not self.path(f"{step['key']}.released").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def do_fail_until(self, step: Json) -> Any:
        """Do something at the first attempts only; the number of the attempt."""
        with open(self.path(f"{step['key']}.attempts"), "a+") as file:
            file.write("x")
            file.seek(0)
            attempt = len(file.read())
        if attempt < step["n"]:
            self.perform(step["what"])
        return attempt

    def do_count(self, step: Json) -> Any:
        """How often that has been tried so far."""
        path = self.path(f"{step['key']}.attempts")
        return len(path.read_text()) if path.exists() else 0

    def do_try(self, step: Json) -> Any:
        """A step whose outcome is a value, be it an error."""
        return Played(self.step(step["what"]))


#: The values that bodies keep in the process in which they are played.
KEPT: dict[str, Any] = {}


async def _awaited(what: Any) -> Any:
    return await what


def _enter(body: Body, args: Any, kwargs: Any) -> Stage:
    variables = {f"a{number}": each for number, each in enumerate(args)}
    variables.update({f"k_{key}": each for key, each in kwargs.items()})
    return Stage(body.folder, variables)


def act(body: Body, args: Any, kwargs: Any) -> Any:
    """Play a body: its value is the last step's."""
    stage, value = _enter(body, args, kwargs), None
    for step in body.what:
        value = stage.perform(step)
    return value


def act_items(body: Body, args: Any, kwargs: Any) -> Iterator[Any]:
    """Play a body that yields what its steps make."""
    stage = _enter(body, args, kwargs)
    for step in body.what:
        made = stage.perform(step)
        if not step.get("silent"):
            yield made


async def act_async(body: Body, args: Any, kwargs: Any) -> Any:
    """Play a body in an event loop."""
    stage, value = _enter(body, args, kwargs), None
    for step in body.what:
        value = await _perform_async(stage, step)
    return value


async def act_items_async(body: Body, args: Any, kwargs: Any) -> AsyncIterator[Any]:
    stage = _enter(body, args, kwargs)
    for step in body.what:
        made = await _perform_async(stage, step)
        if not step.get("silent"):
            yield made


async def _perform_async(stage: Stage, step: Json) -> Any:
    if step["do"] == "get":
        made = await stage.build(step["what"])
    elif step["do"] == "block":
        stage.path(f"{step['key']}.started").touch()
        deadline = time.monotonic() + 4 * PATIENCE
        while not stage.path(f"{step['key']}.released").exists() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        return None
    elif step["do"] == "await":
        made = await stage.awaits(step)
    else:
        return stage.perform(step)
    if "to" in step:
        stage.variables[step["to"]] = made
    return made


# -------------------------------------------------------------------------------------------------- play
def play(program: Json, folder: str) -> list[Json]:
    """Play a program in this process's session, and leave nothing of it."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    stage = Stage(folder)
    try:
        return stage.play(program["steps"])
    finally:
        for step in _all_steps(program["steps"]):
            if step.get("do") == "block":
                stage.path(f"{step['key']}.released").touch()
        for value in stage.variables.values():
            if type(value).__name__ == "ActorHandle":
                _quietly(lambda value=value: engine.kill(value))
            elif type(value).__name__ == "PlacementGroup":
                _quietly(lambda value=value: engine.util.remove_placement_group(value))
            elif type(value).__name__ in ("CompiledDAG", "CompiledGraph"):
                _quietly(lambda value=value: value.teardown())
            elif type(value).__name__ == "Pool":
                _quietly(lambda value=value: value.terminate())
            elif type(value).__name__ == "Queue":
                _quietly(lambda value=value: value.shutdown(force=True))
        stage.variables.clear()
        gc.collect()


def _all_steps(what: Json) -> Iterator[Json]:
    if isinstance(what, dict):
        yield what
        for each in what.values():
            yield from _all_steps(each)
    elif isinstance(what, list):
        for each in what:
            yield from _all_steps(each)


def _quietly(do: Callable[[], Any]) -> None:
    try:
        do()
    except Exception:
        traceback.print_exc()


def is_at_rest(total: dict[str, float]) -> bool:
    """Whether all resources come back."""
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        free = engine.available_resources()
        if all(free.get(key, 0) == amount for key, amount in total.items()):
            return True
        time.sleep(0.02)
    return False
