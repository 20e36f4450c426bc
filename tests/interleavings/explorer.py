"""Explores every order in which several processes can take the steps of their real code; crashes and weak memory included.

An *actor* is a function that runs the code under test against stand-ins for whatever is shared: the words of a segment, names in
/dev/shm, eventfds. Each access to something shared is a step. An actor is deterministic, so what it does next is a function of
what its accesses have answered so far, its *history*. That is how it is stopped and gone back to without a thread: it is run from the
beginning with the recorded answers, and at the first access without an answer an exception ends the run. The step that a history
leads to is remembered, so that each actor becomes a tree, unfolded as far as it is reached:

    actor's real code ── run with a history ──▶ next access, or the actor's result
    a state = where each actor is in its tree + the shared words + what each processor still holds back
    search: all successors of all states, each state once

Partial-order reduction: a step that no other actor can notice is taken alone, at once; so is the arrival of a store that was held back, and
a late answer. A guess that nobody will make true any more is dropped. The accesses that an actor may still do are found by exploring, in
rounds: a point of its life that was never reached before is taken to touch all that may be touched after the point before it. A round that
finds more than that counts for nothing, and another one begins with it (see `Explorer.explore`).

Plain bytes: the payloads, which a protocol is to keep everybody from touching at the same time (`Plain`). In the sequential order steps on
them are taken at once as well, as if nobody could notice; and it is a violation if somebody could: if another actor touches the same bytes,
one of the two writing, before who was there has done anything that others can notice. For as long as nobody finds that, no other order of
such steps leads anywhere else. In the other orders of memory they are steps like all others.

Orders of memory:

    SEQUENTIAL   every store is seen by all at once
    TOTAL        x86-64: each processor holds its stores back in a queue; loads look into the own queue first
    WEAK         aarch64 and weaker: stores leave in any order (two to the same word stay in order), and a load may be answered any time
                 later up to the next fence. A later answer is guessed from the values that the word ever has, and where the guess
                 cannot be made true the history is dropped. Dependencies order nothing here, so whatever passes needs none of them; except
                 that no system call is made on a guess.

A crash: the victim takes no further step (what its processor held back still arrives), and some time later the kernel tells the others.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

SEQUENTIAL = "sequential"
TOTAL = "total store order"
WEAK = "weak"

#: So many loads of an actor at most are without an answer at a time.
MOST_LATE = 2

Location = Hashable


class Plain(tuple[Any, ...]):
    """A location of bytes that a protocol protects: see "Plain bytes" above."""

    __slots__ = ()


# The kinds of access. Words of shared memory:
READ = "read"
WRITE = "write"
#: Nothing of this actor moves across it.
FENCE = "fence"
# Objects of the kernel, which no processor holds back: looked at, changed, or waited for.
GET = "get"
SET = "set"
#: Several at once.
SET_ALL = "set all"
#: Put the new value there; the answer is the old one.
SWAP = "swap"
#: Wait until one of the locations is not 0, make it 0; the answer is its position.
AWAIT = "await"
#: The same without waiting; -1 if there is none.
POLL = "poll"
#: One of the values, any of them: what no other actor decides, such as whether a time is over.
CHOOSE = "choose"
#: Put there what the function makes of the value that is there, in one step; the answer is the old one.
CHANGE = "change"

_UNANSWERED = frozenset({WRITE, FENCE, SET, SET_ALL})
#: No access: see `Run.mark`.
_MARK = "mark"

Access = tuple[str, Any, Any]


class Suspended(BaseException):
    """The history of this run has come to its end."""


class Run:
    """One run of an actor's code with the answers that are known so far."""

    def __init__(self, history: list[Any], initial: Mapping[Location, int], order: str) -> None:
        self._history = history
        self._initial = initial
        self._position = 0
        self.order = order
        #: The access without a known answer.
        self.found: list[Access] = []
        self.ended = False
        #: Accesses are answered by the initial values and are no steps: for what happens before the others exist.
        self.is_early = False
        #: The writes that are visible early.
        self.written: dict[Location, Any] = {}
        #: How many words, and objects of the kernel, the actor has changed so far.
        self.writes = 0
        #: Which process this is, as it says to others.
        self.pid = 0
        #: The names of all processes, by pid - 1.
        self.names: list[str] = []
        #: Globals of the modules under test, by name.
        self.globals: dict[str, list[Any]] = {}
        #: All that the actor knows, whatever of its code runs, apart from where it is in that; None: it does not say.
        self.knows: Callable[[], Hashable] | None = None

    def access(self, kind: str, location: Any, value: Any = None) -> Any:
        if self.is_early:
            if kind in (READ, GET):
                return self._initial.get(location, 0)
            if kind in (WRITE, SET):
                self.written[location] = value
            return None
        if self.ended:
            # The stack is being unwound, or finalizers run.
            if kind in _UNANSWERED:
                return None
            raise Suspended
        if kind in (WRITE, SET):
            self.writes += 1
        if self._position < len(self._history):
            answer = self._history[self._position]
            self._position += 1
            return answer
        self.found.append((kind, location, value))
        if kind in _UNANSWERED:
            return None
        self.ended = True
        raise Suspended

    @property
    def is_new(self) -> bool:
        """Whether what the actor does now was never done before with this history."""
        return not self.ended and self._position == len(self._history)

    def mark(self, *local: Hashable) -> None:
        """Said by an actor: `local` is all that I know here. Histories that lead to the same knowledge are one from here on."""
        if self.is_new:
            self.found.append((_MARK, local, None))


