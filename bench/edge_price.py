"""CPU time of one message of a GPU edge, on a driver that does nothing: what the edge's own code takes to write, to read and to let go.

    python bench/edge_price.py [--messages N] [--batches N] [--functions] [--only WORD ...]

The driver is `idle_cuda.c`, compiled by ``cc`` at each start, once for the writer and once for the reader; both ends live in this process.
It needs no GPU, and torch for the CPU does: tensors of the host stand for those of a GPU, with as many calls of torch's as those take. So
times show what Python, ctypes and torch's Python take; of the driver's own there is nothing in them.

A price is that of one operation in microseconds of the thread's CPU time, the median of all batches, without that of the clock itself:

    write      try_write(tensor)               read       try_read() -> tensor
    release    the last view of it dies        together   all three
    others     what other threads of the process take meanwhile, such as the one that looks for faults

*Ahead* is a device that has done what was queued before anybody asks; *behind* one that comes to it when the message is over, so that the
reader's stream has to wait. Beside each are the driver's calls of a message, by name, and the Python functions that it enters (by
`sys.setprofile`, in messages that are not timed), without this program's own where those stand for a function of C. `--functions` lists
these. Without the doorbell, which belongs to the session.

A pair of ends is made by a function from `Case`, the segment, the layout and the platforms of both sides: `EDGES` names them all, and each
is measured in every case that it names.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import multiprocessing.reduction
import os
import pickle
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy
import torch
import torch.multiprocessing

from mray._api.dag_output import output, with_outputs
from mray._channel.base import NOTHING
from mray._channel.shm import ReaderEnd, WriterEnd
from mray._device import nvml
from mray._device.cuda import CudaPlatform
from mray._device.cuda_tensors import CudaTensors, ForeignMemory
from mray._device.device_faults import listen
from mray._device.libcuda import LibCuda, missing_functions
from mray._gpu.cuda_ipc import CudaIpcReader, CudaIpcWriter
from mray._ipc.layout import RingLayout
from mray._ipc.ring import RingWriter
from mray._ipc.segment import Segment

SOURCE = Path(__file__).with_name("idle_cuda.c")
PARTS = ("write", "read", "release")
LAYOUT = RingLayout(entries=16, entry_bytes=1024, readers=1, slots=4, leases=64)
#: Messages before the first that counts: pools, timelines and mappings are there then.
WARM_UP = 200
#: Messages in which calls and functions are counted.
COUNTED = 64


@dataclass(frozen=True)
class Case:
    """A tensor, and the GPUs between which it is sent."""

    name: str
    #: Bytes of the tensor.
    size: int = 40
    #: The reader's; the writer's is 0.
    gpu: int = 0
    pinned: bool = False
    is_late: bool = False


CASES = (
    Case("one GPU, ahead"),
    Case("one GPU, behind", is_late=True),
    Case("two GPUs with peer access, 32 MiB", 32 << 20, gpu=1, is_late=True),
    Case("two GPUs through pinned memory, 32 MiB", 32 << 20, gpu=1, pinned=True, is_late=True),
)


# ------------------------------------------------------------------------------------ what is pretended
class HostTensors(CudaTensors):
    """Tensors of the host in place of a GPU's. A method here asks torch as often as the one that it stands for."""

    def where(self, _index: int) -> Any:
        return torch.device("cpu")

    def is_on_device(self, tensor: Any) -> bool:
        return not tensor.is_cuda

    def device_of(self, tensor: Any) -> int:
        return int(tensor.get_device()) + 1

    def use_on(self, tensor: Any, stream: int) -> None:
        hash(self._stream(tensor.get_device() + 1, stream))

    def _stream(self, index: int, stream: int) -> Any:
        return self._streams.get((index, stream)) or self._streams.setdefault((index, stream), object())


class _Array:
    def __init__(self, memory: ForeignMemory) -> None:
        self.memory = memory
        self.__array_interface__ = memory.__cuda_array_interface__


def _as_tensor(memory: ForeignMemory, device: Any) -> Any:
    """For `torch.as_tensor`, which takes memory of a GPU where there is one."""
    return torch.from_numpy(numpy.asarray(_Array(memory)))


def pretend_cuda() -> None:
    """Have torch say, by functions of C, that it is in use, works on GPU 0 and the default stream, and captures nothing."""
    torch._C._cuda_getDevice = itertools.repeat(0).__next__
    torch._C._cuda_getCurrentRawStream = {0: 0}.__getitem__
    torch._C._cuda_isCurrentStreamCapturing = bool
    torch.cuda._is_in_bad_fork = bool
    torch.cuda._initialized = True
    torch.as_tensor = _as_tensor
    nvml.can_access = lambda _uuid, _other: True


