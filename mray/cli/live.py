"""The live page: the sessions of this user in a browser.

In the process that serves it: ``mray top --web``, or a driver (``init(web=True)``).

    browser ──GET /, /live.js, /live.css──▶ server on 127.0.0.1               the page, which is the same for every client
            ──GET /look, /stack, ... with the token──▶ ──▶ `look`, `gather` ──▶ the session's node and processes

The page polls after it has shown an answer, and not while it is hidden, so without a page no process is queried. The address has the
token behind ``#``, which browsers do not send. A request must carry it, come from a process of this user, and name this machine as its
host, so that a page of another site cannot read anything through a name that resolves to this machine.

Rejected: a server that runs in each session whether or not it is used, as Ray's dashboard; a framework and a build step for the page.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mray._api.current import backend_if_started
from mray._backends.session_trace import timeline
from mray._common.clock import monotonic_ns
from mray._inside.sessions import is_alive, sessions
from mray._observe.log_files import process_of, read_logs
from mray._observe.observer import SessionGoneError
from mray._picture.page import page
from mray._picture.timeline_page import left_out, timeline_page
from mray.cli.commands.stack import find_py_spy, of_user, processes_of, stacks_of
from mray.cli.loopback import LOOPBACK, LoopbackRequest, LoopbackServer
from mray.cli.manual import read
from mray.util.state._select import in_order
from mray.util.state.api import SessionView, list_logs, look, programs_of
from mray.util.state.common import RECORDS, TaskState
from mray.util.state.exception import RayStateApiException, ServerUnavailable

#: seconds that the processes of a session have to answer
_PATIENCE = 3.0
#: rows of tasks and objects; lines of logs, their bytes, and the bytes that are searched for lines with the words of a filter
_MOST_ROWS, _MOST_LINES, _MOST_BYTES, _MOST_SEARCHED = 200, 2000, 200_000, 4_000_000
#: records in every answer
_KINDS = ("nodes", "jobs", "workers", "actors", "graphs", "channels")
_FILES = {
    "/": ("live.html", "text/html"),
    "/live.css": ("live.css", "text/css"),
    "/live.js": ("live.js", "text/javascript"),
}
#: The timeline, in a frame, has an inline script.
_RULES = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors "
_OF_PAGE = _RULES + "'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; frame-src 'self'"
_OF_FRAME = _RULES + "'self'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"

Query = dict[str, str]


# ------------------------------------------------------------------------------------------------ answers
def directories(also: str = "") -> list[str]:
    """The sessions that can be shown: this process's own, one that was named, and all others of its user."""
    backend = backend_if_started()
    own = [str(backend.info()["session_dir"])] if backend is not None else []
    named = [also] if also and is_alive(also) else []
    return list(dict.fromkeys([*own, *named, *sessions()]))


def _view(query: Query) -> SessionView:
    directory = query.get("session", "")
    if directory not in directories(query["also"]):
        raise ServerUnavailable(f"The session {os.path.basename(directory)} has ended.")
    return look(directory, _PATIENCE)


def _sessions(query: Query) -> Any:
    found = directories(query["also"])
    return [{"session_dir": each, "name": os.path.basename(each), "programs": programs_of(each)} for each in found]


def _look(query: Query) -> Any:
    """Few records of every kind, and the session's shortages."""
    view = _view(query)
    view.ask("work", "waits", "programs", "graphs")
    found = {kind: [record.asdict() for record in in_order(RECORDS[kind], view.records(RECORDS[kind]))] for kind in _KINDS}
    told = {name: view.node[name] for name in ("object_store_memory", "spilled_bytes", "demands")}
    return {**found, **told, "missing": view.missing, "load": os.getloadavg()[0], "cores": len(os.sched_getaffinity(0))}


def _tasks(query: Query) -> Any:
    found, total = _view(query).listing(TaskState, (), _MOST_ROWS)
    return {"rows": [record.asdict() for record in found], "total": total}


def _objects(query: Query) -> Any:
    found, total = _view(query).largest_objects(_MOST_ROWS)
    return {"rows": [record.asdict() for record in found], "total": total}


def _picture(query: Query) -> Any:
    told = _view(query).ask("pictures")
    return next((found for answers in told.values() for found in [(answers.get("pictures") or {}).get(query.get("graph"))] if found), "")


def _stack(query: Query) -> Any:
    view = _view(query)
    row = next((row for row in processes_of(view) if str(row["pid"]) == query.get("pid")), None)
    if row is None:
        raise ServerUnavailable(f"The process {query.get('pid')} has ended.")
    return of_user(stacks_of(view, row, find_py_spy()))


