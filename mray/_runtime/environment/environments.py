"""Runtime environments: the variables, the code and the hook that a worker is started with.

An environment is checked and reduced to builtin values where a worker is asked for, travels among that worker's variables, and is
applied before any user code runs. A folder is used in place, unless something of it is excluded; then the first worker copies it into
the session's directory. Archives and single modules are taken over into that directory immediately, since the program that created them
may delete them when `init` or the call has returned.

A worker serves only tasks of the same environment: its variables, this one included, are the key of its pool.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import PathFinder
from typing import Any

from mray._common.environment_rules import INTERPRETERS, check_environment, public_name
from mray._common.kept import os
from mray._common.options import plain
from mray._decide.scheduler.policy import INTERPRETER_VARIABLE, PRIVATE_VARIABLES, READ_AT_START, RUN_AT_START, WRAPPER_VARIABLE
from mray._decide.scheduler.root_names import ROOT_VARIABLE
from mray._ipc import process as processes
from mray._ipc.frames import from_text, to_text
from mray._runtime.environment.folders import ARCHIVES, MODULE, is_taken_over, taken_over, unpacked
from mray._runtime.environment.packages import interpreter_of, reduce_packages
from mray._runtime.environment.profilers import wrapper_of
from mray._runtime.processes.launch import PYTHON_PATH
from mray.exceptions import RuntimeEnvSetupError

#: Carries the rest of an environment among a worker's variables.
VARIABLE = "MRAY_WORKER_SETUP"

#: Modules that an interpreter runs when it starts, if a folder of its PYTHONPATH has them.
_CUSTOMIZERS = ("sitecustomize", "usercustomize")
_HOOK = "worker_process_setup_hook"
_SETUP = ("working_dir", "py_modules", "excludes", _HOOK)


def reduce_environment(environment: Mapping[str, Any] | None) -> dict[str, Any]:
    """The environment as builtin values, with absolute paths.

    Raises TypeError for values of a wrong type, ValueError for paths that do not exist and for unknown fields, NotImplementedError that
    names a field that mray cannot set up, RuntimeEnvSetupError for a hook that cannot be pickled.
    """
    if not environment:
        return {}
    check_environment(environment)
    reduced: dict[str, Any] = {}
    for name, value in environment.items():
        name = plain(public_name(name))
        if value is None or name.startswith("_"):
            continue
        if name == "working_dir":
            value = _existing(name, value)
        elif name == "py_modules":
            value = [_existing(name, _place_of(each), (*ARCHIVES, MODULE)) for each in value]
        elif name == _HOOK and not isinstance(value, (str, bytes)):
            value = _pickled_hook(value)
        elif name == "env_vars":
            value = {plain(key): plain(text) for key, text in value.items()}
        elif name == "config":
            value = dict(value)
        elif name == "excludes":
            value = list(value)
        elif name == "py_executable":
            value = os.fspath(value)
        elif name in ("pip", "uv"):
            value = reduce_packages(name, value)
            if value is None:
                continue
        reduced[name] = value
    return reduced


def _place_of(module: Any) -> Any:
    """The folder of a package that was given as a module, the file of another module; a path as it is."""
    if isinstance(module, (str, os.PathLike)):
        return module
    return module.__path__[0] if hasattr(module, "__path__") else module.__file__


def _pickled_hook(hook: Any) -> bytes:
    from mray._objects.serializer import dumps  # noqa: PLC0415  (10 ms before the node begins)

    try:
        return dumps(hook)
    except Exception as error:
        raise RuntimeEnvSetupError(
            f"Failed to export the setup function. runtime_env[{_HOOK!r}] cannot be pickled: {error}. "
            "See mray.util.inspect_serializability for what it captures."
        ) from error


def _existing(name: str, path: Any, endings: tuple[str, ...] = ARCHIVES) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"runtime_env[{name!r}] must be a path, got {type(path)}")
    full = os.path.abspath(os.path.expanduser(os.fspath(path)))
    if not os.path.exists(full):
        raise ValueError(f"runtime_env[{name!r}]: there is no {full}, it is not a valid path.")
    if not os.path.isdir(full) and not full.endswith(endings):
        what = "an archive" if endings is ARCHIVES else "an archive or a module"
        raise ValueError(f"runtime_env[{name!r}]: {full} is neither a folder nor {what} ({', '.join(endings)})")
    return full


def take_over(environment: dict[str, Any], session_dir: str) -> dict[str, Any]:
    """The same with all files in the session's directory. Raises RuntimeEnvSetupError for a file that cannot be read or unpacked."""
    taken = dict(environment)
    try:
        if "working_dir" in taken:
            taken["working_dir"] = taken_over(taken["working_dir"], session_dir)
        if "py_modules" in taken:
            taken["py_modules"] = [taken_over(module, session_dir) for module in taken["py_modules"]]
    except Exception as error:  # of the archive's reader, too
        raise RuntimeEnvSetupError(f"runtime_env: a file of working_dir or py_modules cannot be used: {error}") from error
    return taken


