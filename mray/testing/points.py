"""Named points between the steps of the runtime's protocols, where tests delay or end a process.

A point is a comment on its own line, ``# POINT lease given up``: the name says what has just happened. Only a process that starts
with MRAY_POINTS in its environment compiles the comment to a call (and caches that bytecode separately). ``# POINT becomes node``
also sets the kind of the process; until then it is a driver. ``# POINT peer received: message[0]`` has a name that includes the value
of an expression: "peer received 11".

The setting is a JSON object, ``{"seed": 7, "rules": [...]}``. At each point every rule is tried in order. A rule is an object:

    ``at``       pattern of names (`fnmatch`), "*" by default
    ``in``       pattern of processes: driver, node, zygote, worker, actor, builder
    ``nth``      only the n-th time that this rule matches in this process, 1 for the first
    ``chance``   from 0 to 1, by the seed
    ``once``     a path: only the process that creates this file, which then holds "pid process name"
    ``while``    a path: only while such a file exists
    ``log``      a path: a file that gets a line "pid process name" first
    ``do``       ``nothing``, ``delay`` of 0 to ``seconds``, ``wait`` until a file ``<once>.go`` exists, ``raise`` a RuntimeError,
                 ``exit`` (SystemExit), ``_exit`` immediately with status 7, the name of a system error (EAGAIN, EMFILE ...), raised
                 as OSError, or of a signal that the process sends itself: SIGKILL, SIGSEGV, SIGTERM, SIGINT, SIGSTOP ...

Chance depends on the seed, the kind of process and, in workers, the number of workers forked before, so a program repeats about the
same events.

Rejected: calls that do nothing when the points are off: each task passes ten, and an empty call takes time.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

from mray._common import clock, settings

_MARK = b"# POINT "
POINT = re.compile(rb"^( *)# POINT ([a-z][a-z -]*[a-z])(?:: ([a-z_]+(?:\[\d+\])?))?$", re.MULTILINE)
_CALL = b"%b__import__('sys').modules['mray.testing.points'].reach('%b'%b)"
_BECOMES = "becomes "
_EXIT_STATUS = 7
_WAIT_LOOK = 0.002


class _Rule:
    def __init__(self, given: dict[str, Any]) -> None:
        unknown = given.keys() - {"at", "in", "nth", "chance", "once", "while", "log", "do", "seconds"}
        if unknown or "do" not in given or (given["do"] == "wait" and "once" not in given):
            raise ValueError(f"no rule for a point: {given!r}")
        self.at = given.get("at", "*")
        self.process = given.get("in", "*")
        self.nth = given.get("nth")
        self.chance = given.get("chance", 1.0)
        self.once = given.get("once")
        self.during = given.get("while")
        self.log = given.get("log")
        self.do = given["do"]
        self.seconds = given.get("seconds", 0.001)
        self.fitted = 0


class _Points:
    def __init__(self, given: dict[str, Any]) -> None:
        # When points are active.
        import fnmatch  # noqa: PLC0415
        import random  # noqa: PLC0415

        self._fits = fnmatch.fnmatchcase
        self._random = random.Random()
        self._seed = str(given.get("seed", 0))
        self._rules = [_Rule(rule) for rule in given.get("rules", ())]
        self._forks = 0
        self._process = "driver"
        self._sow()
        os.register_at_fork(before=self._count, after_in_child=self._sow)

    def _count(self) -> None:
        self._forks += 1

    def _sow(self) -> None:
        self._random.seed(f"{self._seed} {self._process} {self._forks}")

    def reach(self, name: str) -> None:
        if name.startswith(_BECOMES):
            self._process = name.removeprefix(_BECOMES)
            self._sow()
        for rule in self._rules:
            if not (self._fits(name, rule.at) and self._fits(self._process, rule.process)):
                continue
            rule.fitted += 1
            if rule.nth is not None and rule.fitted != rule.nth:
                continue
            if rule.chance < 1 and self._random.random() >= rule.chance:
                continue
            if rule.during is not None and not os.path.exists(rule.during):
                continue
            if rule.once is None or self._is_first(rule.once, name):
                self._do(rule, name)

    def _is_first(self, path: str, name: str) -> bool:
        draft = f"{path}.{os.getpid()}"
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {self._process} {name}")
            os.link(draft, path)  # readers never see a part
        except OSError:
            return False
        finally:
            if os.path.exists(draft):
                os.unlink(draft)
        return True

    def _do(self, rule: _Rule, name: str) -> None:
        if rule.log is not None:
            with open(rule.log, "ab", buffering=0) as log:  # one write: lines of several processes stay whole
                log.write(f"{os.getpid()} {self._process} {name}\n".encode())
        kind = rule.do
        if kind == "delay":
            clock.sleep(self._random.uniform(0, rule.seconds))
        elif kind == "wait":
            while not os.path.exists(f"{rule.once}.go"):
                clock.sleep(_WAIT_LOOK)
        elif kind == "raise":
            raise RuntimeError(f"raised at the point {name!r}")
        elif kind in errno.errorcode.values():
            number = getattr(errno, kind)
            raise OSError(number, os.strerror(number))
        elif kind == "exit":
            sys.exit(_EXIT_STATUS)
        elif kind == "_exit":
            os._exit(_EXIT_STATUS)
        elif kind != "nothing":
            import signal  # noqa: PLC0415

            os.kill(os.getpid(), signal.Signals[kind])


_points: _Points | None = None


def reach(name: str, which: object = None) -> None:
    """Apply the rules at a point. Any thread."""
    if _points is not None:
        _points.reach(name if which is None else f"{name} {which}")


def with_points(source: bytes) -> bytes:
    """A module's source with its points turned into calls; no line moves."""
    return POINT.sub(lambda found: _CALL % (found[1], found[2], b", " + found[3] if found[3] else b""), source)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if _MARK not in source:
            return super().get_code(fullname)
        import marshal  # noqa: PLC0415
        from importlib.util import cache_from_source, source_hash  # noqa: PLC0415

        source = with_points(source)
        kept, key = cache_from_source(path, optimization="points"), source_hash(path.encode() + source)
        try:
            found = self.get_data(kept)
        except OSError:
            found = b""
        if found.startswith(key):
            kept_code: CodeType = marshal.loads(found[len(key) :])
            return kept_code
        code: CodeType = self.source_to_code(source, path)
        if not sys.dont_write_bytecode:
            self.set_data(kept, key + marshal.dumps(code))  # atomic; ignored where the cache is read-only
        return code


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith("mray."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def switch_on() -> None:
    """Activate points of modules imported afterwards. Idempotent."""
    global _points
    given = settings.POINTS.get()
    if given and _points is None:
        _points = _Points(given)
        sys.meta_path.insert(0, _Finder)
