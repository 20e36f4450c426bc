"""Another user of the machine, who tries what is told. ``python attacker.py USER``, run as root; in: JSON, out: JSON.

Everything that it needs is imported before it becomes that user, who may not reach the interpreter. As input it gets a list of lists:
what to try, and where. As output it gives those that worked, with what they gave, and goes on (it may be listening) until its input ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sys
from typing import Any

SUCCESSORS = 20
#: Seconds after which who has not hung up is taken to listen.
PATIENCE = 30.0
kept: list[Any] = []


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(1 << 16).decode("latin-1")


def write(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY))
    return "opened"


def truncate(path: str) -> str:
    os.truncate(path, 0)
    return "truncated"


def look(path: str) -> str:
    return " ".join(os.listdir(path))


def unlink(path: str) -> str:
    os.unlink(path)
    return "unlinked"


def rename(path: str) -> str:
    os.rename(path, path + ".moved")
    return "renamed"


def create(path: str) -> str:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    os.chmod(path, 0o666)
    return "created"


def make_folder(path: str) -> str:
    os.mkdir(path, 0o700)
    return "made"


def make_open_folder(path: str) -> str:
    os.mkdir(path)
    os.chmod(path, 0o777)
    return "made"


def make_link(path: str) -> str:
    os.symlink("/", path)
    return "made"


def succeed(path: str) -> str:
    """Take the names that would come next, if names were counted."""
    folder, name = os.path.split(path)
    for digits, base, form in ((r"[0-9]+$", 10, "{}{}"), (r"[0-9a-f]+$", 16, "{}{:x}")):
        found = re.search(digits, name)
        if found is not None:
            for more in range(1, SUCCESSORS):
                taken = os.path.join(folder, form.format(name[: found.start()], int(found[0], base) + more))
                try:
                    create(taken)
                except FileExistsError:
                    continue
                kept.append(taken)
    return "created"


def squat(path: str) -> str:
    """Take the names that begin like this one, if what comes then is counted."""
    for mark in ("p", "s"):
        for number in range(4):
            taken = f"{path}{mark}{number:x}"
            with contextlib.suppress(FileExistsError):
                create(taken)
                kept.append(taken)
    return "created"


def connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        return "connected"


def converse(words: str) -> str:
    """The answer of the listener at a path (the first word) to these bytes (the second, in hexadecimal)."""
    path, said = words.split()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(path)
        sock.sendall(bytes.fromhex(said))
        sock.settimeout(PATIENCE)
        try:
            if answer := sock.recv(1 << 16):
                return answer.decode("latin-1")
        except TimeoutError:
            return "is listened to"
    raise ConnectionError("hung up")


def listen(path: str) -> str:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(path)
    os.chmod(path, 0o777)
    sock.listen()
    kept.append(sock)
    return "listens"


def end(pid: str) -> str:
    os.kill(int(pid), signal.SIGTERM)
    return "sent"


def main() -> None:
    user = int(sys.argv[1])
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    worked = []
    for verb, where in json.loads(sys.stdin.readline()):
        try:
            gave = globals()[verb](where)
        except OSError:
            continue
        worked.append([verb, where, gave])
    print(json.dumps(worked), flush=True)
    sys.stdin.read()
    for each in kept:
        if isinstance(each, str):
            with contextlib.suppress(FileNotFoundError):  # root has cleaned up
                os.unlink(each)


if __name__ == "__main__":
    main()
