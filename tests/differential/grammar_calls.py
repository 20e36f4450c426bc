"""More programs of tasks and actors: names, groups of threads, waits, retries, streams, coroutines, references within values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.differential.grammar import Draft, Json, body, exception, odd, var


def _name(name: str) -> Json:
    return {"$": "name", "v": name}


@st.composite
def names(draw: Any) -> Json:
    """Actors with names and namespaces, `get_if_exists`, lifetimes, and when a name is free again."""
    draft = Draft(draw)
    for _ in range(draft.number(2, 7)):
        name = _name(draft.pick("first", "second"))
        place = draft.pick({}, {}, {"namespace": "elsewhere"}, {"namespace": "programs"}, {"namespace": ""})
        choice = draft.number(0, 8)
        if choice <= 2:
            options = {"name": name, **place, **draft.pick({}, {"get_if_exists": True}, {"get_if_exists": True}, {"get_if_exists": False})}
            options.update(draft.pick({}, {}, {"lifetime": "detached"}, {"lifetime": "non_detached"}, {"lifetime": None}))
            how = draft.pick("options", "options", "decorator", "_remote")
            made = draft.add({"do": "actor", "c": draft.pick("Sync", "Sync", "Async"), "options": options, "how": how}, "actor")
            draft.add({"do": "call", "a": var(str(made)), "m": "add"}, "ref")
            draft.add({"do": "get", "what": draft.a("ref")})
        elif choice == 3:
            draft.add({"do": "verb", "name": "get_actor", "args": [name], "kwargs": place}, "actor")
            draft.add({"do": "call", "a": draft.a("actor"), "m": "add"}, "ref")
            draft.add({"do": "get", "what": draft.a("ref")})
        elif choice == 4 and draft.known.get("actor"):
            draft.add({"do": "kill", "what": draft.a("actor"), "options": draft.pick({}, {"no_restart": False})})
            draft.add({"do": "gone", "name": name, "options": place, "patience": 2})
        elif choice == 5 and draft.known.get("actor"):
            for gone in draft.known.pop("actor"):
                draft.add({"do": "clean", "what": gone})
            draft.known.pop("ref", None)
            draft.add({"do": "gone", "name": name, "options": place, "patience": 2})
        elif choice == 6:
            draft.add({"do": "named", "expected": None, "all": draft.pick(True, False)})
        elif choice == 7:
            work = body(
                {"do": "verb", "name": "get_actor", "args": [name], "kwargs": place, "to": "found"},
                {"do": "call", "a": var("found"), "m": "add", "args": [10], "to": "r"},
                {"do": "get", "what": var("r")},
            )
            draft.add({"do": "task", "f": "plain", "args": [work]}, "ref")
            draft.add({"do": "get", "what": var(draft.known["ref"][-1])})
        elif choice == 8:
            # An actor that another process makes ends with it or its handle, unless it is detached.
            lifetime = draft.pick({}, {"lifetime": "detached"})
            work = body(
                {"do": "actor", "c": "Sync", "options": {"name": name, **place, **lifetime}, "to": "made"},
                {"do": "call", "a": var("made"), "m": "add", "to": "r"},
                {"do": "get", "what": var("r")},
            )
            draft.add({"do": "task", "f": "plain", "args": [work]}, "ref")
            draft.add({"do": "get", "what": var(draft.known["ref"][-1])})
            if lifetime:
                draft.add({"do": "verb", "name": "get_actor", "args": [name], "kwargs": place}, "actor")
            else:
                draft.add({"do": "gone", "name": name, "options": place, "patience": 5})
    return {"kind": "names", "steps": draft.steps}


@st.composite
def concurrency(draw: Any) -> Json:
    """How many calls of which group run beside each other."""
    draft = Draft(draw)
    kind = draft.pick("Grouped", "GroupedAsync", "Grouped", "Sync", "Async")
    groups = {"io": draft.pick(1, 2, 2), "compute": 1, **draft.pick({}, {"free": 1})}
    options: dict[str, Json] = {} if kind in ("Sync", "Async") else {"concurrency_groups": groups}
    if draft.chance(3) or kind in ("Sync", "Async"):
        options["max_concurrency"] = draft.pick(1, 2, 3)
    actor = var(str(draft.add({"do": "actor", "c": kind, "options": options, "how": "decorator"}, "actor")))
    limit = groups["io"] if kind.startswith("Grouped") else options["max_concurrency"]
    beside = kind.startswith("Grouped")
    keys, begun = [draft.key() for _ in range(limit + 1)], 0
    for key in keys[: draft.number(1, limit + 1)]:
        how = draft.pick({}, {}, {"options": {"concurrency_group": "io"}}) if beside else {}
        draft.add({"do": "call", "a": actor, "m": "run", "args": [body({"do": "block", "key": key})], **how}, "blocked")
        if begun < limit:
            draft.add({"do": "started", "key": key})
        begun += 1
    if beside:
        for _ in range(draft.number(1, 3)):
            chosen = draft.pick({}, {}, {"options": {"concurrency_group": "compute"}})
            method = draft.pick("add", "free")
            args = [] if method == "add" else [body({"do": "context", "name": draft.pick("get_task_function_name", "get_task_name")})]
            draft.add({"do": "call", "a": actor, "m": method, "args": args, **chosen}, "ref")
            draft.add({"do": "get", "what": draft.a("ref")})
    for key in keys:
        draft.add({"do": "has_started", "key": key})
    blocked = [var(name) for name in draft.known["blocked"]]
    draft.add({"do": "ready", "what": blocked, "options": {"timeout": 0, "num_returns": len(blocked)}})
    if draft.chance():
        draft.add({"do": "release", "key": keys[0]})
        draft.add({"do": "get", "what": blocked[0]})
        if begun > limit:
            draft.add({"do": "started", "key": keys[limit]})
    elif begun > limit:
        draft.add({"do": "cancel", "what": blocked[-1]})
        draft.add({"do": "get", "what": blocked[-1]})
    for key in keys:
        draft.add({"do": "release", "key": key})
    draft.add({"do": "each", "what": blocked})
    if draft.chance(3):
        chosen = draft.pick("nowhere", "io", 3, "")
        draft.add({"do": "call", "a": actor, "m": "pid", "options": {"concurrency_group": chosen}}, "ref")
        draft.add({"do": "wait", "what": [draft.a("ref")], "options": {"timeout": 10}})
    if beside and draft.chance():
        work = body({"do": "raise", "what": exception("WithFields")})
        draft.add({"do": "call", "a": actor, "m": "run", "args": [work]}, "ref")
        draft.add({"do": "each", "what": [var(draft.known["ref"][-1])]})
    return {"kind": "concurrency", "steps": draft.steps}


@st.composite
def waits(draw: Any) -> Json:
    """`wait` and `get` with a time limit, of what is ready, is not, has failed, or is many things at once."""
    draft = Draft(draw)
    keys, settled, blocked = [], [], []
    for _ in range(draft.number(1, 4)):
        choice = draft.number(0, 5)
        if choice == 0:
            settled.append(str(draft.add({"do": "put", "what": draft.value(refs=False)}, "ref")))
        elif choice == 1:
            settled.append(str(draft.add({"do": "task", "f": "signature", "args": draft.pick([1], [], [1, 2, 3])}, "ref")))
        elif choice == 2:
            settled.append(
                str(draft.add({"do": "task", "f": "plain", "args": [body({"do": "raise", "what": exception("Simple")})]}, "ref"))
            )
        elif choice == 3 and blocked:
            given = var(draft.pick(*blocked))
            blocked.append(str(draft.add({"do": "task", "f": "many", "args": draft.pick([given], [given, 1])}, "ref")))
        else:
            key = draft.key()
            keys.append(key)
            blocked.append(
                str(draft.add({"do": "task", "f": "plain", "args": [body({"do": "block", "key": key})], "options": {"num_cpus": 0}}, "ref"))
            )
    every = [var(name) for name in settled + blocked]
    for _ in range(draft.number(1, 4)):
        chosen = draw(st.lists(st.sampled_from(settled + blocked), min_size=1, max_size=4, unique=not draft.chance(8)))
        done = [name for name in settled if name in chosen]
        options: dict[str, Json] = {"num_returns": draft.number(1, len(chosen) + draft.pick(0, 0, 0, 1))}
        options["timeout"] = draft.pick(0, 0.1, 0.05) if options["num_returns"] > len(done) else draft.pick(None, 0, 5)
        if draft.chance(3):
            options["fetch_local"] = draft.pick(True, False)
        draft.add({"do": "ready", "what": [var(name) for name in chosen], "settled": [var(name) for name in done], "options": options})
        if blocked and draft.chance(3):
            name = draft.pick(*blocked)
            draft.add(
                {
                    "do": "get",
                    "what": var(name),
                    "timeout": draft.pick(0, 0.05),
                }
            )
    for key in keys:
        draft.add({"do": "release", "key": key})
    draft.add({"do": "ready", "what": every, "settled": every, "options": {"num_returns": len(every), "timeout": 10}})
    draft.add({"do": "each", "what": every})
    return {"kind": "waits", "steps": draft.steps}


_TRIED = (
    "ValueError",
    "KeyError",
    "OwnLookup",
    "OwnKey",
    "LookupError",
    "Simple",
    "WithFields",
    "Both",
    "OSError",
    "FileNotFoundError",
    "RayError",
)


@st.composite
def retries(draw: Any) -> Json:
    """Which errors are tried again, by classes and their bases, how often, in tasks and in methods; and what is caught."""
    draft = Draft(draw)
    for _ in range(draft.number(1, 3)):
        key = draft.key()
        raised = draft.pick(*_TRIED)
        failure = draft.pick(
            {"do": "raise", "what": exception(raised)},
            {"do": "raise", "what": exception(raised)},
            {"do": "raise_from", "what": exception(raised), "cause": exception(draft.pick(*_TRIED))},
            {"do": "end", "code": 1},
            {"do": "exit", "code": 2},
        )
        work = body({"do": "fail_until", "key": key, "n": draft.number(1, 5), "what": failure})
        classes = [{"$": "exception class", "v": draft.pick(*_TRIED)} for _ in range(draft.number(1, 2))]
        which = draft.pick(True, False, classes, classes, {"$": "tuple", "v": classes}, [])
        where = draft.pick("task", "task", "nested", "Refuses", "method", "stream")
        if where in ("task", "nested", "stream"):
            options: dict[str, Json] = {"retry_exceptions": which, "max_retries": draft.pick(0, 1, 2, 3)}
            if draft.chance(6):
                del options["max_retries"]
            if where == "task":
                draft.add(
                    {"do": "task", "f": "plain", "args": [work], "options": options, "how": draft.pick("options", "decorator")}, "ref"
                )
            elif where == "stream":
                made = body({"do": "make", "what": 1}, *work["v"])
                name = draft.add({"do": "task", "f": "items", "args": [made], "options": options}, "generator")
                draft.add({"do": "items", "what": var(str(name))})
            else:
                inner = body({"do": "task", "f": "plain", "args": [work], "options": options, "to": "r"}, {"do": "get", "what": var("r")})
                outer = {"max_retries": 1, "retry_exceptions": draft.pick(False, [{"$": "exception class", "v": draft.pick(*_TRIED)}])}
                draft.add({"do": "task", "f": "plain", "args": [inner], "options": outer}, "ref")
        else:
            options = draft.pick(
                {}, {"max_task_retries": 2}, {"max_task_retries": -1}, {"max_task_retries": 1, "max_restarts": 1}, {"max_restarts": 4}
            )
            actor = draft.add({"do": "actor", "c": "Refuses", "options": options}, "actor")
            call: dict[str, Json] = {"do": "call", "a": var(str(actor)), "args": [work]}
            if where == "Refuses":
                call["m"] = draft.pick("lookups", "never", "not_at_all", "always", "plain")
                if draft.chance(3):
                    call["options"] = draft.pick({"max_task_retries": 1}, {"retry_exceptions": which})
            else:
                call["m"] = "plain"
                call["options"] = {"retry_exceptions": which, **draft.pick({}, {"max_task_retries": 1}, {"max_task_retries": 3})}
            draft.add(call, "ref")
        if draft.known.get("ref"):
            draft.add({"do": "get", "what": var(draft.known["ref"][-1])})
        # How often a call was tried whose actor died is chance on Ray: what comes while it restarts fails.
        if where in ("task", "nested", "stream") or failure["do"].startswith("raise"):
            draft.add({"do": "made", "key": key})
    return {"kind": "retries", "steps": draft.steps}


@st.composite
def methods(draw: Any) -> Json:
    """The options of `@method`, and the options of its call in their place."""
    draft = Draft(draw)
    actor = var(str(draft.add({"do": "actor", "c": "Refuses", "options": draft.pick({}, {"max_concurrency": 2})}, "actor")))
    for _ in range(draft.number(1, 4)):
        method = draft.pick("stream", "dynamic", "none", "unseen", "plain", "stream", "dynamic")
        work = body(*({"do": "make", "what": draft.value(refs=False)} for _ in range(draft.number(1, 3))))
        if draft.chance(4):
            work["v"].append({"do": "raise", "what": exception(draft.pick("Simple", "WithFields", "StopIteration", "TextRaises"))})
        options = draft.pick({}, {}, {"num_returns": draft.pick(1, 2, 0, "streaming", "dynamic")}, {"name": "called"})
        draft.add({"do": "call", "a": actor, "m": method, "args": [work], "options": options, "to": f"m{len(draft.steps)}"})
        made = var(f"m{len(draft.steps) - 1}")
        if draft.chance(3):
            draft.add({"do": "attribute", "what": actor, "name": method, "args": []})
        draft.add({"do": "get", "what": made, "timeout": 10, "to": f"g{len(draft.steps)}"})
        got = var(f"g{len(draft.steps) - 1}")
        draft.add({"do": "items", "what": draft.pick(made, got)})
    return {"kind": "methods", "steps": draft.steps}


@st.composite
def streams(draw: Any) -> Json:
    """Generators while they run: back-pressure, early ends, cancels, the generator's own methods, items that travel."""
    draft = Draft(draw)
    key, made = draft.key(), draft.key()
    many = draft.number(1, 4)
    where = draft.pick("task", "task", "Sync", "Async")
    marks = [{"do": "mark", "key": made, "value": number} for number in range(many)]
    plan = draft.pick("pressure", "blocked", "blocked", "async for", "passed", "failing", "shared")
    options: dict[str, Json] = draft.pick({}, {"num_returns": "streaming"})
    if plan == "pressure":
        options = {"num_returns": "streaming", "_generator_backpressure_num_objects": draft.pick(1, 2, 3)}
    steps: list[Json] = list(marks)
    if plan == "blocked":
        at = draft.number(0, many)
        steps.insert(at, {"do": "block", "key": key, "silent": True})
    elif plan == "failing":
        steps.insert(
            draft.number(0, many), {"do": "raise", "what": exception(draft.pick("Simple", "WithFields", "GeneratorExit", "TwoArguments"))}
        )
    if where == "task":
        step: Json = {"do": "task", "f": "items", "args": [body(*steps)], "options": options}
    else:
        actor = draft.add({"do": "actor", "c": where}, "actor")
        step = {"do": "call", "a": var(str(actor)), "m": "items", "args": [body(*steps)], "options": options}
    generator = var(str(draft.add(step, "generator")))
    if plan == "pressure":
        limit = options["_generator_backpressure_num_objects"]
        if where != "Async":
            draft.add({"do": "made", "key": made, "least": min(limit, many)})
        for taken in range(1, draft.number(0, many) + 1):
            draft.add({"do": "next", "what": generator}, "ref")
            if where != "Async":
                draft.add({"do": "made", "key": made, "least": min(limit + taken, many)})
    elif plan == "blocked":
        draft.add({"do": "started", "key": key})
        for _ in range(draft.number(0, at)):
            draft.add({"do": "next", "what": generator}, "ref")
        draft.add({"do": "attribute", "what": generator, "name": draft.pick("is_finished", "task_id"), "args": []})
        completed = draft.add({"do": "attribute", "what": generator, "name": "completed", "args": []}, "completed")
        draft.add({"do": "ready", "what": [var(str(completed))], "options": {"timeout": 0}})
        last = draft.pick("release", "release", "timeout" if where == "Sync" else "cancel", "timeout")
        if last == "timeout":
            draft.add({"do": "attribute", "what": generator, "name": "_next_sync", "args": [0.05]})
        if last == "cancel":
            draft.add({"do": "cancel", "what": generator})
            draft.add({"do": "items", "what": generator})
        draft.add({"do": "release", "key": key})
        if last != "cancel":
            draft.add({"do": "get", "what": var(str(completed))})
    elif plan == "async for":
        if draft.chance():
            draft.add({"do": "await", "how": "anext", "what": generator})
        draft.add({"do": "await", "how": "async for", "what": generator})
        draft.add({"do": "await", "how": "anext", "what": generator})
    elif plan == "passed":
        for _ in range(many):
            draft.add({"do": "next", "what": generator}, "ref")
            given = draft.pick(var(draft.known["ref"][-1]), [var(draft.known["ref"][-1])])
            work = body({"do": draft.pick("make", "each") if isinstance(given, list) else "make", "what": var("a0")})
            draft.add({"do": "task", "f": "plain", "args": [work, given]}, "out")
        draft.add({"do": "each", "what": [var(name) for name in draft.known["out"]]})
    elif plan == "shared":
        draft.add({"do": "wait", "what": [generator], "options": {"timeout": 10}})
        inner = body({"do": "items", "what": var("a0")})
        draft.add({"do": "task", "f": "plain", "args": [inner, draft.pick(generator, [generator])]}, "out")
        draft.add({"do": "each", "what": [var(draft.known["out"][-1])]})
    draft.add({"do": "items", "what": generator})
    draft.add({"do": "attribute", "what": generator, "name": "is_finished", "args": []})
    draft.add({"do": "each", "what": [var(name) for name in draft.known.get("ref", [])]})
    return {"kind": "streams", "steps": draft.steps}


