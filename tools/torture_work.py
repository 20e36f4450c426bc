"""The work of a tortured driver: threads that each run one small story after the other, and know its right outcome.

Started by `torture.py`, which kills processes meanwhile and notes whom in a file *before* it does. A story knows its answers beforehand
(values are made from numbers); of errors it takes only those that a death explains, and the error must name a process that was killed.
Any other outcome is a violation: the first one is printed with the last events, and ends the driver with status 1.

    main thread: starts the threads, waits for the end, looks whether everything was given back
    thread n:    story, story, story ... each from its own random numbers (seed, n)
"""

from __future__ import annotations

import asyncio
import collections
import faulthandler
import gc
import json
import mmap
import os
import random
import re
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import mray as ray
from mray._api.current import current_backend
from mray._common.messages import CAUSE_OWNER
from mray._observe.observer import SessionGoneError, ask_node
from mray.dag import InputNode, MultiOutputNode
from mray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    NodeDiedError,
    ObjectLostError,
    RayError,
    RaySystemError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)
from mray.proxy import InterpreterDiedError, RemoteInterpreterFactory
from mray.util import placement_group, remove_placement_group
from mray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

#: Bytes of memory for objects: little, so that some go to disk.
STORE = 96 << 20
CPUS = 4
#: Events that are remembered.
EVENTS = 300
#: Options of what may have to end with somebody else, in processes of its own kind: actors that `ray.kill` or the death of their owner
#: ends, tasks that are cancelled by force or whose caller may die. Other processes may have run tasks before, and own what those have put.
DOOMED: dict[str, Any] = {"num_cpus": 0, "runtime_env": {"env_vars": {"MRAY_TORTURE_DOOMED": "1"}}}
#: Seconds that the node may take to say of somebody why it has ended.
PATIENCE = 10.0
#: Errors that deaths explain; and the error of a worker's own fault (see `mray._ipc.faults`).
#: The last one when several workers in a row are killed as they start.
DEATHS = (
    WorkerCrashedError,
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    InterpreterDiedError,
    RaySystemError,
    RuntimeEnvSetupError,
)
FAULT = "raised at the point"


class Violation(Exception):
    """Something came about that must not."""


class Over(Exception):
    """The session has ended under the story, as it had to."""


# ------------------------------------------------------------------------------------------- values
def make(number: int) -> Any:
    """The value of a number: every eighth is an array of 4 MB, some lie in shared memory, the others travel inline."""
    kind = number % 8
    if kind == 0:
        return number
    if kind == 1:
        return f"text {number}" * 3
    if kind == 2:
        return {"number": number, "list": list(range(number % 50)), "nested": (None, 1.5, {number})}
    if kind == 3:
        return np.arange(number % 4000, dtype=np.int64) + number
    if kind == 4:
        return np.arange(30_000, dtype=np.int64) + number
    if kind == 5:
        return number.to_bytes(8, "little") * 40_000
    if kind == 6:
        return [number, np.full(50_000, number, dtype=np.float64), "end"]
    return np.arange(500_000, dtype=np.int64) + number if number % 32 == 7 else -number


def same(value: Any, number: int) -> bool:
    """Whether a value is that of a number."""
    wanted = make(number)
    if isinstance(wanted, np.ndarray):
        return isinstance(value, np.ndarray) and value.dtype == wanted.dtype and np.array_equal(value, wanted)
    if isinstance(wanted, list):
        return len(value) == 3 and value[0] == number and np.array_equal(value[1], wanted[1]) and value[2] == "end"
    return type(value) is type(wanted) and value == wanted


# ------------------------------------------------------------------------------------------- what runs in workers
@ray.remote(max_retries=-1)
def produce(number: int) -> Any:
    return make(number)


@ray.remote(max_retries=-1)
def check(number: int, value: Any) -> bool:
    return same(value, number)


@ray.remote(max_retries=-1, runtime_env=DOOMED["runtime_env"])
def tree(depth: int) -> int:
    return 1 if depth == 0 else sum(ray.get([tree.remote(depth - 1) for _ in range(2)]))


@ray.remote(max_retries=0)
def once(path: str, number: int) -> int:
    with open(path, "ab", buffering=0) as journal:
        journal.write(b"%d\n" % number)
    return number


