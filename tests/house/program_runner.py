"""Runs programs of the manual, each in a process of its own that is forked from this one, which has imported what all of them import.

    test ── folder, program, file for what it prints ──▶ this process ──▶ fork: the program as ``__main__``
         ◀── exit status ──────────────────────────────

An interpreter that begins anew for each of them would import for longer than most programs run. One line of JSON each way.
"""

from __future__ import annotations

import asyncio  # noqa: F401
import importlib
import json
import os
import runpy
import sys
import traceback

import numpy  # noqa: F401  (programs import it)

for _name in ("mray.dag", "mray._backends.native", "mray._runtime.session.session", "mray.util.state"):
    importlib.import_module(_name)


def run(folder: str, program: str, printed: str) -> None:
    """Become the program; does not return."""
    status = 1
    try:
        os.chdir(folder)
        end = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(end, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = [program]
        sys.path[0] = folder
        runpy.run_path(program, run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.exit(status)


def main() -> None:
    """Serve until there are no more requests."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            run(**json.loads(line))
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)


if __name__ == "__main__":
    main()
