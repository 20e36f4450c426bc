"""Cut rounds of work at byte codes of mray's, one after the other, and look whether all is well after each.

    python sweep.py KIND [STRIDE [MANNER]]

MANNER `alarm`: a handler raises. `interrupt`: Ctrl-C. `collect`: the collector runs finalizers that call mray. `raise`: another thread
raises an error in this one; `raise-in-thread`: in a second one. `async`: an error that nobody can put off.
Prints a line of JSON: the places that were tried, and what was wrong there.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import json
import signal
import sys
import threading
import time
import traceback
import weakref
from typing import Any

from steps import as_own, at_step
from work import KINDS, twice

import mray


class Cut(Exception):
    """The error that comes from outside."""


def alarm(_number: int, _frame: Any) -> None:
    raise Cut


def raise_cut() -> None:
    raise Cut


class Cutter:
    """Raises in the handler of a signal."""

    def __init__(self, manner: str) -> None:
        self.number = signal.SIGINT if manner == "interrupt" else signal.SIGALRM
        if manner == "async":
            self.act = as_own(raise_cut)
            return
        if manner == "alarm":
            signal.signal(signal.SIGALRM, alarm)
        number = self.number
        # A signal comes from nowhere: the innermost function is mray's.
        self.act = as_own(lambda: signal.raise_signal(number))

    def land(self, came: bool) -> None:
        """The round has ended without the error: it may come now."""

    def settle(self, came: bool, was_cut: bool) -> str:
        """The fault of the error: it must have come, once; it is late when it comes now."""
        if not came or was_cut:
            return ""
        try:
            until = time.monotonic() + 2
            while time.monotonic() < until:
                pass
        except (Cut, KeyboardInterrupt):
            return "late"
        return "lost"


class Raiser:
    """Has another thread raise an error in this one, as stopit and func_timeout do."""

    def __init__(self) -> None:
        self.target = threading.get_ident()
        self.asked, self.begins, self.done = threading.Semaphore(0), threading.Event(), threading.Event()
        self.is_lost = False
        threading.Thread(target=self.serve, daemon=True).start()
        self.act = as_own(lambda: (self.asked.release(), self.begins.wait()))

    def serve(self) -> None:
        while self.asked.acquire():
            self.begins.set()
            assert ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.target), ctypes.py_object(Cut)) == 1
            self.done.set()

    def land(self, came: bool) -> None:
        until = time.monotonic() + 5
        while came and time.monotonic() < until:
            pass
        self.is_lost = came

    def settle(self, came: bool, _was_cut: bool) -> str:
        """The error comes where this thread may be cut and the other one sees it there: in the round, mostly, or soon after."""
        if came:
            self.done.wait()
        self.begins.clear()
        self.done.clear()
        lost, self.is_lost = self.is_lost, False
        return "lost" if lost else ""


class Garbage:
    """A cycle whose end calls mray."""

    def __init__(self, collector: Collector) -> None:
        self.itself = self
        self.collector = collector

    def __del__(self) -> None:
        self.collector.use("__del__")


class Watched:
    """A cycle with a weak reference that calls mray."""

    def __init__(self) -> None:
        self.itself = self


class Collector:
    """Has the garbage collector run finalizers."""

    def __init__(self, work: Any) -> None:
        gc.set_threshold(0)  # it runs when we say, unless it is off
        self.work = work
        self.actor: Any = None
        self.wrong = ""
        self.used = 0

    def use(self, where: str) -> None:
        """Of a finalizer: every verb."""
        if not mray.is_initialized():
            return
        try:
            value = self.used
            if self.work.may_nest and where == "__del__":
                with contextlib.suppress(RuntimeError):  # it is in the middle of a call
                    self.work.round(value)
            if where == "__del__":
                assert mray.get(mray.put(value), timeout=4) == value
                assert mray.get(twice.remote(value), timeout=4) == 2 * value
            else:
                refs = [twice.remote(value), mray.put(value)]
                mray.wait(refs, num_returns=2, timeout=4)
            self.used += 1
        except BaseException as error:
            self.wrong = f"{where}: {type(error).__name__}: {str(error)[:200]}"

    def act(self) -> None:
        Garbage(self)
        watched = Watched()
        self.reference = weakref.ref(watched, lambda _ref: self.use("weakref"))
        del watched
        if gc.isenabled():
            gc.collect()

    def land(self, came: bool) -> None:
        pass

    def settle(self, came: bool, _was_cut: bool) -> str:
        wrong, self.wrong = self.wrong, ""
        return wrong


def sweep(name: str, stride: int, manner: str) -> dict[str, Any]:
    """The numbers of one kind of work, in the session of this process: a driver, or the main thread of an actor."""
    work = KINDS[name]()
    cutter: Any = Raiser() if manner.startswith("raise") else Collector(work) if manner == "collect" else Cutter(manner)
    looks = True if manner == "async" or manner.startswith("raise") else False if manner == "collect" else None
    wrong: dict[str, str] = {}
    late: list[str] = []
    tried = k = 0
    begun = time.monotonic()
    for _ in range(3):
        work.round(0)
        work.check(0)
    while True:
        faulthandler.dump_traceback_later(60, exit=True)
        where = ""
        try:
            was_cut = True
            try:
                with at_step(k, cutter.act, looks=looks) as steps:
                    work.round(k)
                was_cut = False
                cutter.land(steps.came)
            except (Cut, KeyboardInterrupt):
                pass
            where = steps.where
            said = cutter.settle(steps.came, was_cut)
            if said == "late":
                late.append(where)
            elif said:
                wrong[where] = said
                print(where, said, file=sys.stderr)
            work.check(k)
            until = time.monotonic() + 5  # another thread may read just now
            while not gc.isenabled():
                assert time.monotonic() < until, "the collector is off"
                time.sleep(0.001)
            if not steps.came:
                break
        except BaseException as error:
            wrong[where or f"step {k}"] = f"{type(error).__name__}: {str(error)[:300]}" + traceback.format_exc()[-1500:]
            if len(wrong) > 5:
                break
        tried += 1
        k += stride
    faulthandler.dump_traceback_later(30, exit=True)
    if len(wrong) <= 5:
        work.end()
    return {"kind": name, "manner": manner, "tried": tried, "wrong": wrong, "late": late, "seconds": round(time.monotonic() - begun, 1)}


if __name__ == "__main__":
    kind = sys.argv[1]
    given = int(sys.argv[2]) if len(sys.argv) > 2 else getattr(KINDS[kind], "stride", 41)
    how = sys.argv[3] if len(sys.argv) > 3 else "alarm"
    mray.init(num_cpus=2, logging_level="ERROR")
    if how == "raise-in-thread":
        second = threading.Thread(target=lambda: print(json.dumps(sweep(kind, given, how)), flush=True))
        second.start()
        second.join()
    else:
        print(json.dumps(sweep(kind, given, how)), flush=True)
    mray.shutdown()
