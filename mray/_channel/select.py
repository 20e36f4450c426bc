"""Which mechanism carries an edge. Pure.

An *endpoint* is the driver of a graph or one of its actors. Values that stay inside an endpoint need no channel. Between two endpoints
the choice depends on their `Site`s and on the user's hint:

    =====================  ========================  ========================  ==================
    asked for              one GPU, or peer access   GPUs without peer access  an end without GPU
    =====================  ========================  ========================  ==================
    nothing                CUDA_IPC                  PINNED                    SHM
    ``"auto"``             CUDA_IPC                  NCCL, else PINNED         SHM
    ``"accelerator"``      CUDA_IPC                  NCCL, else PINNED         refused
    ``"cuda_ipc"``         CUDA_IPC                  refused                   refused
    ``"nccl"``             NCCL, else refused        NCCL, else refused        refused
    ``"shm"``, ``"cpu"``   SHM                       SHM                       SHM
    =====================  ========================  ========================  ==================

* An edge without device tensors costs the same by SHM, CUDA_IPC and PINNED, which are the same ring, so those are chosen without a hint.
  NCCL is not, since its writer waits for its readers, which takes the pipeline out of a graph.
* An actor with ``num_gpus`` uses the GPUs that it sees; one without takes part only when asked to. The driver takes part where the other
  end has GPUs of its own and it sees one itself, as with Ray. Checking creates no CUDA context.
* A process that sees several GPUs may send from any of them. Without a hint, an edge goes by CUDA_IPC only if the reader reaches all of
  them; with one, reaching one is enough, and a tensor on another is an error when it arrives.
* Where a reader has failed to open memory of the writer's process (`Site.obstacles`), their GPUs count as without peer access; where it
  has failed to open timelines, PINNED becomes SHM, since nothing would order its copies.
* NCCL has one rank per actor, on its first GPU. Two ranks share a GPU only where both libraries allow it. The driver has no rank.
"""

from __future__ import annotations

from collections.abc import Iterable

from mray._channel.site import Site

LOCAL = "local"
SHM = "shm"
#: The same ring; tensors stay in device memory that both processes map.
CUDA_IPC = "cuda_ipc"
#: The same ring; device tensors pass through pinned host memory, copied by the devices.
PINNED = "pinned"
#: Tensors through the user's communicator, everything else through a ring in shared memory.
COMMUNICATOR = "communicator"
#: The same through an NCCL communicator.
NCCL = "nccl"
#: Transports whose writer blocks until its readers read.
BLOCKING = frozenset({COMMUNICATOR, NCCL})
DEVICE = frozenset({CUDA_IPC, PINNED})
#: Transports that leave tensors on devices.
ON_DEVICES = DEVICE | {NCCL}

AUTO, ACCELERATOR = "auto", "accelerator"
_HOST = frozenset({SHM, "cpu"})
#: Transports that need a device at both ends.
DEMANDS_DEVICE = frozenset({ACCELERATOR, CUDA_IPC, NCCL})

#: Ray's text for an edge that cannot end in the driver.
NO_DRIVER = "Driver cannot participate in the communicator group."
NO_INPUT = "DAG inputs cannot be transferred via accelerator because the driver cannot participate in the communicator group"


def select(writer: Site, reader: Site, asked: str = AUTO, *, hinted: bool = False) -> str:
    """The transport between two endpoints, never `LOCAL` or `COMMUNICATOR`; `hinted`: the user has declared tensors.

    Raises ValueError when the requested transport cannot work.
    """
    if asked in DEMANDS_DEVICE:
        _demand_devices(writer, reader, asked)
        if asked == CUDA_IPC:
            return _cuda_ipc(writer, reader)
        if asked == NCCL:
            return _nccl(writer, reader)
    elif asked in _HOST:
        return SHM
    elif asked != AUTO:
        raise ValueError(f"no rule for transport={asked!r}")
    elif not _takes_part(writer, reader):
        return SHM
    if writer.pid == reader.pid:
        return SHM
    if reader.reaches_all(writer):
        return CUDA_IPC
    if hinted and why_no_nccl([writer, reader]) is None:
        return NCCL
    if writer.pid in reader.obstacles and reader.obstacles[writer.pid].of_timelines:
        return SHM
    return CUDA_IPC if asked == ACCELERATOR and reader.reach(writer) else PINNED


def describe(transport: str) -> str:
    """How a tensor travels, for messages."""
    return _NAMES[transport]


def remote_readers(writer: str, readers: Iterable[str]) -> tuple[str, ...]:
    """The distinct readers that a channel must reach, in order of appearance."""
    return tuple(dict.fromkeys(reader for reader in readers if reader != writer))


