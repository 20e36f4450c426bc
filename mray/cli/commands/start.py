"""``mray start``: a session that outlives this command, and any driver. One for each user and temporary directory.

It runs in the background, in its own kernel session, without a terminal; the node's output is in the session's ``logs/node.log``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import select
import signal
import sys
from typing import Any

from mray._api.init import EXPORTER
from mray._common.options import session_options
from mray._inside.sessions import address_of
from mray._joining.address import Address
from mray._joining.persistent import start_persistent, stop_persistent
from mray.cli.terminal import DONE, NOT_FOUND, USAGE, parse, parser, port
from mray.exceptions import RaySystemError

SUMMARY = "start a session in the background that drivers join with init(address='auto')"

#: options without a meaning on one host: whether they take a value
_MEANINGLESS = {
    "--head": False,
    "--disable-usage-stats": False,
    "--no-monitor": False,
    "--no-redirect-output": False,
    "--ray-debugger-external": False,
    "--enable-object-reconstruction": False,
    "--enable-resource-isolation": False,
    "--autoscaling-config": True,
    "--include-dashboard": True,
    "--include-log-monitor": True,
    "--dashboard-host": True,
    "--dashboard-port": True,
    "--dashboard-agent-listen-port": True,
    "--dashboard-agent-grpc-port": True,
    "--runtime-env-agent-port": True,
    "--object-manager-port": True,
    "--node-manager-port": True,
    "--ray-client-server-port": True,
    "--redis-username": True,
    "--redis-password": True,
    "--redis-shard-ports": True,
    "--min-worker-port": True,
    "--max-worker-port": True,
    "--worker-port-list": True,
    "--plasma-directory": True,
    "--cgroup-path": True,
    "--system-reserved-cpu": True,
    "--system-reserved-memory": True,
    "--proxy-server-url": True,
}
_REFUSED = {
    "--address": "mray runs on one machine, which is one node; a program joins its session by init(address=...)",
    "--labels-file": "the labels of the node are given as --labels key=value,key=value",
    "--tracing-startup-hook": "mray has no tracing of OpenTelemetry; mray timeline shows what ran",
}


def main(words: list[str], started: str = "mray has started a session") -> int:
    arguments = parser("start", SUMMARY, "Further options of `ray start --head` are accepted and mean nothing on one host.")
    arguments.add_argument("--num-cpus", type=float, metavar="N", help="CPUs to hand out (default: what this process may use)")
    arguments.add_argument("--num-gpus", type=float, metavar="N", help="GPUs to hand out (default: those there are)")
    arguments.add_argument("--resources", type=_object, metavar="JSON", help="resources of your own: '{\"name\": 2}'")
    arguments.add_argument("--labels", type=_labels, metavar="LABELS", help="labels of the node: key=value,key=value")
    arguments.add_argument("--memory", type=int, metavar="BYTES", help="main memory that tasks and actors may ask for")
    arguments.add_argument("--object-store-memory", type=int, metavar="BYTES", help="shared memory that objects may take")
    arguments.add_argument("--object-spilling-directory", metavar="DIR", help="where objects go that memory has no room for")
    arguments.add_argument("--temp-dir", metavar="DIR", help="where the session makes its directory (absolute)")
    arguments.add_argument("--preload", type=_names, default=(), metavar="MODULES", help="modules that every worker starts with: a,b")
    arguments.add_argument("--node-name", metavar="NAME", help="the node's name in listings")
    arguments.add_argument("--node-ip-address", metavar="HOST", help="the node's address (default: that of this machine's route out)")
    arguments.add_argument(
        "--port", type=int, metavar="N", help="the port in the session's address, HOST:N, on which nothing listens (default 6379; 0: any)"
    )
    arguments.add_argument("--system-config", type=_object, metavar="JSON", help="internal switches, as of init(_system_config=...)")
    arguments.add_argument(
        "--metrics-export-port", type=port, metavar="PORT", help="serve its numbers for Prometheus on the loopback interface"
    )
    arguments.add_argument("--block", action="store_true", help="stay until the session ends; SIGINT and SIGTERM end it")
    for option, takes_value in _MEANINGLESS.items():
        arguments.add_argument(option, action="store" if takes_value else "store_true", help=argparse.SUPPRESS)
    for option in _REFUSED:
        arguments.add_argument(option, help=argparse.SUPPRESS)
    given = parse(arguments, words)
    for option, reason in _REFUSED.items():
        if getattr(given, option[2:].replace("-", "_")) is not None:
            print(f"mray start: {option}: {reason}", file=sys.stderr)
            return USAGE
    try:
        options = session_options(
            num_cpus=given.num_cpus,
            num_gpus=given.num_gpus,
            resources=given.resources,
            labels=given.labels,
            memory=given.memory,
            object_store_memory=given.object_store_memory,
            object_spilling_directory=given.object_spilling_directory,
            preload=given.preload,
            temp_dir=given.temp_dir,
            node_name=given.node_name,
            node_ip_address=given.node_ip_address,
            port=given.port,
            system_config=given.system_config,
        )
    except (ValueError, TypeError, AssertionError) as error:
        print(f"mray start: {error}", file=sys.stderr)
        return USAGE
    try:
        # Until it returns, Ctrl-C ends the new session; afterwards the session ignores the terminal.
        address = start_persistent(options)
    except (RaySystemError, RuntimeError, OSError, ValueError, ImportError) as error:  # RuntimeError: another one runs already
        print(f"mray start: {error}", file=sys.stderr)
        return NOT_FOUND
    at = given.metrics_export_port
    # Loaded by name, since an HTTP server is slow to import.
    metrics = "" if at is None else f"\nMetrics: {importlib.import_module(EXPORTER).serve_apart(at, address.session_dir, address.node_pid)}"
    if not given.block:
        _tell(started, address, given.temp_dir, metrics)
        return DONE
    with _Signals() as asked:
        _tell(started, address, given.temp_dir, metrics)
        return _stay(address, asked)


def _tell(started: str, address: Address, temp_dir: str | None, metrics: str) -> None:
    where = f", _temp_dir={temp_dir!r}" if temp_dir is not None else ""
    end = f"mray stop --temp-dir {temp_dir}" if temp_dir is not None else "mray stop"
    print(
        f"{started}: {address.session_dir} (node pid {address.node_pid}).\n\n"
        f'To connect from Python on this host:\n  import mray\n  mray.init(address="auto"{where})\n'
        f"or by the address {address_of(address.session_dir)}, also as the variable RAY_ADDRESS.\n\n"
        f"To look at it: mray status. To end it: {end}{metrics}",
        flush=True,
    )


class _Signals:
    """Waits for SIGINT, SIGTERM and SIGHUP while entered. Main thread only."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before: dict[int, Any] = {}

    def fileno(self) -> int:
        return self._read_end

    def __enter__(self) -> _Signals:
        signal.set_wakeup_fd(self._write_end)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, lambda *_args: None)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        os.close(self._read_end)
        os.close(self._write_end)


def _stay(address: Address, asked: _Signals) -> int:
    """Returns 0 when the session was asked to end."""
    pidfd = os.pidfd_open(address.node_pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(asked, select.POLLIN)
    came = [fd for fd, _events in poll.poll()]
    os.close(pidfd)
    if asked.fileno() in came:
        stop_persistent(address)
        return DONE
    in_order = not os.path.exists(address.session_dir)
    stop_persistent(address)
    print("the session has ended" if in_order else f"mray start: the node process (pid {address.node_pid}) has died", file=sys.stderr)
    return DONE if in_order else NOT_FOUND


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a JSON object: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def _labels(text: str) -> dict[str, str]:
    if text.lstrip().startswith("{"):
        return {str(key): str(value) for key, value in _object(text).items()}
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if not all(equals for _key, equals, _value in pairs):
        raise argparse.ArgumentTypeError("expected key=value,key=value")
    return {key.strip(): value.strip() for key, _equals, value in pairs}


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
