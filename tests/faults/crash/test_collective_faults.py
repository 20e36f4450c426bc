"""Members of a group that die or leave in the middle of a collective: who waits for them is told who and how, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mray
from mray._api.current import current_backend
from mray._channel.board import GRACE
from mray.exceptions import ActorDiedError, RayChannelError
from tests.full import some

LARGE = 4 << 20


@pytest.fixture
def session() -> Iterator[None]:
    mray.init(num_cpus=4, log_to_driver=False)
    yield
    mray.shutdown()


class Member:
    """Does collectives, and says in a file when it begins."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        from mray.util import collective

        self.collective = collective
        self.child: Any = None

    def pid(self) -> int:
        return os.getpid()

    def join(self, world_size: int, rank: int, actors: Any = ()) -> None:
        self.begin(f"join{rank}")
        self.collective.init_collective_group(world_size, rank, "gloo", actors=actors)

    def begin(self, what: str) -> None:
        Path(self.folder, what).touch()

    def call(self, what: str) -> None:
        """One collective, or one after the other without end."""
        self.begin(what)
        tensor, large = np.ones(3), np.ones(LARGE, np.float32)
        if what == "allreduce":
            self.collective.allreduce(tensor)
        elif what == "allreduces":
            while True:
                self.collective.allreduce(large)
        elif what == "broadcasts":
            while True:
                self.collective.broadcast(large, 1)
        elif what == "barrier":
            self.collective.barrier()
        elif what == "broadcast":
            self.collective.broadcast(tensor, 1)
        elif what == "reduce":
            self.collective.reduce(tensor, self.collective.get_rank())
        elif what == "allgather":
            self.collective.allgather([np.ones(3) for _ in range(3)], tensor)
        elif what == "reducescatter":
            self.collective.reducescatter(tensor, [np.ones(3) for _ in range(3)])
        elif what == "recv":
            self.collective.recv(tensor, 1)
        elif what == "send":
            while True:
                self.collective.send(large, 1)

    def sum(self) -> float:
        array = np.ones(1)
        self.collective.allreduce(array)
        return float(array[0])

    def destroy(self) -> None:
        self.collective.destroy_collective_group()

    def destroy_soon(self, what: str) -> None:
        """Wait in a collective, and have another thread of this process destroy the group meanwhile."""
        import threading

        group = self.collective.get_group_handle()
        timer = threading.Timer(0.05, group.destroy_group)
        timer.start()
        try:
            self.call(what)
        finally:
            timer.join()

    def leave_child(self) -> None:
        """A process that inherits the descriptors of this one and outlives it."""
        self.child = subprocess.Popen(["sleep", "1000"], close_fds=False)

    def end(self) -> None:
        os._exit(3)


@pytest.fixture
def make(session: None, tmp_path: Path) -> Callable[..., list[Any]]:
    """Makes so many members of the group."""
    kind = mray.remote(num_cpus=0, max_restarts=0)(Member)

    def made(count: int, *, joined: bool = True, **options: Any) -> list[Any]:
        members = [kind.options(**options).remote(str(tmp_path)) for _ in range(count)]
        if joined:
            mray.get([member.join.remote(count, rank) for rank, member in enumerate(members)])
        return members

    return made


WAITS = ["allreduce", "barrier", "broadcast", "reduce", "recv", "send", "allreduces", "broadcasts"]
ENDLESS = {"allreduces", "broadcasts"}
#: A member in an endless call does not come to the call that would have it exit.
DEATHS = [(what, manner) for what in WAITS for manner in ("SIGKILL", "SIGSEGV", "exit") if manner != "exit" or what not in ENDLESS]