@ray.remote(max_retries=-1)
def own(numbers: list[int]) -> list[Any]:
    return [ray.put(make(number)) for number in numbers]


@ray.remote(max_retries=-1)
def count_up(first: int, count: int) -> Any:
    for number in range(first, first + count):
        yield make(number)


@ray.remote
def sleep_for(seconds: float) -> str:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.002)
    return "slept"


@ray.remote(max_retries=-1, num_returns=3)
def three(number: int) -> Any:
    return make(number), number, make(number + 1)


@ray.remote(max_retries=-1, retry_exceptions=[KeyError])
def raise_first(path: str, times: int) -> int:
    with open(path, "ab", buffering=0) as journal:
        journal.write(b".")
    ran = os.path.getsize(path)
    if ran <= times:
        raise KeyError(ran)
    return ran


@ray.remote(max_retries=-1)
def call(actor: Any, caller: str, number: int) -> Any:
    """Calls an actor whose handle it was given; the driver holds another."""
    try:
        return ray.get(actor.add.remote(caller, number))
    except ActorDiedError as error:
        return str(error)


@ray.remote(max_retries=-1)
def hire() -> Any:
    """An actor that a worker owns: it ends with that."""
    return ray.remote(Counter).options(**DOOMED).remote()


@ray.remote(max_retries=-1)
def fail(number: int) -> None:
    raise ValueError(f"number {number}")


class Counter:
    """Counts its calls, and remembers the last one of each caller."""

    def __init__(self) -> None:
        self.life = os.urandom(8).hex()
        self.total = 0
        self.last: dict[str, int] = {}

    def add(self, caller: str, number: int, journal: str = "", extra: Any = None) -> tuple[str, int, int]:
        if journal:
            with open(journal, "ab", buffering=0) as file:
                file.write(b"%d\n" % number)
        before, self.last[caller] = self.last.get(caller, -1), number
        self.total += 1
        return self.life, before, self.total


class Relay:
    """A step of graphs."""

    def plus(self, value: Any) -> Any:
        return value + 1

    def both(self, left: Any, right: Any) -> Any:
        return left + right


class Leaver:
    """Ends its own process."""

    def leave(self, killed: str, how: str) -> None:
        with open(killed, "ab", buffering=0) as file:
            file.write(b"%d %s leaver\n" % (os.getpid(), how.encode()))
        if how == "exec":
            os.execv("/bin/true", ["true"])
        elif how == "sys.exit":
            sys.exit(3)
        os._exit(3)


