"""GPU edges, measured on this machine's GPU and judged: latency, copies, waits, bandwidth, NCCL, memory, deaths.

    python bench/bench_gpu.py [--quick] [--only WORD ...] [--json FILE] [--save]

One GPU is enough: actors share it. Every row is a process of its own (`gpu_measure.py`); one that fails is told, and the others
go on. `--save` writes what is printed to bench/results/DATE-DEVICE.txt. Without a GPU, ``MRAY_NULL_DEVICES=1`` runs everything on a
pretended one, small (`--tiny`): that shows that the program works, and times are not judged.

How the latency of an edge is taken: from the producer's method being called (host clock, which all processes of a machine share) to the
first kernel of the consumer's method. That kernel loads the first number of the tensor and stores it in pinned host memory, which the host
polls (`gpu_work.Stamp`); so the figure has about a microsecond in it for the way to the host. The producer allocates a tensor and writes
its first number by a kernel, whatever the size. The edge of the CPU is the same graph with 40 bytes in host memory, until the consumer's
method is called. "launch alone" is what such a kernel takes in the consumer with a tensor that is there already, and "after another" the
same when another process had the GPU last: they are part of every figure, and no edge's doing. So is the "hand-over": from the start of
a kernel of one process to that of one of another process, which polls for it, without any edge or tensor. GPUs give the contexts of several
processes slices of time, unless the multi-process service (MPS) runs.

Queues of torch.multiprocessing copy nothing either: what an edge saves there is time for each message, which grows with the number of
messages and not with their size.

The exit status is 1 if a row fails or misses its target.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
#: Seconds after which a row hangs.
PATIENCE = {"full": 900, "quick": 300, "tiny": 120}
Figures = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of the report; `passed` is None where nothing is required."""

    what: str
    value: str
    against: str = ""
    ratio: str = ""
    target: str = ""
    passed: bool | None = None
    #: Whether it is about time, which pretended devices do not have.
    timed: bool = False


@dataclass(frozen=True)
class Row:
    """Measurements in one process, and their limits."""

    key: str
    title: str
    judge: Callable[[Figures], Iterator[Line]]
    #: Variables of the process.
    variables: tuple[tuple[str, str], ...] = ()


# ------------------------------------------------------------------------------------------------ figures
def readable(seconds: float) -> str:
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(seconds) >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.2f} us"


def size(count: float) -> str:
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if abs(count) >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"


def latency(figures: Figures) -> Iterator[Line]:
    host, rows = figures["host"], figures["device"]
    base = host["median"]
    yield Line("edge of the CPU, 40 B", readable(base), f"p99 {readable(host['p99'])}")
    for row in rows:
        over = row["median"] - base
        yield Line(f"edge by CUDA IPC, {size(row['size'])}", readable(row["median"]), f"p99 {readable(row['p99'])}")
        parts = f"consumer called after {readable(row['entered'])}"
        parts += f", launch alone {readable(row['alone'])}, after another {readable(row['after_another'])}"
        yield Line("  over the edge of the CPU", readable(over), parts, "", "< 30 us", over < 30e-6, timed=True)
    ratio = rows[-1]["median"] / rows[0]["median"]
    what = f"  {size(rows[-1]['size'])} to {size(rows[0]['size'])}"
    yield Line(what, "", "", f"{ratio:.2f}", "0.90 to 1.10", 0.9 <= ratio <= 1.1, timed=True)
    bare = figures["handover"]
    yield Line("hand-over of the GPU, no edge", readable(bare["median"]), f"p99 {readable(bare['p99'])}")
    beyond = ", ".join(f"{size(row['size'])} {readable(row['median'] - bare['median'])}" for row in rows)
    yield Line("  the edges beyond it", beyond)
    yield Line("  the consumer's kernel", rows[0]["method"])


#: Bytes from which a copy through the host has to be slower than one within the GPU.
LARGE = 10**8


def compared(*names: str, copies: bool) -> Callable[[Figures], Iterator[Line]]:
    """Against other ways: through the host, whose copies are dearer than an edge's one within the GPU, or with none at all."""

    def judge(figures: Figures) -> Iterator[Line]:
        for row in figures["rows"]:
            for name in names:
                ours, peer = row["ours"]["median"], row[name]["median"]
                least = 5 if copies and row["size"] >= LARGE else 1
                ratio, saved = peer / ours, readable(1000 * (peer - ours))
                against = f"{name} {readable(peer)}; {saved} in 1000 messages"
                what = f"CUDA IPC, {size(row['size'])}"
                yield Line(what, readable(ours), against, f"{ratio:.1f}x", f">= {least}x", ratio >= least, timed=True)

    return judge


def mps(figures: Figures) -> Iterator[Line]:
    for key, what in (("off", "without"), ("on", "with")):
        bare = f"hand-over of the GPU {readable(figures[f'{key}_handover']['median'])}"
        yield Line(f"edge by CUDA IPC, {size(figures['size'])}, {what} MPS", readable(figures[key]["median"]), bare)