@pytest.mark.parametrize(("what", "manner"), some(DEATHS, lambda row: row[0], lambda row: row[1]))
def test_members_that_wait_for_the_dead_are_told(make, tmp_path, eventually, what, manner):
    first, victim, third = make(3)
    pid = mray.get(victim.pid.remote())
    others = [first, third] if what not in ("recv", "send") else [first]
    calls = [member.call.remote(what) for member in others]
    if what in ENDLESS:
        calls.append(victim.call.remote(what))
    eventually(lambda: (tmp_path / what).exists())
    if manner == "exit":
        victim.end.remote()
    else:
        os.kill(pid, getattr(signal, manner))
    for call in calls[: len(others)]:
        with pytest.raises(RayChannelError) as caught:
            mray.get(call)
        text = str(caught.value)
        assert f"rank 1 (actor Member, pid {pid}) has died" in text
        assert manner in text or manner == "exit"
    # They are as usable as before, also together.
    for member in (first, third):
        with pytest.raises(RayChannelError, match="has died"):
            mray.get(member.call.remote("barrier"))
    mray.get([member.destroy.remote() for member in (first, third)])
    mray.get([member.join.remote(2, rank) for rank, member in enumerate((first, third))])
    assert mray.get([member.sum.remote() for member in (first, third)]) == [2.0, 2.0]


@pytest.mark.parametrize("what", ["allreduce", "barrier", "broadcast", "recv", "send"])
def test_members_that_wait_for_one_that_leaves_are_told(make, tmp_path, eventually, what):
    first, second = make(2)
    call = first.call.remote(what)
    eventually(lambda: (tmp_path / what).exists())
    mray.get(second.destroy.remote())
    with pytest.raises(RayChannelError, match=r"rank 1 \(actor Member, pid \d+\) destroyed the group"):
        mray.get(call)


#: The wait of the others; the call that the last member is refused meanwhile, and why.
REFUSALS = {
    "allreduce of an array that is read-only": ("allreduce", lambda c: c.allreduce(_read_only()), "ValueError.*read-only; copy it first"),
    "allreduce of no tensor": ("allreduce", lambda c: c.allreduce([1]), "RuntimeError.*Unrecognized tensor type"),
    "allreduce by no operation": ("allreduce", lambda c: c.allreduce(np.ones(3), op="sum"), "AttributeError.*'str' object"),
    "allreduce of a dtype without arithmetic": ("allreduce", lambda c: c.allreduce(np.array(["a"])), "ValueError.*cannot be reduced"),
    "broadcast from nobody": ("reduce", lambda c: c.broadcast(np.ones(3), 7), "ValueError.*must be less than world size"),
    "allgather into too few": ("allgather", lambda c: c.allgather([np.ones(3)], np.ones(3)), "RuntimeError.*must be equal to world_size"),
    "allgather into another dtype": ("allgather", lambda c: c.allgather([np.ones(3, "f4")] * 3, np.ones(3)), "ValueError.*same dtype"),
    "reducescatter into another shape": (
        "reducescatter",
        lambda c: c.reducescatter(np.ones(2), [np.ones(3)] * 3),
        "ValueError.*wrong shape",
    ),
}


def _read_only() -> Any:
    array = np.ones(3)
    array.flags.writeable = False
    return array


def refused(member: Member, call: Callable[[Any], None]) -> str:
    """In an actor: the error of a call, as text."""
    try:
        call(member.collective)
    except Exception as error:
        return repr(error)
    return "not refused"


#: One of each call that the others wait in: that each is refused, and why, all members are told below.
@pytest.mark.parametrize("refusal", some(list(REFUSALS), lambda refusal: REFUSALS[refusal][0]))
def test_what_one_member_is_refused_the_others_are_told_with_the_reason(make, tmp_path, eventually, refusal):
    what, call, reason = REFUSALS[refusal]
    members = make(3)
    calls = [member.call.remote(what) for member in members[:2]]
    eventually(lambda: (tmp_path / what).exists())
    pid = mray.get(members[2].pid.remote())
    assert re.search(reason, mray.get(members[2].__ray_call__.remote(refused, call)))
    for ref in calls:
        with pytest.raises(RayChannelError, match=rf"rank 2 \(actor Member, pid {pid}\) did not take part.*{reason}"):
            mray.get(ref)
    # Those that had begun are with the group no more; it can be made again.
    with pytest.raises(RayChannelError, match="broke off"):
        mray.get(members[2].sum.remote())
    mray.get([member.destroy.remote() for member in members])
    mray.get([member.join.remote(3, rank) for rank, member in enumerate(members)])
    assert mray.get([member.sum.remote() for member in members]) == [3.0] * 3


