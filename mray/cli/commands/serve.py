"""``mray serve``: Ray's command ``serve``, with mray as Ray's core and its own subcommands and options.

They share a session that ``mray start`` has begun; ``run`` begins one otherwise.
"""

from __future__ import annotations

from mray._common import settings
from mray._joining.address import running
from mray.cli.commands import run
from mray.cli.completion import completed, is_asked
from mray.cli.terminal import parser

SUMMARY = "Ray Serve: run, deploy, status, config, shutdown (Ray's own command serve)"


def main(words: list[str]) -> int:
    if is_asked():
        completed(parser("serve", SUMMARY))
    if running() is not None:
        settings.join_everywhere("auto")
    return run.main(["--libraries", "-m", "ray.serve.scripts", *words])