def held(figures: Figures) -> Iterator[Line]:
    count, returned, reached = (figures[key] for key in ("executions", "returned", "reached"))
    passed = returned == count and reached == 0 and figures["in_time"]
    yield Line("executions returned, the producer's stream held", str(returned), "", "", str(count), passed)
    yield Line("  of them, reached by the consumer's stream", str(reached), "", "", "0", reached == 0)
    yield Line("  right once it was let go", str(figures["right"]), "", "", "True", figures["right"])


def waits(figures: Figures) -> Iterator[Line]:
    edges = figures["executions"]
    yield Line(f"waits counted by mray, {edges} executions", str(figures["mray"]), "", "", "0", figures["mray"] == 0)
    if figures["profiler"] is None:
        yield Line("waits counted by the profiler", "not counted here")
        return
    found = ", ".join(f"{name} {count}" for counts in figures["names"] for name, count in counts.items() if count)
    counted = f"{figures['launches']} launches seen" + (f"; {found}" if found else "")
    # Without a single launch it was blind.
    passed = figures["profiler"] <= 0 and figures["launches"] > 0
    yield Line("waits counted by the profiler", str(figures["profiler"]), counted, "", "0", passed)


def pipeline(figures: Figures) -> Iterator[Line]:
    what = f"four actors, {size(figures['activation'])}, {figures['executions']} executions"
    yield Line(what, readable(figures["seconds"]) + " each")
    edges = 3 * figures["executions"]
    yield Line("  copies into the pool, three edges", str(figures["copied"]), "", "", str(edges), figures["copied"] == edges)
    if figures["profiler"] is None:
        yield Line("  copies counted by the profiler", "not counted here")
    else:
        found = ", ".join(f"{name} {count}" for counts in figures["names"] for name, count in counts.items())
        yield Line("  copies counted by the profiler", str(figures["profiler"]), found, "", f"<= {edges}", figures["profiler"] <= edges)


def bandwidth(figures: Figures) -> Iterator[Line]:
    ours, plain = (figures["size"] / figures[which]["median"] for which in ("ours", "plain"))
    values = f"{ours / 1e9:.0f} GB/s", f"plain copy {plain / 1e9:.0f} GB/s"
    yield Line(f"copy into the pool, {size(figures['size'])}", *values, f"{ours / plain:.2f}", ">= 0.85", ours / plain >= 0.85, timed=True)


def nccl(figures: Figures) -> Iterator[Line]:
    sent = figures["size"]
    for key, what in (("send", "send and receive"), ("allreduce", "allreduce")):
        values = readable(figures[key]), f"{sent / figures[key] / 1e9:.1f} GB/s"
        yield Line(f"2 ranks on one GPU, {what}, {size(sent)}", *values, "", "correct", True)
    with_overlap, without = figures["overlap"], figures["no_overlap"]
    values = readable(with_overlap), f"without overlap {readable(without)}"
    yield Line("  send while computing, overlapped", *values, f"{without / with_overlap:.2f}x", "correct", True)


#: Differences of device and host memory between two places of a run without leaks: pages, and memory that allocators keep.
DEVICE_NOISE, HOST_NOISE = 8 << 20, 8 << 20


