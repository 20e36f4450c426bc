"""A stand-in for ``nvidia-cuda-mps-control``, which a test puts on PATH under that name.

::

    nvidia-cuda-mps-control -f       the daemon: its socket is ``control`` in CUDA_MPS_PIPE_DIRECTORY; has a server, a process of its own
    nvidia-cuda-mps-control          gives the lines of its stdin to that daemon, and prints what it answers

Beside the program lie its record, a line of JSON for each thing that happens, and the files with which a test changes what it does: a file
``<manner> <step>`` has it hang, fail or die there. Steps are start, quit and the other commands.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
RECORD = os.path.join(HERE, "record")
PIPE = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "")


def note(what, **info):
    """Add a line to the record."""
    line = json.dumps({"what": what, "pid": os.getpid(), "pipe": PIPE, **info}) + "\n"
    fd = os.open(RECORD, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, line.encode())
    os.close(fd)


def obey(step):
    """Do here what the test has asked for."""
    if os.path.exists(os.path.join(HERE, f"fail {step}")):
        print(f"the stand-in fails at {step}", flush=True)
        os._exit(3)
    if os.path.exists(os.path.join(HERE, f"die {step}")):
        os.kill(os.getpid(), signal.SIGKILL)
    while os.path.exists(os.path.join(HERE, f"hang {step}")):
        time.sleep(0.01)


def state_of(pid):
    """The state of a process as the kernel tells it: R, S, ...; "" when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def serve():
    """Be the daemon."""
    log = os.environ["CUDA_MPS_LOG_DIRECTORY"]
    note("start", gpus=os.environ.get("CUDA_VISIBLE_DEVICES"), log=log, modes=[os.stat(each).st_mode & 0o777 for each in (PIPE, log)])
    with open(os.path.join(log, "control.log"), "a") as file:
        file.write("Starting control daemon\n")
    obey("start")
    os.chdir(PIPE)  # the names of sockets are short
    if os.path.exists("control"):
        os.unlink("control")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("control")
    listener.listen(64)
    server = os.fork()
    if not server:
        listener.close()
        signal.pause()
        os._exit(0)
    note("ready", server=server)
    while True:
        connection, _address = listener.accept()
        command = connection.recv(4096).decode().strip()
        words = command.split()
        if words[0] == "terminate_client":
            note(command, client=state_of(words[2]))
        else:
            note(command)
        obey(words[0])
        said = f"{server}\n" if words[0] == "get_server_list" else "\n"
        with contextlib.suppress(OSError):  # who asks has had no more patience
            connection.sendall(said.encode())
        connection.close()
        if words[0] == "quit":
            os.kill(server, signal.SIGKILL)
            os.waitpid(server, 0)
            os.unlink("control")
            note("ended")
            return


def ask():
    """Give commands to the daemon; 1 where there is none."""
    os.chdir(PIPE)
    for line in sys.stdin:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect("control")
            connection.sendall(line.encode())
            said = connection.recv(4096).decode()
        except OSError:
            said = ""
        if not said:
            sys.exit(1)
        sys.stdout.write(said if said.strip() else "")


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["-f"] else ask()
