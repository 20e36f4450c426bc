"""Whether the GPUs of this machine read each other's memory correctly: a pattern is copied between each pair.

    mray doctor ──▶ this program ──▶ for each GPU a second process, which owns the memory
                    opens that memory on every other GPU, copies it over, compares ──▶ a line for each pair

Some machines report that their GPUs reach each other, but deliver other bytes or none, without an error: where the IOMMU translates peer
traffic, or bridges redirect it (ACS). A broken machine may hang a process: this one, which has a limit.
"""

from __future__ import annotations

import ctypes
import hashlib
import signal
import subprocess
import sys
from typing import NamedTuple

from mray._common.kept import os
from mray._device.device import Device, Platform
from mray._device.platform import platform
from mray._ipc.process import die_with_parent

#: Several pages, and more than any cache of a bridge.
SIZE = 4 << 20
RIGHT, WRONG, NO_ACCESS, FAILED = "right", "wrong", "no-access", "failed"
#: Seconds for all pairs, with the creation of CUDA contexts.
_PATIENCE = 120.0
_PROGRAM, _OWNER = "mray._device.peer_check", "--owner"


class Outcome(NamedTuple):
    """One direction of a pair: `reader` has copied memory of `owner`; both by their uuids."""

    reader: str
    owner: str
    outcome: str
    #: The reason of `FAILED`.
    text: str = ""


def check_peers(limit: float = _PATIENCE) -> tuple[list[Outcome], bool]:
    """The outcomes for all pairs of this process's devices, and whether the test finished in time."""
    with subprocess.Popen(
        [sys.executable, "-m", _PROGRAM], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            said, _errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with its children
            said, _errors = process.communicate()
        ended = process.returncode == 0
    lines = [line.split(" ", 3) for line in said.splitlines()]
    return [Outcome(*words) for words in lines if len(words) >= 3], ended


# --------------------------------------------------------------------------------------- in that process
def _pattern(seed: str, uuid: str) -> bytes:
    """This run's pattern: memory of earlier runs has others."""
    return hashlib.shake_128(f"{seed} {uuid}".encode()).digest(SIZE)


class _Host:
    """Host memory that a device copies from and to."""

    def __init__(self, devices: Platform, device: Device, contents: bytes = b"") -> None:
        self._memory = ctypes.create_string_buffer(contents, SIZE)
        self._devices = devices
        self._device = device
        self._address = ctypes.addressof(self._memory)

    def copy(self, address: int, *, back: bool) -> bytes:
        """Copy to memory of the device, or `back`; waits. Returns the contents."""
        device, stream = self._device, self._device.current_stream()
        device.register_host(self._address, SIZE)
        try:
            target, source = (self._address, address) if back else (address, self._address)
            device.copy(target, source, SIZE, stream)
            self._devices.synchronize(device, stream)
        finally:
            device.unregister_host(self._address)
        return self._memory.raw


def _own(devices: Platform, uuid: str, seed: str) -> None:
    """In the second process: fill device memory, print its handle and hold it."""
    device = devices.device_of(uuid)
    assert device is not None
    address = device.allocate(SIZE)
    _Host(devices, device, _pattern(seed, uuid)).copy(address, back=False)
    _tell(device.export_memory(address).hex())
    sys.stdin.read()
    device.free(address)


def _try(devices: Platform, reader: Device, owner: str, handle: bytes, expected: bytes) -> tuple[str, str]:
    if not reader.can_access(owner):
        return NO_ACCESS, ""
    try:
        address, own = reader.open_memory(handle), reader.allocate(SIZE)
        reader.copy(own, address, SIZE, reader.current_stream())
        found = _Host(devices, reader).copy(own, back=True)
        reader.close_memory(address)
        reader.free(own)
    except (RuntimeError, MemoryError) as error:
        return FAILED, str(error).replace("\n", " ")
    return (RIGHT if found == expected else WRONG), ""


def _check(devices: Platform) -> None:
    seed = os.urandom(8).hex()
    for owner in devices.devices:
        readers = [device for device in devices.devices if device is not owner]
        program = [sys.executable, "-m", _PROGRAM, _OWNER, owner.uuid, seed]
        with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            handle, expected = bytes.fromhex(process.stdout.readline()), _pattern(seed, owner.uuid)
            for reader in readers:
                outcome, text = _try(devices, reader, owner.uuid, handle, expected) if handle else (FAILED, "no memory there")
                _tell(f"{reader.uuid} {owner.uuid} {outcome} {text}".rstrip())
            process.stdin.close()


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(words: list[str]) -> None:
    """The program; its second process has the arguments ``--owner UUID SEED``."""
    die_with_parent()
    devices = platform()
    if devices is None:
        return
    if words[:1] == [_OWNER]:
        _own(devices, words[1], words[2])
    else:
        _check(devices)


if __name__ == "__main__":
    main(sys.argv[1:])
