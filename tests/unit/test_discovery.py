"""The resources of the machine, read from files, and its address."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mray._common import kept
from mray._ipc import discovery
from mray._ipc.discovery import Gpu
from tests.checkout import python_path

TWO = [Gpu(0, "GPU-aaaa", "NVIDIA H200"), Gpu(1, "GPU-bbbb", "Tesla V100-SXM2-16GB")]


@pytest.mark.parametrize(
    ("mask", "asked", "found"),
    [
        (None, None, [0, 1]),
        ("1", None, [1]),
        ("1,0", None, [1, 0]),
        ("", None, []),
        ("-1", None, []),
        ("0,-1,1", None, [0]),
        ("GPU-bbbb", None, ["GPU-bbbb"]),
        ("7", None, []),
        (None, 3, [0, 1, 2]),
        ("4,5,6", 2, [4, 5]),
        (None, 0, []),
    ],
)
def test_gpu_ids_follow_the_users_mask(mask: str | None, asked: float | None, found: list[Any]):
    environment = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    assert discovery.gpu_ids(asked, environment, TWO) == found


@pytest.mark.parametrize(
    ("given", "order"),
    [
        ({}, "PCI_BUS_ID"),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST"),
        ({"CUDA_VISIBLE_DEVICES": "1"}, None),
    ],
)
def test_cuda_counts_gpus_as_ids_do_unless_the_user_counts(given: dict[str, str], order: str | None):
    assert discovery.with_order({**given, "A": "b"}) == {**given, "A": "b", **({} if order is None else {"CUDA_DEVICE_ORDER": order})}


@pytest.mark.parametrize(
    ("name", "is_first"),
    [
        (0, True),
        (1, False),
        ("GPU-aaaa", True),
        ("GPU-a", True),
        ("GPU-b", False),
        ("MIG-GPU-aaaa/1/0", True),
        ("MIG-GPU-aaa/1/0", False),
        ("MIG-11111111-2222-3333-4444-555555555555", False),
    ],
)
def test_gpus_are_named_by_number_uuid_and_part(name: Any, is_first: bool):
    first = discovery.Gpu(0, "GPU-aaaa", "NVIDIA H200")
    assert discovery.is_named(first, name) is is_first
    assert discovery.accelerator_types([name], [first]) == (["H200"] if is_first else [])
    assert not discovery.is_named(discovery.Gpu(5, "", ""), "GPU-a")


def test_parts_of_gpus_are_handed_out_one_by_one():
    mask = "MIG-11111111-2222-3333-4444-555555555555,MIG-GPU-aaaa/1/0"
    assert discovery.gpu_ids(None, {"CUDA_VISIBLE_DEVICES": mask}, TWO) == mask.split(",")


def test_asking_for_more_gpus_than_the_mask_lists_is_an_error():
    with pytest.raises(ValueError, match=r"Attempting to start raylet with 2 GPUs, but CUDA_VISIBLE_DEVICES contains \['0'\]"):
        discovery.gpu_ids(2, {"CUDA_VISIBLE_DEVICES": "0"}, TWO)


def test_gpus_are_found_without_a_library(tmp_path: Path):
    for minor, address in enumerate(["0000:81:00.0", "0000:07:00.0"]):
        folder = tmp_path / "gpus" / address
        folder.mkdir(parents=True)
        info = f"Model: \t\t NVIDIA A100-SXM4-40GB\nGPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n"
        (folder / "information").write_text(info)
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "nvidia0").touch()
    (devices / "nvidiactl").touch()
    [gpu] = discovery.machine_gpus(str(tmp_path / "gpus"), str(devices))
    assert (gpu.index, gpu.uuid, gpu.model) == (0, "GPU-0", "NVIDIA A100-SXM4-40GB")
    assert [one.index for one in discovery.machine_gpus(str(tmp_path / "none"), str(devices))] == [0]
    assert discovery.machine_gpus(str(tmp_path / "none"), str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    ("model", "kind"), [("NVIDIA H200", "H200"), ("Tesla V100-SXM2-16GB", "V100"), ("NVIDIA A10G", "A10G"), ("x", None)]
)
def test_accelerator_types(model: str, kind: str | None):
    assert discovery.accelerator_type(model) == kind


def test_accelerator_types_of_some_gpus():
    assert discovery.accelerator_types([0, 1], TWO) == ["H200", "V100"]
    assert discovery.accelerator_types(["GPU-bb"], TWO) == ["V100"]


def test_cpus_respect_mask_and_control_group(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept.os, "sched_getaffinity", lambda _pid: set(range(16)))
    files = {
        "/proc/self/cgroup": "4:memory,cpu:/a/b\n0::/c",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "350000",
        "/sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "1000",
        "/proc/meminfo": "MemTotal: 4 kB",
    }
    monkeypatch.setattr(discovery, "_read", lambda path: files.get(path, ""))
    assert discovery.cpu_count() == 3
    assert discovery.memory_bytes() == 1000
    files["/sys/fs/cgroup/c/cpu.max"] = "150000 100000"
    files["/sys/fs/cgroup/c/memory.max"] = "max"
    assert discovery.cpu_count() == 1
    files["/sys/fs/cgroup/c/cpu.max"] = "max 100000"
    assert discovery.cpu_count() == 3


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/tmp/x", True), ("/tmp", True), ("/tmpx", False), ("/tmp/disk/x", False), ("/tmp/disk/shm", True), ("/a b/c", True), ("/", False)],
)
def test_what_lies_in_memory_is_told_by_the_nearest_mount(tmp_path: Path, path: str, expected: bool):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /tmp/disk ext4 rw 0 0\n/dev/c /tmp/disk/shm ext4 rw 0 0\n"
        "none /tmp/disk/shm ramfs rw 0 0\nnone /a\\040b tmpfs rw 0 0\n"
    )
    assert discovery.lies_in_memory(path, str(mounts)) is expected


def test_shared_memory_lies_in_memory():
    assert discovery.lies_in_memory("/dev/shm")


# ------------------------------------------------------------------------------------------------ the machine's address
class Routes:
    """Stands for the kernel's table of routes: the family of sockets that has a way out, to the address at its beginning."""

    def __init__(self, ways: dict[int, str]) -> None:
        self.ways = ways
        self.asked: list[tuple[str, int]] = []

    def socket(self, family: int, kind: int) -> Routes:
        assert kind == socket.SOCK_DGRAM
        self.family = family
        return self

    def connect(self, target: tuple[str, int]) -> None:
        self.asked.append(target)
        if self.family not in self.ways:
            raise OSError(101, "Network is unreachable")

    def getsockname(self) -> tuple[str, int]:
        return self.ways[self.family], 40000

    def __enter__(self) -> Routes:
        return self

    def __exit__(self, *_error: object) -> None:
        pass