def merge_environments(parent: dict[str, Any], own: Mapping[str, Any] | None, session_dir: str) -> dict[str, Any]:
    """The environment of a child: its parent's, with variables merged, and every other field replaced by its own.

    The child's files are taken over into the session's directory.
    """
    if not own:
        return parent
    reduced = take_over(reduce_environment(own), session_dir)
    if not reduced.keys().isdisjoint(INTERPRETERS):
        # A field that names an interpreter replaces every other that does.
        parent = {name: value for name, value in parent.items() if name not in INTERPRETERS}
    merged = {**parent, **reduced}
    variables = {**(parent.get("env_vars") or {}), **(reduced.get("env_vars") or {})}
    if variables:
        merged["env_vars"] = variables
    return merged


def variables_of(environment: Mapping[str, Any]) -> dict[str, str]:
    """The variables that a worker is started with; ``${NAME}`` in a value is this process's variable.

    Raises RuntimeEnvSetupError when the environment asks for a missing profiler or interpreter.
    """
    if not environment:
        return {}
    variables = {
        key: os.path.expandvars(value) if "${" in value else value
        for key, value in (environment.get("env_vars") or {}).items()
        if not key.startswith(PRIVATE_VARIABLES)  # a program may pass on all variables of its own process
    }
    path = processes.expand(variables.get("PATH", "${PATH}"), os.environ)
    wrapper = wrapper_of(environment, path)
    if wrapper is not None:
        variables[WRAPPER_VARIABLE] = wrapper.encode()
    interpreter = interpreter_of(environment, path)
    if interpreter is not None:
        variables[INTERPRETER_VARIABLE] = interpreter.encode()
    setup = {name: environment[name] for name in _SETUP if name in environment}
    if setup:
        variables[VARIABLE] = to_text(tuple(sorted(setup.items())))
    return variables


def variables_of_zygote(variables: Mapping[str, str], around: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of its only job with which a session's zygote begins, beside these: those that it sets, those that it is started with.

    None where workers have interpreters of their own.
    """
    if not variables.keys().isdisjoint((INTERPRETER_VARIABLE, WRAPPER_VARIABLE)):
        return {}, {}
    own = processes.expand_all({name: value for name, value in variables.items() if not name.startswith(PRIVATE_VARIABLES)}, around)
    apart = set(RUN_AT_START)
    if any(PathFinder.find_spec(name, own.get(PYTHON_PATH, "").split(os.pathsep)) for name in _CUSTOMIZERS):
        apart.add(PYTHON_PATH)
    at_start = {name for name, value in own.items() if name.startswith(READ_AT_START) and around.get(name) != value}
    return {name: own[name] for name in own.keys() - at_start - apart}, {name: own[name] for name in at_start - apart}


def set_up(variables: Mapping[str, str], session_dir: str, tell: Callable[[str], None]) -> None:
    """Apply the environment, in a new worker. Raises the error of the user's hook, and OSError for a path that no longer exists.

    `tell` gets the name of the user code that is about to run, and need not return, and "" when it has returned.
    """
    for name in (ROOT_VARIABLE, VARIABLE):
        os.environ.pop(name, None)
    text = variables.get(VARIABLE)
    if text is None:
        return
    setup = dict(from_text(VARIABLE, text, tuple))
    excludes = tuple(setup.get("excludes") or ())
    folder = setup.get("working_dir")
    if folder is not None:
        folder = unpacked(folder, excludes, session_dir)
        os.chdir(folder)
        sys.path.insert(0, folder)
    for module in setup.get("py_modules") or ():
        place = unpacked(module, excludes, session_dir)
        # A folder stands for the package of its name; where it is no package, its modules are found without that name as well.
        if not os.path.exists(os.path.join(place, "__init__.py")):
            sys.path.insert(0, place)
        if not is_taken_over(place, session_dir):
            sys.path.insert(0, os.path.dirname(place))
    hook = setup.get(_HOOK)
    if hook is not None:
        tell(_HOOK)
        _call_hook(hook)
        tell("")


def _call_hook(hook: str | bytes) -> None:
    if isinstance(hook, str):
        module_name, _, name = hook.rpartition(".")
        getattr(importlib.import_module(module_name), name)()
    else:
        import pickle  # noqa: PLC0415

        pickle.loads(hook)()
