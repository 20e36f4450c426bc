"""Resources of the machine: CPUs, memory, GPUs, address. Loads no GPU library and opens no device.

CPUs and memory respect the affinity mask and the limits of the control group (version 1 and 2); GPUs respect the user's
CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

from collections.abc import Mapping

from mray._common.accelerator_kinds import GpuId
from mray._common.kept import io, os, socket

ORDER = "CUDA_DEVICE_ORDER"

_NVIDIA = "/proc/driver/nvidia/gpus"
_CGROUP = "/sys/fs/cgroup"
_MEMBERSHIP = "/proc/self/cgroup"
#: Limits above this mean "no limit" in version 1.
_UNLIMITED = 1 << 60
#: Control group version -> files; the first exists in each group with such limits.
_MEMORY_LIMITS = {1: ("memory.limit_in_bytes",), 2: ("memory.max", "memory.high")}

LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: External addresses whose route the kernel is asked for. Nothing is sent there.
_OUTSIDE = ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:4860:4860::8888"))


def node_address() -> str:
    """The address of this machine on the route out; loopback without a route."""
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((outside, 53))
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK[0]


def reachable(host: str | None) -> str:
    """The session's address: loopback names and None mean `node_address`."""
    return node_address() if host is None or host in LOOPBACK else host


def is_of_this_machine(host: str) -> bool:
    """Whether a socket can be bound to this name or address."""
    if host in LOOPBACK or host == socket.gethostname():
        return True
    try:
        ((family, kind, _protocol, _name, address), *_others) = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
        with socket.socket(family, kind) as sock:
            sock.bind(address)
    except (OSError, UnicodeError, ValueError):
        return False
    return True


