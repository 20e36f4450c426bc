"""A driver that closes descriptors which are not its own: ``python torn_program.py WAY FOLDER``. It says what came of each thing it did."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mray
import mray.dag

LONG = 600.0
FILES = 64


@mray.remote(num_cpus=0)
class Echo:
    def echo(self, value: Any, seconds: float = 0.0) -> Any:
        time.sleep(seconds)
        return value


def close_all() -> None:
    os.closerange(3, 4096)


def close_sockets() -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.close(int(name))
        except OSError:
            continue


def tell(key: str, act: Callable[[], object]) -> None:
    """One line: the value, or the error's type and text."""
    try:
        text = repr(act())
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    print(f"{key} {' '.join(text.split())}\n", end="", flush=True)  # at once: threads tell at the same time


def execute_until_told(graph: Any) -> None:
    """An actor that is still awake sees an input without a bell, and its result is right."""
    while True:
        assert graph.execute(2).get() == 2
        time.sleep(0.05)


def later(act: Callable[[], None]) -> None:
    threading.Timer(0.3, act).start()


def main(way: str, folder: Path) -> None:
    mray.init(num_cpus=1)
    echo = Echo.remote()
    assert mray.get(echo.echo.remote(1)) == 1
    assert mray.get(mray.put(b"x" * 1_000_000))
    files = []
    if way == "at_once":
        close_all()
    elif way == "before_a_call":
        close_all()
        tell("told", lambda: mray.get(echo.echo.remote(2)))
        tell("again", lambda: mray.put(3))
    elif way == "while_it_waits":
        later(close_all)
        tell("told", lambda: mray.get(echo.echo.remote(2, LONG)))
    elif way == "while_a_thread_waits":
        thread = threading.Thread(target=lambda: tell("thread", lambda: mray.get(echo.echo.remote(2, LONG))))
        thread.start()
        time.sleep(0.3)
        close_all()
        tell("told", lambda: mray.get(echo.echo.remote(3)))
        thread.join()
    elif way == "sockets_alone":
        later(close_sockets)
        tell("told", lambda: mray.get(echo.echo.remote(2, LONG)))
    elif way == "with_a_graph":
        with mray.dag.InputNode() as value:
            graph = echo.echo.bind(value).experimental_compile()
        assert graph.execute(1).get() == 1
        close_all()
        tell("told", lambda: execute_until_told(graph))
    else:
        assert way == "and_opens_others"
        close_all()
        tell("told", lambda: mray.get(echo.echo.remote(2)))
        files = [(folder / f"file{number}").open("w+") for number in range(FILES)]
    tell("shutdown", mray.shutdown)
    for file in files:
        file.write("mine")
        file.flush()
        file.seek(0)
        assert file.read() == "mine", "mray has closed the file of somebody else"
    mray.init(num_cpus=1)
    tell("anew", lambda: mray.get(Echo.remote().echo.remote("well")))
    mray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