class Keeper:
    """Keeps refs of others."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    def keep(self, refs: list[Any], numbers: list[int]) -> None:
        self.kept.update(zip(numbers, refs, strict=True))

    def wrong(self) -> list[int]:
        wrong = [number for number, ref in self.kept.items() if not same(ray.get(ref), number)]
        self.kept.clear()
        return wrong

    def count(self, first: int, count: int) -> Any:
        yield from range(first, first + count)


class Beside:
    """Answers later; as an async actor, and as one with threads."""

    async def later(self, value: Any, seconds: float) -> Any:
        await asyncio.sleep(seconds)
        return value

    def at_once(self, value: Any, seconds: float) -> Any:
        time.sleep(seconds)
        return value


class Threaded:
    """As `Beside`, without a loop."""

    def at_once(self, value: Any, seconds: float) -> Any:
        time.sleep(seconds)
        return value


# ------------------------------------------------------------------------------------------- the driver
class Torment:
    """The state that the threads of this driver share."""

    def __init__(self, folder: Path, seed: int, threads: int) -> None:
        self.folder = folder
        self.seed = seed
        self.ends = threading.Event()
        self.session_dir: str = current_backend().info()["session_dir"]  # type: ignore[attr-defined]
        #: The session has ended because the node was killed.
        self.over = False
        self.events: collections.deque[str] = collections.deque(maxlen=EVENTS)
        self.counts: collections.Counter[str] = collections.Counter()
        self.began = time.monotonic()
        self._lock = threading.Lock()
        self._killed: set[int] = set()
        self._read = 0
        with open(folder / "beats", "w+b") as file:
            file.truncate(8 * threads)
            self.beats = mmap.mmap(file.fileno(), 8 * threads)

    def say(self, text: str) -> None:
        self.events.append(f"{time.monotonic() - self.began:9.3f} {threading.current_thread().name} {text}")

    def count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def was_killed(self, pid: int) -> bool:
        """Whether this process was, or is about to be, killed on purpose."""
        with self._lock:
            if pid not in self._killed:
                with open(self.folder / "killed", "rb") as file:
                    file.seek(self._read)
                    lines = file.read().splitlines(keepends=True)
                for line in lines:
                    if line.endswith(b"\n"):
                        self._killed.add(int(line.split(None, 1)[0]))
                        self._read += len(line)
            return pid in self._killed

    def explain(self, error: BaseException) -> None:
        """Take an error that a killed process explains; raise a `Violation` for any other."""
        seen = error
        texts = []
        while seen is not None:
            texts.append(f"{type(seen).__name__}: {seen}")
            seen = seen.__cause__ if seen.__cause__ is not seen else None
        text = "\n".join(texts)
        ended = isinstance(error, NodeDiedError) or "its node process has died" in text
        if ended and (self.folder / "fatal").exists():
            self.over = True
            raise Over from error
        if not isinstance(error, DEATHS):
            raise Violation(f"an error that no death explains: {text}") from error
        if isinstance(error, RaySystemError) and FAULT not in text:
            raise Violation(f"an error that no fault explains: {text}") from error
        pids = pids_in(text)
        if not any(map(self.was_killed, pids)):
            if not self.follows_a_kill(text):
                raise Violation(f"an error that names none of the killed ({sorted(pids)}): {text}") from error
            self.count("told of a death that followed another" if pids else "told of a death without a pid")
        self.count(f"told of a death ({type(error).__name__})")
        told = f"told: {type(error).__name__} of {sorted(pids)}"
        if not self.events[-1].endswith(told):
            self.say(told)

    def follows_a_kill(self, text: str) -> bool:
        """Whether somebody whom an error names was killed, or had to end because its owner was, or the owner of that, and so on.

        The node says so, soon: the one who asks may have heard of the end first.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                dead = ask_node(self.session_dir, "snapshot", PATIENCE)["dead_workers"]
            except (OSError, RayError, SessionGoneError):
                if (self.folder / "fatal").exists():
                    self.over = True
                    raise Over from None
                raise
            if self._leads_to_a_kill(text, dead):
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)

    def _leads_to_a_kill(self, text: str, dead: list[dict[str, Any]]) -> bool:
        seen: set[int] = set()
        texts = [text]
        while texts:
            text = texts.pop()
            of_processes = set(re.findall(r"process ([0-9a-f]{16})", text))
            pids = pids_in(text) | {row["pid"] for row in dead if row["process"] in of_processes}
            if any(map(self.was_killed, pids)):
                return True
            # The node ends whoever has nobody left to live for, and says whom.
            texts += [row["cause"][1] for row in dead if row["pid"] in pids - seen and (row["cause"] or [0])[0] == CAUSE_OWNER]
            seen |= pids
        return False


def pids_in(text: str) -> set[int]:
    return {int(pid) for pid in re.findall(r"(?:pid:?|failed in process) (\d+)", text)}


