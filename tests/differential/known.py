"""How outcomes are compared, and what differs on purpose, with the reason.

A reason that a program can meet is in the manual, too (`mray/_manual/differences.md`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

Json = Any


class Known(NamedTuple):
    """A difference that is meant."""

    reason: str
    #: Whether two outcomes, Ray's and mray's, or pieces of them, are such a one; with the step and the kind of its program.
    covers: Callable[[Json, Json, Json, str], bool]


def _error(outcome: Json) -> str:
    return outcome.get("error", "") if isinstance(outcome, dict) else ""


def _text(outcome: Json) -> str:
    return str(outcome.get("text", "")) if isinstance(outcome, dict) else ""


def _is_at_a_declaration(step: Json) -> bool:
    return step.get("do") in ("attribute", "verb", "task", "actor", "call") and bool(step.get("kwargs") or step.get("options"))


#: Of arguments that nobody expects there: Ray meets them wherever it does, in Cython or after a while.
_ACCIDENTS = {
    "TypeError",
    "AttributeError",
    "AssertionError",
    "ValueError",
    "RuntimeError",
    "KeyError",
    "OverflowError",
    "NotImplementedError",
}

_CANCELLED = ("TaskCancelledError", "RayTaskError(TaskCancelledError)")
#: Texts of what Ray has not looked at before it used it.
_UNCHECKED = re.compile(
    r"not supported between|expected \w+, \w+ found|has no attribute|unhashable|is not (iterable|subscriptable|callable)"
    r"|has no len|must be real number|an integer is required|unexpected keyword argument|positional argument"
)


def _has_several_mistakes(step: Json, mray: Json) -> bool:
    given = step.get("kwargs") or step.get("options") or {}
    return len(given) > 1 or step.get("do") == "group" or _text(mray).startswith("Setting '")


KNOWN: tuple[Known, ...] = (
    Known(
        "which of several mistakes is told of",
        lambda step, ray, mray, _kind: (
            (_is_at_a_declaration(step) or step.get("do") == "group")
            and _has_several_mistakes(step, mray)
            and {_error(ray), _error(mray)} <= {"TypeError", "ValueError"}
        ),
    ),
    Known(
        "what Ray has not checked is an error of Python's; mray says what was expected",
        lambda _step, ray, mray, _kind: (
            (bool(_UNCHECKED.search(_text(ray))) or (_error(ray) == "AssertionError" and not _text(ray)))
            and _error(mray) in ("TypeError", "ValueError", "RayTaskError(TypeError)", "RayTaskError(ValueError)")
        ),
    ),
    Known("remote classes can be pickled", lambda _step, ray, mray, _kind: _error(ray) == "PicklingError" and not _error(mray)),
    Known(
        "what cannot be sent is named, with the report of what in it it is",
        lambda _step, ray, mray, _kind: (
            isinstance(ray, str)
            and isinstance(mray, str)
            and "could not serialize the" in mray.lower()
            and re.search(r"cannot pickle|[Cc]an't pickle|not to be pickled", ray) is not None
        ),
    ),
    Known(
        "what is cancelled is TaskCancelledError itself, also by force and while it runs; Ray's text has its own frames",
        lambda _step, ray, mray, _kind: _error(mray) in _CANCELLED and _error(ray) in (*_CANCELLED, "WorkerCrashedError"),
    ),
    Known(
        "items that were made before a cancel are delivered; on Ray that depends on how fast they are read",
        lambda step, ray, mray, kind: (
            kind in ("cancellations", "streams") and step.get("do") == "items" and "Cancelled" in str(ray) and "Cancelled" in str(mray)
        ),
    ),
    Known(
        "operators of remote classes: Ray's have those of the class's instances, too",
        lambda step, _ray, mray, _kind: step.get("do") == "operator" and "actor class" in str(step["args"]) and _error(mray) == "TypeError",
    ),
    Known(
        "an exception that has no text is itself; on Ray the error of its text takes its place",
        lambda _step, ray, mray, _kind: _error(ray) == "RayTaskError(RuntimeError)" and _error(mray) == "RayTaskError(TextRaises)",
    ),
    Known(
        "an async generator may be dynamic",
        lambda _step, ray, mray, _kind: 'num_returns="dynamic" must return a generator' in _text(ray) and not _error(mray),
    ),
    Known(
        "`_remote` takes a runtime_env as a dictionary, too",
        lambda _step, ray, mray, _kind: "no attribute 'working_dir_uri'" in _text(ray) and not _error(mray),
    ),
    Known(
        "who waits on what has ended is told",
        lambda _step, ray, mray, _kind: _error(ray) == "GetTimeoutError" and _error(mray) in ("ActorDiedError", "WorkerCrashedError"),
    ),
    Known(
        "a call to a concurrency group that its class does not declare is an error of that call; Ray's actor dies",
        lambda _step, ray, mray, _kind: "has no concurrency group" in str(mray) and "ActorDiedError" in str(ray),
    ),
    Known(
        "the driver of Ray dies of what no verb expects",
        lambda _step, ray, _mray, kind: kind == "misuse" and ray == "its driver died",
    ),
    Known(
        "a RayError that was put or returned comes back as a value",
        lambda _step, ray, mray, _kind: (
            isinstance(mray, dict)
            and _error(mray.get("value")) != ""
            and _error(ray) == _error(mray["value"])
            and "RayError" in (_error(ray), *ray.get("bases", ()))
        ),
    ),
    Known(
        "an error whose class takes several arguments is of that class, too; Ray's is RayTaskError alone",
        lambda _step, ray, mray, _kind: _error(ray) == "RayTaskError" and _error(mray).startswith("RayTaskError("),
    ),
    Known(
        "directories may be environments of tasks and actors",
        lambda _step, ray, mray, _kind: "only supported at the job level" in _text(ray) and not _error(mray),
    ),
    Known(
        "the name of an actor that is dead is free at once",
        lambda step, ray, mray, _kind: step.get("do") == "gone" and ray == "False" and mray == "True",
    ),
    Known(
        "objects of tasks that failed say so; on Ray an error that the task raised is a value as others",
        lambda step, ray, mray, _kind: step.get("name") == "get_objects" and ray == "FINISHED" and mray == "FAILED",
    ),
    Known(
        "an input may be an output of a compiled graph",
        lambda step, ray, mray, kind: (
            kind == "graphs" and step.get("do") == "compile" and _error(ray) == "AssertionError" and not _error(mray)
        ),
    ),
    Known(
        "what a pool of processes is to begin with is checked where it is made",
        lambda _step, ray, mray, kind: kind == "processes" and _error(ray) == "ActorDiedError" and "must be a callable" in _text(mray),
    ),
    Known(
        "attempts that are over are not listed",
        lambda step, ray, mray, _kind: (
            step.get("do") == "state"
            and isinstance(ray, list)
            and isinstance(mray, list)
            and 0 < len(mray) < len(ray)
            and all(any(same(step, there, row, "listings") for there in ray) for row in mray)
        ),
    ),
    Known(
        "what a task held that has ended well is not kept",
        lambda step, ray, mray, _kind: step.get("do") == "state" and isinstance(ray, str) and ray.startswith("{'CPU'") and mray == "{}",
    ),
    Known(
        "an error of a pool of processes has its remote traceback as its cause, as CPython's has",
        lambda _step, ray, mray, kind: (
            kind == "processes"
            and _error(mray) != ""
            and _error(ray) == _error(mray)
            and mray.get("from") == "RemoteTraceback"
            and {**ray, "from": "RemoteTraceback"} == mray
        ),
    ),
    Known(
        "calls that are tried again wait for the restart of their actor; on Ray some meet it",
        lambda _step, ray, _mray, kind: kind == "retries" and _error(ray) == "ActorUnavailableError",
    ),
    Known(
        "values of an owner that died are lost at once; on Ray large ones can be read for a while",
        lambda _step, ray, mray, kind: kind == "nested" and _error(mray) == "OwnerDiedError" and not _error(ray),
    ),
    Known(
        "a StopIteration cannot pass through asyncio.wrap_future: what comes of it is CPython's accident",
        lambda step, ray, _mray, _kind: step.get("how") == "future" and "StopIteration" in _text(ray),
    ),
    Known(
        "an actor whose group is gone is dead, also one that could have been restarted; on Ray its restart waits for ever",
        lambda _step, ray, mray, kind: (
            kind == "places" and _error(ray) in ("ActorUnavailableError", "GetTimeoutError") and _error(mray) == "ActorDiedError"
        ),
    ),
    Known("a bytearray comes back as one", lambda _step, ray, mray, _kind: isinstance(mray, str) and mray == f"bytearray({ray})"),
    Known(
        "a bundle with a negative amount is refused",
        lambda step, ray, mray, _kind: step.get("do") == "group" and not _error(ray) and "cannot be negative" in _text(mray),
    ),
    Known(
        "options are checked where they are written, those of @method and fields of runtime_env too",
        lambda step, ray, mray, _kind: _is_at_a_declaration(step) and not _error(ray) and _error(mray) in ("TypeError", "ValueError"),
    ),
    Known(
        "arguments of a kind that nobody expects: each engine meets them in its own place",
        lambda _step, ray, mray, kind: kind == "misuse" and _error(ray) in _ACCIDENTS and _error(mray) in _ACCIDENTS,
    ),
)

#: Words of texts that are not compared.
_TEXTS = (
    # mray has options of its own.
    (re.compile(r" 'cpu_affinity',"), ""),
    (re.compile(r" 'retry_delay_s', 'timeout_s',"), ""),
    # Ray does not name the function.
    (re.compile(r", in a call of [\w.]+\(.*\)", re.DOTALL), ""),
    (re.compile(r" Did you mean '\w+'\?"), ""),
    # The report of what cannot be pickled has a form of its own.
    (re.compile(r":\n=+\nChecking Serializability.*", re.DOTALL), ""),
    (re.compile(r":\n(?:argument )?`[^\n]*, cannot be pickled: .*", re.DOTALL), ""),
    (re.compile(r"in the list \[.*\], for example"), "in the list"),
    # Ray takes the second and third line of a traceback for its own, those of a chain of errors too.
    (re.compile(r".*\n\n(ray::|Traceback )", re.DOTALL), r"\1"),
    (re.compile(r"(Failed to look up actor with name '[\w-]*'\.) .*"), r"\1"),
    (re.compile(r"namespace='?\w+'?"), "namespace"),  # Ray says None for the session's own
    (re.compile(r" See <url> for more details\."), ""),
    (re.compile(r"'(?:function|method-wrapper)' object has no attribute"), "a function has no attribute"),
    (re.compile(r" {2,}"), " "),
    # Ray does not say of which actor a generator was.
    (re.compile(r"(items\(\) \(pid=<n>, ip=<address>), actor_id=[^\n]*\)"), r"\1)"),
    (re.compile(r".*Exception Group Traceback.*", re.DOTALL), "an exception group"),
    (re.compile(r"<ray.ObjectRefGenerator object at <0x>>|<ObjectRefGenerator of TaskID\(<id>\)>"), "<generator>"),
    (re.compile(r"\{(?:'[A-Z_]+'(?:, )?)+\}"), "<strategies>"),
    (re.compile(r"<bound method .*>"), "<bound method>"),
    (re.compile(r"[ \n]+$", re.MULTILINE), ""),
    (re.compile(r"<class 'ray.util.placement_group.PlacementGroup'>|'PlacementGroup'"), "<group>"),
    (re.compile(r"'ray\.ObjectRef' object"), "'ObjectRef' object"),
    (re.compile(r"'ActorClass\(\w+\)' object"), "'ActorClass' object"),
    (re.compile(r"\b(annotate_method|annotate)\b|partial functools.partial\(<function _make_remote.*|function <lambda>"), "a decorator"),
    (re.compile(r"function a decorator"), "a decorator"),
)


def cleaned(outcome: Json) -> Json:
    """Without words that are not compared."""
    if isinstance(outcome, str):
        for pattern, word in _TEXTS:
            outcome = pattern.sub(word, outcome)
        return outcome
    if isinstance(outcome, list):
        return [cleaned(each) for each in outcome]
    if isinstance(outcome, dict):
        # The text of an engine's error is in its text.
        fields = {key: each for key, each in outcome.items() if not (key == "args" and "text" in outcome and len(outcome["args"]) == 1)}
        return {key: cleaned(each) for key, each in fields.items()}
    return outcome


def same(step: Json, ray: Json, mray: Json, kind: str) -> bool:
    """Whether two outcomes are the same, but for what is meant."""
    if ray == mray or any(known.covers(step, ray, mray, kind) for known in KNOWN):
        return True
    if isinstance(ray, dict) and isinstance(mray, dict) and ray.keys() == mray.keys():
        return all(same(step, ray[key], mray[key], kind) for key in ray)
    if isinstance(ray, list) and isinstance(mray, list) and len(ray) == len(mray):
        return all(same(step, here, there, kind) for here, there in zip(ray, mray, strict=True))
    return False


def differences(program: Json, of_ray: Any, of_mray: Any) -> list[tuple[int, Json, Json]]:
    """The steps whose outcomes differ without a known reason: number, Ray's outcome, mray's."""
    if isinstance(of_ray, str) or isinstance(of_mray, str):
        return [] if same({}, of_ray, of_mray, program["kind"]) else [(-1, of_ray, of_mray)]
    found = []
    for number, (step, expected, outcome) in enumerate(zip(program["steps"], of_ray, of_mray, strict=True)):
        if not same(step, cleaned(expected), cleaned(outcome), program["kind"]):
            found.append((number, expected, outcome))
        elif _error(expected) != _error(outcome):
            break  # Intended differences have consequences.
    return found


def kind_of(step: Json, expected: Json, outcome: Json) -> str:
    """A word for a difference, the same for those that look alike."""

    def form(found: Json) -> str:
        if isinstance(found, dict) and "error" in found:
            return f"{found['error']}: {re.sub(r'[^A-Za-z ]+', '', str(found.get('text')))[:40]}"
        return re.sub(r"\d+", "", json.dumps(found))[:60]

    return f"{step.get('do')} | {form(expected)} | {form(outcome)}"
