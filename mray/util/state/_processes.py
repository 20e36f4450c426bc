"""Process and GPU statistics of this machine, from /proc and the GPUs' driver."""

from __future__ import annotations

import subprocess
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any

from mray._common.clock import time
from mray._common.kept import os, shutil
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
    booted = time() - clock_gettime(CLOCK_BOOTTIME)
    return {
        "rss_bytes": int(info[21]) * _PAGE,
        "cpu_seconds": (int(info[11]) + int(info[12])) / _TICKS,
        "start_time_ms": int((booted + int(info[19]) / _TICKS) * 1000),
    }


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
