"""``%%remote env``: a notebook cell that runs at an interpreter. IPython is optional."""

from __future__ import annotations

from typing import Any

from mray.proxy._var import RemoteInterpreter, Var


def register(shell: Any) -> None:
    def remote(line: str, cell: str) -> Var | None:
        """Run the cell at the interpreter that the line names, with the named instances as globals, and show the value of its last line."""
        env = shell.user_ns.get(line.strip())
        if not isinstance(env, RemoteInterpreter):
            raise NameError(f"%%remote takes the name of an interpreter, and {line.strip()!r} is none")
        value = env.execute(cell)
        return None if env.ask("is_none", value) else value

    shell.register_magic_function(remote, "cell", "remote")