#: The run that is going on: for what has no other way to find it.
current: Run | None = None


def fence() -> None:
    """Stands for `mray._ipc.memory_order.fence`."""
    if current is not None and current.order != SEQUENTIAL:
        current.access(FENCE, None)


def fence_if_weak() -> None:
    """Stands for `publish_fence` and `trust_fence`."""
    if current is not None and current.order == WEAK:
        current.access(FENCE, None)


@dataclass(frozen=True)
class Ended:
    """How an actor ended."""

    how: str  #: "returned", "raised", "crashed" or "asleep"
    value: Any = None


@dataclass
class Outcome:
    """One way in which everything can end."""

    actors: dict[str, Ended]
    memory: dict[Location, int]

    def value(self, name: str) -> Any:
        return self.actors[name].value


class Violation(AssertionError):
    """An order of steps that must not be possible."""

    def __init__(self, reason: str, steps: list[str]) -> None:
        super().__init__("\n".join([reason, *steps]))
        self.reason = reason
        self.steps = steps


class _Node:
    """A point in the life of an actor."""

    __slots__ = ("access", "answer", "children", "end", "known_reads", "known_writes", "numbers", "parent", "reads", "writes")

    def __init__(self, parent: _Node | None, answer: Any) -> None:
        self.parent = parent
        self.answer = answer
        self.access: Access | None = None
        #: Of the locations of the access.
        self.numbers: tuple[int, ...] = ()
        self.end: Ended | None = None
        self.children: dict[Any, _Node] = {}
        #: Bit masks of the locations that the actor may read, and write, from here on, as far as is known.
        self.known_reads = 0
        self.known_writes = 0
        #: The search goes by these. They may be larger: a node that is new in a round is taken to touch all that its parent may.
        self.reads = 0 if parent is None else parent.reads
        self.writes = 0 if parent is None else parent.writes

    def history(self) -> list[Any]:
        answers = []
        node = self
        while node.parent is not None:
            answers.append(node.answer)
            node = node.parent
        return answers[::-1]


@dataclass
class Explored:
    """The coverage of an exploration."""

    states: int = 0
    steps: int = 0
    #: Points in the lives of the actors: each has run the real code.
    runs: int = 0
    #: Ways in which everything can end.
    outcomes: int = 0
    #: How actors ended, by actor.
    ends: dict[str, set[str]] = field(default_factory=dict)


#: Nodes, words, stores held back (per actor), loads not answered (per actor), whether the victim lives, has crashed, or is reported.
_State = tuple[
    tuple[_Node, ...],
    tuple[int, ...],
    tuple[tuple[tuple[int, int], ...], ...],
    tuple[tuple[tuple[int, int], ...], ...],
    int,
    tuple[tuple[int, int], ...],
]

