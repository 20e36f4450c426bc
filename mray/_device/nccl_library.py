"""NCCL of this process: `mray._device.libnccl`, or the module with the same calls for null devices.

Any thread. The library is loaded on first use, which creates no CUDA context.

NCCL reads its variables when a process first uses it: NCCL listens for its peers on a network interface, which is set to the loopback
one; and it has several ranks on one GPU only when told so.
"""

from __future__ import annotations

from typing import Any, Final

from mray._api.communicator import ReduceOp
from mray._common import settings
from mray._device.device import Platform
from mray._device.libnccl import version_name
from mray._device.platform import platform

#: The oldest version in which several ranks may share a GPU, when `SHARED_GPU` is set.
SHARED_GPU_VERSION: Final = 23000
SHARED_GPU: Final = "NCCL_MULTI_RANK_GPU_ENABLE"
_INTERFACE: Final = "NCCL_SOCKET_IFNAME"

#: NCCL's numbers, by torch's names.
DTYPES: Final = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "float8_e4m3fn": 10,
    "float8_e5m2": 11,
}
_FLOAT8_VERSION: Final = 22400
BYTES: Final = DTYPES["uint8"]

SUM, PRODUCT, MAX, MIN, AVG = range(5)
_OPERATIONS: Final = {ReduceOp.SUM: SUM, ReduceOp.PRODUCT: PRODUCT, ReduceOp.MAX: MAX, ReduceOp.MIN: MIN, ReduceOp.AVG: AVG}
#: For truth values, as bytes 0 and 1, as in torch. An average of them is their sum, as everywhere in mray.
_OF_BOOL: Final = {ReduceOp.SUM: MAX, ReduceOp.PRODUCT: MIN, ReduceOp.MAX: MAX, ReduceOp.MIN: MIN, ReduceOp.AVG: MAX}
#: A complex number is two of these.
_PARTS: Final = {"complex64": "float32", "complex128": "float64"}


class Library:
    """NCCL for the devices of one platform."""

    def __init__(self, devices: Platform) -> None:
        self.platform = devices
        self.module = module = devices.nccl()
        self.version = int(module.get_version())
        self.error: type[Exception] = module.NcclError

    def unique_id(self) -> bytes:
        _stay_on_this_machine()
        unique_id: bytes = self.module.get_unique_id()
        return unique_id

    def communicator(self, world_size: int, unique_id: bytes, rank: int, device: int) -> Any:
        """Become a rank, on this device; waits until all ranks do."""
        _stay_on_this_machine()
        with self.platform.nccl_device(device):
            return self.module.NcclCommunicator(world_size, unique_id, rank)

    def reduction(self, dtype: str, op: ReduceOp) -> tuple[int, int, int]:
        """NCCL's numbers for a reduction: (dtype, operation, numbers per element). Raises ValueError when NCCL does not compute it."""
        if dtype == "bool":
            return BYTES, _OF_BOOL[op], 1
        parts = _PARTS.get(dtype)
        if parts is not None and op in (ReduceOp.SUM, ReduceOp.AVG):
            return DTYPES[parts], _OPERATIONS[op], 2
        number = DTYPES.get(dtype)
        if number is None or (dtype.startswith("float8") and self.version < _FLOAT8_VERSION):
            raise ValueError(f"NCCL {version_name(self.version)} does not compute {op.name} of tensors of {dtype}: convert them first.")
        return number, _OPERATIONS[op], 1


def library() -> Library:
    """Raises LookupError that says what is missing: a device, or the library."""
    devices = platform()
    if devices is None or not devices.devices:
        raise LookupError("NCCL moves tensors between GPUs, and this process sees none: give its actor num_gpus.")
    return Library(devices)


def nccl_version() -> int:
    """NCCL's version, as it counts; 0 without one."""
    try:
        return library().version
    except LookupError:
        return 0


def shares_gpus() -> bool:
    """Whether several ranks may be on one GPU here."""
    return nccl_version() >= SHARED_GPU_VERSION and settings.of_library(SHARED_GPU) == "1"


def _stay_on_this_machine() -> None:
    """Let NCCL use loopback, unless the user has chosen an interface."""
    settings.propose_to_library(_INTERFACE, "lo")
    if not settings.has_peer_access():
        settings.propose_to_library("NCCL_P2P_DISABLE", "1")


def current_device_index() -> int:
    """This thread's current device, as torch sees it; 0 by default."""
    devices = platform()
    return 0 if devices is None or not devices.devices else devices.current_device().index