def _logs(query: Query) -> Any:
    directory = _view(query).directory
    names = [name for found in list_logs(directory).values() for name in found]
    return [{"file": name, "bytes": os.path.getsize(os.path.join(directory, "logs", name)), "pid": process_of(name)[0]} for name in names]


def _log(query: Query) -> Any:
    """The last lines of a file, of a process, or of all files; with `wanted`, those that have these words."""
    directory = _view(query).directory
    names = [name for found in list_logs(directory).values() for name in found]
    if "file" in query:
        if query["file"] not in names:
            raise ServerUnavailable(f"The session has no log {query['file']}.")
        names = [query["file"]]
    elif "pid" in query:
        names = [name for name in names if str(process_of(name)[0]) == query["pid"]]
    wanted = query.get("wanted", "").lower().encode()
    most = _MOST_SEARCHED if wanted else _MOST_BYTES
    found = read_logs(directory, names, _MOST_LINES, most, lambda line: wanted in line.lower(), _PATIENCE)
    lines, left = found.lines, _MOST_BYTES
    for at, line in enumerate(reversed(lines)):
        left -= len(line.text)
        if left < 0 < at:
            lines = lines[-at:]
            break
    rows = [[line.time, line.printer(), line.text.decode("utf-8", "replace")] for line in lines]
    return {"lines": rows, "bytes": found.size, "read": found.read, "cut": found.is_cut or left < 0}


def _timeline(query: Query) -> str:
    since = monotonic_ns() - int(float(query.get("seconds", "10")) * 1e9)
    trace = timeline(_view(query).directory, _PATIENCE, with_running=True, since=since)
    first = min((span.begin for each in trace.recordings for span in each.spans), default=since)
    begin = max(0, since - first) * 1e-9
    lost = trace.info["lost"]
    try:
        return timeline_page(trace.recordings, begin=begin, lost=lost, called=trace.functions)[0]
    except ValueError:
        return page("timeline", [], [], [], [], ["Nothing has run in this time.", *left_out(lost)])


_ANSWERS: dict[str, Callable[[Query], Any]] = {
    "/sessions": _sessions,
    "/look": _look,
    "/tasks": _tasks,
    "/objects": _objects,
    "/picture": _picture,
    "/stack": _stack,
    "/logs": _logs,
    "/log": _log,
    "/timeline": _timeline,
}


# ------------------------------------------------------------------------------------------------- server
class LivePage(LoopbackServer):
    """Serves the page until it is closed, first for the session in this directory. OSError for a port that is taken."""

    #: A browser sends at most six requests at a time.
    most_threads = 8

    def __init__(self, port: int = 0, session: str = "") -> None:
        self.session = session
        self.token = secrets.token_urlsafe(24)
        super().__init__(port, _Request, "mray's live page")
        self.address = f"http://{LOOPBACK}:{self.server_port}/#{self.token}{f':{os.path.basename(session)}' if session else ''}"


class _Request(LoopbackRequest):
    server: LivePage  # type: ignore[assignment]

    def answer(self) -> None:
        """403 for a wrong token, 503 where the session has ended or does not answer."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path in _FILES:
            file, kind = _FILES[url.path]
            self._send(200, kind, read(file))
        elif not hmac.compare_digest(self._token(url.path, query).encode(), self.server.token.encode()):
            self._send(403, "text/plain", "The address lacks its token: open the one that mray has printed.")
        elif url.path not in _ANSWERS:
            self._send(404, "text/plain", "There is nothing here.")
        else:
            self._answer(url.path, {**query, "also": self.server.session})

    def _token(self, path: str, query: Query) -> str:
        """A frame cannot send a header, so its address has the token."""
        return self.headers.get("X-Token") or (query.get("token", "") if path == "/timeline" else "")

    def _answer(self, path: str, query: Query) -> None:
        try:
            found = _ANSWERS[path](query)
        except (RayStateApiException, SessionGoneError, TimeoutError, OSError) as error:
            self._send(503, "application/json", json.dumps({"error": str(error)}))
        except Exception as error:  # the page shows it, and continues
            self._send(500, "application/json", json.dumps({"error": f"{type(error).__name__}: {error}"}))
        else:
            if path == "/timeline":
                self._send(200, "text/html", found, _OF_FRAME)
            else:
                self._send(200, "application/json", json.dumps(found, default=str))

    def _send(self, status: int, kind: str, text: str, rules: str = _OF_PAGE) -> None:
        more = {"Cache_Control": "no-store", "Referrer_Policy": "no-referrer", "X_Content_Type_Options": "nosniff"}
        self.send(status, kind, text, Content_Security_Policy=rules, **more)
