"""Finds functions that want a mark of `mray._common.places`, by their source.

SLEEPS      a call of the system's, or of a lock, that may wait, outside of the guard's `sleep`
PRECEDES    a sleep of the guard's in a function that one calls which dispatches
DISPATCHES  a call of a callback taken out of a collection, or of a connection's reader
USERS       a call with any arguments that the user has given, or of an iterator of the user's
UNDONE      the return of a value that is taken out of shared state
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

SLEEPS, PRECEDES, DISPATCHES, USERS, UNDONE = "sleeps", "precedes_dispatch", "dispatches", "runs_users", "undone"

#: Calls that wait, unless an argument says that they must not.
_WAITS = {
    "accept", "acquire", "communicate", "poll", "recv", "recv_fds", "recv_into", "recvmsg", "select", "waitid", "waitpid",
}  # fmt: skip
_WHOLE = {"sleep", "clock.sleep", "time.sleep", "subprocess.run", "subprocess.check_output"}
#: Calls that wait if the module has made what they are called on by a call of one of these.
_WAITS_OF = {"wait": ("Barrier", "Condition", "Event", "PidFd", "Popen"), "join": ("Thread", "Timer")}
#: Calls of functions of mray's that hand on what has come.
_HANDS_ON = {"_call_safely", "read_ring"}
#: Calls that take something out of a collection.
_TAKES = {"pop", "popitem", "popleft"}


@dataclass
class Function:
    """A function of a module, without those that it defines but with its lambdas."""

    name: str
    node: ast.FunctionDef | ast.AsyncFunctionDef
    makers: Mapping[str, str]
    globals: frozenset[str]
    marks: set[str] = field(default_factory=set)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(_own_nodes(self.node))

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [each for each in self.nodes if isinstance(each, ast.Call)]

    @cached_property
    def is_suspended(self) -> bool:
        """A generator or coroutine: an error from outside waits for the user's code after it."""
        return isinstance(self.node, ast.AsyncFunctionDef) or any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in self.nodes)

    # ------------------------------------------------------------------------------------ what it does
    @cached_property
    def sleeps(self) -> bool:
        return any(self._waits(call) for call in self.calls)

    def _waits(self, call: ast.Call) -> bool:
        name = _name(call.func)
        if name == "block" and isinstance(call.func, ast.Name):
            return True  # a parameter
        given = [*call.args, *(each.value for each in call.keywords)]
        is_timed = name in ("acquire", "poll", "select", "wait", "join")
        if is_timed and any(isinstance(each, ast.Constant) and not each.value and each.value is not None for each in given):
            return False  # `acquire(False)`, `poll(0)`
        texts = [*map(ast.unparse, given)]
        if any("NOHANG" in text or "DONTWAIT" in text for text in texts) or id(call) in self._awaited:
            return False
        if name.startswith("recv") and len(texts) > 1 and "MSG_" not in texts[1] and name != "recv_fds":
            return False  # a communicator's
        if name in _WAITS_OF:
            return isinstance(call.func, ast.Attribute) and self.makers.get(_name(call.func.value)) in _WAITS_OF[name]
        return (name in _WAITS and isinstance(call.func, ast.Attribute)) or ast.unparse(call.func) in _WHOLE

    @cached_property
    def _awaited(self) -> set[int]:
        return {id(each.value) for each in self.nodes if isinstance(each, ast.Await)}

    @cached_property
    def sleeps_guarded(self) -> bool:
        return any(ast.unparse(call.func).endswith("guard.sleep") for call in self.calls)

    @cached_property
    def dispatches(self) -> bool:
        taken = self._bound(self._takes_out)
        return any(_name(call.func) in _HANDS_ON or (isinstance(call.func, ast.Name) and call.func.id in taken) for call in self.calls)

    @cached_property
    def runs_users(self) -> bool:
        loops = (each.iter for each in self.nodes if isinstance(each, ast.For))
        return any(self._is_users(call) for call in self.calls) or any(_name(each) in self._iterators for each in loops)

    def _is_users(self, call: ast.Call) -> bool:
        function = call.func
        if _name(function) == "next" and call.args:
            return _name(call.args[0]) in self._iterators
        if _name(function) in ("map", "starmap"):
            return _name(call.args[0]) == "function"
        if isinstance(function, ast.Attribute) and function.attr not in ("__init__", "function", "method"):
            return function.attr == "send" and _name(function.value) in self._iterators
        if isinstance(function, ast.Name) and function.id in self.globals:
            return False
        return any(isinstance(each, ast.Starred) for each in call.args) and any(each.arg is None for each in call.keywords)

    @cached_property
    def _iterators(self) -> set[str]:
        """Variables that are called, or are made of one that is called, a generator."""
        of_one = self._bound(lambda value: any(_name(part).endswith("generator") for part in ast.walk(value)))
        return {"generator", "_generator", *of_one}

    def hands_over(self, undone: set[str]) -> bool:
        """Whether it returns what it, or one of the functions of these names that `places.undone` puts right, has taken."""

        def takes(value: ast.expr) -> bool:
            return any(self._takes(call, undone) for call in ast.walk(value) if isinstance(call, ast.Call))

        bound = self._bound(takes) | (self._bound(_is_of_self) if self._ends else set())
        for each in self.nodes:
            if isinstance(each, ast.Return) and each.value is not None:
                names = {_name(part) for part in ast.walk(each.value) if isinstance(part, ast.Name)}
                if names & bound or takes(each.value):
                    return True
        return False

    def _takes(self, call: ast.Call, undone: set[str]) -> bool:
        name = _name(call.func)
        if name in _TAKES or name.lstrip("_").startswith("take"):
            return isinstance(call.func, ast.Attribute) and _root(call.func.value) not in self._fresh
        if name == "next" and isinstance(call.func, ast.Name):
            return "__next__" in undone and len(call.args) == 1 and _root(call.args[0]) == "self"
        if name not in undone or not isinstance(call.func, ast.Attribute) or isinstance(call.func.value, ast.Call):
            return False
        given = [*call.args, *(each.value for each in call.keywords)]
        if name == "get" and not given:
            return False  # a variable of a context
        return all(_name(each) in ("timeout", "timeout_s", "out") or each is None for each in given)

    @cached_property
    def _ends(self) -> bool:
        """Whether it sets a flag of its object, as what can be had but once does."""
        return any(
            isinstance(each, ast.Assign) and ast.unparse(each.value) == "True" and _root(each.targets[0]) == "self" for each in self.nodes
        )

    # ------------------------------------------------------------------------------------ values
    def _takes_out(self, value: ast.expr) -> bool:
        """Whether a value is an item of a collection that is not the function's own."""
        if isinstance(value, ast.Call) and _name(value.func) in {*_TAKES, "take_due"}:
            return isinstance(value.func, ast.Attribute) and _root(value.func.value) not in self._fresh
        return False

    def _bound(self, is_sought: Callable[[ast.expr], bool]) -> set[str]:
        """The variables that are bound to such a value, by assignments and loops."""
        found: set[str] = set()
        for each in self.nodes:
            if isinstance(each, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and each.value is not None and is_sought(each.value):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
            elif isinstance(each, ast.For) and (is_sought(each.iter) or self._is_collection(each.iter)):
                found |= {part.id for part in ast.walk(each.target) if isinstance(part, ast.Name)}
        return found

    def _is_collection(self, value: ast.expr) -> bool:
        """``self._callbacks``, also in ``tuple(...)``, ``.values()``."""
        while isinstance(value, ast.Call):
            value = value.args[0] if value.args else value.func.value if isinstance(value.func, ast.Attribute) else value.func
        return isinstance(value, ast.Attribute) and _root(value) == "self"

    @cached_property
    def _fresh(self) -> set[str]:
        """Variables that hold collections of the function's own."""
        fresh = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
        kinds = ("dict", "list", "set", "deque", "sorted")
        return {
            target.id
            for each in self.nodes
            if isinstance(each, (ast.Assign, ast.AnnAssign))
            and (isinstance(each.value, fresh) or (isinstance(each.value, ast.Call) and _name(each.value.func) in kinds))
            for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
            if isinstance(target, ast.Name)
        } | {each.arg for each in (self.node.args.kwarg,) if each is not None}


def functions_of(module: str, tree: ast.AST) -> Iterator[Function]:
    """Every function of a module, by its name there: ``_ipc.reactor:Reactor.run_once``."""
    yield from _functions(tree, f"{module}:", dict(_makers(tree)), frozenset(_globals(tree)))


def _functions(node: ast.AST, path: str, makers: Mapping[str, str], known: frozenset[str]) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = f"{path}{child.name}"
            if not isinstance(child, ast.ClassDef):
                marks = {_name(each.func if isinstance(each, ast.Call) else each) for each in child.decorator_list}
                yield Function(name, child, makers, known, marks)
            yield from _functions(child, f"{name}.", makers, known)
        else:
            yield from _functions(child, path, makers, known)


def _globals(tree: ast.AST) -> Iterator[str]:
    """The functions, classes and imported names of a module."""
    for each in ast.walk(tree):
        if isinstance(each, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in each.names)
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield each.name


def _makers(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Variables and attributes of a module, each with the class or function whose call, or annotation, it has its value from."""
    for each in ast.walk(tree):
        if isinstance(each, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
                if isinstance(each.value, ast.Call):
                    yield _name(target), _name(each.value.func)
                elif isinstance(each, ast.AnnAssign):
                    yield _name(target), ast.unparse(each.annotation).partition(" ")[0].rpartition(".")[2]
        elif isinstance(each, ast.arg) and each.annotation is not None:
            yield each.arg, ast.unparse(each.annotation).partition(" ")[0].rpartition(".")[2]


def unmarked(functions: Sequence[Function], is_door: Callable[[str], bool]) -> dict[str, set[str]]:
    """The functions that want a mark and have none, by mark. `is_door`: whether users call the function of this name."""
    callers: dict[str, list[Function]] = {}
    for each in functions:
        for call in each.calls:
            callers.setdefault(_name(call.func), []).append(each)

    def is_covered(function: Function, seen: frozenset[str] = frozenset()) -> bool:
        """Whether it, or each function that calls one of its name, dispatches by its mark."""
        if DISPATCHES in function.marks:
            return True
        calling = [each for each in callers.get(function.node.name, ()) if each.name not in seen and each.name != function.name]
        return bool(calling) and all(is_covered(each, seen | {function.name}) for each in calling)

    def precedes(function: Function) -> bool:
        calling = callers.get(function.node.name, ())
        return function.sleeps_guarded and any(DISPATCHES in each.marks for each in calling)

    undone = {each.node.name for each in functions if UNDONE in each.marks}
    wanted = {
        SLEEPS: (each for each in functions if each.sleeps),
        PRECEDES: (each for each in functions if precedes(each)),
        DISPATCHES: (each for each in functions if each.dispatches and not is_covered(each)),
        USERS: (each for each in functions if each.runs_users),
        UNDONE: (each for each in functions if is_door(each.name) and not each.is_suspended and each.hands_over(undone)),
    }
    return {mark: {each.name for each in wanting if mark not in each.marks} for mark, wanting in wanted.items()}


def _is_of_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and _root(value.func) == "self"


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        yield child
        yield from _own_nodes(child)


def _name(node: ast.AST | None) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.AST) -> str:
    while not isinstance(node, ast.Name):
        if isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return ""
    return node.id
