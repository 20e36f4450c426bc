"""Programs of what stands beside tasks and actors: pools, queues, graphs, listings, environments, places that go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.differential.grammar import Draft, Json, body, exception, odd, var


def attribute(what: Json, name: str, *args: Json, **more: Json) -> Json:
    return {"do": "attribute", "what": what, "name": name, "args": list(args), **more}


@st.composite
def actor_pools(draw: Any) -> Json:
    """`ray.util.ActorPool`: what is submitted, in which order it comes, who is idle."""
    draft = Draft(draw)
    actors = [
        var(str(draft.add({"do": "actor", "c": "Station", "options": {"num_cpus": 0.5}}, "actor"))) for _ in range(draft.number(1, 2))
    ]
    draft.add(
        {
            "do": "verb",
            "name": "util.ActorPool",
            "args": [draft.pick(actors, actors, {"$": "tuple", "v": actors}, actors * 2, [])],
            "to": "pool",
        }
    )
    pool = var("pool")

    def method() -> Json:
        return {"$": "caller", "v": draft.pick("echo", "echo", "not_two", "none_such")}

    for _ in range(draft.number(2, 7)):
        choice = draft.number(0, 9)
        if choice <= 2:
            draft.add(attribute(pool, "submit", method(), draft.pick(0, 1, 2, 3, None, [1])))
        elif choice == 3:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": "get_next",
                    "args": [],
                    "kwargs": draft.pick({"timeout": 10}, {}, {"timeout": 10, "ignore_if_timedout": True}, {"timeout": "x"}),
                }
            )
        elif choice == 4 and len(actors) == 1:
            draft.add(
                {"do": "attribute", "what": pool, "name": "get_next_unordered", "args": [], "kwargs": draft.pick({"timeout": 10}, {})}
            )
        elif choice == 5:
            draft.add(attribute(pool, draft.pick("has_next", "has_free", "pop_idle")))
        elif choice == 6:
            draft.add(
                attribute(
                    pool, "map", method(), draft.pick([], [1, 3], [1, 2, 3], [3, 4, 5, 6], 5, {"$": "tuple", "v": [4, 5]}), **{"as": "list"}
                )
            )
        elif choice == 7:
            draft.add(attribute(pool, "map_unordered", method(), draft.pick([], [1, 3], [3, 4, 5, 6]), **{"as": "sorted"}))
        elif choice == 8:
            draft.add(attribute(pool, "push", draft.pick(*actors, 3)))
        else:
            made = draft.add({"do": "actor", "c": "Station", "options": {"num_cpus": 0.5}}, "actor")
            draft.add(attribute(pool, "push", var(str(made))))
    draft.add(attribute(pool, "has_next"))
    return {"kind": "actor_pools", "steps": draft.steps}


@st.composite
def queues(draw: Any) -> Json:
    """`ray.util.queue.Queue`: in one process and in several, full, empty and shut down."""
    draft = Draft(draw)
    kwargs = {
        **draft.pick({}, {"maxsize": 2}, {"maxsize": 1}, {"maxsize": 0}, {"maxsize": -1}),
        **draft.pick({}, {}, {"actor_options": {"num_cpus": 0.5}}, {"actor_options": {"name": {"$": "name", "v": "queue"}}}),
    }
    draft.add({"do": "verb", "name": "util.queue.Queue", "args": [], "kwargs": kwargs, "to": "queue"})
    queue = var("queue")
    for _ in range(draft.number(3, 8)):
        choice = draft.number(0, 10)
        if choice <= 2:
            limit = draft.pick({"block": False}, {"timeout": 0.05}, {"timeout": 0.1}, {"timeout": -1}, {"block": False, "timeout": 3})
            draft.add({"do": "attribute", "what": queue, "name": "put", "args": [draft.value(refs=False)], "kwargs": limit})
        elif choice <= 4:
            limit = draft.pick({"block": False}, {"timeout": 0.05}, {"timeout": 0.1}, {"timeout": -1})
            draft.add({"do": "attribute", "what": queue, "name": "get", "args": [], "kwargs": limit})
        elif choice == 5:
            draft.add(attribute(queue, draft.pick("qsize", "size", "empty", "full", "__len__")))
        elif choice == 6:
            draft.add(attribute(queue, "put_nowait_batch", draft.pick([], [1], [1, 2], [1, 2, 3], 5, {"$": "tuple", "v": [1]})))
        elif choice == 7:
            draft.add(attribute(queue, "get_nowait_batch", draft.pick(0, 1, 2, 3, -1, "x", 1.0)))
        elif choice == 8:
            draft.add(attribute(queue, draft.pick("put_nowait", "get_nowait"), *draft.pick([], [7])))
        elif choice == 9:
            inner = draft.pick(
                attribute(var("a0"), "put", 9, kwargs={"timeout": 0.05}),
                attribute(var("a0"), "get", kwargs={"timeout": 0.05}),
                attribute(var("a0"), "qsize"),
                attribute(var("a0"), "get_nowait_batch", 2),
            )
            draft.add({"do": "task", "f": "plain", "args": [body({"do": "try", "what": inner}), queue]}, "ref")
            draft.add({"do": "get", "what": var(draft.known["ref"][-1])})
        else:
            name, args = draft.pick(
                ("put_async", [8, True, 0.05]),
                ("get_async", [True, 0.05]),
                ("put_async", [8, False]),
                ("get_async", [False]),
                ("get_async", [True, -1]),
            )
            draft.add({"do": "await", "how": "method", "what": queue, "name": name, "args": args})
    if draft.chance(3):
        draft.add(
            {
                "do": "attribute",
                "what": queue,
                "name": "shutdown",
                "args": [],
                "kwargs": draft.pick({}, {"force": True}, {"force": False}, {"grace_period_s": 1}),
            }
        )
        draft.add({"do": "attribute", "what": queue, "name": draft.pick("qsize", "shutdown"), "args": []})
    return {"kind": "queues", "steps": draft.steps}


@st.composite
def processes(draw: Any) -> Json:
    """`ray.util.multiprocessing.Pool`."""
    draft = Draft(draw)
    function = {"$": "plain function", "v": "not_two"}
    kwargs: dict[str, Json] = {"processes": draft.pick(1, 1, 2)}
    if draft.chance(4):
        kwargs.update(
            draft.pick(
                {"initializer": {"$": "plain function", "v": "tell"}, "initargs": [1, 2]}, {"maxtasksperchild": 1}, {"initializer": 3}
            )
        )
    draft.add({"do": "verb", "name": "util.multiprocessing.Pool", "args": [], "kwargs": kwargs, "to": "pool"})
    pool = var("pool")

    def numbers() -> Json:
        return draft.pick([], [1, 3], [3, 4, 5, 6], [1, 2, 3], [[1]], 5, {"$": "tuple", "v": [4, 5]})

    for _ in range(draft.number(1, 4)):
        choice = draft.number(0, 8)
        function = {"$": "plain function", "v": draft.pick("not_two", "not_two", "hear", "square", "nothing")}
        chunks = draft.pick({}, {}, {"chunksize": 1}, {"chunksize": 2}, {"chunksize": 10})
        if choice == 0:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": "apply",
                    "args": [{"$": "plain function", "v": "add"}, draft.pick([1], [1, 2], [], {"$": "tuple", "v": [3]})],
                    "kwargs": draft.pick({}, {"kwds": {"y": 5}}, {"kwds": {"z": 1}}),
                }
            )
        elif choice == 1:
            draft.add(attribute(pool, "apply_async", function, [draft.pick(1, 2, "x")], to="result"))
            for _ in range(draft.number(1, 3)):
                draft.add(
                    draft.pick(attribute(var("result"), "get", 10), attribute(var("result"), "wait", 10), attribute(var("result"), "get"))
                )
            draft.add(attribute(var("result"), "ready"))
            draft.add(attribute(var("result"), "successful"))
        elif choice in (2, 3):
            draft.add({"do": "attribute", "what": pool, "name": "map", "args": [function, numbers()], "kwargs": chunks})
        elif choice == 4:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": "starmap",
                    "args": [
                        {"$": "plain function", "v": "add"},
                        draft.pick([[1, 2], [3, 4]], [[1]], [], [1], [{"$": "tuple", "v": [1, "x"]}]),
                    ],
                    "kwargs": chunks,
                }
            )
        elif choice == 5:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": "imap",
                    "args": [{"$": "plain function", "v": "square"}, draft.pick([], [1, 2, 3], {"$": "tuple", "v": [4]})],
                    "kwargs": chunks,
                    "as": "list",
                }
            )
        elif choice == 6:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": "imap_unordered",
                    "args": [{"$": "plain function", "v": "square"}, [1, 2, 3]],
                    "kwargs": chunks,
                    "as": "sorted",
                }
            )
        elif choice == 7:
            draft.add(
                {
                    "do": "attribute",
                    "what": pool,
                    "name": draft.pick("map_async", "starmap_async"),
                    "args": [{"$": "plain function", "v": "square"}, [[2]]],
                    "to": "result",
                }
            )
            draft.add(attribute(var("result"), "get", 10))
        else:
            draft.add(attribute(pool, draft.pick("join", "close", "terminate")))
    draft.add(attribute(pool, draft.pick("close", "terminate")))
    draft.add(draft.pick(attribute(pool, "join"), attribute(pool, "map", function, [1]), attribute(pool, "apply", function, [1])))
    return {"kind": "processes", "steps": draft.steps}


@st.composite
def graphs(draw: Any) -> Json:
    """Graphs of actors' methods: interpreted and compiled, bound in all ways, executed, read in any order, failing, torn down."""
    draft = Draft(draw)
    is_compiled = draft.pick(True, True, True, False)
    actors = [
        var(str(draft.add({"do": "actor", "c": "Station", "options": {"num_cpus": 0.5}}, "actor"))) for _ in range(draft.number(1, 2))
    ]
    source = var(str(draft.add({"do": "input"}, "input")))
    form = draft.pick("one", "one", "items", "names")
    if form == "items":
        sources = [var(str(draft.add({"do": "operator", "name": "getitem", "args": [source, number]}, "node"))) for number in range(2)]
    elif form == "names":
        sources = [var(str(draft.add({"do": "attribute", "what": source, "name": name}, "node"))) for name in ("left", "right")]
    else:
        sources = [source]
    nodes: list[Json] = []
    for _ in range(draft.number(1, 4)):
        method = draft.pick(
            "echo", "echo", "add", "join", "not_two", "fails", "split", "split_badly", "nothing", "array", "total_of", "echo", "join"
        )
        given = [draft.pick(*sources, *nodes, *nodes)]
        if method == "join":
            given += [draft.pick(*sources, *nodes, 7, "text", [draft.pick(*sources, *nodes)]) for _ in range(draft.number(0, 2))]
        step: Json = {"do": "bind", "a": draft.pick(*actors), "m": method, "args": given}
        if method == "join" and draft.chance():
            step["kwargs"] = {"named": draft.pick(*sources, *nodes, 3)}
        if draft.chance(12):
            step["args"] = draft.pick([], [1], [*given, 1, 2])
        name = str(draft.add(step, "node"))
        if method in ("split", "split_badly"):
            nodes += [var(f"{name}.0"), var(f"{name}.1")]
            draft.steps[-1] = {**step, "to": name, "unpack": 2}
        else:
            nodes.append(var(name))
    last = nodes[-1]
    if draft.chance() or len(nodes) > 2:
        chosen = draw(st.lists(st.sampled_from(nodes + (sources if draft.chance(8) else [])), min_size=1, max_size=3, unique_by=str))
        last = var(str(draft.add({"do": "outputs", "what": chosen}, "node")))
    executed = last
    if is_compiled:
        chosen_options = draft.pick(
            {},
            {},
            {"_max_inflight_executions": 2},
            {"enable_asyncio": False},
            {"_submit_timeout": 5},
            {"_overlap_gpu_communication": False},
            {"nothing": 1},
            {"_default_communicator": None},
        )
        executed = var(str(draft.add({"do": "compile", "what": last, "options": chosen_options}, "graph")))
        if draft.chance(8):
            draft.add({"do": "compile", "what": last}, "graph")

    def inputs() -> Json:
        def number() -> Json:
            return draft.pick(1, 2, 3, 5, "text", None, [1, 2], odd("array"), 4)

        if form == "one":
            return {"args": [number()]}
        if form == "items":
            return {"args": [number(), number()]}
        return {"kwargs": {"left": number(), "right": number()}}

    refs: list[str] = []
    for number in range(draft.number(1, 4)):
        chosen = inputs()
        if draft.chance(10):
            chosen = draft.pick(
                {"args": []}, {"args": [1]}, {"args": [1, 2, 3]}, {"kwargs": {"left": 1}}, {"args": [1], "kwargs": {"x": 2}}
            )
        name = f"r{number}"
        draft.add({"do": "attribute", "what": executed, "name": "execute", "args": [], **chosen, "to": name})
        if draft.chance():
            draft.add({"do": "get", "what": var(name)})
        else:
            refs.append(name)
        if draft.chance(6):
            draft.add({"do": "get", "what": var(name)})
        if draft.chance(6):
            draft.add({"do": "call", "a": draft.pick(*actors), "m": "add"}, "call")
            draft.add({"do": "get", "what": var(draft.known["call"][-1])})
    for name in draft.pick(refs, list(reversed(refs)), refs[:1]):
        draft.add({"do": "get", "what": var(name)})
    if is_compiled:
        ending = draft.pick("teardown", "teardown", "kill", "twice", "after", "none")
        if ending == "kill":
            draft.add({"do": "attribute", "what": executed, "name": "teardown", "args": [], "kwargs": {"kill_actors": True}})
            draft.add({"do": "call", "a": actors[0], "m": "pid"}, "call")
            draft.add({"do": "wait", "what": [var(draft.known["call"][-1])], "options": {"timeout": 10}})
        elif ending != "none":
            draft.add(attribute(executed, "teardown"))
            if ending == "twice":
                draft.add(attribute(executed, "teardown"))
            if ending == "after":
                draft.add({"do": "attribute", "what": executed, "name": "execute", "args": [], **inputs()})
            draft.add({"do": "call", "a": actors[0], "m": "add"}, "call")
            draft.add({"do": "get", "what": var(draft.known["call"][-1])})
    return {"kind": "graphs", "steps": draft.steps}


