"""The scheduler's policies, as pure functions and constants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

#: Failed starts in a row of workers of one environment before its waiting claimants are refused.
SPAWN_ATTEMPTS = 3
#: Concurrent leases without resources; the limit prevents a fork bomb.
FREE_LEASES = 256
#: Dead actors, by count and by bytes: the cause may be a pickled exception of the user.
TOMBSTONES = 10_000
TOMBSTONE_BYTES = 4 << 20
#: Dead actors, dead workers, removed placement groups and departed drivers in listings, by count and by bytes of each kind.
DEAD_RECORDS = 1000
DEAD_RECORD_BYTES = 1 << 20
#: Exited workers whose last calls the timeline retains, by count and by bytes.
LAST_CALLERS = 1000
LAST_CALL_BYTES = 1 << 20
#: Workers started ahead of need, at most.
PRESTART = 2

#: Prefix of mray's private environment variables.
PRIVATE_VARIABLES = "MRAY_WORKER_"
#: Replaces the value of a variable in listings, which may be a secret.
HIDDEN = "<redacted>"
#: The program that a worker is started under (`mray._runtime.processes.launch.Wrapper`).
WRAPPER_VARIABLE = PRIVATE_VARIABLES + "WRAPPER"
#: The interpreter that a worker is started with (`mray._runtime.processes.launch.LaunchedInterpreter`).
INTERPRETER_VARIABLE = PRIVATE_VARIABLES + "INTERPRETER"
#: Variables that the loader, the C library or the interpreter reads.
READ_AT_START = ("LD_", "PYTHON", "MALLOC_", "GLIBC_TUNABLES", "LANG", "LC_", "TZ", "OPENSSL_CONF")
#: Foreign code runs in each process that starts: it may start threads, and count processes.
RUN_AT_START = ("LD_PRELOAD", "LD_AUDIT")
#: Variables that numerical libraries read, which preloading imports before the fork.
READ_AT_IMPORT = (
    *("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "NUMEXPR_", "TORCH_", "PYTORCH_"),
    *("ARROW_", "HF_", "NPY_", "NUMPY_", "SCIPY_", "SKLEARN_", "TRANSFORMERS_"),
)
#: The same of Ray's libraries (the others read theirs on use), and those that no import reads: the libraries set them for their own actors
#: and tasks.
_READ_BY_RAYS = ("RAY_DATA_", "RAY_SERVE_")
_READ_LATER = ("RAY_DATA_SHUFFLE_REDUCE_WORKER", "RAY_SERVE_INTERNAL_")


def shown_variables(environment: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {name: HIDDEN for name, _value in environment if not name.startswith(PRIVATE_VARIABLES)}


#: The distance of two devices, by index; 0: as close as possible.
Apart = Callable[[int, int], int]


def _nowhere(_one: int, _other: int) -> int:
    return 0


def choose_device(
    free: Sequence[int], units: int, whole: int, apart: Apart = _nowhere, near: Sequence[int] = (), among: Collection[int] | None = None
) -> list[int] | None:
    """The devices that give `units`, or None: for a fraction the fullest one with room, for whole numbers idle ones `among` these.

    Among equals, those closest to each other and to `near`.
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
    """The `count` closest idle devices: greedily from each start.

    Among equally close sets, the one that the remaining devices are farthest from, since it comes out of the smallest sufficient group
    of neighbours.
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
    return min(PRESTART, int(cpus))


def idle_limit(cpus: float) -> int:
    return max(4, int(cpus))


def needs_fresh_interpreter(environment: Mapping[str, str], zygotes: Mapping[str, str], around: Mapping[str, str], preloaded: bool) -> bool:
    """Whether these variables come too late for a process forked from a zygote with `zygotes`, in addition to `around`."""
    late = READ_AT_START + READ_AT_IMPORT + _READ_BY_RAYS if preloaded else READ_AT_START
    return not environment.keys().isdisjoint((WRAPPER_VARIABLE, INTERPRETER_VARIABLE)) or any(
        environment.get(name, around.get(name)) != zygotes.get(name, around.get(name))
        for name in {*environment, *zygotes}
        if name.startswith(late) and not name.startswith(_READ_LATER)
    )
