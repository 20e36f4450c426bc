"""The crash matrix: phases x manners x victims, and what comes of each.

A row brings a process of a session, the *seat*, into a phase, and harms the victims there: the seat itself or others. It says what
whoever waits is told; that everything else goes on, that all resources are free again, and that nothing is left of the dead is asked of
each row alike (see `test_matrix.py`). A combination that is no row is excluded, with the reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.faults.crash.harm import EXIT_CODE, MESSAGE

PHASES = (
    "pickle_argument", "unpickle_argument", "run", "pickle_result", "unpickle_result", "put", "get", "view", "spill", "construct",
    "construct_async", "start_worker", "compile", "between", "read", "compute", "write", "collective", "teardown", "shutdown",
)  # fmt: skip
MANNERS = ("raise", "sys.exit", "os._exit", "exec", "SIGSEGV", "SIGKILL", "SIGTERM", "SIGINT", "stopped", "memory", "thread", "files")
SINGLE = ("worker", "actor", "driver", "node", "zygote")
#: Two at once: both are stopped before either is killed, so that neither can look at the other's end.
PAIRS = ("seat+zygote", "seat+node", "seat+driver", "node+driver", "node+zygote", "zygote+driver")
VICTIMS = (*SINGLE, *PAIRS)
#: Manners in which a process is gone at once, without a word: for all others it is the same event.
AT_ONCE = ("os._exit", "SIGSEGV", "SIGKILL", "stopped")

CONSTRUCT = ("construct", "construct_async")
GRAPH = ("compile", "between", "read", "compute", "write", "collective", "teardown")
#: Harm that only the process itself can do to itself.
INNER = ("raise", "sys.exit", "os._exit", "exec", "memory", "thread", "files")
#: How an error's text tells that another program is executed.
REPLACED = "executed another program in its place"
#: Ends of a setup hook that has not returned, but for harm by others; how an error's text names each, and all of them.
ENDS_HOOK = {
    "sys.exit": f"exited with exit code {EXIT_CODE}", "os._exit": f"exited with exit code {EXIT_CODE}",
    "exec": REPLACED, "SIGINT": "exited with exit code 1",
}  # fmt: skip
ENDED_HOOK = ("pid {pid}", "its worker_process_setup_hook did not return")
#: How an error's text tells the end of a process.
HOW = {
    "os._exit": f"exited with exit code {EXIT_CODE}",
    "exec": REPLACED,
    "SIGSEGV": "was killed by SIGSEGV (signal 11)",
    "SIGKILL": "was killed by SIGKILL (signal 9)",
    "SIGTERM": "was killed by SIGTERM (signal 15)",
    "stopped": "was killed by SIGKILL (signal 9)",
}
LARGE = 1 << 20


class Told(NamedTuple):
    """The outcome for a waiting thread: a value, or an error of this class (or one derived from it) whose text says all of this; either,
    if both are given.
    """

    error: str = ""
    words: tuple[str, ...] = ()
    value: Any = None


class Row(NamedTuple):
    """One row. `told`: what those get who wait, in order; `status`: how the driver ends, None if it goes on."""

    victim: str
    phase: str
    manner: str
    seat: str
    told: tuple[Told, ...]
    status: int | None = None

    @property
    def victims(self) -> tuple[str, ...]:
        """The victim."""
        return tuple(self.seat if victim == "seat" else victim for victim in self.victim.split("+"))

    @property
    def session_is_over(self) -> bool:
        """Whether the row needs a session of its own, which ends with it."""
        return not {"driver", "node"}.isdisjoint(self.victims) or self.seat == "driver"

    def __str__(self) -> str:
        return f"{self.victim}-{self.phase}-{self.manner}"


# ------------------------------------------------------------------------------------- what a phase gives
#: The value of a phase that comes to its end, by the seat.
VALUES: dict[str, Any] = {
    "pickle_argument": "rebuilt", "unpickle_argument": "rebuilt", "run": "done", "pickle_result": "rebuilt", "unpickle_result": "rebuilt",
    "put": LARGE, "get": "late", "view": LARGE, "spill": LARGE, "construct": "done",
    "construct_async": "done", "start_worker": "done", "shutdown": "done",
}  # fmt: skip
OF_CALLER = {"compile": True, "between": True, "read": "rebuilt", "write": "rebuilt", "teardown": "done"}
OF_MEMBER = {"compile": "same", "between": "same", "read": "rebuilt", "compute": "same", "write": "rebuilt", "teardown": "same"}


def value_of(seat: str, phase: str) -> Told:
    """The outcome for a waiting thread if nothing happens."""
    if phase == "collective":
        return Told(value=[[2.0] * 4, [2.0] * 4])
    return Told(value=(VALUES | (OF_MEMBER if seat == "actor" else OF_CALLER))[phase])


#: In these a value is made where it is read, and whoever reads it is told that it cannot be.
MADE = ("unpickle_argument", "unpickle_result")


def raised(manner: str, *, made: bool = False, bare: bool = False) -> Told:
    """The error of what user code raised; `made`: as a value was made; `bare`: where it is raised it is caught, not in another process."""
    kind, text = {
        "raise": ("Misbehaved", MESSAGE),
        "memory": ("MemoryError", ""),
        "files": ("OSError", "Too many open files"),
    }[manner]
    if made:
        return Told("RaySystemError", (kind, text) if bare else (kind, text, "pid={pid}"))
    return Told(kind, (text,) if bare else (text, "pid={pid}"))


# ------------------------------------------------------------------------------------------------- victims
def how_of(phase: str, manner: str) -> tuple[str, ...]:
    """How the error's text tells the end of a worker. At SIGTERM it ends in order, once it is ready for work."""
    if manner == "SIGTERM" and phase != "start_worker":
        return ("exited with exit code 1", "The process receives a SIGTERM")
    return (HOW[manner],)