class Thread(threading.Thread):
    """One caller."""

    def __init__(self, torment: Torment, number: int, only: list[str]) -> None:
        super().__init__(name=f"t{number}", daemon=True)
        self.torment = torment
        self.number = number
        self.random = random.Random(f"{torment.seed} {number}")
        self.serial = 0
        self.stories = [event_log for event_log in STORIES if not only or event_log.__name__ in only]
        #: Actors that live from story to story, by kind; and the graph.
        self.actors: dict[str, Any] = {}
        self.graph: Any = None
        self.interpreter: Any = None
        self.seen_lives: dict[str, list[str]] = {}

    def run(self) -> None:
        torment = self.torment
        while not torment.ends.is_set():
            event_log = self.random.choice(self.stories)
            struct.pack_into("d", torment.beats, 8 * self.number, time.monotonic())
            torment.say(f"begins {event_log.__name__}")
            try:
                event_log(self)
                torment.count(event_log.__name__)
            except Over:
                return
            except Violation as violation:
                report(torment, violation)
            except BaseException as error:
                try:
                    torment.explain(error)
                    torment.count(f"{event_log.__name__}, cut short")
                except Over:
                    return
                except Violation as violation:
                    report(torment, violation)
        struct.pack_into("d", torment.beats, 8 * self.number, float("inf"))
        self.drop()

    def drop(self) -> None:
        """Let go of everything."""
        if self.graph is not None and not self.torment.over:
            try:
                self.graph.graph.teardown()
            except BaseException as error:
                self.torment.explain(error)
        self.graph = self.interpreter = None
        self.actors.clear()

    def new(self) -> int:
        """A number that no other thread and no earlier call has."""
        self.serial += 1
        return self.serial * 64 + self.number

    def numbers(self, most: int) -> list[int]:
        return [self.random.randrange(1 << 20) for _ in range(self.random.randint(1, most))]

    def actor(self, kind: str, make_actor: Callable[[], Any]) -> Any:
        """The thread's actor of this kind."""
        if kind not in self.actors:
            self.actors[kind] = make_actor()
        return self.actors[kind]

    def get(self, ref: Any) -> tuple[bool, Any]:
        """Whether there is a value, and the value or the error; a death must explain that there is none."""
        try:
            return True, ray.get(ref)
        except DEATHS as error:
            self.torment.explain(error)
            return False, error

    def expect(self, holds: bool, text: str) -> None:
        if not holds:
            raise Violation(text)


def report(torment: Torment, violation: BaseException) -> NoReturn:
    """Tell the story and end."""
    with REPORTING:
        lines = [f"VIOLATION {violation}", "".join(traceback.format_exception(violation)), f"seed {torment.seed}; the last events:"]
        print("\n".join([*lines, *torment.events]), file=sys.stderr, flush=True)
        os._exit(1)


REPORTING = threading.Lock()


# ------------------------------------------------------------------------------------------- stories
def tasks(me: Thread) -> None:
    """Tasks with retries always have their value."""
    numbers = me.numbers(30)
    values = ray.get([produce.remote(number) for number in numbers])
    for number, value in zip(numbers, values, strict=True):
        me.expect(same(value, number), f"task {number} returned {value!r}"[:300])


def chains(me: Thread) -> None:
    """Values pass from task to task."""
    numbers = me.numbers(8)
    refs = [produce.remote(number) for number in numbers]
    checked = [check.remote(number, ref) for number, ref in zip(numbers, refs, strict=True)]
    del refs
    me.expect(ray.get(checked) == [True] * len(numbers), f"a task got another value than {numbers} made")


def trees(me: Thread) -> None:
    depth = me.random.randint(1, 3)
    me.expect(ray.get(tree.remote(depth)) == 2**depth, "a tree of tasks has another sum")


def tasks_once(me: Thread) -> None:
    """Tasks without retries run once at most, and once if they have a value."""
    journal = me.torment.folder / f"once-{me.number}"
    numbers = [me.new() for _ in range(me.random.randint(1, 20))]
    refs = [once.remote(str(journal), number) for number in numbers]
    outcomes = [me.get(ref) for ref in refs]
    ran = collections.Counter(map(int, journal.read_bytes().split())) if journal.exists() else collections.Counter()
    journal.unlink(missing_ok=True)
    for number, (there, value) in zip(numbers, outcomes, strict=True):
        me.expect(ran[number] <= 1, f"a task without retries ran {ran[number]} times")
        me.expect(not there or (value, ran[number]) == (number, 1), f"task {number}, which ran {ran[number]} times, returned {value!r}")


def owned_by_workers(me: Thread) -> None:
    """Objects of workers: the value, or who took it along."""
    numbers = me.numbers(4)
    refs = ray.get(own.remote(numbers))
    for number, ref in zip(numbers, refs, strict=True):
        there, value = me.get(ref)
        me.expect(not there or same(value, number), f"the object {number} of a worker is {value!r}"[:300])


