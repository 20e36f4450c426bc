"""Groups whose collectives a library queues on streams: what members publish, so that no stream waits for a member that has left or died.

    member a                                     the others
    SENT[b] + 1, LAST[b] = its number, then the library's call     b: RECEIVED[a] + 1, LAST[a] = its number, then the library's call
    DONE = the number of its last piece of work that is done

A piece of work is *matched* once all participants have queued theirs; what is not matched when a member leaves never will be. So a
leaving member does

    L1 LEFT = DESTROYED            no other expects more of it
    L2 waits while all its work is matched but not done, and while work of others with it is not done
    L3 LEFT = LOST if work is left, since others may wait for it; the library aborts

and a member whose work waits for one that has left without queuing the other half, or has died, aborts as well, with LEFT = BROKEN.
`blocker` names them. No doorbell rings for that; a member with work on its streams polls.

A member that is refused a call queues nothing; a member that has queued the other half aborts, as for one that left, unless the
refused one calls again within `GRACE`.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from typing import Any

from mray._common.clock import monotonic
from mray._inside.memory import trust_fence
from mray._inside.transports import GroupHost, GroupMember, MemberOfGroup
from mray._inside.transports import board as at
from mray.exceptions import RayChannelError

#: Bytes that a member exchanges at most.
_MOST = 4096
#: Seconds from finding a member aborted to the notification of the death that caused it.
ABORT_GRACE = 1.0


class StreamGroup(MemberOfGroup):
    """This process's membership. Its words are written by the thread that calls the library, or under its lock; read by any."""

    def __init__(self, host: GroupHost, name: str, own: GroupMember) -> None:
        super().__init__(host, name, own)
        #: Called in the reading thread when a member has died.
        self.on_death: Callable[[], None] | None = None
        self._base = self._board.queued
        #: When another one was first seen aborted.
        self._broken_at: float | None = None
        #: When another one was first seen refused its half.
        self._refused_at: float | None = None
        #: The refusal for which this member aborts, as a clause.
        self._refusal = ""
        self.queued = 0

    def label(self, rank: int) -> str:
        return str(self._members[rank])

    # ------------------------------------------------------------------------------------ before the library
    def tell_all(self, info: Any) -> list[Any]:
        """Exchange small values: returns every member's, by rank. A collective."""
        import numpy  # noqa: PLC0415

        message = pickle.dumps(info)
        assert len(message) <= _MOST, "too much to tell"
        own = numpy.zeros(_MOST, numpy.uint8)
        own[: len(message)] = numpy.frombuffer(message, numpy.uint8)
        told = [numpy.empty_like(own) for _rank in range(self.world_size)]
        self.allgather(own, told)
        return [pickle.loads(each.tobytes()) for each in told]

    def make_beside(self, make: Callable[[], Any], thread_name: str, drop: Callable[[Any], None]) -> Any:
        """The library's part of the group, by `make`, which returns once all members have called it.

        Runs `make` in a separate thread, since nothing ends its wait when a member dies. `drop` gets a part that arrives after that.
        Raises RayChannelError when there is none.
        """
        made: list[Any] = []

        def work() -> None:
            try:
                part = make()
            except Exception as error:
                made.append(error)
            else:
                made.append(part)
                if self.has_failed:
                    drop(part)
            self.host.wake()

        threading.Thread(target=work, name=thread_name, daemon=True).start()
        self.host.wait_until(lambda: bool(made) or self.has_failed, None)
        if not made:
            self.check()
        (result,) = made
        if isinstance(result, Exception):
            self.check()
            raise RayChannelError(f"The group '{self.name}' could not be made: {result}") from result
        return result

    # ------------------------------------------------------------------------------------ death
    def _on_death(self, member: GroupMember, error: Exception) -> None:
        super()._on_death(member, error)
        if self._failure is not None and self.on_death is not None:
            self.on_death()

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    def fail(self, why: str, cause: BaseException | None = None) -> None:
        if self._failure is None:
            self._failure = self._broken(why, cause) if cause is not None else self._ended_by(why)
            self.host.wake()

    def give_up(self) -> None:
        if not self._closed and self._board.words[at.LEFT] in (at.HERE, at.DESTROYED):
            # Others are notified of a death by the runtime.
            self._board.tell_reason(self._refusal)
            self._leave(at.BROKEN if self.has_failed else at.LOST)

    # ------------------------------------------------------------------------------------ work
    def note(self, sent: int = -1, received: int = -1) -> int:
        """Number the piece of work about to be queued: a message to or from a rank, or else a collective.

        Raises RayChannelError when a participant has left without queuing its half.
        """
        self.check()
        words, board = self._board.words, self._board
        peers = {sent, received} - {-1}
        for rank, theirs, _doorbell in self._peers:
            if theirs[at.LEFT] != at.HERE and (not peers or rank in peers) and not self._has_half(rank, sent, received):
                if theirs[at.LEFT] == at.BROKEN and not self._boards[rank].reason():
                    self.host.wait_until(lambda: self.has_failed, ABORT_GRACE)
                    self.check()
                raise self._ended_by(self._who_left([rank]))
        self.queued = number = self.queued + 1
        for rank, _theirs, _doorbell in self._peers:
            if not peers or rank in peers:
                words[board.queued_for(rank) + at.LAST] = number
        if sent >= 0:
            words[board.queued_for(sent) + at.SENT] += 1
        if received >= 0:
            words[board.queued_for(received) + at.RECEIVED] += 1
        if not peers:
            words[self._base + at.COLLECTIVES] += 1
        return number

    def note_done(self, number: int) -> None:
        self._board.words[self._base + at.DONE] = number

    def _has_half(self, rank: int, sent: int, received: int) -> bool:
        """Whether a member that has left has queued its half of the next piece of work, and will see it done."""
        theirs, words = self._boards[rank].words, self._board.words
        # SYNC POINT queued: write what was queued, fence, LEFT | read LEFT, fence, read what was queued.
        trust_fence()
        if theirs[at.LEFT] != at.DESTROYED:
            return False
        place, ours = self._boards[rank].queued_for(self.rank), self._board.queued_for(rank)
        if sent == received == -1:
            return bool(theirs[self._base + at.COLLECTIVES] > words[self._base + at.COLLECTIVES])
        takes = sent != rank or theirs[place + at.RECEIVED] > words[ours + at.SENT]
        return bool(takes and (received != rank or theirs[place + at.SENT] > words[ours + at.RECEIVED]))

    def _collectives(self, board: at.Board) -> int:
        return board.words[self._base + at.COLLECTIVES]

    def _refuses(self, rank: int) -> bool:
        """Whether another member was refused its half of what this one has queued."""
        theirs, words = self._boards[rank].words, self._board.words
        refused = self.is_refused_collective(rank)
        if not (refused or self.is_refused(sent=rank) or self.is_refused(received=rank)):
            return False
        # SYNC POINT refused: the reason and what was done, fence, refusal | read that, fence, read what was done or the reason.
        trust_fence()
        place, ours = self._boards[rank].queued_for(self.rank), self._board.queued_for(rank)
        return bool(
            (refused and theirs[self._base + at.COLLECTIVES] < words[self._base + at.COLLECTIVES])
            or (self.is_refused(sent=rank) and theirs[place + at.RECEIVED] < words[ours + at.SENT])
            or (self.is_refused(received=rank) and theirs[place + at.SENT] < words[ours + at.RECEIVED])
        )

    def _has_matched(self, rank: int, other: int) -> bool:
        """Whether a member has queued its half of all that another has queued with it."""
        board, others = self._boards[rank], self._boards[other]
        words, theirs = board.words, others.words
        place, their_place = board.queued_for(other), others.queued_for(rank)
        return bool(
            words[place + at.RECEIVED] >= theirs[their_place + at.SENT]
            and words[place + at.SENT] >= theirs[their_place + at.RECEIVED]
            and words[self._base + at.COLLECTIVES] >= theirs[self._base + at.COLLECTIVES]
        )

    def blocker(self) -> str | None:
        """The member that keeps this one's work from ever being done, as a clause, or None."""
        done = self._board.words[self._base + at.DONE]
        gone = []
        refusing = []
        broken = False
        for rank, theirs, _doorbell in self._peers:
            left = theirs[at.LEFT]
            # SYNC POINT queued: write what was queued, fence, LEFT | read LEFT, fence, read what was queued.
            trust_fence()
            is_done = done >= self._board.words[self._board.queued_for(rank) + at.LAST]
            if left != at.HERE and not is_done and (left != at.DESTROYED or not self._has_matched(rank, self.rank)):
                gone.append(rank)
                broken = broken or (left == at.BROKEN and not self._boards[rank].reason())
            elif not is_done and self._refuses(rank):
                refusing.append(rank)
        if not refusing:
            self._refused_at = None
        elif self._refused_at is None:
            self._refused_at = monotonic()
        elif monotonic() > self._refused_at + at.GRACE:
            who = ", ".join(self.label(rank) for rank in refusing)
            self._refusal = f"{who} did not take part, because the call was refused{self.reasons_of(refusing)}"
            return self._refusal
        if broken and self._broken_at is None:
            self._broken_at = monotonic()
        if broken and self._broken_at is not None and monotonic() < self._broken_at + ABORT_GRACE:
            return None
        return self._who_left(gone) if gone else None

    # ------------------------------------------------------------------------------------ leaving
    def begin_to_leave(self) -> None:
        if not self._closed and self._board.words[at.LEFT] == at.HERE:
            # SYNC POINT queued: write what was queued, fence, LEFT | read LEFT, fence, read what was queued.
            self._leave(at.DESTROYED)

    def may_be_done(self) -> bool:
        """L2: whether all that this member has queued is matched."""
        return self._failure is None and all(
            theirs[at.LEFT] in (at.HERE, at.DESTROYED) and self._has_matched(rank, self.rank) for rank, theirs, _doorbell in self._peers
        )

    def is_awaited(self) -> bool:
        """L2: whether others have work with this member that is not done, but will be."""
        if self._failure is not None:
            return False
        for rank, theirs, _doorbell in self._peers:
            if theirs[at.LEFT] not in (at.HERE, at.DESTROYED):
                continue
            last = theirs[self._boards[rank].queued_for(self.rank) + at.LAST]
            if theirs[self._base + at.DONE] < last and self._has_matched(self.rank, rank):
                return True
        return False
