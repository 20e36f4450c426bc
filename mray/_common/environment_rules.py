"""The fields of a ``runtime_env``, their types, and the normal form of their values.

Pure except for the requirements file that a field may name. Texts are Ray's where programs match on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mray._common.kept import io, os
from mray._common.nearest import nearest

SUPPORTED = (
    "env_vars",
    "working_dir",
    "py_modules",
    "excludes",
    "worker_process_setup_hook",
    "pip",
    "uv",
    "py_executable",
    "nsight",
    "profiler",
    "config",
)
#: Ray's fields that mray does not set up -> what to do instead.
REFUSED = {
    "conda": "use pip or uv, or py_executable with the interpreter of a conda environment",
    "container": "start the program inside the container",
    "image_uri": "start the program inside the container",
    "java_jars": "there are no Java workers",
    "rocprof_sys": "use runtime_env['profiler'] with the command as a list of words",
}
#: Fields that choose an interpreter; mutually exclusive.
INTERPRETERS = ("pip", "uv", "py_executable")

_PACKAGE_FIELDS = {
    "pip": ("packages", "pip_check", "pip_install_options", "pip_version"),
    "uv": ("packages", "uv_check", "uv_version", "uv_pip_install_options"),
}


def public_name(name: str) -> str:
    """mray's name of a field: Ray's object prefixes profilers with an underscore."""
    return name[1:] if name in ("_nsight", "_rocprof_sys") else name


def check_environment(environment: Mapping[str, Any] | None) -> None:
    """Raise TypeError or ValueError for an invalid field, NotImplementedError for one that mray does not set up."""
    if not environment:
        return
    for field, value in environment.items():
        if not isinstance(field, str):
            raise TypeError(f"the fields of runtime_env must be strings, but {field!r} is a {type(field)}")
        name = public_name(field)
        if value is None or name.startswith("_"):
            continue
        if name in REFUSED:
            raise NotImplementedError(f"runtime_env[{name!r}] is not supported by mray: {REFUSED[name]}.")
        if name not in SUPPORTED:
            raise ValueError(f"runtime_env has no field {name!r}.{nearest(name, SUPPORTED)} Its fields are {list(SUPPORTED)}.")
        check = _CHECKS.get(name)
        if check is not None:
            check(value)
    given = [name for name in INTERPRETERS if environment.get(name) is not None]
    if len(given) > 1:
        raise ValueError(
            f"The {' field, '.join(map(repr, given))} field of runtime_env cannot be specified at the same time.\n"
            + "\n".join(f"specified {name} field: {environment[name]}" for name in given)
        )


def _check_variables(variables: Any) -> None:
    if not isinstance(variables, Mapping):
        raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], got {type(variables)}")
    for key, text in variables.items():
        if not isinstance(key, str):
            raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], but the key {key} is of type {type(key)}")
        if not isinstance(text, str):
            raise TypeError(f"runtime_env['env_vars'] must be of type Dict[str, str], but the value {text} is of type {type(text)}")
        if not _can_be_set(key, text):
            raise ValueError(f"runtime_env['env_vars'] has the variable {key!r}, whose name or value no process can have")


def _can_be_set(name: str, value: str) -> bool:
    try:
        return bool(name) and "=" not in name and b"\0" not in os.fsencode(name + value)
    except UnicodeEncodeError:
        return False


def _check_folder(folder: Any) -> None:
    if not isinstance(folder, (str, os.PathLike)):
        raise TypeError(f"`working_dir` must be a string, got {type(folder)}.")


def _check_modules(modules: Any) -> None:
    if not isinstance(modules, (list, tuple)):
        raise TypeError(f"`py_modules` must be a list of strings, got {type(modules)}.")
    for module in modules:
        if not isinstance(module, (str, os.PathLike)) and not (hasattr(module, "__file__") or hasattr(module, "__path__")):
            raise TypeError(f"`py_module` must be a string, got {type(module)}.")


def _check_excludes(excludes: Any) -> None:
    if not isinstance(excludes, (list, tuple)) or not all(isinstance(pattern, str) for pattern in excludes):
        raise TypeError(f"runtime_env['excludes'] must be of type List[str], got {type(excludes)}")


def _check_hook(hook: Any) -> None:
    if not callable(hook) and not isinstance(hook, (str, bytes)):
        raise TypeError(f"runtime_env['worker_process_setup_hook'] must be a function or the dotted name of one, got {type(hook)}")


def _check_executable(command: Any) -> None:
    if not isinstance(command, (str, os.PathLike)):
        raise TypeError(f"`py_executable` must be a string, got {type(command)}.")


def _check_config(config: Any) -> None:
    if not isinstance(config, Mapping):
        raise TypeError(f"runtime_env['config'] must be of type dict or RuntimeEnvConfig, got: {type(config)}")
    timeout = config.get("setup_timeout_seconds", 600)
    if not isinstance(timeout, int):
        raise TypeError(f"setup_timeout_seconds must be of type int, got: {type(timeout)}")
    if timeout <= 0 and timeout != -1:
        raise ValueError(f"setup_timeout_seconds must be greater than zero or equals to -1, got: {timeout}")
    eager = config.get("eager_install", True)
    if not isinstance(eager, bool):
        raise TypeError(f"eager_install must be a boolean. got {type(eager)}")
    files = config.get("log_files")
    if files is not None and not isinstance(files, list):
        raise TypeError(f"log_files must be a list of strings or None, got {files} with type {type(files)}.")
    if any(not isinstance(file, str) for file in files or ()):
        raise TypeError("Each item in log_files must be a string.")


_CHECKS: dict[str, Callable[[Any], object]] = {
    "env_vars": _check_variables,
    "working_dir": _check_folder,
    "py_modules": _check_modules,
    "excludes": _check_excludes,
    "worker_process_setup_hook": _check_hook,
    "py_executable": _check_executable,
    "config": _check_config,
    "pip": lambda value: packages_of("pip", value),
    "uv": lambda value: packages_of("uv", value),
}


def packages_of(tool: str, value: Any) -> dict[str, Any] | None:
    """The field ``pip`` or ``uv`` as a dict with ``packages`` (unique) and ``pip_check`` or ``uv_check``; None when it lists nothing.

    `value` is a list of requirements, the path of a requirements file, or such a dict.
    """
    check = f"{tool}_check"
    if isinstance(value, str):
        result: dict[str, Any] = {"packages": _requirements(value), check: False}
    elif isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        result = {"packages": list(value), check: False}
    elif isinstance(value, Mapping):
        result = _packages_of_dict(tool, value)
    else:
        either = "str or List[str]" if tool == "pip" else "List[str], or dict"
        raise TypeError(f"runtime_env['{tool}'] must be of type {either}, got {type(value)}")
    result["packages"] = list(dict.fromkeys(result["packages"]))
    return result if result["packages"] else None


def _packages_of_dict(tool: str, value: Mapping[str, Any]) -> dict[str, Any]:
    fields = _PACKAGE_FIELDS[tool]
    where = f"runtime_env['{tool}']"
    if set(value) - set(fields):
        raise ValueError(f"{where} can only have these fields: {', '.join(fields[:-1])} and {fields[-1]}, but got: {list(value)}")
    if "packages" not in value:
        raise ValueError(f"{where} must include field 'packages', but got {dict(value)}")
    for name, kind in ((f"{tool}_check", bool), (f"{tool}_version", str)):
        if name in value and not isinstance(value[name], kind):
            raise TypeError(f"{where}['{name}'] must be of type {kind.__name__}, got {type(value[name])}")
    options_name = "pip_install_options" if tool == "pip" else "uv_pip_install_options"
    _check_list(f"{where}['{options_name}']", value.get(options_name, []), TypeError)
    packages = value["packages"]
    if tool == "pip" and isinstance(packages, str):
        packages = _requirements(packages)
    _check_list(f"{where}['packages']", packages, ValueError)
    return {**value, "packages": packages, f"{tool}_check": value.get(f"{tool}_check", False)}


def _check_list(where: str, value: Any, error: type[Exception]) -> None:
    if not isinstance(value, list):
        raise error(f"{where} must be of type list[str] got {type(value)}")
    for index, each in enumerate(value):
        if not isinstance(each, str):
            raise TypeError(f"{where} must be of type list[str] got {type(each)} for {index}-th item.")


def _requirements(path: str) -> list[str]:
    if not os.path.isfile(path):
        raise ValueError(f"{path} is not a valid file")
    with io.open(path, encoding="utf-8") as file:
        return file.read().strip().split("\n")