_TASK_COLUMNS = ("name", "state", "type", "func_or_class_name", "error_type", "required_resources")
_ACTOR_COLUMNS = ("name", "state", "class_name", "is_detached", "num_restarts", "required_resources", "ray_namespace")


@st.composite
def listings(draw: Any) -> Json:
    """`ray.util.state` after successes, errors, retries, deaths, cancels and kills."""
    draft = Draft(draw)
    key = draft.key()
    alias = {"$": "alias", "v": "job"}
    for _ in range(draft.number(1, 3)):
        choice = draft.number(0, 6)
        block = body({"do": "block", "key": key})
        if choice <= 2:
            work = draft.pick(
                body({"do": "make", "what": 1}),
                body({"do": "raise", "what": exception("Simple")}),
                body({"do": "end", "code": 1}),
                body({"do": "exit", "code": 3}),
                body({"do": "fail_until", "key": draft.key(), "n": 2, "what": {"do": "raise", "what": exception("KeyError")}}),
            )
            options = {
                **draft.pick({}, {"name": {"$": "name", "v": "named"}}, {"num_cpus": 0.5}, {"resources": {"custom": 1}}),
                **draft.pick({"max_retries": 0}, {"max_retries": 1, "retry_exceptions": True}),
            }
            ref = draft.add({"do": "task", "f": "plain", "alias": "job", "args": [work], "options": options}, "ref")
            draft.add({"do": "get", "what": var(str(ref))})
            draft.add({"do": "state", "name": "get_task", "args": [var(str(ref))], "columns": _TASK_COLUMNS})
        elif choice == 3:
            ref = draft.add(
                {"do": "task", "f": "plain", "alias": "job", "args": [block], "options": draft.pick({}, {"max_retries": 0})}, "ref"
            )
            draft.add({"do": "started", "key": key})
            draft.add({"do": "state", "name": "get_task", "args": [var(str(ref))], "columns": _TASK_COLUMNS})
            if draft.chance():
                draft.add({"do": "cancel", "what": var(str(ref)), "options": draft.pick({}, {"force": True})})
                draft.add({"do": "wait", "what": [var(str(ref))], "options": {"timeout": 10}})
            draft.add({"do": "release", "key": key})
            draft.add({"do": "get", "what": var(str(ref))})
            draft.add({"do": "state", "name": "get_task", "args": [var(str(ref))], "columns": _TASK_COLUMNS})
        elif choice == 4:
            args = draft.pick([], [], [body({"do": "raise", "what": exception("Simple")})])
            options = draft.pick(
                {},
                {"name": {"$": "name", "v": "actor"}},
                {"num_cpus": 1},
                {"max_restarts": 1},
                {"name": {"$": "name", "v": "kept"}, "lifetime": "detached"},
                {"namespace": "elsewhere", "name": {"$": "name", "v": "far"}},
            )
            actor = var(str(draft.add({"do": "actor", "c": "Sync", "args": args, "options": options}, "actor")))
            work = draft.pick(body({"do": "make", "what": 1}), body({"do": "raise", "what": exception("Simple")}))
            ref = draft.add(
                {"do": "call", "a": actor, "m": "run", "args": [work], "options": draft.pick({}, {"name": {"$": "name", "v": "call"}})},
                "ref",
            )
            draft.add({"do": "get", "what": var(str(ref))})
            draft.add({"do": "attribute", "what": actor, "name": "_actor_id.hex", "args": [], "to": f"id{len(draft.steps)}"})
            name = f"id{len(draft.steps) - 1}"
            if draft.chance():
                draft.add(
                    draft.pick(
                        {"do": "kill", "what": actor},
                        {"do": "kill", "what": actor, "options": {"no_restart": False}},
                        {"do": "call", "a": actor, "m": "run", "args": [body({"do": "end", "code": 1})], "crashes": True},
                        {"do": "call", "a": actor, "m": "run", "args": [body({"do": "leave"})], "crashes": True},
                    )
                )
            draft.add({"do": "state", "name": "get_actor", "args": [var(name)], "columns": _ACTOR_COLUMNS})
            draft.add({"do": "state", "name": "get_task", "args": [var(str(ref))], "columns": _TASK_COLUMNS})
        elif choice == 5:
            group = var(
                str(
                    draft.add(
                        {
                            "do": "group",
                            "args": [draft.pick([{"CPU": 1}], [{"CPU": 1}, {"custom": 1}], [{"CPU": 100}])],
                            "kwargs": draft.pick({}, {"name": {"$": "name", "v": "group"}}, {"strategy": "SPREAD"}),
                        },
                        "group",
                    )
                )
            )
            draft.add(attribute(group, "wait", 0.2 if "100" in str(draft.steps[-1]) else 10))
            if draft.chance():
                draft.add({"do": "ungroup", "what": group})
            draft.add({"do": "attribute", "what": group, "name": "id.hex", "args": [], "to": f"id{len(draft.steps)}"})
            draft.add(
                {
                    "do": "state",
                    "name": "get_placement_group",
                    "args": [var(f"id{len(draft.steps) - 1}")],
                    "columns": ("name", "state", "is_detached"),
                }
            )
        else:
            ref = var(
                str(
                    draft.add(
                        draft.pick(
                            {"do": "put", "what": 1},
                            {"do": "put", "what": odd("large array")},
                            {"do": "task", "f": "plain", "args": [body({"do": "make", "what": odd("large bytes")})]},
                            {"do": "task", "f": "plain", "args": [body({"do": "raise", "what": exception("Simple")})]},
                        ),
                        "ref",
                    )
                )
            )
            draft.add({"do": "wait", "what": [ref], "options": {"timeout": 10}})
            draft.add({"do": "attribute", "what": ref, "name": "hex", "args": [], "to": f"id{len(draft.steps)}"})
            draft.add(
                {
                    "do": "state",
                    "name": "get_objects",
                    "args": [var(f"id{len(draft.steps) - 1}")],
                    "columns": ("reference_type", "task_status", "type"),
                }
            )
    filters = draft.pick(
        [["name", "=", {"$": "name", "v": "named"}]],
        [["func_or_class_name", "=", alias]],
        [["func_or_class_name", "=", alias], ["state", "=", draft.pick("FAILED", "FINISHED", "RUNNING")]],
        [["func_or_class_name", "=", alias], ["error_type", "!=", "TASK_EXECUTION_EXCEPTION"]],
    )
    draft.add({"do": "state", "name": "list_tasks", "kwargs": {"filters": filters}, "columns": _TASK_COLUMNS})
    if draft.known.get("actor") and draft.chance():
        draft.add(
            {
                "do": "state",
                "name": "list_actors",
                "kwargs": {"filters": [["name", draft.pick("=", "="), {"$": "name", "v": draft.pick("actor", "kept", "far")}]]},
                "columns": _ACTOR_COLUMNS,
            }
        )
    draft.add({"do": "state", "name": "summarize_tasks", "of": alias})
    return {"kind": "listings", "steps": draft.steps}


