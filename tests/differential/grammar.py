"""Which programs there are: hypothesis draws them, kind by kind.

A program has no race that Ray does not decide: what two processes do at once is waited for before anybody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.differential.scenery import CLASSES, EXCEPTIONS, VALUES

Json = Any


def var(name: str) -> Json:
    return {"$": "var", "v": name}


def odd(name: str) -> Json:
    return {"$": "odd", "v": name}


def exception(name: str) -> Json:
    return {"$": "exception", "v": name}


def body(*steps: Json) -> Json:
    return {"$": "body", "v": list(steps)}


class Draft:
    """A program while it is written: steps so far, and what its variables are."""

    def __init__(self, draw: Callable[[Any], Any], prefix: str = "v", names: dict[str, list[str]] | None = None, depth: int = 0) -> None:
        self.draw = draw
        self.steps: list[Json] = []
        self.known: dict[str, list[str]] = {kind: list(found) for kind, found in (names or {}).items()}
        self.prefix = prefix
        self.depth = depth
        self.keys = 0

    def add(self, step: Json, kind: str | None = None) -> str | None:
        """Write a step; the name of what it makes, if it is of a kind."""
        if kind is None:
            self.steps.append(step)
            return None
        name = f"{self.prefix}{len(self.steps)}"
        self.steps.append({**step, "to": name})
        self.known.setdefault(kind, []).append(name)
        return name

    def pick(self, *items: Any) -> Any:
        return self.draw(st.sampled_from(items))

    def chance(self, of: int = 2) -> bool:
        return self.draw(st.integers(0, of - 1)) == of - 1

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def a(self, kind: str) -> Json | None:
        """One of the variables of a kind, or nothing."""
        found = self.known.get(kind)
        return var(self.pick(*found)) if found else None

    def key(self) -> str:
        self.keys += 1
        return f"{self.prefix}k{self.keys}"

    # --------------------------------------------------------------------------------------------- values
    def scalar(self) -> Json:
        return self.draw(st.one_of(st.none(), st.booleans(), st.integers(-3, 300), st.sampled_from(["", "a", "text", 1.5, -2.0])))

    def value(self, refs: bool = True, depth: int = 0) -> Json:
        """Any value; references and handles in containers among them."""
        choice = self.number(0, 9)
        if choice <= 3 or depth > 2:
            return self.scalar()
        if choice == 4:
            return odd(self.pick(*VALUES))
        if choice == 5:
            return [self.value(refs, depth + 1) for _ in range(self.number(0, 3))]
        if choice == 6:
            return {"$": "tuple", "v": [self.value(refs, depth + 1) for _ in range(self.number(0, 3))]}
        if choice == 7:
            return {self.pick("a", "b"): self.value(refs, depth + 1)}
        if choice == 8 and refs:
            return self.a("ref") or self.scalar()
        return (self.a("actor") if refs else None) or exception(self.pick(*EXCEPTIONS))

    # --------------------------------------------------------------------------------------------- bodies
    def work(self, args: int = 0, is_async: bool = False) -> Json:
        """The body of a function."""
        names = {"any": [f"a{number}" for number in range(args)]}
        inner = Draft(self.draw, "w" * (self.depth + 1), names, self.depth + 1)
        choice = self.number(0, 11)
        given = inner.a("any")
        if choice <= 2:
            return body({"do": "make", "what": inner.value()})
        if choice <= 4:
            return body({"do": "raise", "what": exception(self.pick(*EXCEPTIONS))})
        if choice == 5:
            cause = {"do": "raise_from", "what": exception(self.pick(*EXCEPTIONS)), "cause": exception(self.pick(*EXCEPTIONS))}
            return body(cause)
        if choice == 6 and given:
            return body({"do": "make", "what": given})
        if choice == 7 and given:
            return body({"do": self.pick("get", "each", "try"), "what": self.pick([given], given)})
        if choice == 8 and given:
            return body({"do": "try", "what": {"do": "get", "what": given}})
        if choice == 9:
            return body({"do": "fail_until", "key": self.key(), "n": self.number(1, 4), "what": self.failure()})
        if choice == 10 and self.depth < 2 and not is_async:
            for _ in range(self.number(1, 3)):
                inner.any_task_step()
            refs = [var(name) for name in inner.known.get("ref", [])]
            last = self.pick({"do": "each", "what": refs}, {"do": "get", "what": refs}, {"do": "make", "what": refs})
            return body(*inner.steps, last)
        return body({"do": "context", "name": self.pick(*_CONTEXT)})

    def failure(self) -> Json:
        return self.pick(
            {"do": "raise", "what": exception("ValueError")},
            {"do": "raise", "what": exception("Simple")},
            {"do": "raise", "what": exception("KeyError")},
            {"do": "end", "code": 1},
            {"do": "exit", "code": 3},
        )

    # ---------------------------------------------------------------------------------------------- steps
    def arguments(self) -> list[Json]:
        return [self.value() for _ in range(self.number(0, 3))]

    def retries(self) -> Json:
        options: dict[str, Json] = {}
        if self.chance():
            options["max_retries"] = self.pick(0, 1, 2, 3)
        if self.chance():
            options["retry_exceptions"] = self.pick(
                True, False, [{"$": "exception class", "v": self.pick("ValueError", "Simple", "KeyError")}]
            )
        return options

    def task(self) -> None:
        args = self.arguments()
        options: dict[str, Json] = self.retries() if self.chance(3) else {}
        if self.chance(4):
            options.update(self.pick(*_TASK_OPTIONS))
        if self.chance(6):
            returns = self.number(0, 3)
            options["num_returns"] = returns
            kind = "ref" if returns == 1 else "refs"
        else:
            kind = "ref"
        how = self.pick("options", "decorator", "_remote")
        step = {"do": "task", "f": "plain", "args": [self.work(len(args)), *args], "options": options, "how": how}
        self.add(step, kind)

    def odd_call(self) -> None:
        """A call of a signature: right or not."""
        function = self.pick("signature", "positional", "nothing", "many", "lambda", "coroutine")
        kwargs = {key: self.value() for key in self.draw(st.sets(st.sampled_from(["a", "b", "c", "self"]), max_size=2))}
        self.add({"do": "task", "f": function, "args": self.arguments(), "kwargs": kwargs}, "ref")

    def any_task_step(self) -> None:
        choice = self.number(0, 5)
        if choice <= 3:
            self.task()
        elif choice == 4:
            self.odd_call()
        else:
            self.add({"do": "put", "what": self.value()}, "ref")

    def look(self) -> None:
        """Get, or wait for, what was asked for."""
        refs = self.known.get("ref", [])
        if self.known.get("refs") and self.chance(3):
            self.add({"do": "each", "what": self.a("refs")})
        elif not refs:
            self.add({"do": "get", "what": self.value()})
        elif self.chance(3):
            chosen = [var(name) for name in self.draw(st.lists(st.sampled_from(refs), min_size=1, max_size=4, unique=True))]
            options = {"num_returns": self.number(1, len(chosen)), **self.pick({}, {"timeout": 0}, {"timeout": 5}, {"fetch_local": False})}
            self.add({"do": "wait", "what": chosen, "settled": chosen, "options": options})
        elif self.chance(3):
            self.add({"do": "get", "what": [var(name) for name in self.draw(st.lists(st.sampled_from(refs), max_size=3))]})
        else:
            self.add({"do": "get", "what": self.a("ref")})

    def look_at_all(self) -> None:
        refs = [var(name) for name in self.known.get("ref", [])]
        if refs:
            self.add({"do": "each", "what": refs})


_CONTEXT = (
    "get_assigned_resources",
    "get_task_name",
    "get_task_function_name",
    "get_actor_name",
    "get_accelerator_ids",
    "namespace",
    "get_placement_group_id",
    "should_capture_child_tasks_in_placement_group",
    "get_runtime_env_string",
    "get_actor_id",
)
_TASK_OPTIONS: tuple[Json, ...] = (
    {"name": "a name"},
    {"num_cpus": 0},
    {"num_cpus": 2},
    {"num_cpus": 0.5},
    {"num_gpus": 1},
    {"num_gpus": 0.5},
    {"resources": {"custom": 1}},
    {"resources": {"custom": 0.5}, "num_cpus": 0},
    {"max_calls": 1},
    {"runtime_env": {"env_vars": {"DIFFERENTIAL_A": "1"}}},
    {"runtime_env": {}},
    {"scheduling_strategy": "SPREAD"},
    {"scheduling_strategy": "DEFAULT"},
    {"scheduling_strategy": {"$": "strategy", "v": ["node", True, {"soft": False}]}},
    {"scheduling_strategy": {"$": "strategy", "v": ["node", False, {"soft": True}]}},
    {"label_selector": {"zone": "here"}},
    {"label_selector": {"zone": "!there"}},
    {"memory": 1000},
    {"enable_task_events": False},
    {"_labels": {"a": "b"}},
    {"num_returns": None},
)


# ------------------------------------------------------------------------------------------------- kinds
@st.composite
def tasks(draw: Any) -> Json:
    draft = Draft(draw)
    for _ in range(draft.number(1, 5)):
        draft.any_task_step()
        if draft.chance():
            draft.look()
    draft.look_at_all()
    return {"kind": "tasks", "steps": draft.steps}


@st.composite
def errors(draw: Any) -> Json:
    """An odd exception, on its way through tasks, arguments and actors."""
    draft = Draft(draw)
    error = exception(draft.pick(*EXCEPTIONS))
    first = {"do": draft.pick("raise", "raise", "make"), "what": error}
    if draft.chance(4):
        first = {"do": "raise_from", "what": error, "cause": exception(draft.pick(*EXCEPTIONS))}
    kind = draft.pick("task", "task", "Sync", "Child", "Async", "__init__")
    if kind == "task":
        draft.add({"do": "task", "f": "plain", "args": [body(first)], "options": draft.retries()}, "ref")
    elif kind == "__init__":
        actor = draft.add({"do": "actor", "c": draft.pick("Sync", "Async"), "args": [body(first)]}, "actor")
        assert actor is not None
        draft.add({"do": "call", "a": var(actor), "m": "pid"}, "ref")
    else:
        actor = draft.add({"do": "actor", "c": kind}, "actor")
        assert actor is not None
        draft.add({"do": "call", "a": var(actor), "m": "run", "args": [body(first)]}, "ref")
    (last,) = draft.known["ref"]
    for _ in range(draft.number(0, 3)):
        given, do = draft.pick(
            (var(last), {"do": "make", "what": var("a0")}),
            ([var(last)], {"do": "get", "what": var("a0")}),
            ([var(last)], {"do": "try", "what": {"do": "get", "what": var("a0")}}),
            ([var(last)], {"do": "each", "what": var("a0")}),
        )
        last = draft.add({"do": "task", "f": "plain", "args": [body(do), given]}, "ref") or ""
    draft.look_at_all()
    if draft.chance():
        draft.add({"do": "put", "what": error}, "ref")
        draft.look()
    return {"kind": "errors", "steps": draft.steps}


@st.composite
def objects(draw: Any) -> Json:
    """Values of all kinds, put, passed on and returned, and methods of references."""
    draft = Draft(draw)
    for _ in range(draft.number(1, 4)):
        choice = draft.number(0, 4)
        if choice <= 1:
            draft.add({"do": "put", "what": draft.pick(odd(draft.pick(*VALUES)), draft.value())}, "ref")
        elif choice == 2:
            draft.add({"do": "task", "f": "plain", "args": [body({"do": "make", "what": var("a0")}), odd(draft.pick(*VALUES))]}, "ref")
        elif choice == 3:
            draft.add({"do": "task", "f": "plain", "args": [body({"do": "make", "what": odd(draft.pick(*VALUES))})]}, "ref")
        elif draft.known.get("ref"):
            name, args = draft.pick(*_REF_METHODS)
            draft.add({"do": "attribute", "what": draft.a("ref"), "name": name, **({} if args is None else {"args": args})})
        draft.look()
    draft.look_at_all()
    return {"kind": "objects", "steps": draft.steps}


_REF_METHODS: tuple[tuple[str, Any], ...] = (
    ("hex", None),
    ("size", []),
    ("is_nil", []),
    ("job_id", []),
    ("task_id", []),
    ("future", None),
    ("call_site", []),
    ("nothing", None),
    ("from_random", []),
    ("nil", []),
    ("__len__", []),
    ("__iter__", []),
)


@st.composite
def generators(draw: Any) -> Json:
    draft = Draft(draw)
    inside: list[Json] = []
    for _ in range(draft.number(0, 4)):
        choice = draft.number(0, 6)
        if choice <= 3:
            inside.append({"do": "make", "what": draft.value(refs=False)})
        elif choice == 4:
            inside.append({"do": "put", "what": draft.scalar()})
        elif choice == 5:
            inside.append({"do": "raise", "what": exception(draft.pick(*EXCEPTIONS))})
        else:
            inside.append({"do": "fail_until", "key": draft.key(), "n": draft.number(1, 3), "what": draft.failure()})
    options = draft.pick(
        {}, {}, {"num_returns": "streaming"}, {"num_returns": "dynamic"}, {"num_returns": draft.number(0, 4)}, {"num_returns": None}
    )
    where = draft.pick("task", "task", "Sync", "Async")
    options = {**options, **(draft.retries() if where == "task" and draft.chance() else {})}
    if draft.chance(5):
        options["_generator_backpressure_num_objects"] = draft.pick(0, 1, 2, -1)
    returns = options.get("num_returns")
    kind = "generator" if returns in (None, "streaming") else "ref" if returns in (1, "dynamic") else "refs"
    if where == "task":
        how = draft.pick("options", "decorator", "_remote")
        name = draft.add({"do": "task", "f": "items", "args": [body(*inside)], "options": options, "how": how}, kind)
    else:
        actor = draft.add({"do": "actor", "c": where, **draft.pick({}, {"options": {"max_concurrency": 2}})}, "actor")
        assert actor is not None
        name = draft.add({"do": "call", "a": var(actor), "m": "items", "args": [body(*inside)], "options": options}, kind)
    assert name is not None
    if kind == "generator":
        for _ in range(draft.number(0, 3)):
            choice = draft.pick("next", "completed", "wait", "method", "operator")
            if choice == "next":
                draft.add({"do": "next", "what": var(name)}, "ref")
                draft.add({"do": "get", "what": draft.a("ref")})
            elif choice == "completed":
                draft.add({"do": "items", "what": var(name)})
                draft.add({"do": "attribute", "what": var(name), "name": "completed", "args": []}, "ref")
                draft.add({"do": "get", "what": draft.a("ref")})
                draft.add({"do": "attribute", "what": var(name), "name": draft.pick("is_finished", "next_ready"), "args": []})
            elif choice == "wait":
                draft.add({"do": "wait", "what": [var(name)], "options": draft.pick({}, {"timeout": 10}, {"num_returns": 1})})
            elif choice == "method":
                method, args = draft.pick(
                    ("task_id", []), ("close", None), ("send", None), ("throw", None), ("_generator_ref", None), ("gi_frame", None)
                )
                draft.add({"do": "attribute", "what": var(name), "name": method, **({} if args is None else {"args": args})})
            else:
                draft.add({"do": "operator", "name": draft.pick("pickle", "len", "bool", "repr", "hash"), "args": [var(name)]})
        if draft.chance(4):
            draft.add({"do": "task", "f": "many", "args": [var(name)]}, "ref")
        draft.add({"do": "items", "what": var(name)})
        draft.add({"do": "next", "what": var(name)})
    elif kind == "refs":
        draft.add({"do": "each", "what": var(name)})
    else:
        draft.add({"do": "get", "what": var(name)}, "dynamic")
        if returns == "dynamic":
            draft.add({"do": "items", "what": draft.a("dynamic")})
            draft.add({"do": "operator", "name": draft.pick("len", "list", "repr", "iter"), "args": [draft.a("dynamic")]})
    return {"kind": "generators", "steps": draft.steps}


_ACTOR_OPTIONS: tuple[Json, ...] = (
    {"max_concurrency": 1},
    {"max_concurrency": 3},
    {"max_restarts": 1},
    {"max_restarts": -1, "max_task_retries": 1},
    {"max_restarts": 2, "max_task_retries": -1},
    {"max_task_retries": 2},
    {"num_cpus": 1},
    {"num_cpus": 0.5},
    {"num_gpus": 1},
    {"resources": {"custom": 1}},
    {"concurrency_groups": {"io": 2, "compute": 1}},
    {"lifetime": "detached"},
    {"lifetime": "non_detached"},
    {"namespace": "elsewhere"},
    {"max_pending_calls": 1000},
    {"allow_out_of_order_execution": True},
    {"allow_out_of_order_execution": False},
    {"runtime_env": {"env_vars": {"DIFFERENTIAL_A": "2"}}},
    {"scheduling_strategy": "SPREAD"},
    {"label_selector": {"zone": "here"}},
    {"enable_task_events": False},
    {"get_if_exists": True},
    {"max_retries": 2},
    {"num_returns": 2},
)
_CRASHES: tuple[Json, ...] = (
    {"do": "end", "code": 1},
    {"do": "end", "code": 0},
    {"do": "exit"},
    {"do": "exit", "code": 0},
    {"do": "exit", "code": 4},
    {"do": "exit", "code": "text"},
    {"do": "leave"},
    {"do": "raise", "what": exception("NotAnException")},
    {"do": "raise", "what": exception("GeneratorExit")},
)


@st.composite
def actors(draw: Any) -> Json:
    draft = Draft(draw)
    name: str | None = None
    for number in range(draft.number(1, 2)):
        options: dict[str, Json] = {}
        for _ in range(draft.number(0, 2)):
            options.update(draft.pick(*_ACTOR_OPTIONS))
        if draft.chance(3):
            name = draft.pick("first", "second")
            options["name"] = {"$": "name", "v": name}
        kind = draft.pick(*CLASSES) if draft.chance(3) else draft.pick("Sync", "Sync", "Async")
        if kind == "Grouped":
            options["concurrency_groups"] = {"io": 2, "compute": 1}
        args: list[Json] = []
        if draft.chance(5):
            args = [draft.pick(draft.work(), 3, body({"do": "end", "code": 1}), body({"do": "exit", "code": 1}))]
        how = "decorator" if "concurrency_groups" in options else draft.pick("options", "decorator", "_remote")
        step = {"do": "actor", "c": kind, "args": args, "options": options, "how": how}
        draft.add(step, "actor")
        if number and draft.chance():
            draft.add({"do": "operator", "name": "eq", "args": [var(each) for each in draft.known["actor"]]})
    for _ in range(draft.number(1, 5)):
        _actor_step(draft, name)
    draft.look_at_all()
    draft.add({"do": "named", "expected": None, "all": True} if draft.chance(4) else {"do": "make", "what": None})
    return {"kind": "actors", "steps": draft.steps}


def _actor_step(draft: Draft, name: str | None) -> None:
    actor = draft.a("actor")
    choice = draft.number(0, 13)
    if choice <= 2:
        draft.add({"do": "call", "a": actor, "m": "add", "args": draft.pick([], [2], [3, 4], ["x"])}, "ref")
    elif choice <= 5:
        args = draft.arguments()
        options: Json = {}
        if draft.chance(4):
            options = draft.pick(*_METHOD_OPTIONS)
        returns = options.get("num_returns", 1) if isinstance(options, dict) else 1
        kind = "ref" if returns in (1, None) else "refs"
        draft.add({"do": "call", "a": actor, "m": "run", "args": [draft.work(len(args), is_async=True), *args], "options": options}, kind)
    elif choice == 6:
        method = draft.pick(
            "static",
            "of_class",
            "itself",
            "prop",
            "_private",
            "label",
            "total",
            "__len__",
            "value_of",
            "value",
            "free",
            "plain",
            "none_such",
            "__init__",
        )
        args = draft.pick([], [], [5])
        draft.add({"do": "call", "a": actor, "m": method, "args": args}, "ref")
    elif choice == 7:
        draft.add({"do": "call", "a": actor, "m": "run", "args": [body(draft.pick(*_CRASHES))], "crashes": True})
    elif choice == 8:
        draft.add({"do": "kill", "what": actor, "options": draft.pick({}, {"no_restart": False}, {"no_restart": True})})
    elif choice == 9:
        method = draft.pick("two", "tries")
        work = draft.work()
        draft.add({"do": "call", "a": actor, "m": method, "args": [work]}, "refs" if method == "two" else "ref")
    elif choice == 10:
        called = {"$": "name", "v": name or "nobody"}
        options = draft.pick({}, {}, {"namespace": "elsewhere"}, {"namespace": ""}, {"namespace": "programs"})
        draft.add({"do": "verb", "name": "get_actor", "args": [called], "kwargs": options}, "actor" if name and draft.chance() else None)
    elif choice == 11:
        inner = {"do": "call", "a": var("a0"), "m": "add", "to": "r"}
        work = body(inner, {"do": "get", "what": var("r")})
        draft.add({"do": "task", "f": "plain", "args": [work, actor]}, "ref")
    elif choice == 12:
        draft.add(
            {"do": "call", "a": actor, "m": "signature", "args": draft.arguments(), "kwargs": draft.pick({}, {"c": 1}, {"z": 1})}, "ref"
        )
    else:
        method = draft.pick("__ray_ready__", "__ray_call__", "__ray_terminate__")
        args = [odd("lambda")] if method == "__ray_call__" else []
        draft.add({"do": "call", "a": actor, "m": method, "args": args, "crashes": method == "__ray_terminate__"})
    if draft.chance(3):
        draft.look()


_METHOD_OPTIONS: tuple[Json, ...] = (
    {"num_returns": 1},
    {"num_returns": 2},
    {"num_returns": 0},
    {"name": "called"},
    {"max_task_retries": 1},
    {"max_task_retries": -1},
    {"retry_exceptions": True, "max_task_retries": 2},
    {"retry_exceptions": True},
    {"enable_task_events": False},
    {"num_cpus": 1},
    {"runtime_env": {}},
    {"nothing": 1},
    {"num_returns": "streaming"},
    {"num_returns": "dynamic"},
    {"num_returns": -1},
    {"num_returns": "x"},
)


@st.composite
def cancellations(draw: Any) -> Json:
    draft = Draft(draw)
    blocked: list[tuple[str, str]] = []
    for _ in range(draft.number(1, 3)):
        key = draft.key()
        kind = draft.pick("task", "task", "nested", "waiting", "Async", "Sync", "done", "generator", "queued")
        options = draft.pick({}, {}, {"force": True}, {"recursive": False}, {"force": True, "recursive": True})
        block = {"do": "block", "key": key}
        if kind == "task":
            task = draft.add({"do": "task", "f": "plain", "args": [body(block)], "options": draft.retries()}, "ref")
            draft.add({"do": "cancel", "what": var(str(task)), "started": key, "options": options})
        elif kind == "nested":
            work = body({"do": "task", "f": "plain", "args": [body(block)], "to": "r"}, {"do": "get", "what": var("r")})
            task = draft.add({"do": "task", "f": "plain", "args": [work]}, "ref")
            draft.add({"do": "cancel", "what": var(str(task)), "started": key, "options": options})
        elif kind == "waiting":
            first = draft.add({"do": "task", "f": "plain", "args": [body(block)]}, "ref")
            task = draft.add({"do": "task", "f": "many", "args": [var(str(first))]}, "ref")
            draft.add({"do": "cancel", "what": var(str(task)), "started": key, "options": options})
            draft.add({"do": "get", "what": var(str(task))})
            draft.add({"do": "release", "key": key})
        elif kind == "queued":
            first = draft.add({"do": "task", "f": "plain", "args": [body(block)], "options": {"resources": {"custom": 2}}}, "ref")
            draft.add({"do": "started", "key": key})
            task = draft.add({"do": "task", "f": "many", "args": [], "options": {"resources": {"custom": 1}}}, "ref")
            draft.add({"do": "cancel", "what": var(str(task)), "options": options})
            draft.add({"do": "get", "what": var(str(task))})
            draft.add({"do": "release", "key": key})
        elif kind in ("Async", "Sync"):
            actor = draft.add({"do": "actor", "c": kind}, "actor")
            first = draft.add({"do": "call", "a": var(str(actor)), "m": "run", "args": [body(block)]}, "ref")
            if draft.chance() and kind == "Sync":
                draft.add({"do": "started", "key": key})
                task = draft.add({"do": "call", "a": var(str(actor)), "m": "add"}, "ref")
                draft.add({"do": "cancel", "what": var(str(task)), "options": options})
                draft.add({"do": "release", "key": key})
            else:
                draft.add({"do": "cancel", "what": var(str(first)), "started": key, "options": options})
                if kind == "Sync":  # nothing but this ends it; a coroutine might end by it before the cancel is there
                    draft.add({"do": "release", "key": key})
            draft.add({"do": "get", "what": var(str(first))})
            draft.add({"do": "call", "a": var(str(actor)), "m": "signature", "args": [1]}, "ref")
        elif kind == "done":
            task = draft.add({"do": "task", "f": "plain", "args": [draft.work()]}, "ref")
            draft.add({"do": "wait", "what": [var(str(task))], "options": {}})
            draft.add({"do": "cancel", "what": var(str(task)), "options": options})
        else:
            work = body({"do": "make", "what": 1}, block)
            made = draft.add({"do": "task", "f": "items", "args": [work]}, "generator")
            draft.add({"do": "cancel", "what": var(str(made)), "started": key, "options": options})
            draft.add({"do": "items", "what": var(str(made))})
        blocked.append((kind, key))
    draft.look_at_all()
    ref = draft.a("ref")
    if ref and draft.chance():
        draft.add({"do": "task", "f": "many", "args": [draft.pick(ref, [ref])]}, "ref")
        draft.add({"do": "get", "what": var(draft.known["ref"][-1])})
    for _kind, key in blocked:
        draft.add({"do": "release", "key": key})
    return {"kind": "cancellations", "steps": draft.steps}


@st.composite
def groups(draw: Any) -> Json:
    """Placement groups, and other places for tasks."""
    draft = Draft(draw)
    bundles = [
        draft.pick(
            {"CPU": 1},
            {"CPU": 1},
            {"CPU": 2},
            {"CPU": 0.5},
            {"custom": 1},
            {"CPU": 1, "GPU": 1},
            {},
            {"CPU": 0},
            {"CPU": -1},
            {"CPU": "x"},
            3,
        )
        for _ in range(draft.number(0, 2))
    ]
    kwargs = draft.pick(
        {}, {}, {"strategy": "SPREAD"}, {"strategy": "STRICT_PACK"}, {"strategy": "x"}, {"name": "g"}, {"name": 3}, {"lifetime": "x"}
    )
    group = draft.add({"do": "group", "args": [bundles], "kwargs": kwargs}, "group")
    group_var = var(str(group))
    for _ in range(draft.number(1, 4)):
        choice = draft.number(0, 8)
        if choice == 0:
            draft.add({"do": "attribute", "what": group_var, "name": "wait", "args": draft.pick([5], [], [5.5], ["x"])})
        elif choice == 1:
            draft.add({"do": "attribute", "what": group_var, "name": "ready", "args": []}, "ref")
            draft.look()
        elif choice == 2:
            name = draft.pick("bundle_specs", "bundle_count", "id", "is_empty", "empty", "bundle_cache", "none_such")
            draft.add({"do": "attribute", "what": group_var, "name": name})
        elif choice == 3:
            draft.add({"do": "attribute", "what": group_var, "name": "wait", "args": [10]})
            draft.add({"do": "table", "what": group_var})
        elif choice in (4, 5):
            options = draft.pick(
                {},
                {"placement_group_bundle_index": 0},
                {"placement_group_bundle_index": 1},
                {"placement_group_bundle_index": 5},
                {"placement_group_bundle_index": -2},
                {"placement_group_capture_child_tasks": True},
                {"placement_group_bundle_index": "x"},
            )
            place = {"scheduling_strategy": {"$": "strategy", "v": ["group", group_var, options]}}
            needs = draft.pick({}, {"num_cpus": 0}, {"num_cpus": 1}, {"num_cpus": 5}, {"resources": {"custom": 1}, "num_cpus": 0})
            if choice == 4:
                work = body(
                    {"do": "context", "name": draft.pick("get_assigned_resources", "should_capture_child_tasks_in_placement_group")}
                )
                draft.add({"do": "task", "f": "plain", "args": [work], "options": {**place, **needs}}, "ref")
            else:
                actor = draft.add({"do": "actor", "c": "Sync", "options": {**place, **needs}}, "actor")
                draft.add(
                    {"do": "call", "a": var(str(actor)), "m": "run", "args": [body({"do": "context", "name": "get_assigned_resources"})]},
                    "ref",
                )
            draft.look()
        elif choice == 6:
            draft.add({"do": "operator", "name": draft.pick("pickle", "eq", "bool", "hash"), "args": [group_var]})
        elif choice == 7:
            draft.add({"do": "resources"})
        else:
            draft.add({"do": "ungroup", "what": draft.pick(group_var, 3, None)})
            draft.add({"do": "resources"})
    return {"kind": "groups", "steps": draft.steps}


@st.composite
def options(draw: Any) -> Json:
    """Options with any value, right and wrong."""
    draft = Draft(draw)
    for _ in range(draft.number(2, 6)):
        chosen = {draft.pick(*_OPTION_NAMES): draft.pick(*_OPTION_VALUES) for _ in range(draft.number(1, 2))}
        how = draft.pick("options", "decorator", "_remote")
        kind = draft.pick("task", "actor", "method", "decorate")
        if kind == "task":
            draft.add(
                {"do": "attribute", "what": {"$": "function", "v": draft.pick("nothing", "items")}, "name": "options", "kwargs": chosen}
            )
        elif kind == "actor":
            draft.add(
                {"do": "attribute", "what": {"$": "actor class", "v": draft.pick("Sync", "Async")}, "name": "options", "kwargs": chosen}
            )
        elif kind == "method":
            wanted = draft.pick(
                "num_returns",
                "concurrency_group",
                "max_task_retries",
                "retry_exceptions",
                "enable_task_events",
                "tensor_transport",
                "_generator_backpressure_num_objects",
                "name",
            )
            draft.add({"do": "verb", "name": "method", "kwargs": {wanted: draft.pick(*_OPTION_VALUES)}})
        else:
            draft.add({"do": "verb", "name": "remote", "kwargs": chosen, "args": draft.pick([], [], [odd("lambda")], [3]), "how": how})
    return {"kind": "options", "steps": draft.steps}


_OPTION_NAMES = (
    "num_cpus",
    "num_gpus",
    "resources",
    "memory",
    "name",
    "max_retries",
    "retry_exceptions",
    "num_returns",
    "max_calls",
    "accelerator_type",
    "object_store_memory",
    "placement_group",
    "placement_group_bundle_index",
    "placement_group_capture_child_tasks",
    "runtime_env",
    "scheduling_strategy",
    "enable_task_events",
    "_labels",
    "label_selector",
    "fallback_strategy",
    "_generator_backpressure_num_objects",
    "concurrency_groups",
    "enable_tensor_transport",
    "lifetime",
    "max_concurrency",
    "max_restarts",
    "max_task_retries",
    "max_pending_calls",
    "namespace",
    "get_if_exists",
    "allow_out_of_order_execution",
    "_metadata",
    "nothing",
)
_OPTION_VALUES: tuple[Json, ...] = (
    None,
    0,
    1,
    2,
    -1,
    -2,
    1.5,
    0.00001,
    0.5,
    True,
    False,
    "",
    "x",
    "detached",
    "dynamic",
    "streaming",
    "SPREAD",
    [],
    [1],
    {},
    {"a": 1},
    {"a": "b"},
    {"CPU": 1},
    {"GPU": 1},
    {"memory": 1},
    {"a": -1},
    {"a": 0},
    {"a": 0.00001},
    {"a": "in(b,c)"},
    {"a": None},
    {"env_vars": {"A": "1"}},
    {"env_vars": {"A": 1}},
    {"env_vars": 3},
    {"working_dir": "/none/such"},
    {"working_dir": 3},
    {"nothing": 1},
    {"py_modules": 3},
    odd("lambda"),
    odd("exception class"),
    [odd("exception class")],
    odd("class"),
    1 << 40,
    "default",
    {"$": "tuple", "v": [1]},
    {"config": {"setup_timeout_seconds": -5}},
    [{"label_selector": {"a": "b"}}],
)


@st.composite
def misuse(draw: Any) -> Json:
    """Every verb, given what it does not expect."""
    draft = Draft(draw)
    draft.add({"do": "put", "what": 1}, "ref")
    draft.add({"do": "task", "f": "nothing"}, "ref")
    draft.add({"do": "actor", "c": draft.pick("Sync", "Async", "Empty", "NoInit")}, "actor")
    draft.add({"do": "task", "f": "items", "args": [body({"do": "make", "what": 1})]}, "generator")
    things = [
        *(var(name) for kind in draft.known.values() for name in kind),
        {"$": "function", "v": "nothing"},
        {"$": "actor class", "v": "Sync"},
    ]
    odds: list[Json] = [None, 3, "x", [], {}, 1.5, odd("lambda"), odd("class"), odd("exception"), odd("bytes"), odd("set"), -1]

    def thing() -> Json:
        chosen = draft.pick(*things, *odds)
        return draft.pick(chosen, [chosen], chosen)

    for _ in range(draft.number(2, 6)):
        choice = draft.number(0, 5)
        if choice <= 2:
            verb, allowed = draft.pick(*_VERBS)
            kwargs = {key: draft.pick(None, 0, 1, -1, 2, 0.0, "x", True, []) for key in allowed if draft.chance(3)}
            if verb == "get" and kwargs.get("timeout") is None:
                kwargs["timeout"] = 20
            if verb == "wait":
                kwargs["timeout"] = kwargs.get("timeout") or 20
            draft.add({"do": "verb", "name": verb, "args": [thing() for _ in range(draft.pick(1, 1, 1, 0, 2))], "kwargs": kwargs})
        elif choice == 3:
            draft.add(
                {
                    "do": "operator",
                    "name": draft.pick("pickle", "bool", "len", "iter", "hash", "list", "next"),
                    "args": [draft.pick(*things)],
                }
            )
        elif choice == 4:
            draft.add({"do": "attribute", "what": draft.pick(*things), "name": draft.pick(*_ATTRIBUTES), "args": draft.pick([], [], [1])})
        else:
            draft.add(
                {
                    "do": "operator",
                    "name": draft.pick("add", "eq", "lt", "call", "contains", "getitem"),
                    "args": [draft.pick(*things), draft.pick(*things, 3)],
                }
            )
    return {"kind": "misuse", "steps": draft.steps}


_VERBS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("get", ("timeout", "nothing")),
    ("wait", ("num_returns", "timeout", "fetch_local")),
    ("put", ("_owner", "nothing")),
    ("kill", ("no_restart",)),
    ("cancel", ("force", "recursive")),
    ("get_actor", ("namespace",)),
    ("remote", ()),
    ("method", ("num_returns",)),
    ("nodes", ()),
    ("init", ("num_cpus", "nothing")),
    ("is_initialized", ()),
    ("get_gpu_ids", ()),
    ("util.placement_group_table", ()),
    ("util.remove_placement_group", ()),
    ("util.get_placement_group", ()),
    ("util.get_current_placement_group", ()),
    ("util.list_named_actors", ("all_namespaces",)),
    ("util.register_serializer", ("serializer", "deserializer")),
    ("util.deregister_serializer", ()),
    ("util.as_completed", ("chunk_size", "yield_computed_refs")),
    ("util.map_unordered", ("chunk_size",)),
    ("util.ActorPool", ()),
    ("actor.exit_actor", ()),
    ("experimental.get_object_locations", ()),
    ("ObjectRef", ()),
    ("ObjectRef.from_hex", ()),
    ("ActorID.from_hex", ()),
    ("TaskID", ()),
    ("JobID.from_int", ()),
    ("NodeID.from_random", ()),
    ("exceptions.RayTaskError", ()),
    ("exceptions.ActorDiedError", ()),
    ("exceptions.TaskCancelledError", ()),
    ("exceptions.GetTimeoutError", ()),
    ("util.scheduling_strategies.NodeAffinitySchedulingStrategy", ("soft",)),
    ("util.scheduling_strategies.PlacementGroupSchedulingStrategy", ("placement_group_bundle_index",)),
    ("util.scheduling_strategies.NodeLabelSchedulingStrategy", ("soft", "hard")),
    ("util.scheduling_strategies.In", ()),
    ("runtime_env.RuntimeEnv", ("pip", "env_vars", "working_dir", "nothing")),
    ("runtime_env.RuntimeEnvConfig", ("setup_timeout_seconds", "eager_install", "log_files")),
    ("LoggingConfig", ("encoding", "log_level")),
)
_ATTRIBUTES = (
    "remote",
    "options",
    "bind",
    "hex",
    "binary",
    "__call__",
    "_remote",
    "__name__",
    "__doc__",
    "__module__",
    "__qualname__",
    "future",
    "is_finished",
    "completed",
    "add",
    "add.remote",
    "add.options",
    "pid.bind",
    "none_such",
    "_actor_id",
    "_ray_actor_id",
    "__class__",
    "__self__",
    "__wrapped__",
    "close",
    "method",
    "add.__call__",
    "__len__",
)


@st.composite
def contexts(draw: Any) -> Json:
    """The runtime context of a task, a method and a driver; environments, resources."""
    draft = Draft(draw)
    looks = [
        {
            "do": "try",
            "what": draft.pick(
                {"do": "context", "name": draft.pick(*_CONTEXT)},
                {"do": "environ", "name": draft.pick(*_VARIABLES)},
                {"do": "verb", "name": draft.pick("get_gpu_ids", "is_initialized", "util.get_current_placement_group")},
            ),
        }
        for _ in range(draft.number(1, 4))
    ]
    collected = [{**look, "to": f"l{number}"} for number, look in enumerate(looks)]
    work = body(*collected, {"do": "make", "what": [var(f"l{number}") for number in range(len(looks))]})
    for _ in range(draft.number(1, 3)):
        kind = draft.pick("task", "nested", "Sync", "Async", "driver", "thread")
        chosen = draft.pick(
            *_TASK_OPTIONS[:18],
            {"runtime_env": {"env_vars": {"DIFFERENTIAL_B": "${DIFFERENTIAL_A}x", "PATH": "${PATH}:/x"}}},
            {"num_cpus": 3},
        )
        if kind == "task":
            draft.add({"do": "task", "f": "plain", "args": [work], "options": chosen}, "ref")
        elif kind == "nested":
            inner = body({"do": "task", "f": "plain", "args": [work], "to": "r"}, {"do": "get", "what": var("r")})
            draft.add({"do": "task", "f": "plain", "args": [inner], "options": chosen}, "ref")
        elif kind in ("Sync", "Async"):
            chosen = {key: value for key, value in chosen.items() if key not in ("max_calls", "num_returns")}
            if draft.chance(3):
                chosen["name"] = {"$": "name", "v": "named"}
            actor = draft.add({"do": "actor", "c": kind, "options": chosen}, "actor")
            draft.add({"do": "call", "a": var(str(actor)), "m": "run", "args": [work]}, "ref")
        else:
            for look in looks:
                draft.add(look)
    draft.look_at_all()
    return {"kind": "contexts", "steps": draft.steps}


_VARIABLES = ("DIFFERENTIAL_A", "DIFFERENTIAL_B", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")


KINDS: dict[str, Callable[[], st.SearchStrategy[Json]]] = {
    "tasks": tasks,
    "errors": errors,
    "objects": objects,
    "generators": generators,
    "actors": actors,
    "cancellations": cancellations,
    "groups": groups,
    "options": options,
    "misuse": misuse,
    "contexts": contexts,
}