def sum_when_awaited(member: Member, path: Path) -> float:
    """In an actor: refused a collective, and call it with what fits once the others are in it."""
    refused(member, lambda c: c.allreduce(_read_only()))
    while not path.exists():
        time.sleep(0.001)
    return member.sum()


def sum_all(member: Member, count: int) -> list[float]:
    """In an actor: says when the last of so many collectives begins."""
    sums = [member.sum() for _ in range(count - 1)]
    member.begin(f"sums {count}")
    return [*sums, member.sum()]


def test_who_is_refused_a_collective_may_do_it_yet_while_the_others_are_in_it(make, tmp_path, eventually):
    members = make(3)
    calls = [member.__ray_call__.remote(sum_all, 1) for member in members[:2]]
    last = members[2].__ray_call__.remote(sum_when_awaited, tmp_path / "sums 1")
    assert mray.get([*calls, last]) == [[3.0], [3.0], 3.0]
    # That is over: who waits for it now waits for one that may be late.
    calls = [member.__ray_call__.remote(sum_all, 2) for member in members[:2]]
    mray.get(members[2].sum.remote())
    eventually(lambda: (tmp_path / "sums 2").exists())
    time.sleep(2 * GRACE)
    mray.get(members[2].sum.remote())
    assert mray.get(calls) == [[3.0, 3.0]] * 2


def test_a_refusal_that_was_taken_back_does_not_hide_one_of_another_member(make, tmp_path, eventually):
    first, second = make(2)
    ref = first.__ray_call__.remote(sum_all, 1)
    mray.get(second.__ray_call__.remote(sum_when_awaited, tmp_path / "sums 1"))
    mray.get(ref)
    ref = second.call.remote("barrier")
    eventually(lambda: (tmp_path / "barrier").exists())
    mray.get(first.__ray_call__.remote(refused, lambda c: c.allreduce(_read_only())))
    with pytest.raises(RayChannelError, match="rank 0 .* did not take part, because the call was refused: ValueError.*read-only"):
        mray.get(ref)


def test_what_all_members_are_refused_breaks_nothing(make):
    members = make(3)
    for _what, call, reason in REFUSALS.values():
        for text in mray.get([member.__ray_call__.remote(refused, call) for member in members]):
            assert re.search(reason, text)
        assert mray.get([member.sum.remote() for member in members]) == [3.0] * 3


@pytest.mark.parametrize("what", ["recv", "send"])
def test_a_message_that_one_side_is_refused_is_an_error_for_the_other_that_waits(make, tmp_path, eventually, what):
    first, second, third = make(3)
    ref = first.call.remote(what)
    eventually(lambda: (tmp_path / what).exists())
    call = (lambda c: c.send([1], 0)) if what == "recv" else (lambda c: c.recv(_read_only(), 0))
    text = mray.get(second.__ray_call__.remote(refused, call))
    with pytest.raises(RayChannelError, match=r"rank 1 .* did not take part, because the call was refused: (Runtime|Value)Error"):
        mray.get(ref)
    assert "Error" in text
    # Nobody else has anything to do with it.
    assert mray.get([member.sum.remote() for member in (first, second, third)]) == [3.0] * 3
    if what == "recv":
        again = first.call.remote("recv")
        mray.get(second.__ray_call__.remote(refused, lambda c: c.send(np.ones(3), 0)))
        mray.get(again)


def send_all(member: Member, *values: int) -> list[int]:
    """In an actor: messages to the other one of two; says when the last is about to be sent."""
    for value in values:
        if value == values[-1]:
            member.begin("send")
        member.collective.send(np.full(3, value), 1 - member.collective.get_rank())
    return list(values)


def receive_all(member: Member, *values: int) -> list[int]:
    """In an actor: as many messages of the other one; says when the last is about to be received."""
    array = np.zeros(3, np.int64)
    received = []
    for value in values:
        if value == values[-1]:
            member.begin("recv")
        member.collective.recv(array, 1 - member.collective.get_rank())
        received.append(int(array[0]))
    return received