def worker_row(phase: str, manner: str) -> tuple[Told, ...]:
    """The worker of a task is in the phase."""
    task = "echo" if phase in ("unpickle_argument", "start_worker") else "act"
    who = ("pid {pid}", f"It was running {task}.")
    value = value_of("worker", phase)
    if phase == "shutdown" or manner == "thread":
        return (value,)
    # A worker that dies before the task has reached it is replaced (the caller may see the end of its connection before the reason), and
    # the other one does not die.
    instead = value.value if phase == "start_worker" else None
    if phase == "start_worker" and manner in ENDS_HOOK:
        return (Told("RuntimeEnvSetupError", (*ENDED_HOOK, ENDS_HOOK[manner]), instead),)
    if manner in HOW:
        return (Told("WorkerCrashedError", (*who, *how_of(phase, manner)), instead),)
    if phase == "start_worker":
        return (Told("RuntimeEnvSetupError", ("its runtime_env could not be set up", *raised(manner, bare=True).words), instead),)
    if manner == "sys.exit":
        return (Told("WorkerCrashedError", (*who, f"exited with exit code {EXIT_CODE}", f"raised SystemExit({EXIT_CODE})")),)
    if manner == "SIGINT":
        return (Told("TaskCancelledError"),)
    return (raised(manner, made=phase in MADE),)