@st.composite
def environments(draw: Any) -> Json:
    """Variables, working directories and modules: of tasks, of actors, and of what those ask for."""
    draft = Draft(draw)

    def environment() -> Json:
        found: dict[str, Json] = {}
        if draft.chance():
            found["env_vars"] = draft.pick(
                {"DIFFERENTIAL_A": "1"},
                {"DIFFERENTIAL_A": "2", "DIFFERENTIAL_B": "b"},
                {"DIFFERENTIAL_B": "${DIFFERENTIAL_A}x"},
                {},
                {"DIFFERENTIAL_A": ""},
            )
        if draft.chance():
            found["working_dir"] = {
                "$": draft.pick("archive", "archive", "archive", "archive", "archive", "sample"),
                "v": draft.pick("first", "second"),
            }
        if draft.chance(3):
            found["py_modules"] = [{"$": "archive", "v": name} for name in draft.pick(["module"], ["file"], ["module", "file"], ["first"])]
        return found

    looks = [
        {"do": "try", "what": each, "to": f"l{number}"}
        for number, each in enumerate(
            (
                {"do": "here"},
                {"do": "import", "name": draft.pick("sample_module", "sample_package", "sample_single")},
                {"do": "environ", "name": "DIFFERENTIAL_A"},
                {"do": "environ", "name": "DIFFERENTIAL_B"},
                {"do": "read", "name": "sample.txt"},
            )
        )
    ]
    work = body(*looks, {"do": "make", "what": [var(f"l{number}") for number in range(len(looks))]})
    for _ in range(draft.number(1, 2)):
        outer = environment()
        where = draft.pick("task", "Sync", "nested", "nested", "nested actor")
        if where == "task":
            draft.add({"do": "task", "f": "plain", "args": [work], "options": {"runtime_env": outer}}, "ref")
        elif where == "Sync":
            actor = draft.add({"do": "actor", "c": "Sync", "options": {"runtime_env": outer}}, "actor")
            draft.add({"do": "call", "a": var(str(actor)), "m": "run", "args": [work]}, "ref")
        elif where == "nested":
            own = draft.pick(
                {}, {"runtime_env": {"env_vars": {"DIFFERENTIAL_A": "inner"}}}, {"runtime_env": environment()}, {"runtime_env": {}}
            )
            inside = body({"do": "task", "f": "plain", "args": [work], "options": own, "to": "r"}, {"do": "get", "what": var("r")})
            draft.add({"do": "task", "f": "plain", "args": [inside], "options": {"runtime_env": outer}}, "ref")
        else:
            inside = body(
                {
                    "do": "actor",
                    "c": "Sync",
                    "options": draft.pick({}, {"runtime_env": {"env_vars": {"DIFFERENTIAL_A": "inner"}}}),
                    "to": "made",
                },
                {"do": "call", "a": var("made"), "m": "run", "args": [work], "to": "r"},
                {"do": "get", "what": var("r")},
            )
            draft.add({"do": "task", "f": "plain", "args": [inside], "options": {"runtime_env": outer}}, "ref")
        draft.add({"do": "each", "what": [var(draft.known["ref"][-1])]})
    return {"kind": "environments", "steps": draft.steps}