def send_when_awaited(member: Member, path: Path) -> None:
    """In an actor: refused to send, and send what fits once the other one waits."""
    refused(member, lambda c: c.send([1], 1))
    while not path.exists():
        time.sleep(0.001)
    send_all(member, 0)


def test_a_refusal_to_send_is_over_with_the_next_message(make, tmp_path, eventually):
    first, second = make(2)
    mray.get(first.__ray_call__.remote(refused, lambda c: c.send([1], 1)))
    mray.get(first.__ray_call__.remote(send_all, 0))
    ref = second.__ray_call__.remote(receive_all, 0, 1)
    eventually(lambda: (tmp_path / "recv").exists())
    mray.get(first.__ray_call__.remote(send_all, 1))
    assert mray.get(ref) == [0, 1]


def test_a_refusal_to_receive_is_over_with_the_next_message(make, tmp_path, eventually):
    first, second = make(2)
    mray.get(second.__ray_call__.remote(refused, lambda c: c.recv(_read_only(), 0)))
    mray.get([first.__ray_call__.remote(send_all, 0), second.__ray_call__.remote(receive_all, 0)])
    (tmp_path / "send").unlink()
    # One more than fit between them.
    ref = first.__ray_call__.remote(send_all, *range(1, 10))
    eventually(lambda: (tmp_path / "send").exists())
    assert mray.get(second.__ray_call__.remote(receive_all, *range(1, 10))) == mray.get(ref) == list(range(1, 10))


def test_who_is_refused_to_send_may_do_it_yet_while_the_other_one_waits(make, tmp_path):
    first, second = make(2)
    ref = first.__ray_call__.remote(send_when_awaited, tmp_path / "recv")
    assert mray.get(second.__ray_call__.remote(receive_all, 0)) == [0]
    mray.get(ref)


def test_who_is_told_a_refusal_of_an_earlier_message_tells_its_own_to_who_waits(make, tmp_path):
    first, second = make(2)
    mray.get(second.__ray_call__.remote(refused, lambda c: c.recv(_read_only(), 0)))
    with pytest.raises(RayChannelError, match="rank 1 .* did not take part, because the call was refused: ValueError.*read-only"):
        mray.get(first.__ray_call__.remote(send_all, *range(9)))
    assert mray.get(second.__ray_call__.remote(receive_all, *range(8))) == list(range(8))
    with pytest.raises(RayChannelError, match="rank 0 .* did not take part, because the call was refused: RayChannelError.*read-only"):
        mray.get(second.__ray_call__.remote(receive_all, 8))
    mray.get(first.__ray_call__.remote(send_all, 8))
    assert mray.get(second.__ray_call__.remote(receive_all, 8)) == [8]


@pytest.mark.parametrize("what", ["allreduce", "recv", "send", "allreduces"])
def test_destroying_wakes_the_own_thread_that_waits(make, what):
    first, second = make(2)
    calls = [first.destroy_soon.remote(what)]
    if what in ENDLESS:
        calls.append(second.call.remote(what))
    with pytest.raises(RayChannelError, match="has been destroyed in this process"):
        mray.get(calls[0])
    for call in calls[1:]:
        with pytest.raises(RayChannelError, match="rank 0 .* destroyed the group"):
            mray.get(call)