class Side:
    """One process, as a driver sees it: that driver, and mray's platform on that."""

    def __init__(self, folder: str, name: str, gpu: int) -> None:
        path = f"{folder}/lib{name}.so"
        options = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", f"-DGPU={gpu}")
        subprocess.run(["cc", *options, "-o", path, str(SOURCE)], check=True)
        self.driver = ctypes.CDLL(path)
        missing = missing_functions(self.driver)
        if missing:
            sys.exit(f"{SOURCE.name} lacks {', '.join(missing)}, which mray calls")
        cuda = LibCuda(self.driver, ctypes.PyDLL(path))
        self.platform = CudaPlatform(cuda, HostTensors())
        context = ctypes.c_void_p()
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        cuda.cuCtxSetCurrent(context)  # as torch leaves it
        self._counters = {name: ctypes.c_long.in_dll(self.driver, f"calls_{name}") for name in vars(cuda)}

    def calls(self) -> Counter[str]:
        """How often each function was called so far."""
        return Counter({name: counter.value for name, counter in self._counters.items()})


class SilentDoorbell:
    def ring(self) -> None:
        """Nobody sleeps."""


# ------------------------------------------------------------------------------------ edges
#: Makes the writer and the reader of an edge.
MakeEdge = Callable[[Case, Segment, Side, Side], tuple[Any, Any]]


def cuda_ipc(case: Case, segment: Segment, writing: Side, reading: Side) -> tuple[Any, Any]:
    def fail(error: BaseException) -> NoReturn:
        raise error

    prefix = f"{segment.name}-"
    writer = CudaIpcWriter(WriterEnd(segment, 0, LAYOUT, prefix, [SilentDoorbell()]), platform=writing.platform, pinned=case.pinned)
    return writer, CudaIpcReader(ReaderEnd(segment, 0, LAYOUT, 0, prefix, SilentDoorbell(), fail), platform=reading.platform)


class Filled:
    """A writer whose values are made where its reader looks for them, by a method that does nothing else."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        outputs = writer.outputs()
        assert outputs is not None
        self._make = with_outputs(lambda: output(self._shape, torch.uint8), outputs)

    def try_write(self, tensor: Any) -> bool:
        self._shape = tensor.shape
        return bool(self._writer.try_write(self._make()))

    def close(self) -> None:
        self._writer.close()


def filled(case: Case, segment: Segment, writing: Side, reading: Side) -> tuple[Any, Any]:
    writer, reader = cuda_ipc(case, segment, writing, reading)
    return Filled(writer), reader


EDGES: dict[str, tuple[MakeEdge, tuple[Case, ...]]] = {
    "CUDA IPC": (cuda_ipc, CASES),
    "CUDA IPC, results made by mray.dag.output": (filled, CASES[:3]),
}


class Edge:
    """Both ends, and the tensor that is sent again and again."""

    def __init__(self, make: MakeEdge, case: Case, segment: Segment, sides: tuple[Side, Side]) -> None:
        self.sides = sides
        self.writer, self.reader = make(case, segment, *sides)
        self.tensor = torch.zeros(case.size, dtype=torch.uint8)
        self._read: list[Any] = []

    def write(self) -> None:
        if not self.writer.try_write(self.tensor):
            raise RuntimeError("the edge has no room for one message")

    def read(self) -> None:
        self._read.append(self.reader.try_read())

    def release(self) -> None:
        self._read.clear()

    def finish(self) -> None:
        """The devices come to what is queued."""
        for side in self.sides:
            side.driver.idle_cuda_finish()

    def message(self) -> None:
        self.write()
        self.read()
        assert self._read[0] is not NOTHING and self._read[0].shape == self.tensor.shape
        self.release()
        self.finish()

    def close(self) -> None:
        self.finish()
        self.reader.close()
        self.writer.close()
        self.finish()


@contextmanager
def edge_of(make: MakeEdge, case: Case) -> Iterator[Edge]:
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        sides = Side(folder, "writing", 0), Side(folder, "reading", case.gpu)
        segment = Segment.create(f"mray-price-{os.getpid()}", LAYOUT.extent)
        opened.callback(segment.close)
        opened.callback(segment.unlink)
        RingWriter.format(segment, 0, LAYOUT)
        opened.callback(listen(print))  # as every worker does: what is promised to other processes is watched then
        edge = Edge(make, case, segment, sides)
        opened.callback(edge.close)
        for side in sides:
            ctypes.c_int.in_dll(side.driver, "idle_cuda_is_late").value = case.is_late
        for _ in range(WARM_UP):
            edge.message()
        yield edge


# ------------------------------------------------------------------------------------ measuring
Operation = Callable[[], object]


def prices(operations: tuple[Operation, Operation, Operation], after: Operation, messages: int, batches: int) -> list[float]:
    """Nanoseconds of the thread's CPU time of each operation, and of all other threads in a message; `after` each is part of none."""
    clock, of_process = time.thread_time_ns, time.process_time_ns
    first, second, third = operations
    samples: list[list[float]] = [[], [], [], []]
    for _ in range(batches):
        sums = [0, 0, 0, 0]
        others = of_process() - clock()
        for _ in range(messages):
            before = clock()
            begin = clock()
            first()
            middle = clock()
            second()
            end = clock()
            third()
            last = clock()
            after()
            for place, spent in enumerate((middle - begin, end - middle, last - end, begin - before)):
                sums[place] += spent
        *parts, price = sums
        for each, spent in zip(samples, (*(part - price for part in parts), of_process() - clock() - others), strict=True):
            each.append(spent / messages)
    return [statistics.median(each) for each in samples]


