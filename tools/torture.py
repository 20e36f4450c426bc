#!/usr/bin/env python3
"""Torture mray: everything at once, while processes are killed, and every answer compared with what it must be.

    tools/torture.py                               a minute: a kill every 200 ms on average, delays and faults at points of the runtime
    tools/torture.py --seconds 3600 --seed 7       an hour
    tools/torture.py --sessions                    sessions whose driver, node or zygote is killed, too, one after the other
    tools/torture.py --only graphs puts            some of the stories
    tools/torture.py --takes 0                     nobody takes anything away

This process starts a driver (`torture_work.py`, which says what is done and what must come out of it), kills at moments of its own, looks
whether every thread of the driver gets on, and in the end whether anything is left: processes, shared memory and semaphores, sessions'
directories and sockets, and of the driver and the node open files and memory, the last third of the run against the one before it. On a
failure it prints the seed and the story; of a hang all stacks.

Exit status 0: no wrong answer, no hang, nothing left; else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Of the processes that are started: this process's own may have what the interpreter lacks.
PYTHON_PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
WORK = Path(__file__).resolve().parent / "torture_work.py"
MARK = "MRAY_TORTURE_MARK"
#: Seconds that a story may take before it counts as hanging, and that a driver may take to end.
HANG = 120.0
#: Seconds that what has ended may take to be gone.
PATIENCE = 30.0
#: Bytes by which the memory of a process may grow from the second third of the run to the last; descriptors likewise.
GROWTH_BYTES = 4 << 20
GROWTH_SHARE = 0.05
GROWTH_FILES = 20
#: Seconds from which on a run is long enough to see that.
LONG = 300
#: Manners of death with their weights; a pause is none, and goes unnoticed.
MANNERS = {"SIGKILL": 8, "SIGSEGV": 2, "SIGTERM": 2, "pause": 1}
#: The end of an object's name in shared memory: its owner, its producer and a number. It lies where its name says.
OBJECT = re.compile(r"-[0-9a-f]{16}-[0-9a-f]{17,}$")
#: The one file of a session that is for those who come later, such as a look at what hangs.
FOR_NEWCOMERS = "node.sock"


class Torture:
    """One driver and its session."""

    def __init__(self, options: argparse.Namespace, seed: int, seconds: float, folder: Path) -> None:
        self.options = options
        self.seed = seed
        self.seconds = seconds
        self.random = random.Random(f"torture {seed}")
        self.folder = folder
        #: Where its session lies. A longer path would have no room for the names of sockets.
        self.sessions = folder / "s"
        self.sessions.mkdir(0o700, parents=True)
        self.mark = f"{os.getpid()}-{time.time_ns():x}"
        self.kills: dict[str, int] = {}
        self.samples: dict[str, list[tuple[int, int]]] = {"driver": [], "node": []}
        self.tokens: set[str] = set()
        self.counts: dict[str, int] = {}
        self.fatal = ""
        (self.folder / "killed").touch()

    # --------------------------------------------------------------------------------------- the driver
    def start(self) -> None:
        log = str(self.folder / "killed")
        rules: list[dict[str, Any]] = [{"chance": self.options.delays, "do": "delay", "seconds": 0.005}]
        for kind in ("worker", "actor"):
            rules.append({"in": kind, "chance": self.options.deaths, "do": "SIGKILL", "log": log})
            rules.append({"in": kind, "at": "* heard *", "chance": self.options.faults, "do": "raise", "log": log})
        environ = {**os.environ, "MRAY_TMPDIR": str(self.sessions), MARK: self.mark, "PYTHONPATH": PYTHON_PATH}
        environ.pop("MRAY_POINTS", None)
        if self.options.delays or self.options.deaths or self.options.faults:
            environ["MRAY_POINTS"] = json.dumps({"seed": self.seed, "rules": rules})
        numbers = [str(self.seed), str(self.options.threads), str(self.seconds)]
        words = [sys.executable, str(WORK), str(self.folder), *numbers, *self.options.only]
        self.output = open(self.folder / "output", "wb")  # noqa: SIM115  (closed in `close`)
        self.driver = subprocess.Popen(words, env=environ, stdout=self.output, stderr=subprocess.STDOUT, cwd=self.folder)

    def run(self) -> list[str]:
        """Torture until the driver ends; what is wrong, in words."""
        self.start()
        if not self.wait_ready():
            return [f"the driver did not start: status {self.driver.poll()}", self.told()]
        self.note_sessions()
        if not self.tokens:
            return [f"its session is not below {self.sessions}"]
        rate = 1 / self.options.every
        begun = time.monotonic()
        due = begun + self.random.expovariate(rate)
        pace = max(0.5, self.seconds / 120)
        look = begun + pace
        fatal_at = begun + self.random.uniform(0.2, 1) * self.seconds if self.options.sessions else float("inf")
        calm_since: float | None = None
        while self.driver.poll() is None:
            now = time.monotonic()
            calm = (self.folder / "calm").exists()
            if calm and calm_since is None:
                calm_since = now
            if not calm and now >= due:
                due = max(now, due) + self.random.expovariate(rate)
                self.kill_somebody()
                if self.random.random() < self.options.takes:
                    self.take_away()
            if not calm and now >= fatal_at:
                fatal_at = float("inf")
                self.kill_the_session()
            if now >= look and not calm:
                look = now + pace
                self.sample()
                hanging = self.hanging(now)
                if hanging:
                    return self.hung(f"hangs: {hanging}")
            if calm_since is not None and now - calm_since > HANG:
                return self.hung("the driver does not end")
            if self.fatal.startswith("driver") and now - begun > self.seconds + HANG:
                return self.hung("the driver lives on")
            time.sleep(0.005)
        return self.judge()

    def wait_ready(self) -> bool:
        deadline = time.monotonic() + HANG
        while not (self.folder / "ready").exists():
            if self.driver.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    def told(self) -> str:
        return (self.folder / "output").read_text(errors="replace")

    # --------------------------------------------------------------------------------------- victims
    def node(self) -> int:
        return next((pid for pid in children(self.driver.pid) if title(pid).startswith("ray::node")), 0)

    def zygote(self) -> int:
        return next((pid for pid in children(self.node()) if title(pid).startswith("ray::zygote")), 0)

    def kill_somebody(self) -> None:
        zygote, node = self.zygote(), self.node()
        if zygote and self.random.random() < self.options.zygotes:
            self.kill(zygote, "zygote", "SIGKILL")
            return
        # Without its title it may be the next zygote: a session ends when three of them die in a row without having forked.
        victims = [pid for pid in (*children(zygote), *children(node)) if pid != zygote and title(pid).startswith("ray::")]
        if victims:
            self.kill(self.random.choice(victims), "worker", self.random.choices([*MANNERS], [*MANNERS.values()])[0])

    def kill_the_session(self) -> None:
        who = self.random.choice(["driver", "node", "both", "node and zygote"])
        self.fatal = who
        (self.folder / "fatal").write_text(who)
        pids = {"driver": [self.driver.pid], "node": [self.node()], "both": [self.driver.pid, self.node()]}.get(
            who, [self.node(), self.zygote()]
        )
        for pid in pids:
            if pid:
                self.kill(pid, who, "SIGKILL")

    def kill(self, pid: int, what: str, manner: str) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if self.mark.encode() not in Path(f"/proc/{pid}/environ").read_bytes():
                return
            if manner == "pause":
                signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
                time.sleep(self.random.random() * 0.1)
                signal.pidfd_send_signal(pidfd, signal.SIGCONT)
            else:
                with open(self.folder / "killed", "ab", buffering=0) as log:
                    log.write(f"{pid} {manner} {title(pid)[:12]!r}\n".encode())
                signal.pidfd_send_signal(pidfd, signal.Signals[manner])
            name = f"{what} {manner}"
            self.kills[name] = self.kills.get(name, 0) + 1
        except OSError:
            pass
        finally:
            os.close(pidfd)

    def take_away(self) -> None:
        """Remove what a session that lives does not need: names in shared memory, or files in its directory. Nobody may notice."""
        if self.random.random() < 0.5:
            what = "names"
            starts = tuple(f"mray-{token}-" for token in self.tokens)
            found = [Path("/dev/shm", name) for name in os.listdir("/dev/shm") if name.startswith(starts) and not OBJECT.search(name)]
        else:
            what = "files"
            found = [path for path in self.sessions.glob("*/session_*/*") if path.is_file() and path.name != FOR_NEWCOMERS]
        for path in found:
            path.unlink(missing_ok=True)
        name = f"{what} taken away"
        self.kills[name] = self.kills.get(name, 0) + 1

    # --------------------------------------------------------------------------------------- looking on
    def hanging(self, now: float) -> str:
        beats = (self.folder / "beats").read_bytes()
        times = struct.unpack(f"{len(beats) // 8}d", beats)
        late = [f"thread {number} for {now - time:.0f} s" for number, time in enumerate(times) if time and now - time > HANG]
        return ", ".join(late)

    def hung(self, text: str) -> list[str]:
        """Print all stacks, then end everything."""
        stacks = subprocess.run(
            [sys.executable, "-m", "mray", "stack", "--no-py-spy"],
            env={**os.environ, "MRAY_TMPDIR": str(self.sessions), "PYTHONPATH": PYTHON_PATH},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        with contextlib.suppress(OSError):
            os.kill(self.driver.pid, signal.SIGUSR1)
        time.sleep(1)
        tree = "\n".join(f"{pid} {title(pid)} {state(pid)}" for pid in marked(self.mark))
        return [text, self.told(), stacks.stdout, stacks.stderr, tree]

    def note_sessions(self) -> None:
        self.tokens.update(path.name.rpartition("_")[2] for path in self.sessions.glob("*/session_*"))

    def sample(self) -> None:
        for name, pid in (("driver", self.driver.pid), ("node", self.node())):
            with contextlib.suppress(OSError, IndexError):
                self.samples[name].append((private_bytes(pid), len(os.listdir(f"/proc/{pid}/fd"))))

    def judge(self) -> list[str]:
        """Problems after the driver's end."""
        wrong = []
        status = self.driver.returncode
        died = self.fatal in ("driver", "both")
        if status != 0 and not (died and status == -signal.SIGKILL):
            wrong.append(f"the driver ended with {status}")
            wrong.append(self.told())
        with contextlib.suppress(OSError, ValueError):
            self.counts = json.loads((self.folder / "counts").read_text())
        if self.fatal == "both":
            # Nobody is left to clean: the next session sweeps.
            subprocess.run(
                [sys.executable, "-c", "import mray; mray.init(num_cpus=1); mray.shutdown()"],
                env={**os.environ, "MRAY_TMPDIR": str(self.sessions), "PYTHONPATH": PYTHON_PATH},
                capture_output=True,
                check=True,
            )
        deadline = time.monotonic() + PATIENCE
        while left := self.left():
            if time.monotonic() > deadline:
                wrong += ["left behind:", *left]
                break
            time.sleep(0.05)
        return wrong + self.growth()

    def left(self) -> list[str]:
        left = [f"process {pid} {title(pid)}" for pid in marked(self.mark)]
        left += [f"shared memory {name}" for name in os.listdir("/dev/shm") if any(token in name for token in self.tokens)]
        # `os.walk` passes over what goes while it looks.
        for folder, folders, files in os.walk(self.sessions):
            folders[:] = [name for name in folders if name != "last"]  # of ended sessions
            left += [f"file {folder}/{name}" for name in (*folders, *files) if name.startswith("session_") or name.endswith(".sock")]
        return left

    def growth(self) -> list[str]:
        """Where memory or descriptors were not flat: the medians of the last two thirds."""
        wrong = []
        if self.seconds < LONG:
            return []  # it has not yet seen everything that it keeps for later
        for name, samples in self.samples.items():
            third = len(samples) // 3
            if not third:
                continue  # it has failed at once
            for what, index, most in (("bytes", 0, GROWTH_BYTES), ("open files", 1, GROWTH_FILES)):
                second = statistics.median(sample[index] for sample in samples[third : 2 * third])
                last = statistics.median(sample[index] for sample in samples[2 * third :])
                if last - second > max(most, second * GROWTH_SHARE if index == 0 else 0):
                    wrong.append(f"the {name} grows: {what} {second:.0f} in the second third, {last:.0f} in the last")
        return wrong

    def thirds(self) -> str:
        told = []
        for name, samples in self.samples.items():
            third = len(samples) // 3
            if third:
                parts = (samples[:third], samples[third : 2 * third], samples[2 * third :])
                memory = " ".join(f"{statistics.median(sample[0] for sample in part) / 1e6:.1f}" for part in parts)
                files = " ".join(f"{statistics.median(sample[1] for sample in part):.0f}" for part in parts)
                told.append(f"{name}: {memory} MB private, {files} open files (medians of thirds)")
        return "; ".join(told)

    def close(self, keep: bool) -> None:
        self.output.close()
        for pid in marked(self.mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.driver.wait()
        for name in os.listdir("/dev/shm"):
            if any(token in name for token in self.tokens):
                Path("/dev/shm", name).unlink(missing_ok=True)
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


# ------------------------------------------------------------------------------------------- processes
def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def marked(mark: str) -> list[int]:
    """The living processes of a run."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                if f"{MARK}={mark}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


def private_bytes(pid: int) -> int:
    """Memory of the process that is no shared memory and no file."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:"))