@st.composite
def places(draw: Any) -> Json:
    """Placement groups that go while something is in them, bundles and strategies, actors in bundles."""
    draft = Draft(draw)
    bundles = [draft.pick({"CPU": 1}, {"CPU": 1}, {"CPU": 2}, {"CPU": 1, "custom": 1}, {"custom": 1}) for _ in range(draft.number(1, 3))]
    if sum(each.get("CPU", 0) for each in bundles) > 4 or sum(each.get("custom", 0) for each in bundles) > 2:
        bundles = bundles[:1]
    kwargs = draft.pick(
        {},
        {"strategy": "SPREAD"},
        {"strategy": "STRICT_PACK"},
        {"name": {"$": "name", "v": "place"}},
        {"bundle_label_selector": [{"zone": "here"}] * len(bundles)},
    )
    group = var(str(draft.add({"do": "group", "args": [bundles], "kwargs": kwargs}, "group")))
    draft.add(attribute(group, "wait", 10))
    index = draft.pick(-1, 0, len(bundles) - 1)
    place = {
        "scheduling_strategy": {
            "$": "strategy",
            "v": ["group", group, {"placement_group_bundle_index": index, **draft.pick({}, {"placement_group_capture_child_tasks": True})}],
        }
    }
    first = bundles[0] if index <= 0 else bundles[index]
    options = {**place, "num_cpus": first.get("CPU", 0), **({"resources": {"custom": first["custom"]}} if "custom" in first else {})}
    if index == -1:
        options = {**place, "num_cpus": bundles[0].get("CPU", 0)}
    key = draft.key()
    plan = draft.pick("actor", "actor", "child", "table", "pending", "two")
    if plan == "actor":
        actor = var(str(draft.add({"do": "actor", "c": "Sync", "options": {**options, **draft.pick({}, {"max_restarts": 1})}}, "actor")))
        draft.add({"do": "call", "a": actor, "m": "run", "args": [body({"do": "context", "name": "get_assigned_resources"})]}, "ref")
        draft.add({"do": "get", "what": draft.a("ref")})
        draft.add({"do": "resources"})
        if draft.chance():
            draft.add({"do": "ungroup", "what": group})
            draft.add({"do": "call", "a": actor, "m": "pid"}, "late")
            draft.add({"do": "wait", "what": [var(draft.known["late"][-1])], "options": {"timeout": 10}})
            draft.add({"do": "call", "a": actor, "m": "run", "args": [body({"do": "make", "what": 1})]}, "late")
            draft.add({"do": "get", "what": var(draft.known["late"][-1])})
        else:
            draft.add({"do": "kill", "what": actor})
        draft.add({"do": "resources"})
    elif plan == "child":
        inner = body(
            {"do": "verb", "name": "util.get_current_placement_group", "to": "g"},
            {"do": "attribute", "what": var("g"), "name": draft.pick("bundle_count", "bundle_specs")},
        )
        work = body(
            {
                "do": "task",
                "f": "plain",
                "args": [inner],
                "options": draft.pick({"num_cpus": 0}, {"num_cpus": 0, "scheduling_strategy": "DEFAULT"}),
                "to": "r",
            },
            {"do": "get", "what": var("r")},
        )
        draft.add({"do": "task", "f": "plain", "args": [work], "options": options}, "ref")
        draft.add({"do": "get", "what": draft.a("ref")})
    elif plan == "table":
        draft.add({"do": "table", "what": group})
        draft.add({"do": "ungroup", "what": group})
        draft.add({"do": "table", "what": group})
        draft.add({"do": "ungroup", "what": group})
        draft.add(attribute(group, "wait", 0.2))
        if "name" in kwargs:
            draft.add({"do": "verb", "name": "util.get_placement_group", "args": [kwargs["name"]]})
    elif plan == "two":
        draft.add({"do": "group", "args": [[{"CPU": 4}]]}, "group")
        other = var(draft.known["group"][-1])
        draft.add(attribute(other, "wait", 0.2))
        draft.add({"do": "ungroup", "what": group})
        draft.add(attribute(other, "wait", 10))
        draft.add({"do": "table", "what": other})
        draft.add(
            {
                "do": "task",
                "f": "plain",
                "args": [body({"do": "context", "name": "get_assigned_resources"})],
                "options": {"num_cpus": 3, "scheduling_strategy": {"$": "strategy", "v": ["group", other, {}]}},
            },
            "ref",
        )
        draft.add({"do": "get", "what": draft.a("ref")})
    else:
        draft.add({"do": "task", "f": "plain", "args": [body({"do": "block", "key": key})], "options": options}, "ref")
        draft.add({"do": "started", "key": key})
        draft.add({"do": "task", "f": "signature", "args": [1], "options": options}, "late")
        late = var(draft.known["late"][-1])
        if len(bundles) == 1:
            draft.add({"do": "ready", "what": [late], "options": {"timeout": 0.1}})
        draft.add({"do": "release", "key": key})
        draft.add({"do": "each", "what": [draft.a("ref"), late]})
        draft.add({"do": "resources"})
    return {"kind": "places", "steps": draft.steps}


KINDS: dict[str, Callable[[], st.SearchStrategy[Json]]] = {
    "actor_pools": actor_pools,
    "queues": queues,
    "processes": processes,
    "graphs": graphs,
    "listings": listings,
    "environments": environments,
    "places": places,
}
