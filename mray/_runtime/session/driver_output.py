"""The output of workers on the driver's own streams, and their notes about progress bars and breakpoints.

The reading thread queues lines and one thread prints them, so that a slow or stopped terminal blocks no other work. Lines that arrive
faster than they are printed are counted, and remain in the log files.

On a terminal and in a notebook each line gets the name and pid of its worker, in Ray's colours, and equal lines of several workers are
printed once, with a count of repetitions later. Elsewhere a program reads the lines, so each is printed as written. Settings turn either
on or off.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TextIO

from mray._common import messages as m
from mray._common import settings
from mray._common.clock import monotonic
from mray._common.log import logger
from mray._common.messages import NOTE_STREAM
from mray._common.places import sleeps
from mray._common.record import Record
from mray._runtime.session.breakpoints import Visitor
from mray._runtime.session.progress_bars import board, for_a_person
from mray.exceptions import RayError

if TYPE_CHECKING:
    from mray._runtime.client.client import Client

#: Seconds for which equal lines of other workers are counted instead of printed.
_WINDOW = 5.0
#: The most lines remembered for that time, and the longest, in characters.
_MOST_SEEN = 4096
_LONGEST_SEEN = 4096
#: The most characters that wait to be printed.
_BACKLOG = 8 << 20
#: Seconds that a thread with its value waits for a terminal that may be stopped.
_PATIENCE = 1.0

#: Ray's colours of the prefix, and of the count of repetitions.
_CYAN, _GREEN, _PLAIN = "\x1b[36m", "\x1b[32m", "\x1b[0m"

_HINT = " (Equal lines of several workers are printed once. Set RAY_DEDUP_LOGS=0 or MRAY_DEDUP_LOGS=0 to see all of them.)"

_Output = tuple[int, int, str, str]


class _Mark(Record):
    """A place in the queue that a thread waits for."""

    passed: threading.Event
    #: Print the counts of repeated lines here, since a cell of a notebook ends.
    ends_cell: bool


class _Repeated:
    """A line that has been printed once."""

    __slots__ = ("count", "last", "pids", "since", "stream")

    def __init__(self, pid: int, stream: int, since: float) -> None:
        self.pids = {pid}
        self.count = 0
        self.last = ""
        self.stream = stream
        self.since = since


class OutputPrinter:
    def __init__(self, client: Client | None = None) -> None:
        """With a `client`, threads that have waited for values there first see what workers have said about their bars by then."""
        self._client = client
        self._deduplicate = settings.DEDUP_LOGS.get()
        self._prefix = settings.LOG_PREFIX.get()
        self._seen: dict[tuple[int, str], _Repeated] = {}
        self._hinted = False
        self._queue: SimpleQueue[_Output | _Mark | None] = SimpleQueue()
        #: Characters put into the queue, and taken out of it: each field has one writer.
        self._put = 0
        self._taken = 0
        self._unshown = 0
        #: Notes that have arrived, and those of them that were taken: each field has one writer.
        self._notes = 0
        self._noted = 0
        #: Stream -> pid and name of the worker of the unfinished line, and whether its beginning was printed as a whole line.
        self._begun: dict[int, tuple[int, str, bool]] = {}
        self._visitor = Visitor()
        # Started now, since the first line may arrive while the interpreter exits, when no thread can be started.
        self._thread: threading.Thread | None = threading.Thread(name="mray-output", daemon=True)
        # On the instance: ipykernel 6 wraps the class's method, and shows what a thread prints under the cell that started it.
        self._thread.run = self._run  # type: ignore[method-assign]
        self._thread.start()
        ipython = sys.modules.get("IPython")
        self._shell = None if ipython is None or client is None else ipython.get_ipython()
        if self._shell is not None:
            self._shell.events.register("post_run_cell", self._end_cell)

    def on_output(self, _node: Any, pid: int, stream: int, name: str, text: str) -> None:
        """Queue lines of one worker (the last may be unfinished), or a note. Does not wait. Reading thread, with the client's lock."""
        if stream != NOTE_STREAM and self._put - self._taken > _BACKLOG:
            self._unshown += text.count("\n")
            return
        if stream == NOTE_STREAM:
            self._notes += 1
            client = self._client
            if client is not None and '"progress"' in text:
                client.objects.after_wait = self._catch_up  # before the value whose task has sent it
        if self._unshown:
            lines, self._unshown = self._unshown, 0
            self._queue.put((0, 2, "mray", f"{lines} lines came faster than they were printed; they are in the session's logs\n"))
        self._put += len(text)
        self._queue.put((pid, stream, name, text))

    def flush(self) -> None:
        """Print the queue and the counts of repeated lines, and end. Blocks as long as the driver's streams do."""
        self._visitor.close()
        if self._shell is not None:
            with contextlib.suppress(ValueError):  # IPython has reset its events
                self._shell.events.unregister("post_run_cell", self._end_cell)
            self._shell = None
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None
        self._report_all()
        for stream in (1, 2):
            self._end_line(stream)
        board.unhide_bars()
        board.forget_others()
        if self._client is not None:
            self._client.objects.after_wait = None
            self._client = None  # it refers to this printer, and holds mappings until it is freed

    @sleeps
    def _catch_up(self, ends_cell: bool = False) -> None:
        """Print what workers have printed by now, and draw their bars so. Any thread, after it has waited for a value."""
        client = self._client
        if self._thread is None or client is None:
            return
        with contextlib.suppress(RayError):  # the thread has its value, and the next call says what happened
            client.ask(m.QUERY, "printed", [])
            mark = _Mark(threading.Event(), ends_cell)
            self._queue.put(mark)
            mark.passed.wait(_PATIENCE)

    def _end_cell(self, _result: object = None) -> None:
        """Called by IPython: what a cell has printed, counts of repeated lines too, does not stand under a later one."""
        self._catch_up(ends_cell=True)

    # ------------------------------------------------------------------------------------ the printing thread
    def _run(self) -> None:
        while True:
            try:
                output = self._queue.get(timeout=self._timeout())
            except Empty:
                board.unhide_bars()
                self._expire(monotonic())
                self._visitor.look()
                continue
            if output is None:
                return
            if isinstance(output, _Mark):
                if output.ends_cell:
                    self._report_all()
                output.passed.set()
                continue
            try:
                self._take(*output)
            except Exception:
                # It must not silence all workers.
                logger.exception("printing failed")
            self._taken += len(output[3])
            if self._queue.empty():
                board.unhide_bars()

    def _timeout(self) -> float | None:
        """Seconds until the next action without a new line; None for none."""
        if self._visitor.waits:
            return self._visitor.LOOK_SECONDS
        if not self._seen:
            return None
        oldest = next(iter(self._seen.values()))
        return max(0.0, oldest.since + _WINDOW - monotonic()) + 0.001

    def _take(self, pid: int, stream: int, name: str, text: str) -> None:
        if stream == NOTE_STREAM:
            self._noted += 1
            try:
                self._note(pid, name, json.loads(text))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
                logger.warning("pid %d printed what looks like a note to its driver and is none: %r", pid, error)
            return
        board.hide_bars()
        target: TextIO | None = sys.stdout if stream == 1 else sys.stderr
        shown_to_person = for_a_person(target)
        prefixed = (shown_to_person if self._prefix is None else self._prefix) or not pid
        deduplicated = shown_to_person if self._deduplicate is None else self._deduplicate
        head = "" if not prefixed else f"({name})" if not pid else f"({name} pid={pid})" if name else f"(pid={pid})"
        if head:
            head = f"{_CYAN}{head}{_PLAIN} " if shown_to_person else f"{head} "
        # Not splitlines: a carriage return, a form feed and others end no line for a program that reads this.
        lines = text.split("\n")
        as_written = not head and not deduplicated
        continues = self._begun.get(stream) == (pid, name, not as_written)
        if not continues:
            self._end_line(stream)
        if lines[-1]:
            self._begun[stream] = (pid, name, not as_written)
        else:
            self._begun.pop(stream, None)
            del lines[-1]
        if as_written:
            _print(stream, text)
        elif continues and text == "\n":
            return  # its beginning is printed as a whole line
        elif deduplicated:
            for line in lines:
                self._line(pid, stream, head + line, line)
        else:
            _print(stream, "".join(f"{head}{line}\n" for line in lines))

    def _end_line(self, stream: int) -> None:
        """End an unfinished line: another worker prints, or no more output arrives."""
        _pid, _name, has_line = self._begun.pop(stream, (0, "", True))
        if not has_line:
            _print(stream, "\n")

    def _note(self, pid: int, name: str, said: dict[str, Any]) -> None:
        kind = said.get("kind")
        if kind == "progress":
            board.process_state_update(said["state"])
            self._release_waits()
        elif kind == "breakpoint":
            board.hide_bars()
            self._visitor.announce(pid, name, said)
        elif kind == "gone":
            board.forget(pid)
            self._release_waits()

    def _release_waits(self) -> None:
        """Threads that have waited need not look at bars while there are none."""
        client = self._client
        if client is not None and not board.shows_others():
            objects = client.objects
            objects.after_wait = None
            if self._notes != self._noted:
                objects.after_wait = self._catch_up  # one has arrived meanwhile

    # ------------------------------------------------------------------------------------ equal lines
    def _line(self, pid: int, stream: int, shown: str, line: str) -> None:
        now = monotonic()
        self._expire(now)
        if len(line) > _LONGEST_SEEN or not line.strip():
            _print(stream, shown + "\n")
            return
        key = stream, line
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = _Repeated(pid, stream, now)
            _print(stream, shown + "\n")
        elif seen.pids == {pid}:
            _print(stream, shown + "\n")  # repetitions of one process are all shown
        else:
            seen.pids.add(pid)
            seen.count += 1
            seen.last = shown

    def _expire(self, now: float) -> None:
        seen = self._seen
        while seen:
            key = next(iter(seen))
            if len(seen) <= _MOST_SEEN and now - seen[key].since <= _WINDOW:
                break
            self._report(seen.pop(key))

    def _report_all(self) -> None:
        for seen in self._seen.values():
            self._report(seen)
        self._seen.clear()

    def _report(self, seen: _Repeated) -> None:
        if seen.count == 1:
            _print(seen.stream, seen.last + "\n")
        elif seen.count:
            hint = "" if self._hinted else _HINT
            self._hinted = True
            count = f" [repeated {seen.count}x]"
            if for_a_person(sys.stdout if seen.stream == 1 else sys.stderr):
                count = f"{_GREEN}{count}{_PLAIN}"
            _print(seen.stream, f"{seen.last}{count}{hint}\n")


def _print(stream: int, text: str) -> None:
    target: TextIO | None = sys.stdout if stream == 1 else sys.stderr
    if target is not None:
        try:
            # One write, since threads of the user print too, and could come between a line and its end.
            try:
                target.write(text)
            except UnicodeEncodeError:  # nothing was written
                coding = target.encoding or "ascii"
                target.write(text.encode(coding, "backslashreplace").decode(coding))
            target.flush()
        except (OSError, ValueError):
            pass  # the driver has closed its stream