# ------------------------------------------------------------------------------------------- the program
def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0], allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to start stories")
    parser.add_argument("--seed", type=int, default=None, help="of stories, kills and delays; chosen and printed by default")
    parser.add_argument("--every", type=float, default=0.2, help="seconds between two kills, on average")
    parser.add_argument("--threads", type=int, default=4, help="threads of the driver")
    parser.add_argument("--delays", type=float, default=0.002, help="chance of a delay at each point of the runtime")
    parser.add_argument("--deaths", type=float, default=0.00002, help="chance of a death at each point of a worker")
    parser.add_argument("--faults", type=float, default=0.0001, help="chance that a worker fails at a message that it has read")
    parser.add_argument("--zygotes", type=float, default=0.01, help="share of the kills that meet the zygote")
    parser.add_argument("--takes", type=float, default=0.05, help="chance that with a kill names and files are taken away too")
    parser.add_argument("--sessions", action="store_true", help="many short sessions, each of whose driver, node or both are killed")
    parser.add_argument("--only", nargs="*", default=[], help="names of stories")
    parser.add_argument("--keep", action="store_true", help="keep the folder of a run that failed")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 30) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)

    base = Path(tempfile.mkdtemp(prefix="mtt", dir=os.environ.get("TMPDIR", "/tmp")))
    begun = time.monotonic()
    counts: dict[str, int] = {}
    kills: dict[str, int] = {}
    rounds = 0
    wrong: list[str] = []
    thirds = ""
    chance = random.Random(seed)
    try:
        while not wrong and (rounds == 0 or (options.sessions and time.monotonic() - begun < options.seconds)):
            seconds = chance.uniform(0.5, 6) if options.sessions else options.seconds
            torture = Torture(options, seed if not options.sessions else chance.randrange(1 << 30), seconds, base / str(rounds))
            try:
                wrong = torture.run()
            finally:
                torture.close(keep=options.keep and bool(wrong))
            rounds += 1
            for total, more in ((counts, torture.counts), (kills, torture.kills)):
                for name, number in more.items():
                    total[name] = total.get(name, 0) + number
            thirds = torture.thirds()
            if wrong:
                print(f"FAILED after {time.monotonic() - begun:.0f} s; seed {seed}, seed of the session {torture.seed}")
                print("\n".join(wrong), flush=True)
                if options.keep:
                    print(f"kept: {torture.folder}")
    finally:
        if not (wrong and options.keep):
            shutil.rmtree(base, ignore_errors=True)
    stories = sum(number for name, number in counts.items() if not name.startswith("told"))
    print(f"{time.monotonic() - begun:.0f} s, {rounds} sessions, {stories} stories, {sum(kills.values())} kills; seed {seed}")
    print(f"stories: {json.dumps(dict(sorted(counts.items())))}")
    print(f"kills: {json.dumps(dict(sorted(kills.items())))}")
    if thirds and not options.sessions:
        print(thirds)
    print("FAILED" if wrong else "no wrong answer, no hang, nothing left", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