@st.composite
def coroutines(draw: Any) -> Json:
    """References in coroutines: of the driver, of tasks, of async actors."""
    draft = Draft(draw)
    key = draft.key()
    refs: list[Json] = []
    for _ in range(draft.number(1, 3)):
        work = draft.pick(
            body({"do": "make", "what": draft.value(refs=False)}),
            body(
                {
                    "do": "raise",
                    "what": exception(draft.pick("Simple", "WithFields", "KeyError", "StopIteration", "CancelledError", "TimeoutError")),
                }
            ),
        )
        if draft.chance(4):
            refs.append(var(str(draft.add({"do": "put", "what": draft.value(refs=False)}, "ref"))))
        else:
            refs.append(var(str(draft.add({"do": "task", "f": "plain", "args": [work]}, "ref"))))
    hangs = draft.chance(3)
    if hangs:
        hanging = var(
            str(draft.add({"do": "task", "f": "plain", "args": [body({"do": "block", "key": key})], "options": {"num_cpus": 0}}, "ref"))
        )
    for _ in range(draft.number(1, 3)):
        step: Json = draft.pick(
            {"do": "await", "how": "await", "what": draft.pick(*refs)},
            {"do": "await", "how": "gather", "what": refs},
            {"do": "await", "how": "gather", "what": refs[:1], "all": False},
            {"do": "await", "how": "wait_for", "what": draft.pick(*refs), "timeout": 10},
            {"do": "await", "how": "wait_for", "what": draft.pick(*refs), "timeout": 10, "bare": True},
            {"do": "await", "how": "wait", "what": refs, "timeout": 10},
            {"do": "await", "how": "future", "what": draft.pick(*refs)},
        )
        if hangs and draft.chance():
            step = draft.pick(
                {"do": "await", "how": "wait_for", "what": hanging, "timeout": 0.05},
                {"do": "await", "how": "wait_for", "what": hanging, "timeout": 0.05, "bare": True},
                {"do": "await", "how": "wait", "what": [hanging], "timeout": 0.05},
            )
        where = draft.pick("driver", "driver", "task", "Async", "Sync")
        if where == "driver":
            draft.add(step)
        else:
            given = step["what"]
            given = given if isinstance(given, list) else [given]
            # In a list, so that they stay references.
            inside = {**step, "what": [var("a0.0")] if isinstance(step["what"], list) else var("a0.0")}
            inside = {"do": "try", "what": inside} if where != "Async" else inside
            work = body({"do": "make", "what": var("a0"), "to": "a0"}, inside)
            if where == "task":
                draft.add({"do": "task", "f": "plain", "args": [work, given[:1]]}, "out")
            else:
                actor = draft.add({"do": "actor", "c": where}, "actor")
                draft.add({"do": "call", "a": var(str(actor)), "m": "run", "args": [work, given[:1]]}, "out")
            draft.add({"do": "each", "what": [var(draft.known["out"][-1])]})
    if hangs:
        if draft.chance():
            draft.add({"do": "cancel", "what": hanging, "started": key})
            draft.add({"do": "await", "how": "await", "what": hanging})
        draft.add({"do": "release", "key": key})
    draft.add({"do": "await", "how": "gather", "what": refs})
    return {"kind": "coroutines", "steps": draft.steps}