def puts(me: Thread) -> None:
    """Objects of the driver are always there, in memory or on disk, also for tasks."""
    numbers = me.numbers(12)
    if me.random.random() < 0.2:
        numbers += [number * 32 + 7 for number in me.numbers(8)]
    refs = [ray.put(make(number)) for number in numbers]
    checks = [check.remote(number, ref) for number, ref in zip(numbers, refs, strict=True) if me.random.random() < 0.3]
    for number, ref in zip(numbers, refs, strict=True):
        me.expect(same(ray.get(ref), number), f"the object {number} has another value")
    me.expect(all(ray.get(checks)), f"a task was given another value than one of {numbers}")


def waits(me: Thread) -> None:
    refs = [sleep_for.remote(me.random.random() * 0.02) for _ in range(me.random.randint(1, 8))]
    wanted = me.random.randint(1, len(refs))
    ready, rest = ray.wait(refs, num_returns=wanted)
    me.expect(len(ready) == wanted, f"wait returned {len(ready)}, not {wanted}")
    me.expect(sorted([*ready, *rest], key=refs.index) == refs, "wait lost or doubled a ref")
    for ref in refs:
        there, value = me.get(ref)
        me.expect(not there or value == "slept", f"a sleep returned {value!r}")


def errors(me: Thread) -> None:
    number = me.new()
    try:
        ray.get(fail.remote(number))
    except ValueError as error:
        me.expect(isinstance(error, RayTaskError) and f"number {number}" in str(error), f"another error: {error!r}")
    else:
        raise Violation("a task that raises returned")


def cancels(me: Thread) -> None:
    """A cancelled task ends as cancelled or with its value."""
    force = me.random.random() < 0.3
    sleep = sleep_for.options(runtime_env=DOOMED["runtime_env"]) if force else sleep_for
    refs = [sleep.remote(me.random.random() * 0.1) for _ in range(me.random.randint(1, 5))]
    time.sleep(me.random.random() * 0.05)
    for ref in refs:
        ray.cancel(ref, force=force)
    for ref in refs:
        try:
            me.expect(ray.get(ref) == "slept", "a sleep returned something else")
        except TaskCancelledError:
            pass
        except WorkerCrashedError as error:
            if not (force and "cancelled with force" in str(error)):
                me.torment.explain(error)


def generators(me: Thread) -> None:
    """A generator with retries yields every item once, in order, however often its worker dies."""
    first, count = me.new() * 8, me.random.randint(1, 25)
    stop = me.random.randint(0, count) if me.random.random() < 0.3 else count
    stream = count_up.options(num_returns="streaming").remote(first, count)
    number = first
    while number < first + stop:
        ref = next(stream)
        me.expect(same(ray.get(ref), number), f"item {number - first} of a generator is another value")
        number += 1
    if stop == count:
        me.expect(next(stream, None) is None, "a generator yielded too much")


def counters(me: Thread, retries: int = 0, restarts: int = 0) -> None:
    """Calls of one caller run in order, without retries once at most; a count never goes back within a life."""
    kind = f"counter {restarts} {retries}"
    options = {"num_cpus": 0, "max_restarts": restarts, "max_task_retries": retries}
    actor = me.actor(kind, lambda: ray.remote(Counter).options(**options).remote())
    lives = me.seen_lives.setdefault(kind, [])
    journal = me.torment.folder / f"calls-{me.number}"
    numbers = [me.new() for _ in range(me.random.randint(1, 30))]
    extra = make(me.random.randrange(1000)) if me.random.random() < 0.2 else None
    try:
        refs = [actor.add.remote(me.name, number, "" if retries else str(journal), extra) for number in numbers]
        outcomes = [me.get(ref) for ref in refs]
    finally:
        told = collections.Counter(map(int, journal.read_bytes().split())) if journal.exists() else collections.Counter()
        journal.unlink(missing_ok=True)
    last = -1
    for number, (there, value) in zip(numbers, outcomes, strict=True):
        if not retries:
            me.expect(told[number] <= 1, f"a call without retries ran {told[number]} times")
        if not there:
            me.expect(not retries or isinstance(value, RaySystemError), "a call with retries without end was given up")
            continue
        life, before, total = value
        me.expect(before < number, f"call {number} ran after {before}")
        if life not in lives:
            me.expect(restarts != 0 or not lives, "an actor that does not restart has a second life")
            lives.append(life)
            last = -1
        me.expect(life == lives[-1], "a call was answered by an earlier life")
        me.expect(total > last, f"a count went from {last} to {total}")
        last = total
    if not all(there for there, _value in outcomes) and not restarts:
        del me.actors[kind], me.seen_lives[kind]