def shapes(figures: Figures) -> Iterator[Line]:
    messages = figures["messages"]
    for key, noise in (("device", DEVICE_NOISE), ("host", HOST_NOISE)):
        samples = figures[key]
        # Memory of the warm-up grows in the first parts; a leak grows in the last as in any.
        late = samples[-1] - samples[len(samples) // 2]
        slope = late / (messages / 2)
        whole = f"since the first {messages // len(samples)}: {size(samples[-1])}"
        yield Line(f"{key} memory, second half of {messages} messages", size(late), whole, f"{slope:.0f} B each", "flat", late <= noise)


def deaths(figures: Figures) -> Iterator[Line]:
    free = figures["free"]
    lost = free[0] - free[-1]
    what = f"device memory, {figures['rounds']} rounds of killing an end"
    yield Line(what, f"{size(lost)} lost", f"free before {size(free[0])}, after {size(free[-1])}", "", "none", lost <= DEVICE_NOISE)
    yield Line("  results that were wrong", str(figures["wrong"]), "", "", "0", figures["wrong"] == 0)
    told = ", ".join(figures["noticed"])
    yield Line("  the other end is told", told, "", "", "ActorDiedError", told == "ActorDiedError")


SHARED = (("NCCL_MULTI_RANK_GPU_ENABLE", "1"),)

ROWS: tuple[Row, ...] = (
    Row("latency", "latency of an edge", latency),
    Row("queues", "against queues of torch.multiprocessing, which copy nothing", compared("queue", copies=False)),
    Row("copies", "against copies through pinned memory, and pickles in host memory", compared("pinned", "host", copies=True)),
    Row("mps", "the multi-process service", mps),
    Row("held", "no wait of the host: the producer's stream is held", held),
    Row("waits", "host-side synchronizations", waits),
    Row("pipeline", "copies in a pipeline", pipeline),
    Row("bandwidth", "bandwidth of the copy into the pool", bandwidth),
    Row("nccl", "NCCL, ranks that share a GPU", nccl, SHARED),
    Row("shapes", "memory under changing shapes", shapes),
    Row("deaths", "memory after deaths", deaths),
)


# ------------------------------------------------------------------------------------------------ running
def main(words: list[str]) -> int:
    arguments = parse(words)
    rows = [row for row in ROWS if not arguments.only or any(word in row.key for word in arguments.only)]
    if not rows:
        print("no such row; there are:", *(row.key for row in ROWS), file=sys.stderr)
        return 2
    info = measure("header", SHARED, "tiny")
    if isinstance(info, str):
        print(info, file=sys.stderr)
        return 3
    scale = arguments.scale or ("tiny" if info["platform"] == "null" else "full")
    report = Report()
    report.say(title(info, scale))
    collected: dict[str, Any] = {"header": info, "scale": scale}
    failed = False
    for row in rows:
        figures = measure(row.key, row.variables, scale)
        collected[row.key] = figures
        report.say(f"\n{row.title}")
        for line in lines(row, figures):
            if line.timed and info["platform"] == "null":
                line = replace(line, passed=None)
            failed |= line.passed is False
            report.say(layout(line))
        # After each row: whoever stops the program keeps what there is.
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(collected, indent=1))
        if arguments.save:
            result_file(info).write_text(report.text)
    if arguments.save:
        print(f"\nwritten to {result_file(info)}")
    return int(failed)


def result_file(info: Figures) -> Path:
    device = re.sub(r"[^a-z0-9]+", "-", str(info["device"]).lower()).strip("-")
    return RESULTS / f"{datetime.date.today()}-{device}.txt"


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure GPU edges on this machine.")
    keys = ", ".join(row.key for row in ROWS)
    parser.add_argument("--only", nargs="+", metavar="WORD", help=f"rows whose key contains one of these words: {keys}")
    parser.add_argument("--quick", dest="scale", action="store_const", const="quick", help="fewer executions: a few minutes")
    parser.add_argument("--tiny", dest="scale", action="store_const", const="tiny", help="as few and small as possible")
    parser.add_argument("--json", metavar="FILE", help="write every figure there")
    parser.add_argument("--save", action="store_true", help="write what is printed to bench/results")
    return parser.parse_args(words)


def measure(row: str, variables: tuple[tuple[str, str], ...], scale: str) -> Figures | str:
    """The figures of one row, or what went wrong."""
    command = [sys.executable, str(HERE / "gpu_measure.py"), row, scale]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **{name: os.environ.get(name, value) for name, value in variables}, "PYTHONFAULTHANDLER": "1"},
    )
    try:
        output, errors = process.communicate(timeout=PATIENCE[scale])
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # prints its stacks
        try:
            _output, errors = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            _output, errors = process.communicate()
        return f"did not end within {PATIENCE[scale]} s:\n{errors[-3000:]}"
    if process.returncode:
        return f"ended with {process.returncode}:\n{errors[-3000:]}"
    try:
        figures: Figures = json.loads(output.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return f"printed no figures:\n{output[-1000:]}\n{errors[-2000:]}"
    return figures


# ------------------------------------------------------------------------------------------------- report
class Report:
    """Prints, and remembers what was printed."""

    def __init__(self) -> None:
        self.text = ""

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.text += text + "\n"


def title(info: Figures, scale: str) -> str:
    words = [f"bench/bench_gpu.py, {datetime.date.today()}, {info['device']}, {size(info['memory'])}, scale {scale}"]
    if info["platform"] == "cuda":
        torch = f"torch {info['torch']} (its NCCL {info['torch_nccl']})"
        words.append(f"driver {info['driver']}, CUDA {info['cuda']}, {torch}, {info['gpus']} GPUs")
    words.append(f"NCCL of mray: {info['nccl']}; Python {info['python']}, mray {info['mray']}, {info['cpus']} CPUs")
    return "\n".join(words)


def lines(row: Row, figures: Figures | str) -> list[Line]:
    if isinstance(figures, str):
        return [Line("FAILED", figures, passed=False)]
    if "skipped" in figures:
        return [Line("not measured", figures["skipped"])]
    return list(row.judge(figures))


def layout(line: Line) -> str:
    verdict = {None: "", True: "met", False: "MISSED"}[line.passed]
    if not (line.against or line.target):
        return f"  {line.what:<46} {line.value}"
    return f"  {line.what:<46} {line.value:>12}  {line.ratio:>9}  {line.target:>12} {verdict:<7} {line.against}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
