"""Process and GPU statistics of this machine, from /proc and the GPUs' driver."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any

from mray._common.clock import monotonic, time
from mray._common.kept import io, os, shutil
from mray._inside.processes import stat_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GPU_PATIENCE = 5.0


def info_of(pid: int) -> dict[str, Any]:
    """``rss_bytes, cpu_seconds, start_time_ms`` of a process."""
    try:
        info = stat_of(pid)
    except OSError:
        return {}
    return _info(info)


def _info(info: list[bytes]) -> dict[str, Any]:
    booted = time() - clock_gettime(CLOCK_BOOTTIME)
    return {
        "rss_bytes": int(info[21]) * _PAGE,
        "cpu_seconds": (int(info[11]) + int(info[12])) / _TICKS,
        "start_time_ms": int((booted + int(info[19]) / _TICKS) * 1000),
    }


# ------------------------------------------------------------------------------------------------ memory
#: Seconds for a look's readings of what is known from earlier ones.
_BUDGET = 0.02
#: Seconds after which a process that was in no look is forgotten.
_FORGETS = 600.0


@dataclass
class _Share:
    """The proportional memory of a process, as it was read last."""

    #: Resident pages and page faults at that time: while both are the same, its pages are.
    pages: tuple[bytes, bytes]
    pss_bytes: int | None
    read_at: float
    asked_at: float


#: By pid and start time. Threads that look concurrently may read the same process twice.
_shares: dict[tuple[int, bytes], _Share] = {}


def infos_of(pids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """As `info_of`, with ``pss_bytes``: a process's own pages, and its share of those that others hold too.

    The kernel sums them up over all pages of a process, so they are read for those processes only that have got or lost pages since the
    last look, the longest unread first, and at most for a few milliseconds beyond those that were never read.
    """
    found: dict[int, dict[str, Any]] = {}
    keys: dict[int, tuple[int, bytes]] = {}
    changed: list[tuple[float, int, tuple[bytes, bytes]]] = []
    now = monotonic()
    for pid in pids:
        try:
            fields = stat_of(pid)
        except OSError:
            continue
        found[pid] = _info(fields)
        keys[pid], pages = (pid, fields[19]), (fields[21], fields[7])
        known = _shares.get(keys[pid])
        if known is None or known.pages != pages:
            changed.append((0.0 if known is None else known.read_at, pid, pages))
        if known is not None:
            known.asked_at = now
    until = now + _BUDGET
    for read_at, pid, pages in sorted(changed):
        if not read_at or monotonic() < until:
            _shares[keys[pid]] = _Share(pages, proportional_bytes(pid), monotonic(), now)
    for pid, key in keys.items():
        share = _shares.get(key)
        found[pid]["pss_bytes"] = share.pss_bytes if share is not None else None
    for key, share in list(_shares.items()):
        if now - share.asked_at > _FORGETS:
            _shares.pop(key, None)
    return found


def proportional_bytes(pid: int) -> int | None:
    """None for a process that has ended, or whose memory this user may not read."""
    try:
        with io.open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")), None)
    except OSError:
        return None


# ------------------------------------------------------------------------------------------------ GPUs
def _nvidia_smi(query: str) -> list[list[str]]:
    """None without an NVIDIA driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        words = [program, query, "--format=csv,noheader,nounits"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=_GPU_PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()] if not done.returncode else []


def gpus() -> list[dict[str, Any]]:
    """``index, name, used_bytes, total_bytes, busy`` (percent) of each GPU."""
    rows = _nvidia_smi("--query-gpu=index,name,memory.used,memory.total,utilization.gpu")
    return [
        {"index": row[0], "name": row[1], "used_bytes": _mebibytes(row[2]), "total_bytes": _mebibytes(row[3]), "busy": _number(row[4])}
        for row in rows
        if len(row) == 5
    ]


def gpu_memory() -> dict[int, int]:
    """By pid, where the driver reports it (inside a container its pids may differ)."""
    found: dict[int, int] = {}
    for row in _nvidia_smi("--query-compute-apps=pid,used_memory"):
        if len(row) == 2 and row[0].isdigit():
            found[int(row[0])] = found.get(int(row[0]), 0) + _mebibytes(row[1])
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # "[N/A]"
        return 0.0


def _mebibytes(text: str) -> int:
    return int(_number(text) * 2**20)