def restarting(me: Thread) -> None:
    counters(me, 0, -1)


def persevering(me: Thread) -> None:
    counters(me, -1, -1)


def named(me: Thread) -> None:
    """A name is taken as long as its actor lives."""
    name = f"name {me.number}"
    actor = ray.remote(Counter).options(name=name, **DOOMED).remote()
    try:
        again = ray.get_actor(name)
    except ValueError:
        there, value = me.get(actor.add.remote("a", 1))
        me.expect(not there, f"a living actor has lost its name: {value!r}")
    else:
        me.expect(again == actor, "a name means another actor")
        there, value = me.get(again.add.remote("a", 1))
        me.expect(not there or value[1:] == (-1, 1), f"a new actor has a past: {value!r}")
    ray.kill(actor)
    del actor
    again = None
    while True:
        try:
            ray.get_actor(name)
        except ValueError:
            return
        time.sleep(0.005)


def scopes(me: Thread) -> None:
    """An actor without handles ends after its calls."""
    refs = [ray.remote(Counter).options(num_cpus=0).remote().add.remote("a", 1) for _ in range(me.random.randint(1, 3))]
    for ref in refs:
        there, value = me.get(ref)
        me.expect(not there or value[1:] == (-1, 1), f"a new actor has a past: {value!r}")


def kills(me: Thread) -> None:
    actor = ray.remote(Counter).options(**DOOMED).remote()
    refs = [actor.add.remote("a", number) for number in range(me.random.randint(0, 5))]
    ray.kill(actor)
    refs.append(actor.add.remote("a", 99))
    for ref in refs:
        try:
            ray.get(ref)
        except ActorDiedError as error:
            if "was killed by" not in str(error):
                me.torment.explain(error)


def leaves(me: Thread) -> None:
    """Actors that end themselves, in ways that programs have."""
    actor = ray.remote(Leaver).options(**DOOMED, max_restarts=0).remote()
    ref = actor.leave.remote(str(me.torment.folder / "killed"), me.random.choice(("exec", "sys.exit", "os._exit")))
    try:
        value = ray.get(ref)
    except ActorDiedError as error:
        me.torment.explain(error)
    else:
        raise Violation(f"an actor that ends its process answers {value!r}")


def beside(me: Thread) -> None:
    """Actors that run several calls at once."""
    choice = me.random.randrange(3)
    if choice == 0:
        actor = me.actor("threads", lambda: ray.remote(Threaded).options(num_cpus=0, max_concurrency=4).remote())
        method = "at_once"
    else:
        actor = me.actor("async", lambda: ray.remote(Beside).options(num_cpus=0, max_concurrency=10).remote())
        method = "later"
    numbers = me.numbers(10)
    refs = [getattr(actor, method).remote(make(number), me.random.random() * 0.01) for number in numbers]
    for number, ref in zip(numbers, refs, strict=True):
        there, value = me.get(ref)
        me.expect(not there or same(value, number), f"a call of an actor with several at once returned {value!r}"[:300])
        if not there:
            me.actors.pop("threads" if choice == 0 else "async", None)


def borrows(me: Thread) -> None:
    """An actor keeps refs whose owner has let go of them."""
    keeper = me.actor("keeper", lambda: ray.remote(Keeper).options(num_cpus=0).remote())
    numbers = me.numbers(6)
    refs = [ray.put(make(number)) if me.random.random() < 0.5 else produce.remote(number) for number in numbers]
    kept = keeper.keep.remote(refs, numbers)
    del refs
    wrong = keeper.wrong.remote()
    there, _none = me.get(kept)
    there, value = me.get(wrong) if there else (False, None)
    me.expect(not there or value == [], f"the values of {value} that an actor kept are other ones")
    if not there:
        del me.actors["keeper"]