@st.composite
def nested(draw: Any) -> Json:
    """References in values, in values of references, in actors, out of band; and what becomes of them when others drop them."""
    draft = Draft(draw)
    values = (odd("large array"), odd("large bytes"), 5, "text", odd("Plain"), [1, odd("array")])
    for _ in range(draft.number(1, 3)):
        choice = draft.number(0, 3)
        if choice == 0:
            draft.add({"do": "put", "what": draft.pick(*values)}, "ref")
        elif choice == 1:
            draft.add({"do": "task", "f": "plain", "args": [body({"do": "make", "what": draft.pick(*values)})]}, "ref")
        elif choice == 2 and draft.known.get("ref"):
            inner = draft.a("ref")
            draft.add({"do": "put", "what": draft.pick([inner], {"a": inner}, {"$": "tuple", "v": [inner, 1]}, [[inner]])}, "ref")
        else:
            work = body(
                {"do": "put", "what": draft.pick(*values), "to": "r"},
                {"do": "make", "what": draft.pick([var("r")], {"a": var("r")}, var("r"))},
            )
            draft.add({"do": "task", "f": "plain", "args": [work]}, "ref")
    source = str(draft.pick(*draft.known["ref"]))
    plan = draft.pick("actor", "actor", "bytes", "task", "chain", "put", "ended")
    if plan in ("actor", "ended"):
        kind = draft.pick("Sync", "Async")
        actor = var(str(draft.add({"do": "actor", "c": kind}, "actor")))
        if plan == "ended":
            work = body({"do": "put", "what": draft.pick(*values), "to": "r"}, {"do": "make", "what": [var("r")]})
            draft.add({"do": "call", "a": actor, "m": "run", "args": [work], "to": "held"})
            draft.add({"do": "get", "what": var("held"), "to": "inner"})
            if draft.chance():
                draft.add({"do": "get", "what": var("inner.0")})
            draft.add({"do": "kill", "what": actor})
            draft.add({"do": "get", "what": var("inner.0"), "timeout": 10})
        else:
            keep = body({"do": "store", "key": "kept", "what": var("a0")})
            draft.add({"do": "call", "a": actor, "m": "run", "args": [keep, [var(source)]], "to": "stored"})
            draft.add({"do": "get", "what": var("stored")})
            draft.add({"do": "clean", "what": source})
            for _ in range(draft.number(1, 2)):
                load = body(
                    {"do": "load", "key": "kept", "to": "kept"},
                    draft.pick({"do": "get", "what": var("kept.0")}, {"do": "make", "what": var("kept")}),
                )
                draft.add({"do": "call", "a": actor, "m": "run", "args": [load]}, "out")
                draft.add({"do": "each", "what": [var(draft.known["out"][-1])]})
    elif plan == "bytes":
        draft.add({"do": "dumps", "what": draft.pick(var(source), [var(source)]), "to": "bytes"})
        if draft.chance():
            draft.add({"do": "loads", "what": var("bytes"), "to": "back"})
            draft.add({"do": "operator", "name": "eq", "args": [var("back"), var(source)]})
        work = body({"do": "loads", "what": var("a0"), "to": "r"}, {"do": draft.pick("get", "make", "try"), "what": var("r")})
        if work["v"][1]["do"] == "try":
            work["v"][1]["what"] = {"do": "get", "what": var("r")}
        draft.add({"do": "task", "f": "plain", "args": [work, var("bytes")]}, "out")
        draft.add({"do": "each", "what": [var(draft.known["out"][-1])]})
    elif plan == "task":
        given = draft.pick([var(source)], {"a": [var(source)]}, var(source))
        inner = body({"do": "make", "what": var("a0")})
        outer = body(
            {"do": "task", "f": "plain", "args": [inner, var("a0")], "to": "r"}, {"do": draft.pick("get", "make"), "what": var("r")}
        )
        draft.add({"do": "task", "f": "plain", "args": [outer, given], "to": "made"})
        draft.add({"do": "clean", "what": source})
        draft.add({"do": "get", "what": var("made"), "to": "got"})
        draft.add({"do": "get", "what": var("got")})
    elif plan == "chain":
        depth = draft.number(1, 3)
        work = body({"do": "put", "what": draft.pick(*values), "to": "r"}, {"do": "make", "what": var("r")})
        for _ in range(depth):
            work = body({"do": "task", "f": "plain", "args": [work], "to": "r"}, {"do": "make", "what": var("r")})
        draft.add({"do": "task", "f": "plain", "args": [work], "to": "c0"})
        for number in range(depth + 2):
            draft.add({"do": "get", "what": var(f"c{number}"), "to": f"c{number + 1}"})
            if draft.chance():
                draft.add({"do": "clean", "what": f"c{number}"})
    else:
        draft.add({"do": "put", "what": [var(source), var(source)], "to": "outer"})
        draft.add({"do": "clean", "what": source})
        draft.add({"do": "get", "what": var("outer"), "to": "inner"})
        draft.add({"do": "clean", "what": "outer"})
        draft.add({"do": "get", "what": var("inner"), "timeout": 10})
        draft.add({"do": "put", "what": var("inner.0")})
    rest = [name for name in draft.known["ref"] if name != source]
    draft.add({"do": "each", "what": [var(name) for name in rest]})
    return {"kind": "nested", "steps": draft.steps}