def actor_row(phase: str, manner: str) -> tuple[Told, ...]:
    """An actor is in the phase: in a method, in its constructor, or as one of a graph. The second wait is for a call behind it."""
    value = value_of("actor", phase)
    kind = "AsyncSeat" if phase == "construct_async" else "Seat"
    who = (f"class_name: {kind}", "pid: {pid}")
    if phase in GRAPH:
        part = {"compile": (), "teardown": ()}.get(phase, ("It took part in a compiled graph",))
        alive, goes_on = Told(value="after"), manner == "thread"
        if phase == "teardown":
            goes_on = manner not in HOW
        elif phase == "between":  # a call of its own, whose error is told to its caller alone
            goes_on = manner not in HOW and manner != "sys.exit"
        elif phase == "collective":
            # Nothing of the user's runs on the main thread: an interrupt is nobody's.
            goes_on = manner in ("memory", "files", "thread", "SIGINT")
    else:
        part = ()
        alive, goes_on = Told(value="queued"), manner == "thread"
    if phase == "shutdown":
        return value, Told("ActorDiedError", (*who, "exit_actor() was called"))
    if goes_on:
        return (value,) if phase in (*CONSTRUCT, "start_worker") else (value, alive)
    if phase == "start_worker" and manner in ENDS_HOOK:
        return (Told("RuntimeEnvSetupError", (*ENDED_HOOK, ENDS_HOOK[manner])),)
    if manner in HOW:
        dead = Told("ActorDiedError", (*who, *how_of(phase, manner)))
        if phase == "teardown":
            return value, dead
        return (dead,) if phase in (*CONSTRUCT, "start_worker") else (Told("ActorDiedError", (*dead.words, *part)), dead)
    if phase == "start_worker":
        return (Told("RuntimeEnvSetupError", ("its runtime_env could not be set up", *raised(manner, bare=True).words)),)
    if phase in CONSTRUCT:
        if manner == "sys.exit":
            return (Told("ActorDiedError", (*who, f"exited with exit code {EXIT_CODE}")),)
        text = "KeyboardInterrupt" if manner == "SIGINT" else raised(manner, bare=True).words[0]
        return (Told("ActorDiedError", ("an error raised in its creation task", "pid={pid}", text)),)
    if manner == "sys.exit" or (manner == "SIGINT" and phase in ("read", "compute", "write")):
        how = [f"exited with exit code {EXIT_CODE if manner == 'sys.exit' else 1}"]
        if phase not in GRAPH or phase == "between":
            how.append(f"raised SystemExit({EXIT_CODE})")
        dead = Told("ActorDiedError", (*who, *how))
        return Told("ActorDiedError", (*dead.words, *part)), dead
    if manner == "SIGINT":
        words = ("pid {pid}", "was interrupted at 'allocate' of a compiled graph") if phase == "compile" else ()
        return Told("TaskCancelledError", words), alive
    if phase == "compile" and manner == "files":  # the value cannot be made, or else the answer cannot be brought
        return Told("Exception", ("Too many open files",)), alive
    return raised(manner, made=phase in (*MADE, "compile"), bare=phase == "compile"), alive


def zygote_row(seat: str, phase: str) -> tuple[Told, ...]:
    """The zygote is harmed while somebody else is in the phase: nobody notices."""
    after = dict.fromkeys((*CONSTRUCT, "start_worker", "shutdown"), ()).get(phase, (Told(value="after" if phase in GRAPH else "queued"),))
    return (value_of(seat, phase), *(after if seat == "actor" else ()))


#: Where the phase takes place when somebody else is the victim.
SEATS = {phase: "actor" if phase in (*GRAPH, *CONSTRUCT) else "driver" if phase == "shutdown" else "worker" for phase in PHASES}
#: Phases that a driver comes into itself.
OF_DRIVER = (
    "pickle_argument", "run", "unpickle_result", "put", "get", "view", "spill",
    "compile", "between", "read", "write", "teardown", "shutdown",
)  # fmt: skip
#: How a driver's process ends.
STATUS = {"sys.exit": EXIT_CODE, "os._exit": EXIT_CODE, "exec": EXIT_CODE, "SIGSEGV": -11, "SIGKILL": -9, "SIGTERM": 15, "stopped": -9}


def waits_of(seat: str, phase: str) -> int:
    """How many wait."""
    return 2 if seat == "actor" and phase not in (*CONSTRUCT, "start_worker") else 1


def driver_row(phase: str, manner: str) -> Row:
    """The driver is in the phase, or waits for the one who is."""
    seat = "driver" if phase in OF_DRIVER else SEATS[phase]
    told: tuple[Told, ...] = ()
    if manner == "SIGINT":
        told = Told("KeyboardInterrupt"), *(zygote_row(seat, phase)[1:])
    elif manner == "thread":
        told = (value_of("driver", phase),)
    elif manner not in STATUS:
        told = (raised(manner, made=phase in MADE, bare=True),)
    return Row("driver", phase, manner, seat, told, STATUS.get(manner))