def actor_generators(me: Thread) -> None:
    """Items of an actor's generator come in order, up to its death."""
    keeper = me.actor("keeper", lambda: ray.remote(Keeper).options(num_cpus=0).remote())
    first, count = me.new(), me.random.randint(1, 50)
    stream = keeper.count.options(num_returns="streaming").remote(first, count)
    for number in range(first, first + count):
        ref = next(stream, None)
        if ref is None:
            raise Violation(f"a generator ended after {number - first} of {count} items")
        there, value = me.get(ref)
        if not there:
            del me.actors["keeper"]
            return
        me.expect(value == number, f"item {number - first} is {value!r}")


def groups(me: Thread) -> None:
    """Tasks in placement groups."""
    group = placement_group([{"CPU": 1}] * me.random.randint(1, 2))
    try:
        ray.get(group.ready())
        place = PlacementGroupSchedulingStrategy(placement_group=group)
        numbers = me.numbers(4)
        values = ray.get([produce.options(scheduling_strategy=place).remote(number) for number in numbers])
        me.expect(all(same(value, number) for number, value in zip(numbers, values, strict=True)), "a task in a group has another value")
    finally:
        remove_placement_group(group)


def several(me: Thread) -> None:
    """Tasks with several return values."""
    number = me.random.randrange(1 << 20)
    first, second, third = ray.get(three.remote(number))
    me.expect(same(first, number) and second == number and same(third, number + 1), f"one of three values of {number} is another")


def retried(me: Thread) -> None:
    """Errors that are to be retried are, until there is none."""
    journal, times = me.torment.folder / f"raised-{me.number}", me.random.randint(0, 3)
    ran = ray.get(raise_first.remote(str(journal), times))
    me.expect(ran > times, f"a task that raises {times} times returned at run {ran}")
    journal.unlink()


def handles(me: Thread) -> None:
    """Others call an actor whose handle they are given."""
    actor = ray.remote(Counter).options(num_cpus=0).remote()
    answers = ray.get([call.remote(actor, f"task {number}", number) for number in range(me.random.randint(1, 4))])
    for answer in answers:
        if isinstance(answer, str):
            me.torment.explain(ActorDiedError.because(answer))
        else:
            me.expect(answer[2] >= 1, f"an actor answered {answer!r}")


def hired(me: Thread) -> None:
    """Actors that workers own."""
    actor = ray.get(hire.remote())
    for number in range(me.random.randint(1, 4)):
        there, value = me.get(actor.add.remote("a", number))
        me.expect(not there or value[1:] == (number - 1, number + 1), f"a new actor has another past: {value!r}")
        if not there:
            return


def awaited(me: Thread) -> None:
    """Refs are awaited in an event loop."""
    numbers = me.numbers(10)

    async def wait_for_all() -> list[Any]:
        return list(await asyncio.gather(*[produce.remote(number) for number in numbers]))

    values = asyncio.run(wait_for_all())
    me.expect(all(same(value, number) for number, value in zip(numbers, values, strict=True)), "an awaited value is another one")


class Compiled:
    """A graph, what it makes of a number, and how many executions may be in flight."""

    def __init__(self, me: Thread) -> None:
        relay = ray.remote(Relay).options(num_cpus=0)
        self.actors = [relay.remote() for _ in range(me.random.randint(1, 3))]
        self.shape = me.random.randrange(3)
        with InputNode() as value:
            node: Any = value
            for actor in self.actors:
                node = actor.plus.bind(node)
            if self.shape == 1:
                node = MultiOutputNode([node, self.actors[0].plus.bind(value)])
            elif self.shape == 2 and len(self.actors) > 1:
                node = self.actors[0].both.bind(node, self.actors[1].plus.bind(value))
            self.graph = node.experimental_compile()

    def expected(self, number: Any) -> Any:
        length = len(self.actors)
        if self.shape == 1:
            return [number + length, number + 1]
        if self.shape == 2 and length > 1:
            return 2 * number + length + 1
        return number + length