#: A step as the format of a text and its arguments: few steps are ever printed.
_Label = tuple[Any, ...]

_LIVES, _CRASHED, _REPORTED = range(3)
_NOTHING = (0, 0)
#: So many steps after the beginning of a round, and then ever more rarely, it learns what it has found.
_LOOK_AHEAD = 100
#: A round that did not know of what it has found goes on for as many steps as it has needed to find that, and so many, to find more.
_LEARN = 2000


class Explorer:
    """All orders of the steps of some actors. `initial`: the values that are not 0 at the beginning."""

    def __init__(
        self,
        actors: Mapping[str, Callable[[Run], Any]],
        *,
        initial: Mapping[Location, int] | None = None,
        order: str = SEQUENTIAL,
        victim: str | None = None,
        check: Callable[[Outcome], None] = lambda _outcome: None,
        most: int = 2_000_000,
    ) -> None:
        self.names = list(actors)
        self._functions = list(actors.values())
        self._initial = dict(initial or {})
        self._order = order
        self._victim = -1 if victim is None else self.names.index(victim)
        self._check = check
        self._most = most
        self._numbers: dict[Location, int] = {}
        self._locations: list[Location] = []
        #: Of those that are plain, where that matters.
        self._plain = 0
        self._first: list[int] = []
        #: Every value that a location ever has.
        self._domain: list[set[int]] = []
        #: Where an actor has said what it knows.
        self._marks: dict[tuple[int, Hashable], _Node] = {}
        self._grown: list[_Node] = []
        #: After so many steps of this round the last access, or value, was found that it did not know of; None: it knew all.
        self._grew_at: int | None = None
        #: The first race of this round, which counts if all that may be touched was known.
        self._race = ""
        self._violation: Violation | None = None
        self._came: dict[_State, tuple[_State, list[_Label]] | None] = {}
        self.explored = Explored()
        self._roots = tuple(self._grow(number, _Node(None, None)) for number in range(len(self.names)))

    # ------------------------------------------------------------------------------------------ actors
    def _grow(self, number: int, node: _Node) -> _Node:
        """Run the actor up to this node, to learn what it does there."""
        global current
        history = node.history()
        run = current = Run(history, self._initial, self._order)
        end: Ended | None = None
        try:
            end = Ended("returned", self._functions[number](run))
        except Suspended:
            pass
        except Exception as error:
            error.__traceback__ = None
            end = Ended("raised", error)
        finally:
            is_suspended = run.ended
            run.ended = True
            current = None
        self.explored.runs += 1
        first = node
        self._grown.append(node)
        said: list[Hashable] = []
        for access in run.found:
            if access[0] == _MARK:
                said.append(access[1])
                known = self._marks.setdefault((number, access[1]), node)
                if known is not node:
                    assert node.parent is not None
                    node.parent.children[node.answer] = known
                    for local in said:
                        self._marks[number, local] = known
                    return first
                continue
            said.clear()
            node.access = access
            self._note(node, access)
            if access[0] in _UNANSWERED:
                following = _Node(node, None)
                node.children[None] = node = following
                self._grown.append(node)
        if not is_suspended:
            node.end = end
        return first

    def _next(self, number: int, node: _Node, answer: Any) -> _Node:
        child = node.children.get(answer)
        if child is None:
            node.children[answer] = _Node(node, answer)
            self._grow(number, node.children[answer])
            child = node.children[answer]  # another one, if the actor knows no more than there
        return child

    # ------------------------------------------------------------------------------------------ locations
    def _number(self, location: Location) -> int:
        number = self._numbers.get(location)
        if number is None:
            number = self._numbers[location] = len(self._locations)
            self._locations.append(location)
            if self._order == SEQUENTIAL and isinstance(location, Plain):
                self._plain |= 1 << number
            self._first.append(self._initial.get(location, 0))
            self._domain.append({self._first[-1]})
        return number

    def _note(self, node: _Node, access: Access) -> None:
        """Note what the access of a new node touches."""
        kind, where, _value = access
        places = where if kind in (AWAIT, POLL, SET_ALL) else () if kind in (FENCE, CHOOSE) else (where,)
        node.numbers = tuple(map(self._number, places))
        mask = 0
        for number in node.numbers:
            mask |= 1 << number
        node.known_reads = 0 if kind in (WRITE, SET, SET_ALL) else mask
        node.known_writes = 0 if kind in (READ, GET) else mask
        node.reads |= node.known_reads
        node.writes |= node.known_writes

    def _look_ahead(self) -> bool:
        """Learn what each actor may touch from each of its nodes on; whether the search has gone by less than that."""
        is_settled = False
        while not is_settled:
            is_settled = True
            for node in reversed(self._grown):
                reads, writes = node.known_reads, node.known_writes
                for child in node.children.values():
                    reads |= child.known_reads
                    writes |= child.known_writes
                if reads != node.known_reads or writes != node.known_writes:
                    node.known_reads, node.known_writes = reads, writes
                    is_settled = False
        grew = False
        for node in self._grown:
            if node.known_reads & ~node.reads or node.known_writes & ~node.writes:
                node.reads |= node.known_reads
                node.writes |= node.known_writes
                grew = True
        return grew

    def _go_by_what_is_known(self) -> None:
        """Begin a round with no larger sets of locations than need be."""
        self._look_ahead()
        for node in self._grown:
            node.reads, node.writes = node.known_reads, node.known_writes

    def _may_hold(self, location: int, value: int) -> None:
        if value not in self._domain[location]:
            self._domain[location].add(value)
            self._grew_at = self.explored.steps

    def _get(self, memory: tuple[int, ...], location: int) -> int:
        return memory[location] if location < len(memory) else self._first[location]

    def _put(self, memory: tuple[int, ...], location: int, value: int) -> tuple[int, ...]:
        if location >= len(memory):
            memory += tuple(self._first[len(memory) :])
        return (*memory[:location], value, *memory[location + 1 :])

    # ------------------------------------------------------------------------------------------ search
    def explore(self) -> Explored:
        """Raises Violation at the first outcome that the check refuses (AssertionError)."""
        collects = gc.isenabled()
        gc.disable()  # millions of tuples, none of them in a cycle
        try:
            while True:
                self._grew_at = None
                self._race = ""
                self._violation = None
                self._go_by_what_is_known()
                self._search()
                # This round did not know of what it has found: another one, with that.
                if not self._look_ahead() and self._grew_at is None:
                    if self._violation is not None:
                        raise self._violation
                    return self.explored
        finally:
            self._came.clear()
            for node in self._grown:
                node.parent = None
                node.children.clear()
            self._grown.clear()
            if collects:
                gc.enable()

    def _search(self) -> None:
        count = len(self.names)
        start: _State = (self._roots, (), ((),) * count, ((),) * count, _LIVES, (_NOTHING,) * count)
        came = self._came = {start: None}
        todo = [start]
        explored = self.explored
        explored.steps = explored.outcomes = 0
        explored.ends.clear()
        passed: set[_State] = set()
        known, look_at = len(self._grown), _LOOK_AHEAD
        while todo:
            if explored.steps >= look_at:
                look_at = explored.steps * 6 // 5 + _LOOK_AHEAD
                if len(self._grown) > known:
                    # Accesses that this round has missed so far are for the next one; it need not be as many again.
                    known = len(self._grown)
                    if self._look_ahead():
                        self._grew_at = explored.steps
                if self._grew_at is not None and explored.steps > 2 * self._grew_at + _LEARN:
                    return  # for the next round there is enough
            state = todo.pop()
            successors, is_alone = self._successors(state)
            first: _State = state
            labels: list[_Label] = []
            if is_alone:
                # States that no actor can notice are passed through once; what came of them is not kept. (Or an actor runs in a circle.)
                while is_alone and state not in passed:
                    passed.add(state)
                    ((label, state),) = successors
                    labels.append(label)
                    successors, is_alone = self._successors(state)
                explored.steps += len(labels)
            if self._race and self._violation is None:
                self._violation = Violation(self._race, [*self._event_log(first), *map(_text, labels)])
            if is_alone:
                continue
            if labels:
                if state in came:
                    continue
                came[state] = first, labels
            if not successors:
                try:
                    self._finish(state)
                except Violation:
                    if not self._look_ahead() and self._grew_at is None:
                        raise
                    # A store may have passed others because nobody was known to look: the next round says.
                    self._grew_at = explored.steps
                    return
            explored.steps += len(successors)
            for label, after in successors:
                entry = state, [label]
                if came.setdefault(after, entry) is entry:
                    todo.append(after)
            if len(came) > self._most:
                raise AssertionError(f"more than {self._most} states")
        explored.states = len(came)

    def _finish(self, state: _State) -> None:
        nodes, memory, buffers, delayed, death, _touched = state
        if any(delayed):
            return  # a guess that did not come true
        assert not any(buffers)
        self.explored.outcomes += 1
        ends = {}
        for number, (name, node) in enumerate(zip(self.names, nodes, strict=True)):
            if number == self._victim and death != _LIVES:
                ends[name] = Ended("crashed")
            else:
                ends[name] = Ended("asleep", node.access) if node.end is None else node.end
            self.explored.ends.setdefault(name, set()).add(ends[name].how)
        words = {location: self._get(memory, number) for location, number in self._numbers.items()}
        try:
            for name, end in ends.items():
                if end.how == "raised":
                    raise AssertionError(f"{name} raised {end.value!r}")
            self._check(Outcome(ends, words))
        except AssertionError as error:
            raise Violation(str(error), self._event_log(state)) from None

    def _event_log(self, state: _State) -> list[str]:
        steps: list[str] = []
        at: _State | None = state
        while at is not None:
            before = self._came[at]
            if before is None:
                break
            at, labels = before
            steps += map(_text, reversed(labels))
        return steps[::-1]

    def _successors(self, state: _State) -> tuple[list[tuple[_Label, _State]], bool]:
        """The possible next steps; whether it is one that no other actor can notice."""
        nodes, _memory, buffers, delayed, death, touched = state
        # The locations that each may still read and write.
        ahead_reads = [node.reads for node in nodes]
        ahead_writes = [node.writes for node in nodes]
        lost = self._victim if death != _LIVES else -1
        if lost >= 0:
            ahead_reads[lost] = ahead_writes[lost] = 0
        if self._order != SEQUENTIAL:
            for number, buffer in enumerate(buffers):
                for location, _value in buffer:
                    ahead_writes[number] |= 1 << location
                for location, _value in delayed[number]:
                    ahead_reads[number] |= 1 << location
        found: list[tuple[_Label, _State]] = []
        for number, node in enumerate(nodes):
            if node.end is not None or number == lost:
                continue
            reads = writes = 0
            for other, its_reads in enumerate(ahead_reads):
                if other != number:
                    reads |= its_reads
                    writes |= ahead_writes[other]
            steps, is_private = self._steps(state, number, node, reads, writes)
            if is_private and steps:
                return steps, len(steps) == 1
            if touched[number] != _NOTHING:
                # Later steps of others need not be simultaneous with earlier ones.
                cleared = _replace(touched, number, _NOTHING)
                steps = [(label, after if after[4] != death else (*after[:5], cleared)) for label, after in steps]
            found += steps
        if death == _CRASHED:
            found.append(self._report(state))
        if self._order == SEQUENTIAL:
            return found, False
        late, is_alone = self._late_steps(state, ahead_reads, ahead_writes)
        if is_alone or late is None:
            return late or [], is_alone
        return found + late, False

    def _late_steps(
        self, state: _State, ahead_reads: list[int], ahead_writes: list[int]
    ) -> tuple[list[tuple[_Label, _State]] | None, bool]:
        """Stores that may arrive and loads that may be answered; None: a guess cannot come true. The rest as in `_successors`."""
        nodes, memory, buffers, delayed, death, touched = state
        found: list[tuple[_Label, _State]] = []
        for number, buffer in enumerate(buffers):
            taken: set[int] = set()
            for position, (location, value) in enumerate(buffer):
                if location not in taken:
                    taken.add(location)
                    rest = (*buffer[:position], *buffer[position + 1 :])
                    after = (nodes, self._put(memory, location, value), _replace(buffers, number, rest), delayed, death, touched)
                    label = "{}'s store arrives: {} = {}", self.names[number], self._locations[location], value
                    if not _others(number, ahead_reads, location) and not _others(number, ahead_writes, location):
                        return [(label, after)], True
                    found.append((label, after))
                if self._order == TOTAL:
                    break
        for number, loads in enumerate(delayed):
            taken = set()
            for position, (location, value) in enumerate(loads):
                if location in taken:
                    continue
                taken.add(location)
                may_change = _others(number, ahead_writes, location)
                if self._get(memory, location) == value:
                    rest = (*loads[:position], *loads[position + 1 :])
                    after = (nodes, memory, buffers, _replace(delayed, number, rest), death, touched)
                    label = "{}'s load is answered: {} = {}", self.names[number], self._locations[location], value
                    if not may_change:
                        return [(label, after)], True
                    found.append((label, after))
                elif not may_change:
                    return None, False
        return found, False

    def _plain_step(self, state: _State, number: int, location: int, on: Callable[..., _State]) -> tuple[_Label, _State]:
        nodes, memory, _buffers, _delayed, _death, touched = state
        access = nodes[number].access
        assert access is not None
        kind, where, value = access
        name = self.names[number]
        bit = 1 << location
        for other, (its_reads, its_writes) in enumerate(touched):
            if other != number and (its_writes if kind == READ else its_reads | its_writes) & bit:
                self._race = self._race or f"{name} may {kind} {where} while {self.names[other]} is there"
        reads, writes = touched[number]
        if kind == READ:
            seen = self._get(memory, location)
            step, after = ("{}: read {}: {}", name, where, seen), on(seen)
            reads |= bit
        else:
            self._may_hold(location, value)
            step, after = ("{}: write {} = {}", name, where, value), on(None, self._put(memory, location, value))
            writes |= bit
        return step, (*after[:5], _replace(touched, number, (reads, writes)))

    def _report(self, state: _State) -> tuple[_Label, _State]:
        nodes, memory, buffers, delayed, _death, touched = state
        for number, name in enumerate(self.names):
            if number != self._victim:
                location = self._number(hangup(self.names[self._victim], name))
                memory = self._put(memory, location, 1)
        # An actor that acts on this report comes after the victim's reads; and must still not look at its unfinished writes.
        touched = _replace(touched, self._victim, (0, touched[self._victim][1]))
        memory = self._put(memory, self._number(dead(self.names[self._victim])), 1)
        return ("the kernel reports the death of {}", self.names[self._victim]), (nodes, memory, buffers, delayed, _REPORTED, touched)

    # ------------------------------------------------------------------------------------------ one actor's step
    def _steps(self, state: _State, number: int, node: _Node, reads: int, writes: int) -> tuple[list[tuple[_Label, _State]], bool]:
        """The next steps of this actor, and whether no other can notice them. `reads`, `writes`: locations that others may still touch."""
        nodes, memory, buffers, delayed, death, touched = state
        assert node.access is not None
        kind, where, value = node.access
        name = self.names[number]

        def on(answer: Any, memory: tuple[int, ...] = memory, held: Any = buffers, loads: Any = delayed) -> _State:
            child = node.children.get(answer)
            if child is None:
                child = self._next(number, node, answer)
            return _replace(nodes, number, child), memory, held, loads, death, touched

        location = node.numbers[0] if node.numbers else -1
        if self._plain and kind in (READ, WRITE) and self._plain >> location & 1:
            return [self._plain_step(state, number, location, on)], True
        if kind == FENCE:
            if buffers[number] or delayed[number]:
                return [], False
            return [(("{}: fence", name), on(None))], True
        if kind == CHOOSE:
            return [(("{}: {}: {}", name, where, option), on(option)) for option in value], True
        if kind == READ:
            own = [held for place, held in buffers[number] if place == location] if buffers[number] else ()
            private = not writes >> location & 1
            if own:
                return [(("{}: read {}: {} (its own)", name, where, own[-1]), on(own[-1]))], True
            open_load = _holds(delayed[number], location)
            seen = memory[location] if location < len(memory) else self._first[location]
            steps = [] if open_load else [(("{}: read {}: {}", name, where, seen), on(seen))]
            if self._order == WEAK and not private and len(delayed[number]) < MOST_LATE:
                for guess in self._domain[location]:
                    if guess != seen or open_load:
                        loads = _replace(delayed, number, (*delayed[number], (location, guess)))
                        steps.append((("{}: read {}: {}, to be answered later", name, where, guess), on(guess, loads=loads)))
                return steps, private and len(steps) == 1
            return steps, private
        steps = []
        if kind != WRITE and delayed[number]:
            return [], False  # nobody enters the kernel on a guess
        if kind == WRITE:
            self._may_hold(location, value)
            if _holds(delayed[number], location):
                return [], False
            if not (reads | writes) >> location & 1 and not _holds(buffers[number], location):
                # Nobody will look: it need not be held back either.
                return [(("{}: write {} = {}", name, where, value), on(None, self._put(memory, location, value)))], True
            if self._order == SEQUENTIAL:
                steps.append((("{}: write {} = {}", name, where, value), on(None, self._put(memory, location, value))))
                private = False
            else:
                held = _replace(buffers, number, (*buffers[number], (location, value)))
                steps.append((("{}: write {} = {}, held back", name, where, value), on(None, held=held)))
                private = True
        elif kind in (AWAIT, POLL):
            places = node.numbers
            private = True
            for location in places:
                private = private and not (reads | writes) >> location & 1
            set_ones = [position for position, location in enumerate(places) if self._get(memory, location)]
            for position in set_ones[:1]:
                steps.append((("{}: {} {}", name, kind, where[position]), on(position, self._put(memory, places[position], 0))))
            if not set_ones and kind == POLL:
                steps.append((("{}: poll: nothing", name), on(-1)))
            if self._victim >= 0 and death != _REPORTED:
                private = False  # the report may come first
        elif kind == SET_ALL:
            after = memory
            for location in node.numbers:
                after = self._put(after, location, value)
            steps.append((("{}: set {} = {}", name, where, value), on(None, after)))
            private = False
        else:
            private = not ((reads if kind != GET else 0) | writes) >> location & 1
            before = self._get(memory, location)
            answer = None if kind == SET else before
            if kind == CHANGE:
                value = value(before)
            after = memory if kind == GET else self._put(memory, location, value)
            steps.append((("{}: {} {} = {}", name, kind, where, before if kind == GET else value), on(answer, after)))
            if private:
                return steps, True
        if number == self._victim and kind != GET:
            steps.append((("{} crashes", name), (nodes, memory, buffers, delayed, _CRASHED, touched)))
        return steps, private


def hangup(dead: str, survivor: str) -> Location:
    """The location that the kernel sets when it tells the survivor."""
    return ("hangup", dead, survivor)


def dead(process: str) -> Location:
    """The kernel's answer about a process."""
    return ("dead", process)


def _text(label: _Label) -> str:
    return str(label[0].format(*label[1:]))


def _holds(waiting: tuple[tuple[int, int], ...], location: int) -> bool:
    """Whether a store, or a load, of this location is among those that wait."""
    for place, _value in waiting:
        if place == location:
            return True
    return False


def _others(number: int, ahead: list[int], location: int) -> bool:
    """Whether another actor than this one has the location among those that lie ahead of it."""
    for other, locations in enumerate(ahead):
        if other != number and locations >> location & 1:
            return True
    return False


def _replace(items: tuple[Any, ...], position: int, item: Any) -> tuple[Any, ...]:
    return (*items[:position], item, *items[position + 1 :])


def words_of(value: bytes) -> Iterator[int]:
    """Bytes as words, the last one filled up with zeroes."""
    for start in range(0, len(value), 8):
        yield int.from_bytes(value[start : start + 8], "little")
