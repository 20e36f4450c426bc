"""The seams of a process's runtime: each implementation has every member of its contract, to be called alike."""

from __future__ import annotations

import inspect
from types import FunctionType

import pytest

from mray._backends.local.local_doorbells import LocalDoorbells
from mray._backends.local.local_memory import HeapMemory, HeapSegments, HeapStore
from mray._backends.local.local_process import SimulatedProcess
from mray._backends.local.transport import LocalReactor, LocalTransport
from mray._decide.scheduler import events
from mray._decide.scheduler.instructions import AwaitCreation, AwaitPlace, AwaitRest, KillWorker
from mray._ipc.reactor import Reactor
from mray._ipc.waiting_place import WaitingPlace
from mray._objects.store import SegmentStore
from mray._runtime.client.doorbells import Doorbells
from mray._runtime.client.wakeups import Wakeups
from mray._runtime.connections.sockets import Sockets
from mray._runtime.connections.transport import Transport
from mray._runtime.node.timers import timer_of
from mray._runtime.objects.memory import Memory, Segments, SharedMemory, Store
from mray._runtime.objects.owner import OwnSegments
from mray._runtime.processes.process import Process
from mray._runtime.worker.own_process import OwnProcess


def methods(contract: type) -> list[str]:
    return [name for name, member in vars(contract).items() if isinstance(member, FunctionType) and not name.startswith("_")]


def parameters(function: object, *, required: bool = False) -> list[tuple[str, object]]:
    assert callable(function)
    found = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    return [(each.name, each.kind) for each in found if not required or each.default is inspect.Parameter.empty]


ROWS = [
    (Process, OwnProcess, SimulatedProcess),
    (Transport, Sockets, LocalTransport),
    (WaitingPlace, Reactor, LocalReactor),
    (Doorbells, Wakeups, LocalDoorbells),
    (Memory, SharedMemory, HeapMemory),
    (Store, SegmentStore, HeapStore),
    (Segments, OwnSegments, HeapSegments),
]


@pytest.mark.parametrize(
    ("contract", "implementation"), [(contract, each) for contract, *all_of in ROWS for each in all_of], ids=lambda kind: kind.__name__
)
def test_an_implementation_takes_the_calls_of_its_contract(contract: type, implementation: type) -> None:
    assert methods(contract)
    for name in methods(contract):
        if (contract, implementation, name) == (Process, OwnProcess, "set_title"):  # the title's own method
            continue
        taken, wanted = getattr(implementation, name), getattr(contract, name)
        assert [each for each in parameters(taken) if each in parameters(wanted)] == parameters(wanted), name
        assert not set(parameters(taken, required=True)) - set(parameters(wanted)), name


@pytest.mark.parametrize(
    ("instruction", "timer"),
    [
        (AwaitCreation(b"a"), (1.0, events.WatchExpired(b"a"))),
        (AwaitRest(b"a", 2), (0.5, events.ActorRested(b"a", 2))),
        (AwaitPlace(7), (0.2, events.PlaceExpired(7))),
        (KillWorker("w"), None),
    ],
)
def test_the_node_reports_later_what_an_instruction_awaits(instruction: tuple[object, ...], timer: object) -> None:
    assert timer_of(instruction, retry_delay=0.5) == timer