def why_no_nccl(members: Iterable[Site]) -> str | None:
    """Why these cannot be ranks of one NCCL communicator, as a clause; or None."""
    sites = list(members)
    ranks: dict[str, Site] = {}
    for site in sites:
        if site.is_driver:
            return "the driver has no rank there"
        if not site.gpus:
            return f"{site.name} sees no GPU"
        if not site.nccl:
            return f"{site.name} has no NCCL: its process finds no libnccl.so.2, or an old one"
        if site.nccl != sites[0].nccl:
            return f"{sites[0].name} has NCCL {_version(sites[0].nccl)} and {site.name} has {_version(site.nccl)}"
        other = ranks.setdefault(site.gpus[0].uuid, site)
        if other is not site and not (other.shares_gpus and site.shares_gpus):
            return (
                f'{other.name} and {site.name} share {site.gpus[0]}, and NCCL {_version(site.nccl)} has one rank on a GPU ("Duplicate GPU '
                'detected"); 2.30 and newer have more, with NCCL_MULTI_RANK_GPU_ENABLE=1'
            )
    return None


# ---------------------------------------------------------------------------------------------- by what was asked
def _takes_part(writer: Site, reader: Site) -> bool:
    return (
        bool(writer.gpus and reader.gpus)
        and writer.platform == reader.platform
        and (writer.owns or reader.owns)
        and all(site.owns or site.is_driver for site in (writer, reader))
    )


def _demand_devices(writer: Site, reader: Site, asked: str) -> None:
    if writer.is_driver and (asked == NCCL or not writer.gpus):
        raise ValueError(NO_INPUT + _says(writer))
    if reader.is_driver and (asked == NCCL or not reader.gpus):
        raise ValueError(NO_DRIVER + _says(reader))
    for site in (writer, reader):
        if not site.gpus:
            raise ValueError(
                f"Actor {site.name} returns a tensor with type hint TorchTensor(transport={asked!r}) but actor does not have an "
                f"accelerator assigned by Ray: it sees no GPU, so tensors cannot stay in device memory from {writer.name} to "
                f'{reader.name}. Give it num_gpus. On the CPU use transport="auto", or a Communicator.'
            )
    if writer.platform != reader.platform:
        raise ValueError(
            f"{_subject(writer, reader, asked)}: {writer.name} uses devices of {writer.platform!r} and {reader.name} of "
            f'{reader.platform!r}. transport="auto" would work, through host memory.'
        )


def _says(driver: Site) -> str:
    return ' It has GPUs: transport="auto" would work.' if driver.gpus else ""


def _cuda_ipc(writer: Site, reader: Site) -> str:
    if writer.pid == reader.pid:
        raise ValueError(
            f"{_subject(writer, reader, CUDA_IPC)}: both are the process {writer.pid}, and memory is opened by other processes only. "
            'transport="auto" would work.'
        )
    if not reader.reach(writer):
        best = select(writer, reader, ACCELERATOR, hinted=True)
        obstacle = reader.obstacles.get(writer.pid)
        why = f"{_gpus(reader)} of {reader.name} has no peer access to {_gpus(writer)} of {writer.name}"
        if obstacle is not None:
            why = f"{reader.name} (pid {reader.pid}) cannot open what {writer.name} (pid {writer.pid}) exports: {obstacle.reason}"
        raise ValueError(f'{_subject(writer, reader, CUDA_IPC)}: {why}. transport="auto" would work: it goes {_NAMES[best]}.')
    return CUDA_IPC


def _nccl(writer: Site, reader: Site) -> str:
    why = why_no_nccl([writer, reader])
    if why is not None:
        best = select(writer, reader, ACCELERATOR, hinted=True)
        raise ValueError(f'{_subject(writer, reader, NCCL)}: {why}. transport="auto" would work: it goes {_NAMES[best]}.')
    return NCCL


_NAMES = {
    SHM: "through host memory",
    CUDA_IPC: "by CUDA IPC",
    PINNED: "through pinned host memory",
    NCCL: "by NCCL",
}


def _subject(writer: Site, reader: Site, asked: str) -> str:
    return f"The edge from {writer.name}, on {_gpus(writer)}, to {reader.name}, on {_gpus(reader)}, cannot have transport={asked!r}"


def _gpus(site: Site) -> str:
    return " and ".join(map(str, site.gpus[:4])) + (f" and {len(site.gpus) - 4} more" if len(site.gpus) > 4 else "")


def _version(code: int) -> str:
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
