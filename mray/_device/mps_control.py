"""NVIDIA's MPS by its control program: where a daemon listens, whether it answers, and commands to it.

::

    daemon (``nvidia-cuda-mps-control -f``) ──starts──▶ server, which has the contexts of its clients on the GPU
      ▲ commands, by the same program                     ▲ work
    this process                                        clients: processes that called cuInit while the daemon answered

A process looks for the daemon once, in cuInit, at CUDA_MPS_PIPE_DIRECTORY or in NVIDIA's default folder. The server numbers the devices
that the daemon's CUDA_VISIBLE_DEVICES shows from 0, so daemon and clients name a GPU by its uuid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mray._common import settings
from mray._common.kept import os
from mray._common.log import logger
from mray._ipc.process import die_with_parent
from mray.exceptions import RaySystemError

if TYPE_CHECKING:
    import subprocess

PROGRAM = "nvidia-cuda-mps-control"
#: NVIDIA's variables for the folders of a daemon: of its sockets, and of its logs.
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LOG = "CUDA_MPS_LOG_DIRECTORY"
_CONTROL = "control"
#: In a session's directory; it has one folder per GPU, by its index among the session's.
FOLDER = "mps"
#: Limit for one command.
ANSWER_SECONDS = 2.0

INSTALL = "install it: it comes with NVIDIA's driver, with Ubuntu's as nvidia-compute-utils-VERSION"
_LEFT_ALONE = (
    f"{settings.NOSET_CUDA_VISIBLE_DEVICES.name} keeps CUDA_VISIBLE_DEVICES of workers unchanged, which assigns clients of MPS their GPU"
)


def find_program() -> str:
    """The control program's path, or "" without one."""
    from mray._common.kept import shutil  # noqa: PLC0415  (on the way to the first answer of a session, as below)

    return shutil.which(PROGRAM) or ""


def pipe_directory() -> str:
    """The folder in which CUDA looks for a daemon by default."""
    return settings.of_library(PIPE) or settings.MPS_DIRECTORY.get()


def has_daemon(pipe: str) -> bool:
    """Whether there is, or was, a daemon at this folder: a killed one leaves its socket."""
    return os.path.exists(os.path.join(pipe, _CONTROL))


def answers(pipe: str) -> bool:
    """Whether a daemon answers. Waits for `ANSWER_SECONDS` at most."""
    return has_daemon(pipe) and ask(pipe, ("get_server_list",)) is not None


def choose(word: str) -> dict[str, str]:
    """How a session uses MPS whose user has asked for `word`: the ``program``, and the ``mode``.

    The mode is the word, "joined" where a daemon of the user's answers, or "" where there can be none, which is logged; if the word is
    "on", that raises RaySystemError.
    """
    program = find_program()
    chosen = {"mode": word, "program": program}
    if word == "off":
        return chosen
    pipe = pipe_directory()
    if program and answers(pipe):
        return {**chosen, "mode": "joined"}
    lacks = ""
    if not program:
        lacks = f"{PROGRAM} is not on PATH: {INSTALL}"
    elif settings.of_library(PIPE) is not None:
        lacks = f"no daemon answers at {PIPE}={pipe}: start one there, or unset the variable, and the session starts its own"
    elif settings.NOSET_CUDA_VISIBLE_DEVICES.get():
        lacks = _LEFT_ALONE
    if not lacks:
        return chosen
    if word == "on":
        raise RaySystemError(f'a session cannot start with mps="on": {lacks}')
    logger.warning('mps="auto": actors share GPUs without MPS, since %s', lacks)
    return {**chosen, "mode": ""}


def start_daemon(program: str, uuid: str, pipe: str, log: str, output: int) -> subprocess.Popen[bytes]:
    """Start a daemon for one GPU, in a kernel session of its own, which ends with this process. Raises OSError.

    `output`: a descriptor.
    """
    import subprocess  # noqa: PLC0415

    return subprocess.Popen(
        [program, "-f"],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid, PIPE: pipe, LOG: log},
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509  (the node has one thread)
    )


def start_asking(program: str, pipe: str, commands: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the program that sends commands to the daemon at a folder: it prints the answers, and exits with 0 if there is a daemon."""
    import subprocess  # noqa: PLC0415

    asking = subprocess.Popen(
        [program],
        env={**os.environ, PIPE: pipe},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # no Ctrl-C reaches it
    )
    assert asking.stdin is not None
    try:
        asking.stdin.write("".join(f"{command}\n" for command in commands).encode())
        asking.stdin.close()
    except BrokenPipeError:  # it has exited already
        pass
    return asking


def ask(pipe: str, commands: Sequence[str], seconds: float = ANSWER_SECONDS) -> str | None:
    """The answers of the daemon at a folder; None where none answers within `seconds`, or the program is missing."""
    import subprocess  # noqa: PLC0415

    program = find_program()
    if not program or seconds <= 0:
        return None
    try:
        said = subprocess.run(
            [program],
            env={**os.environ, PIPE: pipe},
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout if said.returncode == 0 else None


def terminations(servers: str | None, clients: Sequence[int]) -> list[str]:
    """The commands that end the work of clients, from the answer to ``get_server_list``, since it does not say which server a client
    has.
    """
    return [f"terminate_client {server} {client}" for server in (servers or "").split() if server.isdigit() for client in clients]
