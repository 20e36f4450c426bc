"""The command ``ray`` of programs that `mray run` runs.

Ray's commands that mray has too run mray's; the others print why they do not exist.
"""

from __future__ import annotations

import sys
from itertools import pairwise

from mray import cli
from mray._common import settings
from mray._common.version import __version__
from mray._inside.sessions import is_alive
from mray.cli.terminal import DONE, NOT_FOUND, USAGE
from mray.util.state.api import session_directory
from mray.util.state.exception import ServerUnavailable

_ONE_MACHINE = "mray runs on this machine alone, which is one node"
_ABSENT = {
    **dict.fromkeys(
        ("attach", "dashboard", "down", "drain-node", "exec", "get-head-ip", "get-worker-ips", "kill-random-node", "kuberay-autoscaler"),
        _ONE_MACHINE,
    ),
    **dict.fromkeys(("monitor", "rsync-down", "rsync-up", "submit", "symmetric-run", "up", "cluster-dump"), _ONE_MACHINE),
    "cpp": "mray runs Python",
    "get-auth-token": "the processes of one user need no token",
    "job": "mray has no server of jobs; a program joins the session by ray.init(address='auto')",
    "kill-actor": "ray.kill ends an actor, in a program that has joined its session",
    "check-open-ports": "mray opens no port",
}
#: options before a subcommand that take a value
_GENERAL = ("--logging-level", "--logging-format", "--log-style", "--log-color")


def main() -> None:
    """Run the command with the arguments of this process, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(words: list[str]) -> int:
    """Returns the exit status."""
    while words and words[0].partition("=")[0] in (*_GENERAL, "-v"):
        words = words[1 + (words[0] in _GENERAL) :]
    first = words[0] if words else ""
    if first in ("--version", "version"):
        print(f"ray, version {settings.AS_VERSION.get()} (mray {__version__})")
        return DONE
    name = first.replace("_", "-")
    if name in _ABSENT:
        print(f"ray {name}: this command is not in mray: {_ABSENT[name]}.", file=sys.stderr)
        return USAGE
    if name in ("disable-usage-stats", "enable-usage-stats"):  # mray collects no usage statistics
        return DONE
    if name == "health-check":
        return _health(words[1:])
    # Ray's words, which programs look for.
    if name == "start":
        return int(cli.load(name).main(words[1:], "Ray runtime started"))
    if name == "stop":
        everywhere = [] if "--temp-dir" in words else ["--all"]
        return int(cli.load(name).main([*words[1:], *everywhere], "Did not find any active Ray processes."))
    return cli.main(words)


def _health(words: list[str]) -> int:
    """Whether the session named by ``--address`` or the environment variable, or the only one, lives."""
    named = next((after for word, after in pairwise(words) if word == "--address"), None)
    try:
        return DONE if is_alive(session_directory(named)) else NOT_FOUND
    except ServerUnavailable as error:
        print(f"ray health-check: {error}", file=sys.stderr)
        return NOT_FOUND


if __name__ == "__main__":
    main()
