"""Groups: processes that have opened each other's boards, and are notified when one dies or leaves.

A wait ends with the step it waits for, with a death that the runtime reports, with LEFT on a board that will never arrive there, or with
REFUSED on one that does not within `GRACE`. `mray._channel.shared_memory_group` computes.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from mray._channel.board import (
    ARRIVED,
    BROKEN,
    DESTROYED,
    GRACE,
    HERE,
    LEFT,
    NEED,
    NOT_RECEIVED,
    NOT_SENT,
    PARTNER,
    PLACE,
    RECEIVED,
    REFUSED,
    SENT,
    SIGNATURE,
    SIGNATURES,
    Board,
)
from mray._channel.group_host import GroupHost
from mray._channel.rendezvous import GroupMember, Meeting
from mray._common.bridge import Cancel
from mray._common.clock import now
from mray._common.log import logger
from mray._ipc.limits import is_exhausted
from mray._ipc.memory_order import fence, publish_fence, trust_fence
from mray.exceptions import RayChannelError

if TYPE_CHECKING:
    from mray._ipc.doorbell import Doorbell

#: The wait of a collective: until this rank (`ALL` others) has arrived at this step.
Wait = tuple[int, int]
Machine = Generator[Wait, None, None]
ALL = -1

#: Seconds until a member that waits for others to join warns; then at doubling intervals.
WARN_SECONDS = 30.0
#: Seconds between polls without a ring, since other programs may remove files.
LOOK = 1.0


def _refusals(refusal: int, place: int) -> int:
    return refusal % (1 << PLACE) if refusal >> PLACE == place else 0


def _count_refusal(words: memoryview, index: int, place: int) -> None:
    words[index] = place << PLACE | _refusals(words[index], place) + 1


class Refusing:
    """Context manager: an error inside refuses a call, and is raised at members that wait in it too."""

    __slots__ = ("_group", "_received", "_sent")

    def __init__(self, group: Group, sent: int, received: int) -> None:
        self._group = group
        self._sent = sent
        self._received = received

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None:
            self._group.refuse(error, self._sent, self._received)


class Group:
    """This process's membership of a group. Thread-safe; one thread at a time for each kind of operation."""

    def __init__(self, host: GroupHost, name: str, own: GroupMember) -> None:
        self.name = name
        self.rank = own.rank
        self.world_size = own.world_size
        self.host = host
        self._own = own
        self._board = Board.create(own.board, own.world_size, own.nonce)
        self._boards: dict[int, Board] = {self.rank: self._board}
        self._members: dict[int, GroupMember] = {self.rank: own}
        self._doorbells: dict[int, Doorbell] = {}
        self._watches: dict[int, Cancel] = {}
        #: Rank, words and doorbell of all others, once the group is complete.
        self._peers: list[tuple[int, memoryview, Doorbell]] = []
        #: The step that this member has arrived at.
        self._step = 0
        self._refusing = Refusing(self, -1, -1)
        self._lock = threading.Lock()
        #: Operations in progress; memory is released when there is none.
        self._doing: set[str] = set()
        self._closed = False
        self._failure: Exception | None = None

    # ------------------------------------------------------------------------------------ becoming a group
    def join(self, directory: str, timeout: float | None, expected: Mapping[int, str]) -> None:
        """Wait until all ranks have joined. Raises TimeoutError naming the missing, RayChannelError when one dies.

        `expected`: the known actors, in hex digits, by rank; their death before they join is noticed too.
        """
        meeting = Meeting(directory, self.name)
        watches = [self.host.then(actor, partial(self._on_early_death, rank)) for rank, actor in expected.items() if rank != self.rank]
        try:
            fence()  # a process that finds the file finds the board complete
            self._meet(meeting, timeout)
        except BaseException:
            meeting.withdraw(self._own)
            self.destroy()
            raise
        finally:
            for cancel in watches:
                cancel()
        # SYNC POINT partner: open the board, PARTNER | read every PARTNER, take the name away.
        meeting.withdraw(self._own)
        self._board.segment.unlink()
        self._peers = [(rank, board.words, self._doorbells[rank]) for rank, board in sorted(self._boards.items()) if rank != self.rank]

    def _meet(self, meeting: Meeting, timeout: float | None) -> None:
        start = now()
        warn_after = WARN_SECONDS
        while True:
            meeting.announce(self._own)
            for name in self._announced(meeting):
                self._adopt(meeting, name)
            self._drop_those_who_left()
            if self._complete():
                return
            waited = now() - start
            if timeout is not None and waited >= timeout:
                raise TimeoutError(
                    f"Timed out after {waited:.1f} s waiting for {self._missing()} of the group '{self.name}' "
                    f"(world size {self.world_size}; this is {self._own})."
                )
            if waited >= warn_after:
                logger.warning("%s has waited %d s for %s of the group '%s' and waits on", self._own, waited, self._missing(), self.name)
                warn_after *= 2
            pause = warn_after - waited if timeout is None else min(warn_after, timeout) - waited
            self.host.wait_until(lambda: self._ended() or self._complete() or bool(self._announced(meeting)), min(pause, LOOK))
            self.check()

    def _announced(self, meeting: Meeting) -> list[str]:
        found = []
        for rank, (nonce, name) in meeting.present().items():
            known = self._members.get(rank)
            if rank != self.rank and (known is None or nonce > known.nonce):
                found.append(name)
        return found

    def _missing(self) -> str:
        missing = [rank for rank in range(self.world_size) if rank not in self._boards]
        if missing:
            return f"the ranks {missing}"
        late = [str(self._members[rank]) for rank in sorted(self._boards) if rank != self.rank and not self._joined(rank)]
        return f"an answer of {', '.join(late)}"

    def _adopt(self, meeting: Meeting, name: str) -> None:
        """Open the board of an announced member, and publish that. Members that died meanwhile, or have left, are skipped."""
        member = meeting.read(name)
        if member is None:
            return
        rank = member.rank
        self._drop(rank)
        self._members[rank] = member
        try:
            doorbell = self.host.doorbell_of(member.process)
            self._watches[rank] = self.host.then(member.actor, lambda error: self._on_death(member, error), process=member.process)
            if member.world_size == self.world_size and rank < self.world_size:
                self._boards[rank] = Board.open(member.board, self.world_size, member.nonce, self.host.ask_of(member.process))
        except OSError as error:
            self._drop(rank)
            if is_exhausted(error):  # this process's own limit
                raise
            meeting.discard(name)
            return
        if rank not in self._boards:
            raise ValueError(
                f"{member} joins the group '{self.name}' with world size {member.world_size}, and {self._own} with {self.world_size}."
            )
        self._doorbells[rank] = doorbell
        # SYNC POINT partner: open the board, PARTNER | read every PARTNER, take the name away.
        self._board.words[PARTNER + rank] = member.nonce
        doorbell.ring()

    def _joined(self, rank: int) -> bool:
        return bool(self._boards[rank].words[PARTNER + self.rank] == self._own.nonce)

    def _complete(self) -> bool:
        return len(self._boards) == self.world_size and all(rank == self.rank or self._joined(rank) for rank in self._boards)

    def _drop_those_who_left(self) -> None:
        for rank, board in list(self._boards.items()):
            if rank != self.rank and board.words[LEFT] != HERE:
                # SYNC POINT left: ARRIVED and PARTNER, fence, LEFT | read LEFT, fence, read ARRIVED or PARTNER.
                trust_fence()
                if not self._joined(rank):
                    self._drop(rank, forget=False)

    def _drop(self, rank: int, *, forget: bool = True) -> None:
        """Release an earlier attempt of a rank; it is not read again unless it is forgotten."""
        if forget:
            self._members.pop(rank, None)
        if rank in self._watches:
            self._watches.pop(rank)()
        self._doorbells.pop(rank, None)
        if rank in self._boards:
            self._board.words[PARTNER + rank] = 0
            self._boards.pop(rank).close()

    # ------------------------------------------------------------------------------------ members that go
    def _on_death(self, member: GroupMember, error: Exception) -> None:
        """A member has died. Reading thread."""
        if self._members.get(member.rank) is member and self._failure is None and not self._closed:
            self._failure = self._broken(f"{member} has died. {error}", error)

    def _on_early_death(self, rank: int, error: Exception) -> None:
        """An expected actor has died. Reading thread."""
        if rank not in self._boards and not self._ended():
            self._failure = self._broken(f"rank {rank} has died before it joined. {error}", error)

    def _broken(self, why: str, cause: BaseException) -> RayChannelError:
        error = RayChannelError(f"The group '{self.name}' is broken: {why}")
        error.__cause__ = cause
        return error

    def _ended(self) -> bool:
        return self._closed or self._failure is not None

    def check(self) -> None:
        """Raise RayChannelError, with the reason, when the group has ended."""
        if self._closed:
            raise RayChannelError(f"The group '{self.name}' has been destroyed in this process ({self._own}).")
        if self._failure is not None:
            raise RayChannelError(*self._failure.args) from self._failure.__cause__

    def _lost(self, step: int, rank: int, *, refusals: bool = True) -> bool:
        """Whether the wait can never end, or only if refused members call again."""
        if self._ended():
            return True
        for peer, words, _doorbell in self._peers:
            if rank in (ALL, peer) and (words[LEFT] or (refusals and self.is_refused_collective(peer))):
                # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
                # SYNC POINT left: ARRIVED and PARTNER, fence, LEFT | read LEFT, fence, read ARRIVED or PARTNER.
                trust_fence()
                if words[ARRIVED] < step:
                    return True
        return False

    def _check_members(self) -> None:
        self.check()
        gone = [rank for rank, words, _doorbell in self._peers if words[LEFT]]
        if gone:
            raise self._ended_by(self._who_left(gone))

    def _ended_by(self, why: str) -> RayChannelError:
        return RayChannelError(f"The group '{self.name}' has ended: {why}.")

    def _who_left(self, ranks: list[int]) -> str:
        broken = [rank for rank in ranks if self._boards[rank].words[LEFT] == BROKEN]
        how = f"broke off{self.reasons_of(broken)}" if broken else "destroyed the group"
        return f"{', '.join(str(self._members[rank]) for rank in ranks)} {how}"

    # ------------------------------------------------------------------------------------ calls that are refused
    def refusing(self, sent: int = -1, received: int = -1) -> Refusing:
        """Around checks that may refuse a message to or from a rank, or else a collective."""
        return self._refusing if sent == received else Refusing(self, sent, received)

    def refuse(self, error: BaseException, sent: int = -1, received: int = -1) -> None:
        with self._lock:
            if self._ended() or not self._peers:
                return
            board = self._board
            board.tell_reason(repr(error))
            # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
            publish_fence()
            peers = {sent, received} - {-1}
            if not peers:
                _count_refusal(board.words, REFUSED, self._collectives(board))
            if sent in self._doorbells:
                _count_refusal(board.words, board.queued_for(sent) + NOT_SENT, board.words[board.queued_for(sent) + SENT])
            if received in self._doorbells:
                _count_refusal(board.words, board.queued_for(received) + NOT_RECEIVED, board.words[board.queued_for(received) + RECEIVED])
            for rank, doorbell in self._doorbells.items():
                if not peers or rank in peers:
                    doorbell.ring()

    def _collectives(self, board: Board) -> int:
        return board.words[ARRIVED]

    def is_refused_collective(self, rank: int) -> bool:
        """Whether a member was refused its next collective, and this one was not."""
        theirs = self._boards[rank]
        refusal = theirs.words[REFUSED]
        if not refusal:
            return False
        # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
        trust_fence()
        place = self._collectives(theirs)
        return _refusals(refusal, place) > _refusals(self._board.words[REFUSED], place)

    def is_refused(self, sent: int = -1, received: int = -1) -> bool:
        """Whether a member was refused its half of the next message, and this one was not."""
        peer, done, refused, own = (sent, RECEIVED, NOT_RECEIVED, NOT_SENT) if sent >= 0 else (received, SENT, NOT_SENT, NOT_RECEIVED)
        theirs = self._boards[peer]
        place = theirs.queued_for(self.rank)
        refusal = theirs.words[place + refused]
        if not refusal:
            return False
        # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
        trust_fence()
        after = theirs.words[place + done]
        return bool(_refusals(refusal, after) > _refusals(self._board.words[self._board.queued_for(peer) + own], after))

    def refused_by(self, ranks: list[int]) -> RayChannelError:
        # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
        trust_fence()
        who = ", ".join(str(self._members[rank]) for rank in ranks)
        return RayChannelError(f"In the group '{self.name}' {who} did not take part, because the call was refused{self.reasons_of(ranks)}.")

    def reasons_of(self, ranks: list[int]) -> str:
        """Reasons of refusals or failures, after a colon; "" without a reason."""
        reasons = dict.fromkeys(filter(None, (self._boards[rank].reason() for rank in ranks)))
        return f": {'; '.join(reasons)}" if reasons else ""

    def destroy(self) -> None:
        """Leave the group: waiting members, and waiting threads of this process, get RayChannelError. Idempotent.

        Messages that this member has sent and no other has received are lost.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            idle = not self._doing
        if self._board.words[LEFT] == HERE:
            self._leave(DESTROYED)
        if idle:
            self._release()
        else:
            self.host.doorbell_of(self.host.process).ring()

    def _leave(self, how: int) -> None:
        # SYNC POINT left: ARRIVED and PARTNER, fence, LEFT | read LEFT, fence, read ARRIVED or PARTNER.
        publish_fence()
        self._board.words[LEFT] = how
        for doorbell in self._doorbells.values():
            doorbell.ring()

    def _release(self) -> None:
        """Release everything: no thread uses the group any more."""
        self._peers = []
        for cancel in self._watches.values():
            cancel()
        self._watches.clear()
        self._doorbells.clear()
        self._board.segment.unlink()
        for board in self._boards.values():
            board.close()

    # ------------------------------------------------------------------------------------ doing
    def _enter(self, what: str) -> None:
        """Raises RuntimeError if another thread runs the same kind of operation."""
        with self._lock:
            self.check()
            # Members that failed because of a refusal stand at the step that this member reaches only now.
            if self._board.words[REFUSED] and any(words[LEFT] == BROKEN for _rank, words, _doorbell in self._peers):
                self._check_members()
            if what in self._doing:
                raise RuntimeError(f"Another thread of {self._own} is in a {what} of the group '{self.name}'.")
            self._doing.add(what)

    def _exit(self, what: str) -> None:
        with self._lock:
            self._doing.discard(what)
            last = self._closed and not self._doing
        if last:
            self._release()

    def _run(self, machine: Machine) -> None:
        """Drive a collective to its end; blocks."""
        try:
            for step, rank in machine:
                if not self._met(step, rank):
                    self._wait(step, rank)
                trust_fence()
        except BaseException as error:
            if not self._ended():
                self._failure = self._broken(f"{self._own} broke off a collective: {error!r}", error)
                # Pass a refusal on unchanged.
                self._board.tell_reason(str(error) if isinstance(error, RayChannelError) else repr(error))
                self._leave(BROKEN)
            raise

    def _met(self, step: int, rank: int) -> bool:
        for peer, words, _doorbell in self._peers:
            if words[ARRIVED] < step and rank in (ALL, peer):
                return False
        return True

    def _wait(self, step: int, rank: int) -> None:
        words = self._board.words
        # SYNC POINT need: NEED, fence before sleeping, look at ARRIVED again | ARRIVED, fence, look at NEED.
        # (The fence is the reactor's.)
        words[NEED] = step << 16 | rank + 1
        try:
            self.host.wait_until(lambda: self._met(step, rank) or self._lost(step, rank), None, spin=True)
            while not self._met(step, rank):
                self._check_members()
                self._wait_for_refused(step, rank)
                self.host.wait_until(lambda: self._met(step, rank) or self._lost(step, rank), None, spin=True)
        finally:
            words[NEED] = 0

    def _wait_for_refused(self, step: int, rank: int) -> None:
        """Wait for the next call of a refused member. Raises RayChannelError after the grace period."""
        if not self.host.wait_until(lambda: not self._lost(step, rank) or self._lost(step, rank, refusals=False), GRACE):
            refused = [peer for peer in self._doorbells if self.is_refused_collective(peer)]
            if refused:
                raise self.refused_by(refused)

    def _begin(self) -> Machine:
        """Wait until the own half may be written (A1)."""
        # SYNC POINT half: read the others' halves, fence, ARRIVED of the next step | read ARRIVED, fence, overwrite the own half.
        yield self._step, ALL

    def _arrive(self, signature: int) -> None:
        """The own half is written (A2, A3); ring the members whose wait this ends."""
        words = self._board.words
        words[SIGNATURE + self._step % SIGNATURES] = signature
        # SYNC POINT half: read the others' halves, fence, ARRIVED of the next step | read ARRIVED, fence, overwrite the own half.
        # SYNC POINT block: write the half, fence, ARRIVED | read ARRIVED, fence, read the half.
        publish_fence()
        self._step = step = self._step + 1
        words[ARRIVED] = step
        # SYNC POINT need: NEED, fence before sleeping, look at ARRIVED again | ARRIVED, fence, look at NEED.
        fence()
        lowest = step
        for _peer, theirs, _doorbell in self._peers:
            lowest = min(lowest, theirs[ARRIVED])
        for _peer, theirs, doorbell in self._peers:
            need = theirs[NEED]
            # The last to arrive rings a member that waits for all others: of two that arrive concurrently, one sees the other.
            if need and need >> 16 <= (step if need & 0xFFFF == self.rank + 1 else lowest if not need & 0xFFFF else -1):
                doorbell.ring()