@pytest.mark.parametrize(
    ("ways", "address"),
    [
        ({socket.AF_INET: "192.0.2.7", socket.AF_INET6: "2001:db8::7"}, "192.0.2.7"),
        ({socket.AF_INET6: "2001:db8::7"}, "2001:db8::7"),
        ({}, "127.0.0.1"),
    ],
)
def test_the_address_of_the_machine_is_that_of_its_route_out_and_without_one_loopback(monkeypatch, ways, address):
    routes = Routes(ways)
    monkeypatch.setattr(discovery.socket, "socket", routes.socket)
    assert discovery.node_address() == discovery.reachable(None) == discovery.reachable("localhost") == address
    assert discovery.reachable("127.0.0.9") == "127.0.0.9"


def test_in_a_network_of_its_own_without_a_route_a_session_has_the_loopback_address(tmp_path):
    alone = next((way for way in (["unshare", "-n"], ["unshare", "-rn"]) if _works([*way, "true"])), None)
    if alone is None:
        pytest.skip("no network namespace can be made here")
    program = tmp_path / "program.py"
    program.write_text(
        "import mray, mray.util\n"
        "before = mray.util.get_node_ip_address()\n"
        "context = mray.init(num_cpus=1, logging_level='ERROR')\n"
        "there = mray.get(mray.remote(resources={'node:127.0.0.1': 0.1})(lambda: mray.util.get_node_ip_address()).remote())\n"
        "print(before, context['node_ip_address'], context['address'].rpartition(':')[0], there)\n"
    )
    env = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run([*alone, sys.executable, str(program)], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["127.0.0.1"] * 4, done.stderr


def _works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.mark.parametrize(
    ("host", "own"),
    [("127.0.0.1", True), ("localhost", True), ("127.0.0.77", True), ("198.51.100.7", False), ("no such host", False), ("a" * 300, False)],
)
def test_an_address_is_of_this_machine_if_a_socket_can_be_bound_to_it(host, own):
    assert discovery.is_of_this_machine(host) is own
    assert discovery.is_of_this_machine(socket.gethostname())
    assert discovery.is_of_this_machine(discovery.node_address())
