"""Which mechanism carries an edge: each row of the table, and what is refused, in which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mray._channel.select import CUDA_IPC, NCCL, PINNED, SHM, select, why_no_nccl
from mray._channel.site import Site
from tests.unit.sites import actor, driver

ON_0, ALSO_ON_0 = actor("Maker(aaaa)", 0), actor("Sink(bbbb)", 0)
ON_1 = actor("Far(cccc)", 1)
PEER_0, PEER_1 = actor("Maker(aaaa)", 0, reaches=[1]), actor("Far(cccc)", 1, reaches=[0])
NO_GPU = actor("Plain(dddd)")
LOOSE = actor("Loose(eeee)", 0, 1, owns=False)
DRIVER, BLIND_DRIVER = driver(0, 1), driver()


@pytest.mark.parametrize("pair", [(ON_0, ON_1), (NO_GPU, NO_GPU)])
def test_a_transport_without_a_rule_is_refused(pair: tuple[Site, Site]) -> None:
    with pytest.raises(ValueError, match="no rule for transport='carrier'"):
        select(*pair, "carrier")


# ------------------------------------------------------------------------------------------ the table
@pytest.mark.parametrize(
    ("writer", "reader", "unasked", "hinted", "accelerator"),
    [
        (ON_0, ALSO_ON_0, CUDA_IPC, CUDA_IPC, CUDA_IPC),
        (PEER_0, PEER_1, CUDA_IPC, CUDA_IPC, CUDA_IPC),
        (ON_0, ON_1, PINNED, NCCL, NCCL),
        (ON_0, replace(ON_1, nccl=0), PINNED, PINNED, PINNED),
        (ON_0, replace(ON_1, nccl=23001), PINNED, PINNED, PINNED),
        (ON_0, DRIVER, CUDA_IPC, CUDA_IPC, CUDA_IPC),
        (DRIVER, ON_0, PINNED, PINNED, CUDA_IPC),
        (driver(0), ON_0, CUDA_IPC, CUDA_IPC, CUDA_IPC),
        (driver(0, 1, reaches=[0, 1]), PEER_0, CUDA_IPC, CUDA_IPC, CUDA_IPC),
        (driver(0), ON_1, PINNED, PINNED, PINNED),
        (ON_0, NO_GPU, SHM, SHM, None),
        (NO_GPU, ON_0, SHM, SHM, None),
        (ON_0, BLIND_DRIVER, SHM, SHM, None),
        (BLIND_DRIVER, ON_0, SHM, SHM, None),
        (NO_GPU, NO_GPU, SHM, SHM, None),
        (NO_GPU, DRIVER, SHM, SHM, None),
        (ON_0, LOOSE, SHM, SHM, CUDA_IPC),
        (LOOSE, DRIVER, SHM, SHM, CUDA_IPC),
        (ON_0, replace(ALSO_ON_0, platform="null"), SHM, SHM, None),
        (ON_0, replace(ALSO_ON_0, pid=ON_0.pid), SHM, SHM, SHM),
        (Site(), Site(), SHM, SHM, None),
    ],
)
def test_the_automatic_choice(writer: Site, reader: Site, unasked: str, hinted: str, accelerator: str | None) -> None:
    assert select(writer, reader) == unasked
    assert select(writer, reader, "auto", hinted=True) == hinted
    if accelerator is None:
        with pytest.raises(ValueError, match="accelerator|participate|platform|devices of"):
            select(writer, reader, "accelerator", hinted=True)
    else:
        assert select(writer, reader, "accelerator", hinted=True) == accelerator


@pytest.mark.parametrize("asked", ["shm", "cpu"])
def test_who_asks_for_host_memory_gets_it(asked: str) -> None:
    assert select(ON_0, ALSO_ON_0, asked, hinted=True) == SHM


def test_several_gpus_are_reached_all_or_not_by_default() -> None:
    both = actor("Both(ffff)", 0, 1)
    assert select(both, actor("Too(gggg)", 0, 1)) == CUDA_IPC
    assert select(both, ON_0) == PINNED
    assert select(ON_0, both) == CUDA_IPC
    assert select(both, ON_0, "cuda_ipc", hinted=True) == CUDA_IPC
    assert select(both, actor("Near(hhhh)", 0, reaches=[1])) == CUDA_IPC


# --------------------------------------------------------------------------------------------- NCCL
def test_ranks_share_a_gpu_only_where_both_libraries_allow_it() -> None:
    new = replace(ON_0, nccl=23000, shares_gpus=True)
    assert select(new, replace(ALSO_ON_0, nccl=23000, shares_gpus=True), "nccl", hinted=True) == NCCL
    with pytest.raises(ValueError, match=r"Maker\(aaaa\) and Sink\(bbbb\) share GPU 0 \(H1, GPU-0\), and NCCL 2.30.0"):
        select(new, replace(ALSO_ON_0, nccl=23000), "nccl", hinted=True)


def test_what_keeps_endpoints_from_being_ranks_is_said() -> None:
    assert why_no_nccl([ON_0, ON_1]) is None
    assert why_no_nccl([ON_0, ON_0]) is None
    assert why_no_nccl([ON_0, DRIVER]) == "the driver has no rank there"
    assert why_no_nccl([ON_0, NO_GPU]) == "Plain(dddd) sees no GPU"
    assert "has no NCCL" in str(why_no_nccl([ON_0, replace(ON_1, nccl=0)]))
    assert why_no_nccl([ON_0, replace(ON_1, nccl=23001)]) == "Maker(aaaa) has NCCL 2.27.5 and Far(cccc) has 2.30.1"


# ------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("writer", "reader", "asked", "parts"),
    [
        (ON_0, ALSO_ON_0, "nccl", ["Maker(aaaa), on GPU 0 (H1, GPU-0)", "Sink(bbbb)", "one rank on a GPU"]),
        (ON_0, ALSO_ON_0, "nccl", ['transport="auto" would work: it goes by CUDA IPC']),
        (ON_0, replace(ON_1, nccl=0), "nccl", ["Maker(aaaa)", "Far(cccc) has no NCCL", "libnccl.so.2", "through pinned host memory"]),
        (ON_0, ON_1, "cuda_ipc", ["Far(cccc)", "GPU 0 (H1, GPU-1)", "no peer access to GPU 0 (H1, GPU-0) of Maker(aaaa)", "by NCCL"]),
        (ON_0, NO_GPU, "cuda_ipc", ["Plain(dddd)", "does not have an accelerator assigned by Ray", "Maker(aaaa)", 'transport="auto"']),
        (NO_GPU, ON_0, "accelerator", ["Plain(dddd)", "does not have an accelerator assigned by Ray", "transport='accelerator'"]),
        (ON_0, replace(ALSO_ON_0, platform="null"), "cuda_ipc", ["devices of 'cuda' and Sink(bbbb) of 'null'", "through host memory"]),
        (ON_0, replace(ALSO_ON_0, pid=ON_0.pid), "cuda_ipc", ["opened by other processes only", f"process {ON_0.pid}"]),
        (ON_0, DRIVER, "nccl", ["Driver cannot participate in the communicator group.", 'transport="auto" would work']),
        (DRIVER, ON_0, "nccl", ["DAG inputs cannot be transferred via accelerator because the driver cannot participate"]),
        (ON_0, BLIND_DRIVER, "accelerator", ["Driver cannot participate in the communicator group."]),
        (BLIND_DRIVER, ON_0, "cuda_ipc", ["DAG inputs cannot be transferred via accelerator"]),
    ],
)
def test_a_transport_that_cannot_work_is_refused_with_the_reason(writer: Site, reader: Site, asked: str, parts: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        select(writer, reader, asked, hinted=True)
    for part in parts:
        assert part in str(caught.value)
