"""A virtual environment for the programs of this folder, made by whatever Python 3.10+ runs them.

Needs nothing but the standard library. Environments live in the ignored folder ``.venvs`` of the checkout, one for
each purpose and Python version. A stamp in it records what was installed; as long as that is still what is asked
for, the environment is used as it stands, without a call of pip.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 10)
#: Exit status of tools/test: there is nothing to run tests in.
NOT_INSTALLED = 3


#: The oldest numpy that has wheels for a Python, and the oldest cloudpickle that works on it, where they are newer than the oldest of all.
_FIRST_NUMPY = {(3, 12): "1.26.0", (3, 13): "2.1.0", (3, 14): "2.3.2", (3, 15): "2.5.2"}
_FIRST_CLOUDPICKLE = dict.fromkeys([(3, 14), (3, 15)], "3.1.1")


def oldest_dependencies() -> list[str]:
    """mray's required packages in the oldest versions that its pyproject.toml allows on this Python, as arguments of ``pip install``."""
    (listed,) = re.findall(r"^dependencies = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    oldest = dict(re.findall(r'"([\w-]+)>=([\d.]+)"', listed))
    for name, firsts in (("numpy", _FIRST_NUMPY), ("cloudpickle", _FIRST_CLOUDPICKLE)):
        oldest[name] = firsts.get(sys.version_info[:2], oldest[name])
    return [f"{name}=={version}" for name, version in oldest.items()]


def find_pythons() -> list[str]:
    """One Python of each version from the oldest on, in their order: the one on PATH (which may be a name of pyenv's that leads nowhere),
    or pyenv's newest. No free-threaded ones.
    """
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    installed = sorted(folder.glob("3.*/bin/python"), key=lambda path: [int(each) for each in re.findall(r"\d+", path.parts[-3])])
    on_path = [path for each in os.get_exec_path() for path in Path(each).glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]
    found: dict[tuple[int, int], str] = {}
    for candidate in (*map(str, on_path), *map(str, reversed(installed))):
        version = version_of(candidate)
        minor = minor_of(version)
        if version and minor >= OLDEST and minor not in found:
            found[minor] = candidate
    return [found[minor] for minor in sorted(found)]


def minor_of(version: str) -> tuple[int, int]:
    """``(3, 12)`` of ``3.12.1``; (0, 0) of nothing."""
    major, _, rest = version.partition(".")
    return (int(major), int(rest.partition(".")[0])) if rest else (0, 0)


def version_of(python: str) -> str:
    """Such as ``3.12.1``; nothing, if it does not run or is free-threaded."""
    said = "import platform, sys; print('' if 't' in sys.abiflags else platform.python_version())"
    try:
        done = subprocess.run([python, "-c", said], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


class InstallError(Exception):
    """pip could not install what was asked for; the text of pip is on the terminal."""


class Environment:
    """The virtual environment of one purpose, for the Python that runs this."""

    def __init__(self, purpose: str) -> None:
        if sys.version_info < OLDEST:
            sys.exit(f"mray needs Python 3.10 or newer; this is {sys.version.split()[0]} ({sys.executable})")
        self.folder = ROOT / ".venvs" / f"{purpose}-{sys.version_info.major}.{sys.version_info.minor}"
        self.programs = self.folder / "bin"
        self.python = self.programs / "python"

    def require(self, name: str, *requirements: str, within: float | None = None, compiled: bool = True) -> None:
        """See to it that `requirements` (arguments of ``pip install``) are installed.

        `name` is the name of the stamp. Raises `InstallError`, also after `within` seconds (None: as long as it takes). The package's own
        requirements count as part of every requirement, so that an edited pyproject.toml is seen. Not `compiled`: each module is compiled
        when a program first imports it, if programs may write there (PYTHONDONTWRITEBYTECODE).
        """
        project = (ROOT / "pyproject.toml").read_bytes()
        wanted = hashlib.sha256(b"\0".join([project, sys.version.encode(), *(text.encode() for text in requirements)])).hexdigest()
        stamp = self.folder / f"{name}.stamp"
        if stamp.is_file() and stamp.read_text() == wanted and self.python.exists():
            return
        self._create()
        print(f"installing {' '.join(requirements)} into {self.folder.relative_to(ROOT)} ...", flush=True)
        begun = time.monotonic()
        options = ["--quiet", "--disable-pip-version-check", *([] if compiled else ["--no-compile"])]
        command = [str(self.python), "-m", "pip", "install", *options, *requirements]
        try:
            failed = subprocess.run(command, cwd=ROOT, check=False, timeout=within).returncode
        except subprocess.TimeoutExpired:
            failed = 1
        if failed:
            raise InstallError(f"pip could not install {' '.join(requirements)}")
        stamp.write_text(wanted)
        print(f"... done in {time.monotonic() - begun:.0f} s", flush=True)

    def _create(self) -> None:
        if (
            self.python.exists()
            and subprocess.run([str(self.python), "-c", "import pip"], check=False, capture_output=True).returncode == 0
        ):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        try:
            # By a process of its own: one that is forked here meanwhile would have the new interpreter open, which could not be run then.
            subprocess.run([sys.executable, "-m", "venv", str(self.folder)], check=True)
        except (subprocess.CalledProcessError, OSError) as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            sys.exit(
                f"could not make a virtual environment in {self.folder}: {error}\n"
                "If this Python lacks ensurepip, install it (on Debian and Ubuntu: apt install python3-venv) and try again."
            )
