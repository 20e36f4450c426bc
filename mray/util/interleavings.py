"""Run a program in many of its possible orders, and repeat one of them: `explore`.

In the driver's process (``init(local_mode=True)``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mray._api.current import backend_if_started, backend_in_use, stop
from mray._api.init import init
from mray._common.log import logger
from mray.exceptions import RaySystemError

__all__ = ["decisions", "explore"]

T = TypeVar("T")


def explore(program: Callable[[], T], seeds: Iterable[int] = range(100), *, real_time: bool = False, **options: Any) -> dict[int, T]:
    """Call `program` once for each seed, each time in a new session of one process; returns its results, by seed.

    ``explore(program, [seed])`` repeats a run. An error of the program ends the exploration; its notes (from Python 3.11 on) and the
    log name the seed. `options` are those of `init`. Unless `real_time`, sleeping takes no time. RaySystemError when this process has
    a session already.
    """
    if backend_in_use() is not None:
        raise RaySystemError("explore() starts sessions of its own; call shutdown() first")
    results = {}
    for seed in seeds:
        chosen = {"local_seed": seed, "local_skip_sleeps": not real_time}
        init(local_mode=True, _system_config=chosen, **{"logging_level": "ERROR", **options})
        try:
            results[seed] = program()
        except BaseException as error:
            text = f"the order of seed {seed}: explore(program, [{seed}]) shows it again, and so does MRAY_LOCAL_SEED={seed}"
            logger.error("%s failed in %s", getattr(program, "__name__", "the program"), text)
            if hasattr(error, "add_note"):  # not in Python 3.10
                error.add_note(f"In {text}.")
            raise
        finally:
            stop()
    return results


def decisions() -> list[tuple[str, int]]:
    """For each of the session's last 100,000 decisions, the chosen thread and the number of threads that could run.

    RaySystemError without such a session.
    """
    backend = backend_if_started()
    trace = getattr(backend, "trace", None)
    if trace is None:
        raise RaySystemError("only a session in one process has decisions: call init(local_mode=True)")
    return trace()  # type: ignore[no-any-return]