def _read(path: str) -> str:
    try:
        with io.open(path, encoding="ascii", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _cgroup_paths(controller: str, membership: str = _MEMBERSHIP, mount: str = _CGROUP) -> list[str]:
    """Directories of a process's control group and of its ancestors, for version 2 (controller "") or 1.

    `membership` is the file that lists the process's groups.
    """
    own = "/"
    for line in _read(membership).splitlines():
        number, names, path = line.split(":", 2)
        if (controller == "" and number == "0") or (controller and controller in names.split(",")):
            own = path
    root = os.path.join(mount, controller) if controller else mount
    paths = [root]
    for part in own.strip("/").split("/"):
        if part and part != "..":
            paths.append(os.path.join(paths[-1], part))
    return paths


def _cgroup_cpus() -> float | None:
    limits = []
    for path in _cgroup_paths(""):
        quota, _space, period = _read(os.path.join(path, "cpu.max")).partition(" ")
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    for path in _cgroup_paths("cpu"):
        quota, period = _read(os.path.join(path, "cpu.cfs_quota_us")), _read(os.path.join(path, "cpu.cfs_period_us"))
        if quota.isdigit() and period.isdigit():
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def cpu_count() -> int:
    """Usable CPUs, at least one."""
    mask = len(os.sched_getaffinity(0))
    limit = _cgroup_cpus()
    return mask if limit is None else max(1, min(mask, int(limit)))


def memory_bytes() -> int:
    limits = [int(line.split()[1]) * 1024 for line in _read("/proc/meminfo").splitlines() if line.startswith("MemTotal:")]
    limits += [limit for limit in (memory_limit(*group) for group in memory_groups()) if limit is not None]
    return min(limits, default=1 << 30)


def memory_groups(membership: str = _MEMBERSHIP, mount: str = _CGROUP) -> list[tuple[int, str]]:
    """(version, directory) of the visible control groups that a process's memory counts towards; `membership` is a file like
    ``/proc/<pid>/cgroup``.
    """
    there = [(2, path) for path in _cgroup_paths("", membership, mount)]
    there += [(1, path) for path in _cgroup_paths("memory", membership, mount)]
    return [(version, path) for version, path in there if _read(os.path.join(path, _MEMORY_LIMITS[version][0]))]


def memory_limit(version: int, directory: str) -> int | None:
    """Bytes that a control group's processes may use together; None without a limit.

    The lowest of its limits, since above ``memory.high`` the kernel throttles; in version 1 also of its ancestors', which a container
    may not see.
    """
    words = [_read(os.path.join(directory, name)) for name in _MEMORY_LIMITS[version]]
    if version == 1:
        stat = _read(os.path.join(directory, "memory.stat")).splitlines()
        words += [line.split()[1] for line in stat if line.startswith("hierarchical_memory_limit ")]
    return min((int(word) for word in words if word.isdigit() and int(word) < _UNLIMITED), default=None)


def lies_in_memory(path: str, mounts: str = "/proc/self/mounts") -> bool:
    """Whether the file system there is a tmpfs."""
    path = os.path.realpath(path) + "/"
    longest, kind = "", ""
    for line in _read(mounts).splitlines():
        _device, point, kind_there = line.split(" ")[:3]
        place = point.replace("\\040", " ").rstrip("/") + "/"
        if path.startswith(place) and len(place) >= len(longest):  # a later mount hides an earlier one at the same path
            longest, kind = place, kind_there
    return kind in ("tmpfs", "ramfs")


class Gpu:
    """`uuid` ("GPU-..."), `model` and PCI `address` where known, else ""."""

    __slots__ = ("address", "index", "model", "uuid")

    def __init__(self, index: int, uuid: str, model: str, address: str = "") -> None:
        self.index = index
        self.uuid = uuid
        self.model = model
        self.address = address


def machine_gpus(root: str = _NVIDIA, devices: str = "/dev") -> list[Gpu]:
    """Every NVIDIA GPU, by bus address."""
    gpus: list[Gpu] = []
    try:
        addresses = sorted(os.listdir(root))
    except OSError:
        addresses = []
    for address in addresses:
        info = {}
        for line in _read(os.path.join(root, address, "information")).splitlines():
            name, _colon, value = line.partition(":")
            info[name.strip()] = value.strip()
        minor = info.get("Device Minor", "")
        if minor and not os.path.exists(os.path.join(devices, "nvidia" + minor)):
            continue  # not available in this container
        gpus.append(Gpu(len(gpus), info.get("GPU UUID", ""), info.get("Model", ""), address))
    if gpus:
        return gpus
    try:
        names = os.listdir(devices)
    except OSError:
        return []
    minors = sorted(int(name[6:]) for name in names if name.startswith("nvidia") and name[6:].isdigit())
    return [Gpu(index, "", "") for index, _minor in enumerate(minors)]


def visible_ids(environment: Mapping[str, str] | None = None) -> list[GpuId] | None:
    """CUDA_VISIBLE_DEVICES, ints for indices; None: not set."""
    mask = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return None
    ids: list[GpuId] = []
    for word in mask.split(","):
        word = word.strip()
        # CUDA stops reading at the first invalid id.
        if word in ("", "-1", "NoDevFiles"):
            break
        ids.append(int(word) if word.isdigit() else word)
    return ids


def with_order(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a session's processes, in which CUDA orders GPUs by bus address, as `machine_gpus` does. Unchanged where the user
    has set an order, or indices in CUDA's own.
    """
    order = {} if "CUDA_VISIBLE_DEVICES" in environment else {ORDER: "PCI_BUS_ID"}
    return {**order, **environment}


def gpu_ids(asked: float | None, environment: Mapping[str, str], gpus: list[Gpu]) -> list[GpuId]:
    """The ids that a session grants; `asked` is the user's ``num_gpus``, None takes all.

    Raises ValueError for more than CUDA_VISIBLE_DEVICES lists; more than the machine has are granted, so that programs can be tried
    without GPUs.
    """
    visible = visible_ids(environment)
    if asked is None:
        if visible is None:
            return [gpu.index for gpu in gpus]
        return [name for name in visible if not isinstance(name, int) or name < len(gpus)] if gpus else []
    count = int(asked)
    if visible is None:
        return list(range(count))
    if count > len(visible):
        listed = [str(name) for name in visible]
        raise ValueError(f"Attempting to start raylet with {count} GPUs, but CUDA_VISIBLE_DEVICES contains {listed}.")
    return visible[:count]


def accelerator_type(model: str) -> str | None:
    """``H200`` of "NVIDIA H200", ``V100`` of "Tesla V100-SXM2-16GB"; None for other models."""
    words = model.split()
    if len(words) < 2:
        return None
    name = ""
    for letter in words[1]:
        if not ("A" <= letter <= "Z" or letter.isdigit()):
            break
        name += letter
    return name or None


def is_named(gpu: Gpu, name: GpuId) -> bool:
    """Whether an id in CUDA_VISIBLE_DEVICES names this GPU: its number, a prefix of its uuid, or the older name of a MIG part. The newer
    names of parts (``MIG-`` and a uuid) do not identify their GPU.
    """
    if isinstance(name, int):
        return gpu.index == name
    if not gpu.uuid:
        return False
    return name.removeprefix("MIG-").partition("/")[0] == gpu.uuid if name.startswith("MIG-") else gpu.uuid.startswith(name)


def accelerator_types(ids: list[GpuId], gpus: list[Gpu]) -> list[str]:
    types = []
    for gpu in gpus:
        if any(is_named(gpu, name) for name in ids):
            kind = accelerator_type(gpu.model)
            if kind is not None and kind not in types:
                types.append(kind)
    return types