@st.composite
def children(draw: Any) -> Json:
    """The effect of a cancel, or of a parent's end, on the children: recursive or not, by force or not."""
    draft = Draft(draw)
    key, end = draft.key(), draft.key()
    inner = {"do": "finally", "key": end, "what": {"do": "block", "key": key}}
    levels = draft.number(0, 2)
    work = body(inner)
    for _ in range(levels):
        work = body({"do": "task", "f": "plain", "args": [work], "options": {"num_cpus": 0.5}, "to": "r"}, {"do": "get", "what": var("r")})
    where = draft.pick("task", "task", "Sync", "Async")
    if where == "task":
        ref = var(
            str(
                draft.add(
                    {"do": "task", "f": "plain", "args": [work], "options": draft.pick({}, {"max_retries": 0}, {"retry_exceptions": True})},
                    "ref",
                )
            )
        )
    else:
        actor = draft.add({"do": "actor", "c": where}, "actor")
        ref = var(str(draft.add({"do": "call", "a": var(str(actor)), "m": "run", "args": [work]}, "ref")))
    options = draft.pick(
        {}, {"recursive": True}, {"recursive": False}, {"recursive": False}, {"force": True} if where == "task" and levels == 0 else {}
    )
    draft.add({"do": "cancel", "what": ref, "started": key, "options": options})
    #: The call itself goes on: a plain method cannot be interrupted, but what it waits for can be cancelled.
    goes_on = where == "Sync" and (levels == 0 or options.get("recursive") is False)
    if goes_on:
        draft.add({"do": "release", "key": key})
    draft.add({"do": "get", "what": ref})
    if options.get("recursive", True) and not options.get("force"):
        draft.add({"do": "left", "key": end})
    draft.add({"do": "release", "key": key})
    if not options.get("force"):
        draft.add({"do": "left", "key": end})
    draft.add({"do": "cancel", "what": ref})
    draft.add({"do": "get", "what": ref})
    return {"kind": "children", "steps": draft.steps}


KINDS: dict[str, Callable[[], st.SearchStrategy[Json]]] = {
    "names": names,
    "concurrency": concurrency,
    "waits": waits,
    "retries": retries,
    "methods": methods,
    "streams": streams,
    "coroutines": coroutines,
    "nested": nested,
    "children": children,
}