def node_row(victim: str, phase: str, manner: str) -> Row:
    """The node dies while somebody is in the phase: everybody is told. It is deaf to SIGINT."""
    seat = SEATS[phase]
    if manner == "SIGINT":
        return Row(victim, phase, manner, seat, zygote_row(seat, phase))
    if phase == "shutdown":
        return Row(victim, phase, manner, seat, (value_of(seat, phase),))
    name, number = {"SIGSEGV": ("SIGSEGV", 11), "SIGTERM": ("SIGTERM", 15)}.get(manner, ("SIGKILL", 9))
    dead = Told("RayError", (f"the node process (pid {{node}}) was killed by {name} (signal {number})",))
    if phase == "teardown":  # the value is there, and a graph whose actors are dead is torn down
        return Row(victim, phase, manner, seat, (value_of(seat, phase), dead))
    return Row(victim, phase, manner, seat, (dead,) * waits_of(seat, phase))


def pair_row(victim: str, phase: str, manner: str) -> Row:
    """Two die at once."""
    seat = SEATS[phase]
    if "driver" in (seat if each == "seat" else each for each in victim.split("+")):
        return Row(victim, phase, manner, seat, (), STATUS[manner])
    if "node" in victim:
        return node_row(victim, phase, manner)
    return Row(victim, phase, manner, seat, (worker_row if seat == "worker" else actor_row)(phase, manner))


# ---------------------------------------------------------------------------------------------- exclusions
NO_CONSTRUCTOR = "whoever constructs an actor is one"
NOT_A_MEMBER = "who has compiled a graph and is none of its actors computes nothing in it, and takes no part in its collectives"
NO_USER_CODE = "no user code runs in this process in this phase, and nobody else can do that to it"
ONLY_THAT_THREAD = "no user code runs on the main thread there, and in another thread it ends that thread alone"
ONE_AFTER_THE_OTHER = "two are harmed at once only when both are stopped first; else it is a row of the one and a row of the other"


def excluded(victim: str, phase: str, manner: str) -> str:
    """Why there is no such row; "" if there is one."""
    if victim in PAIRS:
        return "" if manner == "stopped" else ONE_AFTER_THE_OTHER
    if victim == "worker":
        return NO_CONSTRUCTOR if phase in CONSTRUCT else NOT_A_MEMBER if phase in ("compute", "collective") else ""
    if victim == "actor":
        return ONLY_THAT_THREAD if phase == "collective" and manner in ("raise", "sys.exit") else ""
    if victim == "driver" and phase in OF_DRIVER:
        return ""
    return NO_USER_CODE if manner in INNER else ""


def row_of(victim: str, phase: str, manner: str) -> Row:
    """The row; ask `excluded` first."""
    if victim in PAIRS:
        return pair_row(victim, phase, manner)
    if victim == "worker":
        return Row(victim, phase, manner, "worker", worker_row(phase, manner))
    if victim == "actor":
        return Row(victim, phase, manner, "actor", actor_row(phase, manner))
    if victim == "driver":
        return driver_row(phase, manner)
    if victim == "node":
        return node_row(victim, phase, manner)
    return Row(victim, phase, manner, SEATS[phase], zygote_row(SEATS[phase], phase))


ALL = [(victim, phase, manner) for victim in VICTIMS for phase in PHASES for manner in MANNERS]
EXCLUDED = {combination: why for combination in ALL if (why := excluded(*combination))}
ROWS = [row_of(*combination) for combination in ALL if combination not in EXCLUDED]


def end_of(row: Row) -> str:
    """The kind of end that a row's manner is, but for the text of the error: at once, of the seat or of another process, or the manner."""
    return row.manner if row.manner not in AT_ONCE else "of the seat" if row.victim in ("worker", "actor") else "of another"


def covering(rows: list[Row]) -> list[Row]:
    """A part of these rows, in their order, in which each phase meets each kind of end, and each victim each phase and each manner."""
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        alike.setdefault((row.phase, end_of(row)), []).append(row)
    # The victims take turns, and the manners that are alike.
    part = {str(same[(PHASES.index(phase) * 5 + MANNERS.index(same[0].manner)) % len(same)]) for (phase, _), same in alike.items()}
    met: set[tuple[str, str]] = set()
    # First what is taken anyway.
    for row in sorted(rows, key=lambda row: str(row) not in part):
        pairs = {(row.victim, row.phase), (row.victim, row.manner)}
        if not pairs <= met:
            part.add(str(row))
            met |= pairs
    return [row for row in rows if str(row) in part]
