"""``mray run``: see `mray.cli.script`."""

from __future__ import annotations

from mray.cli.script import run

SUMMARY = "run a script written for Ray on mray"


def main(words: list[str]) -> int:
    return run(words)
