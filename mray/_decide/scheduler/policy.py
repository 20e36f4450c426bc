"""The scheduler's matters of taste, as pure functions and numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

#: How often in a row workers of one environment may fail to start before those who wait for one are refused.
SPAWN_ATTEMPTS = 3
#: How many leases that hold nothing at all may run at once; more would be a fork bomb.
FREE_LEASES = 256
#: How many dead actors are remembered with their cause, and in how many bytes: the cause may be an exception of the user's, pickled.
TOMBSTONES = 10_000
TOMBSTONE_BYTES = 4 << 20
#: How many dead actors, dead workers, removed placement groups and drivers that have left listings show; bytes of each kind.
DEAD_RECORDS = 1000
DEAD_RECORD_BYTES = 1 << 20
#: Of how many workers that have left the last calls are remembered for the timeline, and in how many bytes (a call takes about 70).
LAST_CALLERS = 1000
LAST_CALL_BYTES = 1 << 20
#: Workers started ahead of need, at most.
PRESTART = 2

#: The names of variables that carry what is ours begin so.
PRIVATE_VARIABLES = "MRAY_WORKER_"
#: Stands for the value of a variable in listings: it may be a secret, and what is listed is printed, logged and shown.
HIDDEN = "<redacted>"
#: Carries the program that a worker is started under (see `mray._runtime.processes.launch.Wrapper`).
WRAPPER_VARIABLE = PRIVATE_VARIABLES + "WRAPPER"
#: Carries the interpreter that a worker is started with (see `mray._runtime.processes.launch.LaunchedInterpreter`).
INTERPRETER_VARIABLE = PRIVATE_VARIABLES + "INTERPRETER"
#: Variables that the loader, the C library or the interpreter reads only when a process starts.
READ_AT_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_TUNABLES", "LANG", "LC_", "TZ", "OPENSSL_CONF")
#: Those of them by which code of others runs in each process that starts: it may start threads, and count processes.
RUN_AT_START = ("LD_PRELOAD", "LD_AUDIT")
#: Variables that numerical libraries read when they are imported, which preloading does before the fork.
READ_AT_IMPORT = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "TORCH_", "PYTORCH_"),
    *("ARROW_", "HF_", "NPY_", "NUMPY_", "SCIPY_", "SKLEARN_", "TRANSFORMERS_"),
)
#: The same of Ray's libraries (the others read theirs when they use them), and those of them that no import reads: the libraries give them
#: to actors and tasks of their own.
_READ_BY_RAYS = ("RAY_DATA_", "RAY_SERVE_")
_READ_LATER = ("RAY_DATA_SHUFFLE_REDUCE_WORKER", "RAY_SERVE_INTERNAL_")


def shown_variables(environment: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables of a worker in listings: their names."""
    return {name: HIDDEN for name, _value in environment if not name.startswith(PRIVATE_VARIABLES)}


#: How far two devices are apart, by their indices; 0: as close as can be.
Apart = Callable[[int, int], int]


def _nowhere(_one: int, _other: int) -> int:
    return 0


def choose_device(
    free: Sequence[int], units: int, whole: int, apart: Apart = _nowhere, near: Sequence[int] = (), among: Collection[int] | None = None
) -> list[int] | None:
    """The devices that give `units`, or ``None``: the fullest that still has room for a fraction, or idle ones for whole numbers.

    Of those that serve equally well the ones closest to each other and to `near`; whole ones only `among` these.
    """
    if units < whole:
        fitting = [index for index, room in enumerate(free) if room >= units]
        if len(fitting) < 2:
            return fitting or None
        return [min(fitting, key=lambda index: (free[index], sum(apart(index, other) for other in near), index))]
    idle = [index for index, room in enumerate(free) if room == whole and (among is None or index in among)]
    count = units // whole
    if len(idle) < count or units % whole:
        return None
    return idle if len(idle) == count else _closest(idle, count, apart, near)


def _closest(idle: Sequence[int], count: int, apart: Apart, near: Sequence[int]) -> list[int]:
    """So many of the idle devices: from each of them on always the next one that is closest to those it has, and the best of these sets.

    Of sets that are equally close the one that the rest is farthest from: it comes out of the smallest group of neighbours that serves.
    """
    best: tuple[int, int, list[int]] | None = None
    for first in idle:
        chosen = [first]
        spread = sum(apart(first, other) for other in near)
        rest = {index: sum(apart(index, other) for other in (*near, first)) for index in idle if index != first}
        while len(chosen) < count:
            following = min(rest, key=lambda index: (rest[index], index))
            spread += rest.pop(following)
            chosen.append(following)
            for index in rest:
                rest[index] += apart(index, following)
        left = sum(apart(index, one) for index in rest for one in chosen)
        found = (spread, -left, sorted(chosen))
        if best is None or found < best:
            best = found
    assert best is not None
    return best[2]


def prestart_count(cpus: float) -> int:
    """How many workers to start before anybody asks."""
    return min(PRESTART, int(cpus))


def idle_limit(cpus: float) -> int:
    """How many workers without work are kept."""
    return max(4, int(cpus))


def needs_fresh_interpreter(environment: Mapping[str, str], zygotes: Mapping[str, str], around: Mapping[str, str], preloaded: bool) -> bool:
    """Whether these variables of a worker come too late for a process that is forked from a zygote with `zygotes`, both beside `around`."""
    late = READ_AT_START + READ_AT_IMPORT + _READ_BY_RAYS if preloaded else READ_AT_START
    return not environment.keys().isdisjoint((WRAPPER_VARIABLE, INTERPRETER_VARIABLE)) or any(
        environment.get(name, around.get(name)) != zygotes.get(name, around.get(name))
        for name in {*environment, *zygotes}
        if name.startswith(late) and not name.startswith(_READ_LATER)
    )