def graphs(me: Thread) -> None:
    """Results of a compiled graph come in order and are right, until an actor dies."""
    if me.graph is None:
        me.graph = Compiled(me)
    compiled = me.graph
    try:
        flying: collections.deque[tuple[Any, Any]] = collections.deque()
        for _ in range(me.random.randint(1, 60)):
            number: Any = me.new()
            if me.random.random() < 0.1:
                number = np.arange(40_000, dtype=np.int64) + number
            flying.append((number, compiled.graph.execute(number)))
            while len(flying) > 5:
                fetch(me, compiled, *flying.popleft())
        while flying:
            fetch(me, compiled, *flying.popleft())
    except DEATHS as error:
        me.torment.explain(error)
        me.graph = None
        compiled.graph.teardown()
    else:
        if me.random.random() < 0.1:
            me.graph = None
            compiled.graph.teardown()


def fetch(me: Thread, compiled: Compiled, number: Any, ref: Any) -> None:
    value, wanted = ray.get(ref), compiled.expected(number)
    me.expect(np.array_equal(value, wanted), f"a graph made {value!r} of {number!r}, not {wanted!r}"[:300])


def proxies(me: Thread) -> None:
    """Remote variables."""
    if me.interpreter is None:
        me.interpreter = RemoteInterpreterFactory(ray).create(num_cpus=0)
    env = me.interpreter
    try:
        number = me.new()
        total, items = env.put(number), env.put([])
        steps = me.random.randint(1, 20)
        for step in range(steps):
            total = total + 1
            items.append(step)
        me.expect(total.fetch() == number + steps, "a remote variable has another value")
        me.expect(items.fetch() == list(range(steps)), "a remote list has other items")
    except InterpreterDiedError as error:
        me.interpreter = None
        me.torment.explain(error)


STORIES = (
    tasks,
    chains,
    trees,
    tasks_once,
    owned_by_workers,
    puts,
    waits,
    errors,
    cancels,
    generators,
    counters,
    restarting,
    persevering,
    named,
    scopes,
    kills,
    leaves,
    beside,
    borrows,
    actor_generators,
    groups,
    several,
    retried,
    handles,
    hired,
    awaited,
    graphs,
    proxies,
)


# ------------------------------------------------------------------------------------------- the end
def wait_for(torment: Torment, what: str, holds: Callable[[], object], seconds: float = 30.0) -> None:
    """Used resources are given back, soon."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise Violation(f"{what}: {holds()!r}")
        time.sleep(0.02)
        gc.collect()


def look_for_leaks(torment: Torment) -> None:
    """Nothing runs any more: everything that was borrowed from the session must be back."""
    missing: dict[str, Any] = {}

    def resources_are_back() -> bool:
        missing.clear()
        free, whole = ray.available_resources(), ray.cluster_resources()
        missing.update({name: (free.get(name, 0), amount) for name, amount in whole.items() if free.get(name, 0) != amount})
        return not missing

    try:
        wait_for(torment, "resources", resources_are_back)
    except Violation:
        raise Violation(f"resources are not back: {missing}") from None
    wait_for(torment, "names of actors", lambda: not ray.util.list_named_actors(all_namespaces=True))


def main() -> None:
    folder, seed, threads, seconds, only = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:]
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    ray.init(num_cpus=CPUS, object_store_memory=STORE, logging_level="ERROR", log_to_driver=False)
    torment = Torment(folder, seed, threads)
    workers = [Thread(torment, number, only) for number in range(threads)]
    for thread in workers:
        thread.start()
    (folder / "ready").touch()
    until = time.monotonic() + seconds
    while time.monotonic() < until and not torment.over and any(thread.is_alive() for thread in workers):
        time.sleep(0.05)
        (folder / "counts.draft").write_text(json.dumps(torment.counts))
        os.rename(folder / "counts.draft", folder / "counts")
    torment.ends.set()
    for thread in workers:
        thread.join()
    (folder / "calm").touch()
    if not torment.over:
        try:
            look_for_leaks(torment)
        except NodeDiedError:
            if not (folder / "fatal").exists():
                raise
            torment.over = True
        except (Violation, RayError) as violation:
            report(torment, violation)
    (folder / "counts").write_text(json.dumps(torment.counts))
    ray.shutdown()


if __name__ == "__main__":
    main()
