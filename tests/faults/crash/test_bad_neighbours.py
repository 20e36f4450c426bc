"""Peers of our user that send invalid messages to a node, a worker and a driver: they lose their connection and no other peer does."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import mray
from mray._api.current import current_backend
from mray._common import messages as m
from mray._ipc.connection import connect, encode
from mray._ipc.frames import decode_message
from mray._ipc.introductions import NODE, NODE_SOCKET
from tests.checkout import python_path

#: First messages of unknown peers.
PROTOCOL_ERROR = {
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
    "a wish for nobody": encode((m.PASS_ON, "0123456789abcdef")),
    "an odd wish": encode((m.PASS_ON, ())),
    "a query of nothing": encode((m.HELLO, m.ROLE_OBSERVER, "", 1)) + encode((m.QUERY, [], {}, ())),
}


def say(sock: socket.socket, words: bytes) -> bytes:
    """Everything the peer answers, until it hangs up."""
    answer = b""
    with sock:
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


def test_an_invalid_message_ends_the_connection_of_its_sender_alone(capfd: pytest.CaptureFixture[str]) -> None:
    context = mray.init(num_cpus=2, logging_level="ERROR")
    try:
        counter = Counter.remote()
        assert mray.get([counter.up.remote(), double.remote(1)]) == [1, 2]
        client = current_backend().client  # type: ignore[attr-defined]
        session = context["session_dir"]
        assert [name for name in os.listdir(session) if name.endswith(".sock")] == [NODE_SOCKET]
        ways = [partial(connect, os.path.join(session, NODE_SOCKET)), *(partial(client.connect, each) for each in (NODE, *client.peers))]
        said = 0
        # To the node in two ways, and to two workers. (The zygote and the debugger are reached in ways of their own.)
        assert len(ways) >= 4
        for way in ways:
            for words in PROTOCOL_ERROR.values():
                say(way(), words)
                said += 1
                assert mray.get(counter.up.remote()) == 1 + said
        assert mray.get(double.remote(21)) == 42
    finally:
        mray.shutdown()
        capfd.readouterr()


def test_drivers_that_are_not_admitted_leave_no_row(tmp_path: Path, eventually: Callable[..., None]) -> None:
    folder = f"/tmp/mn{os.getpid()}"
    environment = {**os.environ, "MRAY_TMPDIR": folder, "PYTHONPATH": python_path()}

    def run(*words: str) -> str:
        return subprocess.run([sys.executable, *words], env=environment, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    try:
        run("-m", "mray", "start", "--head", "--num-cpus=1")
        node = str(next(Path(folder).rglob(NODE_SOCKET)))
        for number in range(20):
            process = f"{number:016x}"
            for name, job_spec in ((process, {}), (process, {"namespace": "n", "place": 5}), ("../" + process, {})):
                answer = say(connect(node), encode((m.HELLO, m.ROLE_DRIVER, name, os.getpid(), job_spec)))
                assert decode_message(answer[4:])[0] == m.PROTOCOL_ERROR
        row = "import mray; mray.init(address='auto', logging_level='ERROR'); print(mray._api.current.backend_if_started().info()['row'])"
        assert int(run("-c", row)) == 1
    finally:
        run("-m", "mray", "stop")
    eventually(lambda: not list(Path(folder).rglob("*.sock")))
