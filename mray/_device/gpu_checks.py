"""The checks of GPUs for `mray doctor`. Nothing is changed.

No GPU is initialised in this process: several GPUs try each other in a separate one (`mray._device.peer_check`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mray._common import settings
from mray._common.accelerator_kinds import GpuId
from mray._common.finding import BAD, NOTE, OK, WARNING, Finding
from mray._common.kept import os
from mray._device import libcuda, libnccl, mps_control, nccl_library
from mray._device.peer_check import NO_ACCESS, RIGHT, WRONG, check_peers
from mray._device.platform import platform
from mray._device.topology import read_topology
from mray._inside.topology import affinity, discovery

_LINKS = {affinity.LINKED: "NVLink", affinity.SWITCH: "switch", affinity.ROOT: "root", affinity.NODE: "node", affinity.FAR: "far"}
_GARBLED = (
    "switch off the IOMMU or the ACS of the bridges, or set MRAY_PEER_ACCESS=0, which sends edges between GPUs through the host; until "
    "then results are wrong"
)


def examine_gpus(sessions: Iterable[str]) -> Iterator[Finding]:
    """All of them; `sessions`: the directories of live sessions."""
    yield from devices()
    yield from topology()
    yield from peers()
    yield from mps(sessions)


def devices() -> Iterator[Finding]:
    """GPUs: all, those visible to this process, and the versions of driver, CUDA and NCCL."""
    there, visible = discovery.machine_gpus(), discovery.visible_ids()
    if not there:
        yield Finding("gpus", NOTE, "none on this machine (or none given to this container)")
        return
    for gpu in there:
        yield Finding(f"gpu {gpu.index}", OK, f"{gpu.model or 'unknown model'} {gpu.uuid}".rstrip())
    if visible is not None:
        yield Finding("visible gpus", OK if visible else WARNING, f"CUDA_VISIBLE_DEVICES={','.join(map(str, visible))}")
    cuda, driver = platform(), libcuda.installed_driver()
    version = "no driver" if driver is None else f"driver for CUDA {driver.version or '?'}"
    if cuda is not None and cuda.devices:
        yield Finding("cuda", OK, f"{version}; {len(cuda.devices)} devices seen")
    elif driver is not None and driver.missing:
        yield Finding("cuda", BAD, f"{version}; it has no {', '.join(driver.missing)}", "update the driver")
    else:
        yield Finding("cuda", BAD, f"{version}; mray sees no device", f"is the driver's {libcuda.LIBRARY} here, and torch?")
    number = nccl_library.nccl_version()
    if number:
        yield Finding("nccl", OK, libnccl.version_name(number))
    else:
        yield Finding("nccl", NOTE, "not usable from here", libnccl.INSTALL)


def topology() -> Iterator[Finding]:
    """How the GPUs are connected, as a table."""
    pretended = settings.NULL_DEVICES.get()
    numbers: list[GpuId] = list(range(pretended.gpus) if pretended else range(len(discovery.machine_gpus())))
    if len(numbers) < 2:
        return
    found = read_topology(numbers, sorted(os.sched_getaffinity(0)))
    width = max(map(len, _LINKS.values())) + 1
    yield Finding("gpu topology", OK, "".join(f"{number:>{width}}" for number in numbers))
    for one in numbers:
        cells = ["." if one == other else _LINKS[found.apart(one, other)] for other in numbers]
        near = _ranges(found.near.get(one, ()))
        yield Finding(f"  gpu {one}", OK, "".join(f"{cell:>{width}}" for cell in cells) + (f"   cpus {near}" if near else ""))


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def peers() -> Iterator[Finding]:
    """Whether the GPUs visible to this process read each other's memory correctly."""
    found = platform()
    if found is None or len(found.devices) < 2:
        return
    if not settings.has_peer_access():
        yield Finding("peer access", NOTE, "switched off (MRAY_PEER_ACCESS=0 or NCCL_P2P_DISABLE=1): edges go through NCCL or the host")
        return
    outcomes, ended = check_peers()
    index = {device.uuid: device.index for device in found.devices}
    count = 0
    for reader, owner, outcome, text in outcomes:
        subject = f"gpu {index.get(reader, reader)} from gpu {index.get(owner, owner)}"
        count += outcome == RIGHT
        if outcome == NO_ACCESS:
            yield Finding(subject, NOTE, "does not reach its memory: edges go through NCCL or the host")
        elif outcome == WRONG:
            yield Finding(subject, BAD, "reads wrong contents from its memory", _GARBLED)
        elif outcome != RIGHT:
            yield Finding(subject, WARNING, f"could not read its memory: {text}", "try MRAY_PEER_ACCESS=0")
    if not ended:
        text = "the process that tries the GPUs ended early, or hung"
        yield Finding("peer access", BAD, text, "try MRAY_PEER_ACCESS=0, and check them with nvidia-smi")
    elif count:
        yield Finding(
            "peer access", OK, f"{count} of {len(outcomes)} directions between GPUs were tried with a pattern and read it correctly"
        )


def mps(sessions: Iterable[str]) -> Iterator[Finding]:
    """Whether actors can share a GPU by MPS, and which daemons run: CUDA's default one and those of sessions, by directory."""
    program = mps_control.find_program()
    if not program and not discovery.machine_gpus():
        return
    if program:
        yield Finding("mps", OK, program)
    else:
        yield Finding("mps", NOTE, f"{mps_control.PROGRAM} is not on PATH; for actors that share a GPU", mps_control.INSTALL)
    pipe = mps_control.pipe_directory()
    places = [(pipe, f"at {pipe}, for each process that looks there")]
    for directory in sessions:
        daemons = os.path.join(directory, mps_control.FOLDER)
        for number in sorted(os.listdir(daemons) if os.path.isdir(daemons) else ()):
            folder = os.path.join(daemons, number, "pipe")
            places.append((folder, f"of the session {os.path.basename(directory)}, for parts of its GPU {number}"))
    for folder, whose in places:
        if not mps_control.has_daemon(folder):
            continue
        servers = mps_control.ask(folder, ("get_server_list",))
        if servers is None:
            yield Finding("mps daemon", WARNING, f"none answers {whose}", "processes that begin to use CUDA work without it")
        else:
            count = len(servers.split())
            yield Finding("mps daemon", OK, f"{whose}; {count} server{'' if count == 1 else 's'}")
