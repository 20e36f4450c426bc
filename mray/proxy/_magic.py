"""``%%remote env``: a notebook's cell that runs at an interpreter. IPython is optional; `register` is given its shell."""

from __future__ import annotations

from typing import Any

from mray.proxy._var import RemoteInterpreter, Var


def register(shell: Any) -> None:
    """Give a shell of IPython the magic."""

    def remote(line: str, cell: str) -> Var | None:
        """Run the cell at the interpreter that the line names. Its globals are the named instances; what its last line is, is shown."""
        env = shell.user_ns.get(line.strip())
        if not isinstance(env, RemoteInterpreter):
            raise NameError(f"%%remote takes the name of an interpreter, and {line.strip()!r} is none")
        value = env.execute(cell)
        return None if env.ask("is_none", value) else value

    shell.register_magic_function(remote, "cell", "remote")
