"""The builder: installs the packages of one runtime environment into a virtual environment of the user's cache.

A process that the node starts. Builders of all sessions of the user take turns by the lock of the folder, and later ones find it
complete.

A virtual environment cannot be moved (its scripts name their interpreter), so it is built in place, and the file `COMPLETE` is written
last. A builder that fails, or that SIGTERM ends, leaves nothing. A folder without that file and without a lock was left by a killed
builder, and is removed by the next.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from mray._common.kept import fcntl, io, os, shutil
from mray._ipc.process import die_with_parent
from mray._runtime.processes.launch import COMPLETE, is_complete


def build(recipe: dict[str, Any]) -> int:
    """Build, unless it exists. Returns the exit code; the reasons of a failure have been printed."""
    folder: str = recipe["folder"]
    os.makedirs(os.path.dirname(folder), 0o700, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_args: sys.exit(1))
    _sweep(os.path.dirname(folder))
    with _locked(folder):
        return 0 if is_complete(folder) else _build_locked(recipe, folder)


def _sweep(cache: str) -> None:
    for entry in os.scandir(cache):
        if entry.is_dir() and not is_complete(entry.path):
            with contextlib.suppress(BlockingIOError), _locked(entry.path, fcntl.LOCK_NB):
                if not is_complete(entry.path):
                    _remove(entry.path)


@contextlib.contextmanager
def _locked(folder: str, flags: int = 0) -> Iterator[None]:
    """Hold the lock of a folder. Raises BlockingIOError with LOCK_NB when another builder holds it."""
    path = folder + ".lock"
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | flags)
            # The previous holder may have removed the file, and another builder may have created a new one.
            if os.path.exists(path) and os.path.samestat(os.fstat(lock), os.stat(path)):
                break
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError):  # the user has emptied the cache
            os.unlink(path)
        os.close(lock)


def _build_locked(recipe: dict[str, Any], folder: str) -> int:
    _remove(folder)
    try:
        _install(recipe)
        with io.open(os.path.join(folder, COMPLETE), "w", encoding="utf-8") as file:
            json.dump(recipe, file, indent=1)
    except _FailedError as error:
        _remove(folder)
        sys.stdout.write(f"{error}\n")
        return error.code
    except BaseException:
        _remove(folder)
        raise
    return 0


class _FailedError(Exception):
    def __init__(self, command: list[str], code: int) -> None:
        super().__init__(f"{' '.join(command)} ended with {code}")
        self.code = code if 0 < code < 128 else 1


def _remove(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _install(recipe: dict[str, Any]) -> None:
    folder = recipe["folder"]
    import venv  # noqa: PLC0415  (some systems come without it: then this is the error that is shown)

    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    packages = os.path.join(folder, "lib", version, "site-packages")
    # The driver's packages come after those of the environment, with the folders that their own .pth files name.
    with io.open(os.path.join(packages, "zz_driver.pth"), "w", encoding="utf-8") as file:
        file.writelines(f"import site; site.addsitedir({site!r})\n" for site in recipe["sites"])
    requirements = os.path.join(folder, "requirements.txt")
    with io.open(requirements, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in recipe["packages"])
    python = os.path.join(folder, "bin", "python")
    if recipe["tool"] == "uv":
        _install_with_uv(recipe, python, requirements)
    else:
        _install_with_pip(recipe, python, requirements)


def _install_with_pip(recipe: dict[str, Any], python: str, requirements: str) -> None:
    pip = _pip(recipe, python)
    if recipe["version"]:
        _run(recipe, [*pip, "install", f"pip{recipe['version']}"])
    options = recipe["options"] or []
    _run(recipe, [*pip, "install", *options, "-r", requirements])
    if recipe["check"]:
        _run(recipe, [*pip, "check"])


def _pip(recipe: dict[str, Any], python: str) -> list[str]:
    """The command of pip for the new environment: the driver's, or else the one that comes with Python."""
    if importlib.util.find_spec("pip") is None:
        _run(recipe, [python, "-m", "ensurepip"])
    return [python, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def _install_with_uv(recipe: dict[str, Any], python: str, requirements: str) -> None:
    program = shutil.which("uv")
    if recipe["version"]:
        _run(recipe, [*_pip(recipe, python), "install", f"uv{recipe['version']}"])
        uv = [python, "-m", "uv"]
    elif program is not None:
        uv = [program]
    else:
        if importlib.util.find_spec("uv") is None:
            _run(recipe, [*_pip(recipe, python), "install", "uv"])
        uv = [python, "-m", "uv"]
    options = recipe["options"] or []
    _run(recipe, [*uv, "pip", "install", "--python", python, *options, "-r", requirements])
    if recipe["check"]:
        _run(recipe, [*uv, "pip", "check", "--python", python])


def _run(recipe: dict[str, Any], command: list[str]) -> None:
    sys.stdout.write(f"+ {' '.join(command)}\n")
    sys.stdout.flush()
    cwd = recipe["cwd"] if os.path.isdir(recipe["cwd"]) else None
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, check=False).returncode
    if code:
        raise _FailedError(command, code)