def boards(pid: int) -> set[str]:
    """The boards of a group that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {path for line in lines if "-group" in (path := line.split()[-1].removesuffix("(deleted)"))}


def test_a_member_that_dies_while_others_join_is_named(make, tmp_path, eventually):
    first, victim = make(2, joined=False)
    own, pid = mray.get([first.pid.remote(), victim.pid.remote()])
    joining = first.join.remote(3, 0), victim.join.remote(3, 1)
    eventually(lambda: len(boards(own)) == 2)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match=rf"(?s)rank 1 \(actor Member, pid {pid}\) has died.*SIGKILL"):
        mray.get(joining[0])
    with pytest.raises(ActorDiedError):
        mray.get(joining[1])
    # Its leftovers are in no other group's way.
    second = make(1, joined=False)[0]
    mray.get([first.join.remote(2, 0), second.join.remote(2, 1)])
    assert mray.get([first.sum.remote(), second.sum.remote()]) == [2.0, 2.0]


def test_a_known_member_that_dies_before_it_joins_is_named(make, tmp_path, eventually):
    members = make(2, joined=False)
    joining = members[0].join.remote(2, 0, members)
    eventually(lambda: (tmp_path / "join0").exists())
    os.kill(mray.get(members[1].pid.remote()), signal.SIGKILL)
    with pytest.raises(RayChannelError, match="(?s)rank 1 has died before it joined.*SIGKILL"):
        mray.get(joining)


def test_a_restarted_actor_joins_again(make):
    first, second = make(2, max_restarts=1, max_task_retries=1)
    pid = mray.get(second.pid.remote())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match=f"pid {pid}.* has died"):
        mray.get(first.call.remote("barrier"))
    mray.get(first.destroy.remote())
    mray.get([first.join.remote(2, 0), second.join.remote(2, 1)])
    assert mray.get([member.sum.remote() for member in (first, second)]) == [2.0, 2.0]


def test_a_child_that_a_dead_member_leaves_behind_hides_nothing(make, tmp_path, eventually):
    first, victim = make(2)
    mray.get(victim.leave_child.remote())
    pid = mray.get(victim.pid.remote())
    call = first.call.remote("allreduce")
    eventually(lambda: (tmp_path / "allreduce").exists())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match=f"pid {pid}.* has died"):
        mray.get(call)


def test_a_member_that_is_stopped_is_slow_and_not_dead(make, tmp_path, eventually):
    first, second = make(2)
    pid = mray.get(second.pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        call = first.sum.remote()
        _ready, rest = mray.wait([call], timeout=1.0)
        assert rest
    finally:
        os.kill(pid, signal.SIGCONT)
    assert mray.get([call, second.sum.remote()]) == [2.0, 2.0]


def test_a_task_that_dies_is_named(session, tmp_path, eventually):
    @mray.remote(max_retries=0)
    def task(rank: int, folder: str) -> None:
        from mray.util import collective

        collective.init_collective_group(2, rank, "gloo")
        Path(folder, str(rank)).write_text(str(os.getpid()))
        while True:
            collective.allreduce(np.ones(LARGE, np.float32))

    calls = [task.remote(rank, str(tmp_path)) for rank in range(2)]
    eventually(lambda: (tmp_path / "0").exists() and (tmp_path / "1").exists() and (tmp_path / "1").read_text())
    pid = int((tmp_path / "1").read_text())
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(RayChannelError, match=rf"rank 1 \(task task, pid {pid}\) has died"):
        mray.get(calls[0])


def test_the_driver_may_die_in_the_middle(run_text):
    run = run_text(
        """
        import sys
        from pathlib import Path
        import mray, numpy

        @mray.remote(num_cpus=0)
        class Member:
            def work(self, rank, folder):
                from mray.util import collective
                collective.init_collective_group(2, rank, "gloo")
                collective.send(numpy.ones(1 << 20), 1 - rank)
                Path(folder, f"member{rank}").touch()
                while True:
                    collective.allreduce(numpy.ones(1 << 20))

        mray.init(num_cpus=2)
        members = [Member.remote() for _ in range(2)]
        mray.get([member.work.remote(rank, sys.argv[-1]) for rank, member in enumerate(members)])
        """
    )
    run.wait_for("member0")
    run.wait_for("member1")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run.assert_nothing_left()


def test_a_group_leaves_no_name_in_shared_memory(make):
    members = make(3)
    session = current_backend().info()["session"]
    for _again in range(3):
        assert mray.get([member.sum.remote() for member in members]) == [3.0] * 3
        assert not [name for name in os.listdir("/dev/shm") if session in name and "group" in name]
        mray.get([member.destroy.remote() for member in members])
        mray.get([member.join.remote(3, rank) for rank, member in enumerate(members)])
