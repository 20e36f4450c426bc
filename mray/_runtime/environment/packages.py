"""Packages of a runtime environment: ``pip``, ``uv`` and ``py_executable``, and the interpreter that follows from them.

Packages lie in a virtual environment in the user's cache, one for each set of requirements, installer options, Python and driver
packages. It is built when its first worker is wanted (`mray._runtime.processes.interpreters`) and serves every later session. The
driver's own packages are importable in it, after the installed ones.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from mray._common.cache import cache_folder
from mray._common.environment_rules import packages_of
from mray._common.kept import os
from mray._ipc.frames import from_text
from mray._runtime.environment.folders import stamp_of
from mray._runtime.processes.host_program import interpreter
from mray._runtime.processes.launch import BASE_VARIABLE, LaunchedInterpreter
from mray.exceptions import RuntimeEnvSetupError

SETUP_SECONDS = 600
#: Prefixes of variables that change the installers' behaviour.
_INSTALLERS_READ = ("PIP_", "UV_")
#: Part of the hash: folders of another layout are ignored.
_LAYOUT = 1
#: Files that an installation of a folder leaves in it.
_BUILT = ("/build/", "/dist/", "/target/", "*.egg-info/")


def reduce_packages(tool: str, value: Any) -> dict[str, Any] | None:
    """The field ``pip`` or ``uv`` as builtin values; packages that are files of this machine get absolute paths."""
    reduced = packages_of(tool, value)
    if reduced is not None:
        reduced["packages"] = [os.path.abspath(each) if _is_path(each) else each for each in reduced["packages"]]
        reduced.setdefault("cwd", os.getcwd())
    return reduced


def _is_path(requirement: str) -> bool:
    return (os.sep in requirement or requirement.endswith(".whl")) and os.path.exists(requirement)


def interpreter_of(environment: Mapping[str, Any], path: str) -> LaunchedInterpreter | None:
    """The interpreter that an environment asks for, None for the session's own. Programs are looked for in `path`.

    Raises RuntimeEnvSetupError when ``py_executable`` does not exist.
    """
    base = _base()
    for tool in ("pip", "uv"):
        if environment.get(tool):
            recipe = recipe_of(tool, environment, base)
            return LaunchedInterpreter((os.path.join(recipe["folder"], "bin", "python"),), recipe, base)
    command = environment.get("py_executable")
    if not command:
        return None
    import shlex  # noqa: PLC0415  (these are on the way to the first worker of every session, and hardly any needs them)

    from mray._common.kept import shutil  # noqa: PLC0415

    words = shlex.split(os.path.expanduser(command))
    program = shutil.which(words[0], path=path) if words else None
    if program is None:
        raise RuntimeEnvSetupError(f"runtime_env['py_executable']: there is no program {command!r} in {path}")
    return LaunchedInterpreter((program, *words[1:]), None, base)


def _base() -> tuple[str, tuple[str, ...]]:
    text = os.environ.get(BASE_VARIABLE)
    if text is not None:
        python, sites = from_text(BASE_VARIABLE, text, (str, tuple))
        return python, tuple(sites)
    sites = tuple(path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))
    return interpreter(), sites


def recipe_of(tool: str, environment: Mapping[str, Any], base: tuple[str, Sequence[str]]) -> dict[str, Any]:
    """How the packages of an environment are installed, and their folder, named by the hash of all that."""
    given = environment[tool]
    variables = environment.get("env_vars") or {}
    content = {
        "tool": tool,
        "packages": given["packages"],
        "check": given[f"{tool}_check"],
        "version": given.get(f"{tool}_version"),
        "options": given.get("pip_install_options" if tool == "pip" else "uv_pip_install_options"),
        "variables": {name: value for name, value in sorted(variables.items()) if name.startswith(_INSTALLERS_READ)},
        "python": [base[0], os.path.realpath(base[0]), sys.version],
        "sites": list(base[1]),
    }
    stamps = [stamp_of(each, _BUILT) for each in given["packages"] if _is_path(each)]
    # Relative paths inside of requirements ("-r more.txt") start here.
    relative = given["cwd"] if any(each.startswith(("-", ".")) for each in given["packages"]) else ""
    import json  # noqa: PLC0415

    text = json.dumps([_LAYOUT, content, stamps, relative], sort_keys=True)
    import hashlib  # noqa: PLC0415

    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    config = environment.get("config") or {}
    return {
        **content,
        "cwd": given["cwd"],
        "folder": os.path.join(cache_folder("environments"), name),
        "timeout": config.get("setup_timeout_seconds", SETUP_SECONDS),
    }
