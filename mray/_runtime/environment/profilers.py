"""Profilers that a worker can be started under: ``runtime_env={"nsight": ...}`` and ``runtime_env={"profiler": ...}``.

A missing program is an error immediately; the program reports wrong options when the first worker is started.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from mray._runtime.processes.host_program import interpreter
from mray._runtime.processes.launch import Wrapper
from mray.exceptions import RuntimeEnvSetupError

#: Folders of the session's ``logs``.
NSIGHT_FOLDER = "nsight"
PROFILER_FOLDER = "profiles"

#: Options of ``nsys profile`` that ``"default"`` means, as on Ray.
NSIGHT_DEFAULTS = {"t": "cuda,cudnn,cublas,nvtx", "o": "worker_process_%p", "stop-on-exit": "true"}

_PY_SPY = ("py-spy", "record", "--output", "{output_dir}/worker_process_{pid}.svg", "--")
_MEMRAY = ("-m", "memray", "run", "--quiet", "--force", "--output", "{output_dir}/worker_process_{pid}.bin")


def wrapper_of(environment: Mapping[str, Any], path: str) -> Wrapper | None:
    """The profiler that a worker of this environment is started under, or None; programs are looked for in `path`.

    Raises RuntimeEnvSetupError for a profiler that is not installed or not supported, TypeError for values of a wrong type.
    """
    nsight, profiler = environment.get("nsight"), environment.get("profiler")
    if not nsight and not profiler:
        return None
    if nsight and profiler:
        raise RuntimeEnvSetupError("A worker runs under one profiler: runtime_env has 'nsight' and 'profiler'.")
    if nsight:
        return Wrapper(NSIGHT_FOLDER, False, _found(_nsys_command(nsight), path, "nsight profile"))
    if profiler == "memray":
        if importlib.util.find_spec("memray") is None:
            raise RuntimeEnvSetupError("memray failed to run with the following error message:\n memray is not installed")
        return Wrapper(PROFILER_FOLDER, True, (interpreter(), *_MEMRAY))
    if profiler == "py-spy":
        return Wrapper(PROFILER_FOLDER, False, _found(_PY_SPY, path, "py-spy"))
    if isinstance(profiler, str):
        raise RuntimeEnvSetupError(f"Unsupported profiler: {profiler}. Supported are 'py-spy', 'memray' or a command as a list of str")
    if not isinstance(profiler, (list, tuple)) or not all(isinstance(word, str) for word in profiler):
        raise TypeError(f"runtime_env['profiler'] must be 'py-spy', 'memray' or a list of str, got {profiler!r}")
    return Wrapper(PROFILER_FOLDER, False, _found(tuple(profiler), path, str(profiler[0])))


def _nsys_command(options: Any) -> tuple[str, ...]:
    """``nsys profile`` with options: a name of one letter with one dash, longer ones with two."""
    if isinstance(options, str):
        if options != "default":
            raise RuntimeEnvSetupError(
                f"Unsupported nsight config: {options}. The supported config is 'default' or Dictionary of nsight options"
            )
        options = NSIGHT_DEFAULTS
    if not isinstance(options, Mapping):
        raise TypeError(f"runtime_env['nsight'] must be 'default' or a dict of options of `nsys profile`, got {type(options)}")
    options = dict(options)
    output = str(options.pop("o", None) or options.pop("output", None) or NSIGHT_DEFAULTS["o"])
    command = ["nsys", "profile"]
    for name, value in options.items():
        command += [f"--{name}={value}"] if len(name) > 1 else [f"-{name}", str(value)]
    return (*command, "-o", output if output.startswith("/") else "{output_dir}/" + output)


def _found(command: tuple[str, ...], path: str, what: str) -> tuple[str, ...]:
    from mray._common.kept import shutil  # noqa: PLC0415

    program = shutil.which(command[0], path=path)
    if program is None:
        name = {"nsys": "nsight"}.get(command[0], command[0])
        raise RuntimeEnvSetupError(
            f"{what} failed to run with the following error message:\n {name} is not installed (there is no program {command[0]} in {path})"
        )
    return (program, *command[1:])