def driver_calls(edge: Edge) -> list[Counter[str]]:
    """This thread's calls of the driver in `COUNTED` messages: of each part."""
    found: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for _ in range(COUNTED):
        for part, operation in zip(found, (edge.write, edge.read, edge.release), strict=True):
            before = edge.sides[0].calls() + edge.sides[1].calls()
            operation()
            part.update(edge.sides[0].calls() + edge.sides[1].calls() - before)
        edge.finish()
    return found


def functions_entered(edge: Edge) -> list[Counter[str]]:
    """The Python functions that `COUNTED` messages enter: of each part."""
    found: list[Counter[str]] = [Counter(), Counter(), Counter()]
    part = found[0]
    root = str(Path(__file__).resolve().parents[1]) + "/"

    def note(frame: Any, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call":
            name = getattr(code, "co_qualname", code.co_name)  # from Python 3.11 on with its class
            if code.co_filename != __file__ or name.startswith(f"{HostTensors.__name__}."):
                part[f"{code.co_filename.removeprefix(root)}:{code.co_firstlineno} {name}"] += 1

    for _ in range(COUNTED):
        for part, operation in zip(found, (edge.write, edge.read, edge.release), strict=True):  # noqa: B007
            sys.setprofile(note)
            try:
                operation()
            finally:
                sys.setprofile(None)
        edge.finish()
    return found


def print_row(name: str, spent: list[float], more: str = "") -> None:
    *parts, others = spent
    shown = "".join(f"{each / 1e3:9.1f}" for each in (*parts, sum(parts), others))
    print(f"  {name:42}{shown}{more}", flush=True)


def report(make: MakeEdge, case: Case, options: argparse.Namespace) -> None:
    with edge_of(make, case) as edge:
        spent = prices((edge.write, edge.read, edge.release), edge.finish, options.messages, options.batches)
        calls, functions = driver_calls(edge), functions_entered(edge)
    counts = [sum(each, Counter()).total() / COUNTED for each in (calls, functions)]
    print_row(case.name, spent, f"{counts[0]:9.1f}{counts[1]:11.1f}")
    for part, counted, entered in zip(PARTS, calls, functions, strict=True):
        names = ", ".join(f"{count / COUNTED:g} {name}" for name, count in sorted(counted.items()))
        print(f"      {part:9}{entered.total() / COUNTED:5.1f} functions; {names or 'no call'}")
        if options.functions:
            for name, count in entered.most_common():
                print(f"          {count / COUNTED:6.2f}  {name}")


# ------------------------------------------------------------------------------------ the peer
def report_peer(options: argparse.Namespace) -> None:
    """A tensor as queues of torch.multiprocessing send it: reduced and pickled, unpickled and rebuilt, dropped.

    The tensor is in shared memory from the first message on. By file_descriptor another thread of the sender answers with the descriptor.
    """
    print("torch.multiprocessing")
    if torch.version.cuda is None:
        print(f"  tensors of a GPU: not run, torch {torch.__version__} is built without CUDA")
    else:
        print("  tensors of a GPU: not run, torch's own CUDA runtime needs a device")
    tensor = torch.zeros(10, dtype=torch.int32)
    data, got = [], []

    def write() -> None:
        data.append(bytes(multiprocessing.reduction.ForkingPickler.dumps(tensor)))

    def read() -> None:
        got.append(pickle.loads(data.pop()))

    for strategy in sorted(torch.multiprocessing.get_all_sharing_strategies()):
        torch.multiprocessing.set_sharing_strategy(strategy)
        tensor = torch.zeros(10, dtype=torch.int32)
        for _ in range(WARM_UP):
            write()
            read()
            got.clear()
        spent = prices((write, read, got.clear), lambda: None, options.messages, options.batches)
        print_row(f"tensor of the host, 40 B, by {strategy}", spent)


def main() -> int:
    parser = argparse.ArgumentParser(description="CPU time of a message of a GPU edge, on a driver that does nothing.")
    parser.add_argument("--messages", type=int, default=200, help="of a batch")
    parser.add_argument("--batches", type=int, default=15)
    parser.add_argument("--functions", action="store_true", help="list the Python functions that a message enters")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="cases whose name has one of these words")
    options = parser.parse_args()
    if shutil.which("cc") is None:
        sys.exit(f"{SOURCE.name} needs a compiler of C (cc)")
    as_tensor = torch.as_tensor
    pretend_cuda()
    print(f"Python {sys.version.split()[0]}, torch {torch.__version__}; µs of CPU time of one message")
    print(f"  {'':42}" + "".join(f"{part:>9}" for part in (*PARTS, "together", "others", "calls")) + f"{'functions':>11}")
    for name, (make, cases) in EDGES.items():
        print(name)
        for case in cases:
            if not options.only or any(word in case.name for word in options.only):
                report(make, case, options)
    torch.as_tensor = as_tensor
    report_peer(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
