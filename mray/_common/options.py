"""Options of tasks, actors, methods and sessions: names, types, ranges, defaults.

Options are checked where they are written (the decorator, ``.options``); the call passes a complete, checked dict on. The texts are
Ray's, since programs match on them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from math import inf
from operator import index
from types import NoneType
from typing import Any

from mray._common import settings
from mray._common.accelerator_kinds import wrong_with_quantity
from mray._common.environment_rules import check_environment
from mray._common.kept import os
from mray._common.labels import wrong_with_fallbacks, wrong_with_selector
from mray._common.nearest import nearest
from mray._common.placement_options import check_place_options, wrong_with_affinity, wrong_with_strategy
from mray._common.record import Record
from mray._common.spilling import is_spilling, spill_directory
from mray._common.tensor_transports import check_tensor_transport

Check = Callable[[str, Any], "str | None"]


class Option(Record):
    """An option; `check` returns what is wrong with a value."""

    types: Any
    default: Any
    check: Check | None = None
    #: Its dicts and lists contain only texts and numbers.
    is_plain: bool = False


# ------------------------------------------------------------------------------------------------ checks
def _count(name: str, value: Any) -> str | None:
    if value is not None and value < 0:
        return f"The keyword '{name}' only accepts None, 0 or a positive integer."
    return None


def _count_or_infinite(name: str, value: Any) -> str | None:
    if value is not None and value < -1:
        return f"The keyword '{name}' only accepts None, 0, -1 or a positive integer, where -1 represents infinity."
    return None


def _quantity(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if value < 0:
        return f"The quantity of resource {name} cannot be negative"
    if value != value:
        return f"The quantity of resource {name} must be a number, not NaN"
    if value == inf:
        raise OverflowError(f"The quantity of resource {name} must be finite, not {value}")
    if value and int(value * 10000) == 0:
        return f"The precision of the fractional quantity of resource {name} cannot go beyond 0.0001"
    return None


def _gpus(name: str, value: Any) -> str | None:
    if value is not None and 1 < value < inf and value != int(value):
        return f"GPU resource quantities >1 must be whole numbers. The specified quantity {value} is invalid."
    return _quantity(name, value)


def _resources(_name: str, value: Any) -> str | None:
    if not value:
        return None
    if "CPU" in value or "GPU" in value:
        return "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"
    if "bundle" in value:
        return "A resource named 'bundle' cannot be requested: the name belongs to placement groups."
    for key, quantity in value.items():
        if not isinstance(key, str):
            raise TypeError(f"The name of a resource must be a str, but {key!r} is a {type(key)}")
        if not isinstance(quantity, (int, float)):
            raise TypeError(f"The quantity of resource {key} must be a number, but received type {type(quantity)}")
        if wrong := _quantity(str(key), quantity) or wrong_with_quantity(str(key), quantity):
            return wrong
    return None


def _num_returns(_name: str, value: Any) -> str | None:
    if value is None or value in ("streaming", "dynamic") or (isinstance(value, int) and value >= 0):
        return None
    return (
        "Default None. When None is passed, The default value is 1 for a task and actor task, and 'streaming' for generator tasks and "
        "generator actor tasks. The keyword 'num_returns' only accepts None, a non-negative integer, 'streaming' (for generators), or "
        "'dynamic'. 'dynamic' flag will be deprecated in the future, and it is recommended to use 'streaming' instead."
    )


def _method_returns(_name: str, value: Any) -> str | None:
    if isinstance(value, str):
        if value not in ("streaming", "dynamic"):
            return f"num_returns must be an integer, 'streaming' or 'dynamic', but got {value!r}."
    elif value is not None and value < 0:
        return f"num_returns must be >= 0, but got {value}."
    return None


def _exceptions(_name: str, value: Any) -> str | None:
    if isinstance(value, bool) or all(isinstance(item, type) and issubclass(item, BaseException) for item in value):
        return None
    return "retry_exceptions must be either a boolean or a list of exceptions"


def _backpressure(name: str, value: Any) -> str | None:
    if value is None or value == -1 or value > 0:
        return None
    return (
        f"{name}={value} is not allowed. Use a value > 0. If the value is equal to 1, the behavior is identical to Python generator "
        "(generator 1 object whenever `next` is called). Use -1 to disable this feature. "
    )


def _per_yield(_name: str, value: Any) -> str | None:
    if value is None or value > 0:
        return None
    return "_num_objects_per_yield is a private streaming generator option that must be set to a positive integer."


def _actor_backpressure(name: str, value: Any) -> str | None:
    if value is None or value == -1 or value > 0:
        return None
    return f"{name} must be > 0 to cap the actor's total unconsumed generator objects, or -1 to disable. Got {value}."


def _time_limit(name: str, value: Any) -> str | None:
    return None if value is None or 0 < value < inf else f"The keyword '{name}' takes a positive number of seconds, got {value!r}."


def _delays(name: str, value: Any) -> str | None:
    seconds = value if isinstance(value, (list, tuple)) else [0 if value is None else value]
    if seconds and all(isinstance(each, (int, float)) and 0 <= each < inf for each in seconds):
        return None
    return f"The keyword '{name}' takes seconds, or a list of the seconds before each retry, got {value!r}."


def _runtime_env(_name: str, value: Any) -> str | None:
    check_environment(value)
    return None


def _group(_name: str, value: Any) -> str | None:
    if isinstance(value, str) and value not in ("", "default"):
        return f"The keyword 'placement_group' only accepts a PlacementGroup, None or 'default', got {value!r}."
    return None


def _bundle_index(name: str, value: Any) -> str | None:
    if not -1 <= value < _TOO_LARGE:
        return f"The keyword '{name}' only accepts -1 or the index of a bundle, got {value}."
    return None


def _labels(_name: str, value: Any) -> str | None:
    for key, label in (value or {}).items():
        for what, text in (("key", key), ("value", label)):
            if not isinstance(text, str):
                return f"Label {what} must be string, but got {type(text)}"
    return None


def _groups(name: str, value: Any) -> str | None:
    if isinstance(value, list) and not all(isinstance(each, (tuple, list)) and len(each) == 2 for each in value):
        raise TypeError(f"The keyword '{name}' takes a dict of names and numbers of calls, not {value!r}")
    for group, most in dict(value or {}).items():
        if not isinstance(group, str):
            raise TypeError(f"The keyword '{name}' takes a dict of names and numbers of calls, but the name {group!r} is a {type(group)}")
        if not hasattr(most, "__index__"):
            raise TypeError(f"The keyword '{name}' takes a dict of names and numbers of calls, but {group!r} has {most!r}")
        if not 0 <= most < 1 << 32:
            raise OverflowError(f"The keyword '{name}' takes numbers of calls from 1 to 4294967295, but {group!r} has {most}")
        if not most:
            return (
                f"The keyword '{name}' takes numbers of calls from 1 to 4294967295, but {group!r} has {most}: no call of it would ever run."
            )
    return None


def _lifetime(_name: str, value: Any) -> str | None:
    if value in (None, "detached", "non_detached"):
        return None
    return "actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'."


def _fallbacks(_name: str, value: Any) -> str | None:
    return wrong_with_fallbacks(value)


def _selector(_name: str, value: Any) -> str | None:
    return wrong_with_selector(value)


def _task_store(_name: str, value: Any) -> str | None:
    return None if value is None else "Setting 'object_store_memory' is not implemented for tasks"


_Number = (float, int, type(None))
_Int = (int, type(None))
_Bool = (bool, type(None))
_Text = (str, type(None))
_Dict = (dict, type(None))

#: Classes of a higher layer, accepted by name.
_STRATEGIES = ("PlacementGroupSchedulingStrategy", "NodeAffinitySchedulingStrategy", "NodeLabelSchedulingStrategy")

_COMMON: dict[str, Option] = {
    "label_selector": Option(_Dict, None, _selector, is_plain=True),
    "fallback_strategy": Option((list, type(None)), None, _fallbacks, is_plain=True),
    "accelerator_type": Option(_Text, None),
    "memory": Option(_Number, None, _quantity),
    "name": Option(_Text, None),
    "num_cpus": Option(_Number, None, _quantity),
    "num_gpus": Option(_Number, None, _gpus),
    "object_store_memory": Option(_Int, None, _count),
    "placement_group": Option((type(None), str, "PlacementGroup"), "default", _group),
    "placement_group_bundle_index": Option(int, -1, _bundle_index),
    "placement_group_capture_child_tasks": Option(_Bool, None),
    "resources": Option(_Dict, None, _resources),
    "runtime_env": Option(_Dict, None, _runtime_env),
    "scheduling_strategy": Option((type(None), str, *_STRATEGIES), None, wrong_with_strategy),
    "cpu_affinity": Option((list, str, type(None)), None, wrong_with_affinity),
    "enable_task_events": Option(bool, True),
    "_labels": Option(_Dict, None, _labels, is_plain=True),
}

TASK_OPTIONS: dict[str, Option] = {
    **_COMMON,
    "object_store_memory": Option(_Int, None, _task_store),
    "max_calls": Option(_Int, None, _count),
    "max_retries": Option(_Int, None, _count_or_infinite),
    "num_returns": Option((int, str, type(None)), None, _num_returns),
    "retry_exceptions": Option((bool, list, tuple), False, _exceptions),
    "retry_delay_s": Option((float, int, list, tuple, type(None)), None, _delays),
    "timeout_s": Option(_Number, None, _time_limit),
    "_generator_backpressure_num_objects": Option(_Int, None, _backpressure),
    "_num_objects_per_yield": Option(_Int, 1, _per_yield),
}

ACTOR_OPTIONS: dict[str, Option] = {
    **_COMMON,
    "concurrency_groups": Option((list, dict, type(None)), None, _groups, is_plain=True),
    "enable_tensor_transport": Option(_Bool, None),
    "lifetime": Option(_Text, None, _lifetime),
    "max_concurrency": Option(_Int, None, _count),
    "max_restarts": Option(_Int, 0, _count_or_infinite),
    "max_task_retries": Option(_Int, 0, _count_or_infinite),
    "max_pending_calls": Option(_Int, -1, _count_or_infinite),
    "namespace": Option(_Text, None),
    "get_if_exists": Option(bool, False),
    "allow_out_of_order_execution": Option(_Bool, None),
    "_actor_generator_backpressure_num_objects": Option(_Int, None, _actor_backpressure),
}

#: Options of `mray.method` and ``handle.method.options``.
METHOD_OPTIONS: dict[str, Option] = {
    "num_returns": Option((int, str, type(None)), None, _method_returns),
    "concurrency_group": Option(_Text, None),
    "max_task_retries": Option(_Int, None, _count_or_infinite),
    "retry_exceptions": Option((bool, list, tuple, type(None)), None),
    "_generator_backpressure_num_objects": Option(_Int, None, _backpressure),
    "_num_objects_per_yield": Option(_Int, None, _per_yield),
    "enable_task_events": Option(_Bool, None),
    "tensor_transport": Option(_Text, None, check_tensor_transport),
    "_labels": Option(_Dict, None, _labels, is_plain=True),
}

_METHOD_NAME = Option(_Text, None)
#: Ray's options are C numbers.
_TOO_LARGE = 1 << 63


def _has_type(value: Any, types: Any) -> bool:
    for kind in types if isinstance(types, tuple) else (types,):
        if isinstance(kind, str):
            if type(value).__name__ == kind:
                return True
        elif isinstance(value, kind):
            return True
    return False


def _check(declared: Mapping[str, Option], given: Mapping[str, Any], what: str) -> None:
    for name, value in given.items():
        option = declared.get(name)
        if option is None:
            raise ValueError(f"Invalid option keyword {name} for {what}.{nearest(name, declared)} Valid ones are {list(declared)}.")
        if not _has_type(value, option.types):
            raise TypeError(f"The type of keyword '{name}' must be {option.types}, but received type {type(value)}")
        if option.check is not None and (wrong := option.check(name, value)):
            raise ValueError(wrong)


def check_task_options(given: Mapping[str, Any], *, is_generator: bool, in_options: bool = False) -> None:
    """Raise TypeError or ValueError; `in_options`: they are from ``.options()``."""
    if in_options and "max_calls" in given:
        raise ValueError("Setting 'max_calls' is not supported in '.options()'.")
    _check(TASK_OPTIONS, given, "remote functions")
    if in_options:
        check_grouping(given)
    check_place_options(given)
    check_generator_returns(given.get("num_returns"), is_generator)


def check_grouping(given: Mapping[str, Any]) -> None:
    """Raise ValueError when ``.options()`` sets how many items a generator yields together."""
    if given.get("_num_objects_per_yield") is not None:
        raise ValueError("_num_objects_per_yield cannot be overridden per task call. Use @ray.remote(_num_objects_per_yield=...) instead.")


def check_generator_returns(num_returns: Any, is_generator: bool) -> None:
    """Raise ValueError for "streaming" and "dynamic" on a function that is no generator."""
    if not isinstance(num_returns, str):
        return
    if num_returns == "dynamic":
        warnings.warn(
            "num_returns='dynamic' is deprecated and will be removed in a future Ray release. Use num_returns='streaming' instead.",
            DeprecationWarning,
            stacklevel=5,
        )
    if not is_generator:
        raise ValueError(
            f"num_returns='{num_returns}' can only be used with generator functions (functions that use 'yield'). "
            "The decorated function is not a generator function."
        )


def check_actor_options(given: Mapping[str, Any], *, warn: bool = False) -> None:
    """Raise TypeError or ValueError; with `warn`, warn of options without effect."""
    _check(ACTOR_OPTIONS, given, "actors")
    if warn and given.get("object_store_memory") is not None:
        warnings.warn(
            "Setting 'object_store_memory' for actors is deprecated: it reserves nothing, and objects that do not fit are spilled to disk.",
            DeprecationWarning,
            stacklevel=4,
        )
    check_place_options(given)
    if given.get("get_if_exists") and not given.get("name"):
        raise ValueError("The actor name must be specified to use `get_if_exists`.")


def check_namespace(namespace: Any) -> None:
    """Raise TypeError or ValueError."""
    if namespace is None:
        return
    if not isinstance(namespace, str):
        raise TypeError("namespace must be None or a string.")
    if namespace == "":
        raise ValueError('"" is not a valid namespace. Pass None to not specify a namespace.')


# ------------------------------------------------------------------------------------- complete options
def plain(value: Any) -> Any:
    """The plain text or number of a value of a subclass, such as an enumeration's: messages carry no classes."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and type(value) is not bool:
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def plain_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {plain_inside(key): plain_inside(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain_inside(each) for each in value]
    return plain(index(value) if hasattr(value, "__index__") and not isinstance(value, int) else value)


def _carried(option: Option, value: Any) -> Any:
    """A checked value as messages carry it. Raises OverflowError for a whole number of more than 64 bits."""
    value = plain_inside(value) if option.is_plain else plain(value)
    kinds = option.types if isinstance(option.types, tuple) else (option.types,)
    if int not in kinds or float in kinds or not hasattr(value, "__index__"):
        return value
    value = index(value)  # a bool, or numpy's
    if not -_TOO_LARGE <= value < _TOO_LARGE:
        raise OverflowError("Python int too large to convert to C long")
    return value


def check_method_options(options: Mapping[str, Any], *, named: bool = False) -> None:
    """Raise TypeError or ValueError; with `named`, `name` is an option."""
    for name, value in options.items():
        option = _METHOD_NAME if named and name == "name" else METHOD_OPTIONS.get(name)
        if option is None:
            raise TypeError(
                f"got an unexpected keyword argument {name!r}; a method's options are {[*METHOD_OPTIONS, *(['name'] if named else [])]}"
            )
        # Ray converts these to whole numbers.
        if not isinstance(value, option.types) and not (int in option.types and hasattr(value, "__index__")):
            raise TypeError(f"The type of keyword '{name}' must be {option.types}, but received type {type(value)}")
        if option.check is not None and (wrong := option.check(name, value)):
            raise ValueError(wrong)


def carried_method_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """A method's set options as messages carry them. Raises OverflowError for numbers that are too large."""
    return {name: _carried(METHOD_OPTIONS.get(name, _METHOD_NAME), value) for name, value in given.items() if value is not None}


def complete_task_options(given: Mapping[str, Any], *, is_generator: bool) -> dict[str, Any]:
    merged = {name: _carried(option, given[name]) if name in given else option.default for name, option in TASK_OPTIONS.items()}
    if merged["num_cpus"] is None:
        merged["num_cpus"] = 1
    merged["num_gpus"] = merged["num_gpus"] or 0
    if merged["num_returns"] is None:
        merged["num_returns"] = "streaming" if is_generator else 1
    if merged["max_retries"] is None:
        merged["max_retries"] = settings.TASK_MAX_RETRIES.get()
    if merged["max_calls"] is None:
        # Only the end of the process certainly frees GPU memory.
        merged["max_calls"] = 1 if merged["num_gpus"] else 0
    return merged


def complete_actor_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """``num_cpus`` and ``num_gpus`` stay None when not given; see `actor_resources`."""
    merged = {name: _carried(option, given[name]) if name in given else option.default for name, option in ACTOR_OPTIONS.items()}
    for name in ("max_restarts", "max_task_retries"):
        merged[name] = merged[name] or 0
    if merged["max_pending_calls"] is None:
        merged["max_pending_calls"] = -1
    return merged


def _named(options: Mapping[str, Any]) -> dict[str, float]:
    amounts: dict[str, float] = {str(name): float(amount) for name, amount in (options["resources"] or {}).items() if amount}
    if options["num_gpus"]:
        amounts["GPU"] = float(options["num_gpus"])
    if memory := int(options["memory"] or 0):  # whole bytes
        amounts["memory"] = float(memory)
    if options["accelerator_type"]:
        amounts[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return amounts


def task_resources(options: Mapping[str, Any]) -> dict[str, float]:
    amounts = _named(options)
    if options["num_cpus"]:
        amounts["CPU"] = float(options["num_cpus"])
    return amounts


def actor_resources(options: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Resources that must exist to place an actor with these complete options, free or not, and those that it holds while it lives.

    By default it holds none, and is placed where a CPU exists. With a demand for GPUs or resources, even for 0 of them, it holds a CPU
    too.
    """
    held = _named(options)
    num_cpus = options["num_cpus"]
    if num_cpus is None:
        if options["num_gpus"] is not None or options["resources"] or options["accelerator_type"]:
            return {**held, "CPU": 1.0}, {**held, "CPU": 1.0}
        return {**held, "CPU": 1.0}, held
    if num_cpus:
        held["CPU"] = float(num_cpus)
    return held, held


# --------------------------------------------------------------------------------------------- sessions
class SessionOptions(Record):
    """The options of `init`, checked. None: the engine chooses."""

    num_cpus: float | None = None
    num_gpus: float | None = None
    resources: Mapping[str, float] | None = None
    labels: Mapping[str, str] | None = None
    #: Bytes that tasks and actors may request as ``memory``.
    memory: int | None = None
    #: Bytes of shared memory that objects may take.
    object_store_memory: int | None = None
    #: Directory of spilled objects (absolute; None: in the session's).
    object_spilling_directory: str | None = None
    object_spilling: bool = True
    namespace: str | None = None
    runtime_env: Mapping[str, Any] | None = None
    log_to_driver: bool = True
    #: A `LoggingConfig` as builtin values.
    logging_config: Mapping[str, Any] | None = None
    #: Modules that every worker starts with.
    preload: tuple[str, ...] = ()
    foresee: bool = False
    #: One of `MPS_WORDS`.
    mps: str = "off"
    #: Absolute path of the session directory's parent.
    temp_dir: str | None = None
    node_name: str | None = None
    #: None: the address of the route out of this machine.
    node_ip_address: str | None = None
    #: Port of a persistent session; None: Ray's default if no other session has it, 0: any.
    port: int | None = None
    system_config: Mapping[str, Any] | None = None
    backend: str = "native"
    #: The session to join; None and "local" start one.
    address: str | None = None
    #: Error text if a session is joined: options that only a new session can have.
    conflict: str | None = None


_MINIMUM_STORE = 75 * 1024 * 1024
#: Rounded to whole bytes.
_ROUNDED_DOWN = ("memory", "object_store_memory")


def _check_amounts(amounts: Mapping[str, Any]) -> None:
    for name, amount in amounts.items():
        if not isinstance(name, str):
            raise TypeError(f"The name of a resource must be a str, but {name!r} is a {type(name)}")
        if not isinstance(amount, (int, float)):
            raise TypeError(f"The quantity of resource {name} must be a number, but received type {type(amount)}")
        if amount < 0:
            raise ValueError(f"Resource quantities must be nonnegative. Violated by resource '{name}' in {dict(amounts)}.")
        if amount != int(amount) and name not in _ROUNDED_DOWN:
            raise ValueError(f"Resource quantities must all be whole numbers. Violated by resource '{name}' in {dict(amounts)}.")


def session_options(  # one keyword per argument of `init`
    *,
    num_cpus: float | None = None,
    num_gpus: float | None = None,
    resources: Mapping[str, float] | None = None,
    labels: Mapping[str, str] | None = None,
    memory: int | None = None,
    object_store_memory: int | None = None,
    object_spilling_directory: str | None = None,
    namespace: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    log_to_driver: bool | None = None,
    logging_config: Mapping[str, Any] | None = None,
    preload: Any = (),
    mps: str | None = None,
    temp_dir: str | None = None,
    node_name: str | None = None,
    node_ip_address: str | None = None,
    port: int | None = None,
    system_config: Mapping[str, Any] | None = None,
    address: str | None = None,
    local_mode: bool = False,
) -> SessionOptions:
    """Check the arguments of `init` and add the environment's settings."""
    address = settings.ADDRESS.get() if address is None else address
    backend = _engine(address, local_mode)
    conflict = _conflict(
        num_cpus=num_cpus, num_gpus=num_gpus, resources=resources, labels=labels, object_store_memory=object_store_memory,
        _system_config=system_config or None, _memory=memory, _node_name=node_name, mps=mps,
    )  # fmt: skip
    if num_cpus is None and address in (None, "local"):
        num_cpus = settings.NUM_CPUS.get()
    if resources is not None and not isinstance(resources, Mapping):
        raise TypeError(f"resources must be a dict from name to quantity, got {type(resources)}")
    for name in ("CPU", "GPU", "memory", "object_store_memory"):
        if resources and name in resources:
            keyword = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "_memory"}.get(name, name)
            raise AssertionError(
                f"`{name}` cannot be a custom resource because it is one of the default resources. Use `{keyword}` instead."
            )
    amounts: dict[str, Any] = {"CPU": num_cpus, "GPU": num_gpus, "memory": memory, "object_store_memory": object_store_memory}
    amounts = {name: amount for name, amount in {**amounts, **(resources or {})}.items() if amount is not None}
    amounts.update(settings.OVERRIDE_RESOURCES.get())
    _check_amounts(amounts)
    amounts = plain_inside(amounts)
    num_cpus, num_gpus, memory = amounts.pop("CPU", None), amounts.pop("GPU", None), amounts.pop("memory", None)
    store = amounts.pop("object_store_memory", None)
    if store is not None and store < _MINIMUM_STORE:
        raise ValueError(
            f"Attempting to cap object store memory usage at {store} bytes, but the minimum allowed is {_MINIMUM_STORE} bytes."
        )
    all_labels: dict[Any, Any] = plain_inside({**(labels or {}), **settings.OVERRIDE_LABELS.get()})
    for key, text in all_labels.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"labels must map text to text, got {key!r}: {text!r}")
    if namespace is None:
        namespace = settings.NAMESPACE.get()
    check_namespace(namespace)
    if runtime_env is not None and not isinstance(runtime_env, Mapping):
        raise TypeError(f"runtime_env must be a dict, got {type(runtime_env)}")
    check_environment(runtime_env)
    _check_node(node_name, node_ip_address, port)
    if temp_dir is None:
        temp_dir = settings.TMPDIR.get()
    if temp_dir is not None and not os.path.isabs(temp_dir):
        raise ValueError("temp_dir must be absolute path or None.")
    if isinstance(preload, str) and preload == settings.AUTO:
        preload = (preload,)
    if isinstance(preload, (str, bytes)) or not all(isinstance(name, str) for name in preload or ()):
        raise TypeError(f"preload must be a list of names of modules, or 'auto', got {preload!r}")
    if mps is not None and mps not in settings.MPS_WORDS:
        raise ValueError(f"mps must be one of {', '.join(map(repr, settings.MPS_WORDS))}, got {mps!r}")
    modules = dict.fromkeys((*map(plain, preload or ()), *settings.PRELOAD.get()))
    return SessionOptions(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        resources=amounts or None,
        labels=all_labels or None,
        memory=None if memory is None else int(memory),
        object_store_memory=None if store is None else int(store),
        object_spilling_directory=spill_directory(object_spilling_directory, system_config),
        object_spilling=is_spilling(system_config),
        namespace=plain(namespace),
        runtime_env=dict(runtime_env) if runtime_env is not None else None,
        log_to_driver=settings.LOG_TO_DRIVER.get() if log_to_driver is None else bool(log_to_driver),
        logging_config=logging_config,
        preload=tuple(name for name in modules if name != settings.AUTO),
        foresee=settings.AUTO in modules,
        mps=settings.MPS.get() if mps is None else str(plain(mps)),
        temp_dir=plain(temp_dir),
        node_name=plain(node_name),
        node_ip_address=plain(node_ip_address),
        port=port,
        system_config=system_config,
        backend=backend,
        address=address,
        conflict=conflict,
    )


def _check_node(name: Any, address: Any, port: int | None) -> None:
    for option, text in (("_node_name", name), ("_node_ip_address", address)):
        if not isinstance(text, (str, NoneType)):
            raise TypeError(f"{option} must be a str, got {text!r}")
    if address is not None and (not address or any(letter.isspace() or letter == "/" for letter in address)):
        raise ValueError(f"Malformed host: {address!r}")
    if port is not None and not 0 <= port < 1 << 16:
        raise ValueError(f"a port is a number from 1 to 65535, or 0 for any; got {port}")


_RAY_SCHEME = "ray:"


def _engine(address: str | None, local_mode: bool) -> str:
    if address is not None and address.startswith(_RAY_SCHEME):
        if local_mode:
            raise ValueError(f"local_mode=True runs everything in this process, and address={address!r} on a Ray cluster: choose one")
        return "ray"
    return "local" if local_mode else settings.BACKEND.get()


def _conflict(**given: Any) -> str | None:
    name = next((name for name, value in given.items() if value is not None), None)
    if name is None:
        return None
    if name == "_node_name":
        return "_node_name cannot be configured when connecting to an existing cluster."
    what = "num_cpus and num_gpus" if name in ("num_cpus", "num_gpus") else name
    return f"When connecting to an existing cluster, {what} must not be provided."
