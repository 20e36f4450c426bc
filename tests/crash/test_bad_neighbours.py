"""Peers of our user who say what makes no sense, to a node, a worker and a driver: they lose their connection and nobody else does."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import mray
from mray._common import messages as m
from mray._ipc.connection import encode

REPOSITORY = Path(__file__).resolve().parents[2]

#: What unknown peers say first.
NONSENSE = {
    "bytes": b"GET / HTTP/1.1\r\n\r\n",
    "too much": b"\xff\xff\xff\xff",
    "a huge tuple": b"\x05\x00\x00\x00(\xff\xff\xff\x7f",
    "a huge list": b"\x05\x00\x00\x00[\xff\xff\xff\x7f",
    "no tuple": (1).to_bytes(4, "little") + marshal.dumps(None)[:1],
    "nothing": encode(()),
    "an unknown word": encode((987654, 1, 2)),
    "no word": encode(([], {})),
    "a short HELLO": encode((m.HELLO,)),
    "a HELLO of nobody": encode((m.HELLO, m.ROLE_WORKER, "0123456789abcdef", os.getpid())),
    "a HELLO that is odd": encode((m.HELLO, [], {}, "pid")),
    "a HELLO cut off": encode((m.HELLO, m.ROLE_DRIVER, "f" * 16, 1, {"namespace": "x" * 100}))[:40],
    "a query of nothing": encode((m.HELLO, m.ROLE_OBSERVER, "", 1)) + encode((m.QUERY, [], {}, ())),
}


def say(path: str, words: bytes) -> bytes:
    """Everything the peer answers, until it hangs up."""
    answer = b""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(path)
        try:
            sock.sendall(words)
            sock.shutdown(socket.SHUT_WR)  # a message that is cut off stays so
            while chunk := sock.recv(65536):
                answer += chunk
        except ConnectionError:
            pass
    return answer


@mray.remote
class Counter:
    def __init__(self) -> None:
        self.count = 0

    def up(self) -> int:
        self.count += 1
        return self.count


@mray.remote
def double(number: int) -> int:
    return 2 * number


def test_nonsense_ends_the_conversation_of_who_says_it_alone(capfd: pytest.CaptureFixture[str]) -> None:
    context = mray.init(num_cpus=2, logging_level="ERROR")
    try:
        counter = Counter.remote()
        assert mray.get([counter.up.remote(), double.remote(1)]) == [1, 2]
        session = context["session_dir"]
        sockets = sorted(os.path.join(session, name) for name in os.listdir(session) if name.endswith(".sock"))
        said = 0
        # The node's, the driver's, and those of two workers at least. (The zygote and the debugger listen in ways of their own.)
        assert len(sockets) >= 3
        for path in sockets:
            for words in NONSENSE.values():
                say(path, words)
                said += 1
                assert mray.get(counter.up.remote()) == 1 + said
        assert mray.get(double.remote(21)) == 42
    finally:
        mray.shutdown()
        capfd.readouterr()


def test_drivers_that_are_not_admitted_leave_no_row(tmp_path: Path, eventually: Callable[..., None]) -> None:
    folder = f"/tmp/mn{os.getpid()}"
    environment = {**os.environ, "MRAY_TMPDIR": folder, "PYTHONPATH": str(REPOSITORY)}

    def run(*words: str) -> str:
        return subprocess.run(
            [sys.executable, *words], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    try:
        run("-m", "mray", "start", "--head", "--num-cpus=1")
        node = next(Path(folder).rglob("node.sock"))
        for number in range(20):
            process = f"{number:016x}"
            assert say(str(node), encode((m.HELLO, m.ROLE_DRIVER, process, os.getpid(), {}))) == b""
            assert say(str(node), encode((m.HELLO, m.ROLE_DRIVER, process, os.getpid(), {"namespace": "n", "place": 5}))) == b""
            assert say(str(node), encode((m.HELLO, m.ROLE_DRIVER, "../" + process, os.getpid(), {}))) == b""
        row = "import mray; mray.init(address='auto', logging_level='ERROR'); print(mray._api.current.backend_if_started().facts()['row'])"
        assert int(run("-c", row)) == 1
    finally:
        run("-m", "mray", "stop")
    eventually(lambda: not list(Path(folder).rglob("*.sock")))
