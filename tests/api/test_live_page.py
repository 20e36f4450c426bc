"""The live page: who may read it, that it says the same as the listings, and how it looks in a real browser."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mray._inside.spans import Recording
from mray._picture.timeline_page import timeline_page
from mray._trace.kinds import CALL
from mray._trace.span import Span
from mray.cli import live, loopback
from mray.util import state
from mray.util.state.common import ActorState, WorkerState
from tests.house.chromium import PROGRAM, Chromium

pytestmark = pytest.mark.only("mray")
Eventually = Callable[..., None]


@pytest.fixture
def page() -> Iterator[live.LivePage]:
    served = live.LivePage()
    yield served
    served.close()
    assert not served.thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.server_port))


def get(page: live.LivePage, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer; with the token unless `X_Token` is given."""
    connection = http.client.HTTPConnection("127.0.0.1", page.server_port, timeout=60)
    try:
        connection.request("GET", path, headers={"X-Token": page.token} | {name.replace("_", "-"): each for name, each in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


def asked(page: live.LivePage, path: str, **query: Any) -> Any:
    words = "&".join(f"{name}={each}" for name, each in query.items())
    status, body, _headers = get(page, f"{path}?session={own()}&{words}")
    assert status == 200, body
    return json.loads(body)


def own() -> str:
    from mray._api.current import started_backend

    return str(started_backend().info()["session_dir"])


class Session:
    """A named actor that computes, one in a graph, one that is dead, a large object."""

    def __init__(self, ray: ModuleType, folder: Path) -> None:
        self.ray, self.go = ray, folder / "go"

        @ray.remote(num_cpus=0)
        class Stage:
            def step(self, value: Any) -> Any:
                while isinstance(value, str) and not os.path.exists(value):
                    time.sleep(0.005)
                return value

            def compute(self, path: str) -> None:
                print("it computes now", flush=True)
                while not os.path.exists(path):
                    time.sleep(0.005)

            def pid(self) -> int:
                return os.getpid()

        self.joe, self.staged, dead = Stage.options(name="joe").remote(), Stage.remote(), Stage.remote()
        self.pids = ray.get([each.pid.remote() for each in (self.joe, self.staged, dead)])
        ray.kill(dead)
        with ray.dag.InputNode() as value:
            dag = self.staged.step.bind(value)
        self.graph = dag.experimental_compile()
        self.busy = [self.joe.compute.remote(str(self.go)), self.graph.execute(str(self.go))]
        self.large = ray.put(b"x" * (1 << 20))

    def end(self) -> None:
        self.go.touch()
        self.ray.get(self.busy[0])
        self.ray.get(self.busy[1])
        self.graph.teardown()


@pytest.fixture
def session(init: Callable[..., Any], fresh: ModuleType, tmp_path: Path, eventually: Eventually) -> Iterator[Session]:
    init(num_cpus=2, log_to_driver=False)
    made = Session(fresh, tmp_path)
    eventually(lambda: [row.state for row in state.list_actors()].count("DEAD") == 1)
    eventually(lambda: any((Path(own()) / "logs").glob(f"worker-*-{made.pids[0]}.out")))
    yield made
    made.end()


# ------------------------------------------------------------------------------------------- who may read
def test_the_page_is_for_this_machine_its_user_and_who_has_the_token(page: live.LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page.server_address[0] == "127.0.0.1"
    assert page.address == f"http://127.0.0.1:{page.server_port}/#{page.token}"
    for path, kind in (("/", "text/html"), ("/live.js", "text/javascript"), ("/live.css", "text/css")):
        status, body, headers = get(page, path, X_Token="")
        assert (status, headers["Content-Type"], page.token in body) == (200, f"{kind}; charset=utf-8", False)
        assert (
            "default-src 'none'" in headers["Content-Security-Policy"] and "unsafe-inline'; connect" in headers["Content-Security-Policy"]
        )
        assert not re.search(r"""(src|href)=["']?(https?:)?//""", body)  # nothing is fetched from elsewhere
    for token in ("", "nonsense", page.token[:-1], f"{page.token}x"):
        assert get(page, "/sessions", X_Token=token)[0] == 403
        assert get(page, f"/sessions?token={page.token}", X_Token=token)[0] == 403  # no header, no answer
    for host in ("evil.example", f"evil.example:{page.server_port}", "127.0.0.1.evil.example:80", ""):
        assert get(page, "/sessions", Host=host)[0] == 403
    for host in (f"localhost:{page.server_port}", "127.0.0.1:80", "127.0.0.1", "localhost", "LOCALHOST", "[::1]", "[::1]:80"):
        assert get(page, "/sessions", Host=host)[0] == 200
    assert get(page, "/nothing")[0] == 404
    for other in (os.getuid() + 1, None):
        monkeypatch.setattr(loopback, "user_of", lambda *_ports, other=other: other)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            get(page, "/")


def test_the_numbers_for_prometheus_are_for_this_machine_and_its_user_one_request_at_a_time(
    init: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = init(num_cpus=1, _metrics_export_port=0)["metrics_export_port"]

    def status(host: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/metrics", headers={"Host": host})
        try:
            return connection.getresponse().status
        finally:
            connection.close()

    before = threading.active_count()
    with socket.create_connection(("127.0.0.1", port)) as silent:  # which delays no other
        others = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
        for other in others:
            other.sendall(b"GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        assert {other.recv(12) for other in others} == {b"HTTP/1.0 200"}
        assert threading.active_count() == before
        silent.sendall(b"GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n")
        assert silent.recv(12) == b"HTTP/1.0 403"
        for other in others:
            other.close()
    assert (status(f"127.0.0.1:{port}"), status("localhost"), status("evil.example")) == (200, 200, 403)
    monkeypatch.setattr(loopback, "user_of", lambda *_ports: os.getuid() + 1)
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        status("127.0.0.1")


def test_a_request_that_gets_no_thread_is_answered_all_the_same(page: live.LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        assert get(page, "/")[0] == 200
    assert get(page, "/")[0] == 200


def connected(page: live.LivePage, sent: str, buffer: int = 0) -> socket.socket:
    """A connection that has sent a part of a request; `buffer` bytes of an answer fit into it."""
    made = socket.socket()
    if buffer:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(60)
    made.connect(("127.0.0.1", page.server_port))
    made.sendall(sent.encode())
    return made


def whole(page: live.LivePage, path: str) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Token: {page.token}\r\n\r\n"


def test_a_page_has_so_many_threads_at_most_and_answers_all_two_hundred(page: live.LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    before, go = threading.active_count(), threading.Event()
    most = []

    def slow(_query: Any) -> Any:
        most.append(threading.active_count())
        go.wait()
        return []

    monkeypatch.setitem(live._ANSWERS, "/sessions", slow)
    asking = [connected(page, whole(page, "/sessions")) for _ in range(200)]
    while len(most) < page.most_threads:
        time.sleep(0.001)
    go.set()
    assert [each.recv(12) for each in asking] == [b"HTTP/1.0 200"] * 200
    assert max(most) <= before + page.most_threads
    for each in asking:
        each.close()


def test_clients_that_say_nothing_or_half_of_it_or_do_not_read_delay_no_other(page: live.LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(live._ANSWERS, "/logs", lambda _query: "x" * (16 << 20))
    before = threading.active_count()
    held = [connected(page, whole(page, "/logs"), 4096) for _ in range(20)]
    held += [connected(page, sent) for sent in ("", "GET /", "GET / HTTP/1.1\r\nHost: ") for _ in range(100)]
    assert get(page, "/")[0] == 200
    assert threading.active_count() <= before + page.most_threads
    for each in held:
        each.close()
    monkeypatch.setattr(page, "patience", 0.01)
    with connected(page, "GET /") as half:
        assert half.recv(1) == b""


def test_init_a_second_time_tells_where_the_page_is_and_serves_one_that_was_not(init: Callable[..., Any], fresh: ModuleType) -> None:
    again = {"ignore_reinit_error": True, "logging_level": "ERROR"}
    first = init(num_cpus=1, _metrics_export_port=0)
    assert first.dashboard_url == fresh.init(**again).dashboard_url == ""
    second = fresh.init(web=True, **again)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#\S+", second.dashboard_url) and repr(second.dashboard_url) in repr(second)
    assert fresh.init(web=True, **again).dashboard_url == fresh.init(**again).dashboard_url == second.dashboard_url
    assert fresh.init(**again)["metrics_export_port"] == first["metrics_export_port"] > 0
    fresh.shutdown()
    third = init(num_cpus=1)
    assert (third.dashboard_url, third["metrics_export_port"]) == ("", -1)


def test_init_serves_under_a_guard_and_leaves_no_session_where_it_raises(run_program: Callable[..., Any]) -> None:
    program = """
    import socket, threading, urllib.request
    import ENGINE as ray
    from mray._api import init

    def tried(**words):
        try:
            return ray.init(num_cpus=1, logging_level="CRITICAL", **words)
        except BaseException as error:
            return f"{type(error).__name__}: {error}"[:60]
        finally:
            print(ray.is_initialized())

    for port in (70000, -1, "9000"):
        print(tried(_metrics_export_port=port))

    def interrupt():
        raise KeyboardInterrupt

    init.after_init.append(interrupt)
    print(tried())
    init.after_init.remove(interrupt)

    real = socket.socket

    class Guard(real):
        def __new__(cls, family=-1, *words, **options):
            if family in (-1, socket.AF_INET):
                raise RuntimeError("SocketBlockedError: A test tried to use socket.socket.")
            return super().__new__(cls)

    socket.socket = Guard
    context = tried(web=True, _metrics_export_port=0)
    socket.socket = real
    for address in (context.dashboard_url, f"http://127.0.0.1:{context['metrics_export_port']}"):
        print(urllib.request.urlopen(address).status)
    ray.shutdown()

    start = threading.Thread.start

    def fails(thread):
        if thread.name.startswith("mray's"):
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = fails
    context = tried(web=True, _metrics_export_port=0)
    print(repr(context.dashboard_url), context["metrics_export_port"])
    """
    wrong = "False ValueError: _metrics_export_port must be a port, 0 to 65535 (0: "
    lines = run_program(program).stdout.split("\n")
    assert [" ".join(lines[i : i + 2]) for i in (0, 2, 4)] == [wrong[: len("False ") + 60]] * 3
    assert lines[6:] == ["False", "KeyboardInterrupt: ", "True", "200", "200", "True", "'' -1", ""]


def test_a_page_that_is_closed_waits_for_no_silent_connection_and_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    page = live.LivePage()
    with socket.create_connection(("127.0.0.1", page.server_port)) as silent:
        assert get(page, "/")[0] == 200  # it has been accepted by now
        page.close()
        assert silent.recv(1) == b""
    assert set(threading.enumerate()) == before


def test_the_user_of_a_connection_is_the_kernels_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = server.getsockname()[1]
        own = client.getsockname()[1]
        for asked in (loopback._asked, loopback._listed):
            assert asked(own, port) == (os.getuid(), os.fstat(client.fileno()).st_ino)
            assert asked(1, port) is None
        assert loopback.user_of(own, port) == os.getuid()
        accepted, _address = server.accept()
        client.close()  # nobody's any more, though the kernel still has it
        assert loopback.user_of(own, port) is None
        accepted.close()
    assert loopback.user_of(1, port) is None


# -------------------------------------------------------------------------------------- what the page says
def test_the_page_has_the_records_of_the_listings(session: Session, page: live.LivePage, eventually: Eventually) -> None:
    (found,) = [each for each in asked(page, "/sessions") if each["session_dir"] == own()]
    assert f"pid {os.getpid()}: " in found["programs"]
    eventually(lambda: [row for row in state.list_workers(detail=True) if row.current_task == "Stage.compute"])
    seen = asked(page, "/look")
    for kind, rows in (("actors", state.list_actors(detail=True)), ("graphs", state.list_graphs(detail=True))):
        assert [set(row) for row in seen[kind]] == [set(row.asdict()) for row in rows]
        key = rows[0].KEY
        assert [(row[key], row["state"]) for row in seen[kind]] == [(row[key], row["state"]) for row in rows]
    living = {row["pid"]: row for row in seen["workers"] if row["is_alive"]}
    assert (living[session.pids[0]]["name"], living[session.pids[0]]["current_task"]) == ("joe", "Stage.compute")
    assert living[os.getpid()]["object_store_bytes"] >= 1 << 20
    assert seen["nodes"][0]["resources_total"]["CPU"] == 2.0
    assert seen["missing"] == []
    assert [row["state"] for row in asked(page, "/tasks")["rows"] if row["name"] == "Stage.compute"] == ["RUNNING"]
    assert asked(page, "/objects")["rows"][0]["object_id"] == session.large.hex()


def test_a_graph_has_a_picture_whose_edges_are_its_channels_and_who_waits_at_them(
    session: Session, page: live.LivePage, eventually: Eventually
) -> None:
    graph = session.graph.get_id()
    drawn = asked(page, "/picture", graph=graph)
    edges = re.findall(r'data-channel="(-?\d+)"', drawn)
    channels = {row["channel_id"]: row for row in asked(page, "/look")["channels"]}
    assert sorted(f"{graph}:{edge}" for edge in edges) == sorted(channels)
    assert asked(page, "/picture", graph="none") == ""
    # The actor computes, and somebody waits for its result.
    waits = threading.Thread(target=lambda: session.ray.get(session.busy[1]))
    waits.start()
    (last,) = [key for key, row in channels.items() if row["readers"] == ["driver"]]
    eventually(lambda: {row["channel_id"]: row["awaited_by"] for row in asked(page, "/look")["channels"]}[last] == ["driver"])
    session.go.touch()
    waits.join()
    session.busy[1] = session.graph.execute(1)


def test_a_click_away_are_the_stack_the_log_and_the_timeline(session: Session, page: live.LivePage) -> None:
    stack = asked(page, "/stack", pid=session.pids[0])
    assert (stack["name"], stack["actor_id"]) == ("joe", session.joe._actor_id.hex())
    assert "in compute" in stack["stacks"][0][1]
    (log,) = [each for each in asked(page, "/logs") if each["file"].endswith(f"-{session.pids[0]}.out")]
    ((at, printer, text),) = asked(page, "/log", file=log["file"])["lines"]
    assert (printer, text) == (f"Stage pid={session.pids[0]}", "it computes now")
    assert abs(at - time.time()) < 3600
    status, body, headers = get(page, f"/timeline?session={own()}&seconds=60&token={page.token}", X_Token="")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "Stage.compute (still running)" in body and "joe: Stage(" in body
    status, body, _headers = get(page, f"/log?session={own()}&file=../node.sock")
    assert status == 503, body  # a log is a file of the folder of logs


def test_the_logs_of_all_files_are_one_stream_with_a_filter_and_a_silent_process_has_none(
    session: Session, page: live.LivePage, eventually: Eventually
) -> None:
    @session.ray.remote(num_cpus=0)
    def chat(number: int) -> int:
        for line in range(3000):
            print(f"line {line} of {number}", flush=line % 1000 == 0)
        print("Ready " + "x" * 150_000, file=sys.stderr)
        return os.getpid()

    pids = session.ray.get([chat.remote(number) for number in range(2)])
    eventually(lambda: len([1 for row in asked(page, "/log", wanted="ready")["lines"] if "Ready" in row[2]]) == 1)
    silent = session.pids[1]
    assert asked(page, "/log", pid=silent) == {"lines": [], "bytes": 0, "read": 0, "cut": False}
    everything = asked(page, "/log")
    assert everything["cut"] and sum(len(row[2]) for row in everything["lines"]) <= 200_000
    assert everything["read"] <= 200_000 < asked(page, "/log", wanted="IT+COMPUTES")["read"]
    assert [row[2] for row in asked(page, "/log", wanted="IT+COMPUTES")["lines"]] == ["it computes now"]
    of_one = asked(page, "/log", pid=pids[0], wanted="line+29")["lines"]
    assert {row[1] for row in of_one} == {f"chat pid={pids[0]}"}
    assert [row[2] for row in of_one][-1].startswith("line 2999 of")


def test_what_has_ended_or_fails_is_said_and_the_page_goes_on(
    session: Session, page: live.LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for directory in (f"{own()}x", "/", ""):
        status, body, _headers = get(page, f"/look?session={directory}")
        assert (status, "has ended" in json.loads(body)["error"]) == (503, True)
    status, body, _headers = get(page, f"/stack?session={own()}&pid=1")
    assert (status, json.loads(body)["error"]) == (503, "The process 1 has ended.")

    def fails(_query: Any) -> Any:
        raise KeyError("a fault")

    monkeypatch.setitem(live._ANSWERS, "/tasks", fails)
    status, body, _headers = get(page, f"/tasks?session={own()}")
    assert (status, json.loads(body)["error"]) == (500, "KeyError: 'a fault'")
    os.kill(session.pids[1], signal.SIGSTOP)  # a process that does not answer costs its own rows
    monkeypatch.setattr(live, "_PATIENCE", 1.0)
    try:
        seen = asked(page, "/look")
    finally:
        os.kill(session.pids[1], signal.SIGCONT)
    # On a busy machine the node may be too late to tell its address.
    assert [text for text in seen["missing"] if re.search(rf"worker of pid {session.pids[1]} (does not answer|could not be asked)", text)]
    assert {row["pid"] for row in seen["workers"]} >= set(session.pids[:2])


def test_a_driver_serves_it_until_its_session_ends(fresh: ModuleType) -> None:
    assert fresh.init(num_cpus=1, logging_level="ERROR").dashboard_url == ""
    fresh.shutdown()
    context = fresh.init(num_cpus=1, logging_level="ERROR", web=True)
    port, token = re.fullmatch(r"http://127.0.0.1:(\d+)/#(\S+)", context.dashboard_url).groups()  # type: ignore[union-attr]
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
    connection.request("GET", f"/look?session={own()}", headers={"X-Token": token})
    assert [row["worker_type"] for row in json.loads(connection.getresponse().read())["workers"]].count("DRIVER") == 1
    connection.close()
    fresh.shutdown()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)))


def test_top_web_prints_an_address_and_serves_every_session_until_it_is_interrupted(init: Callable[..., Any]) -> None:
    words = [sys.executable, "-m", "mray", "top", "--web"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "BROWSER": "true"}) as program:
        assert program.stdout is not None
        ready, _writable, _broken = select.select([program.stdout], [], [], 60)
        assert ready
        port, token = re.fullmatch(r"http://127.0.0.1:(\d+)/#(\S+)\n", program.stdout.readline()).groups()  # type: ignore[union-attr]

        def sessions() -> list[str]:
            connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            connection.request("GET", "/sessions", headers={"X-Token": token})
            found = json.loads(connection.getresponse().read())
            connection.close()
            return [each["session_dir"] for each in found]

        assert sessions() == []
        init(num_cpus=1, logging_level="ERROR")
        assert sessions() == [own()]
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130


# -------------------------------------------------------------------------------------------- in a browser
in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="needs the program chromium, which is not installed here")
SIZES = {"wide": (1280, 800), "narrow": (420, 900)}
STATES = ("ALIVE", "DEAD", "RESTARTING", "PENDING_CREATION", "DEPENDENCIES_UNREADY")
TABS = ("processes", "actors", "tasks", "graphs", "objects", "timeline", "logs")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as chromium:
        yield chromium


def until(browser: Chromium, condition: str) -> None:
    """Wait in the page until an expression is true."""
    browser.value(f"new Promise((done) => {{ const look = () => {condition} ? done() : setTimeout(look, 20); look(); }})")


def shown(browser: Chromium, page: live.LivePage, size: str) -> None:
    browser.screen(*SIZES[size], "light")
    browser.load("about:blank")
    browser.complaints()  # those of the page before
    browser.load(page.address)
    until(browser, "document.querySelector('#view').textContent")


def fits(browser: Chromium) -> None:
    assert browser.value("document.documentElement.scrollWidth <= innerWidth")


@in_a_browser
@pytest.mark.parametrize("size", SIZES)
def test_in_a_browser_every_view_fits_and_a_click_shows_the_stack(
    session: Session, page: live.LivePage, browser: Chromium, size: str
) -> None:
    shown(browser, page, size)
    for tab, words in zip(
        TABS, ("joe: Stage", "ALIVE", "Stage.compute", "who waits for whom", "shared memory", "seconds", "it computes now"), strict=True
    ):
        browser.value(f"document.querySelector('[data-tab={tab}]').click()")
        until(browser, f"document.querySelector('#view').textContent.includes({words!r})")
        fits(browser)
    browser.value("document.querySelector('[data-tab=graphs]').click()")
    until(browser, "document.querySelectorAll('.picture g.edge polyline[style]').length == 2")
    until(browser, "[...document.querySelectorAll('.picture g.label text')].some((each) => each.textContent.includes('×'))")
    browser.value("document.querySelector('[data-tab=processes]').click()")
    until(browser, f"""document.querySelector("tr[data-pid='{session.pids[0]}']")""")
    browser.value(f"""document.querySelector("tr[data-pid='{session.pids[0]}']").click()""")
    until(browser, "document.querySelector('#detail pre').textContent.includes('in compute')")
    fits(browser)
    browser.value(f"""document.querySelector("tr[data-pid='{session.pids[0]}']").focus()""")
    browser.value("(window.was = page.now)")
    until(browser, "page.now !== window.was")  # a row that was reached by keys keeps the focus
    assert browser.value("document.activeElement.dataset.pid") == str(session.pids[0])
    browser.value("document.querySelector('#printed').click()")
    until(browser, "document.querySelector('.logs pre')?.textContent.includes('it computes now')")
    browser.value("(filter.value = 'nonsense', filter.dispatchEvent(new Event('input')))")
    assert browser.value("document.querySelector('.logs pre').textContent") == ""


@in_a_browser
@pytest.mark.parametrize("size", SIZES)
def test_in_a_browser_three_hundred_actors_can_be_filtered_and_sorted(
    init: Callable[..., Any], page: live.LivePage, browser: Chromium, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(num_cpus=1, log_to_driver=False)
    plain = live._ANSWERS["/look"]

    def with_many(query: Any) -> Any:
        """As the session is, and 300 actors."""
        found = plain(query)
        for number in range(300):
            home = f"{number:056x}"
            found["workers"].append(
                WorkerState(
                    worker_id=home, is_alive=True, worker_type="WORKER", pid=100_000 + number, state="idle", occupant="Trial",
                    name=f"trial-{number}", rss_bytes=number << 20, cpu_seconds=1.0, num_finished=number, object_store_bytes=0,
                ).asdict()
            )  # fmt: skip
            known = {"actor_id": f"{number:032x}", "class_name": "Trial", "state": "ALIVE", "name": f"trial-{number}", "pid": 1}
            found["actors"].append(ActorState(**known, worker_id=home).asdict())
        return found

    monkeypatch.setitem(live._ANSWERS, "/look", with_many)
    shown(browser, page, size)
    browser.value("document.querySelector('[data-tab=actors]').click()")
    assert browser.value("document.querySelectorAll('#view tbody tr').length") == 300
    fits(browser)
    browser.value("(filter.value = 'trial-29', filter.dispatchEvent(new Event('input')))")
    assert browser.value("count.textContent") == "11 of 300"
    browser.value("document.querySelector('th[data-by=memory]').click()")
    assert browser.value("document.querySelector('#view tbody td').textContent") == "trial-299"
    browser.value("document.querySelector('th[data-by=memory]').click()")
    assert browser.value("document.querySelector('#view tbody td').textContent") == "trial-29"


@in_a_browser
def test_in_a_browser_the_page_survives_the_end_of_its_session_and_shows_the_next(
    fresh: ModuleType, page: live.LivePage, browser: Chromium
) -> None:
    fresh.init(num_cpus=1, logging_level="ERROR")
    shown(browser, page, "wide")
    assert browser.value("document.querySelector('#view').textContent.includes('driver')")
    fresh.shutdown()
    until(browser, "document.querySelector('#bad').textContent.includes('has ended')")
    fresh.init(num_cpus=1, logging_level="ERROR")
    until(browser, f"page.session === {own()!r} && page.now")


@in_a_browser
def test_in_a_browser_what_has_ended_is_said_above_an_open_process_and_is_no_complaint(
    fresh: ModuleType, page: live.LivePage, browser: Chromium
) -> None:
    fresh.init(num_cpus=1, logging_level="ERROR")
    shown(browser, page, "narrow")
    browser.value("document.querySelector('tr[data-pid]').click()")
    until(browser, "document.querySelector('#detail pre').textContent.includes('File')")
    assert browser.complaints() == []
    fresh.shutdown()
    until(browser, "document.querySelector('#bad').textContent.includes('has ended; what is shown is of')")
    where = "(({ left, right, top, bottom }) => document.elementFromPoint((left + right) / 2, (top + bottom) / 2).id)"
    assert browser.value(f"{where}(document.querySelector('#bad').getBoundingClientRect())") == "bad"  # nothing lies on it
    assert browser.value("getComputedStyle(document.querySelector('#view')).opacity") == "0.5"
    fresh.init(num_cpus=1, logging_level="ERROR")
    until(browser, f"page.session === {own()!r} && page.now && document.querySelector('#bad').hidden")
    assert "has ended; this is another session" in browser.value("document.querySelector('#missing').textContent")


@in_a_browser
def test_in_a_browser_an_open_process_that_ends_says_so(session: Session, page: live.LivePage, browser: Chromium) -> None:
    shown(browser, page, "wide")
    pid = session.pids[0]
    browser.value(f"""document.querySelector("tr[data-pid='{pid}']").click()""")
    until(browser, "document.querySelector('#detail h2').textContent.startsWith('joe: Stage')")
    session.go.touch()
    session.ray.get(session.busy.pop(0))
    session.ray.kill(session.joe)
    session.busy.insert(0, session.ray.put(None))
    until(browser, f"document.querySelector('#detail h2').textContent === 'joe: Stage (pid {pid}) has ended'")


@in_a_browser
@pytest.mark.parametrize("size", SIZES)
def test_in_a_browser_tiles_keep_their_places_whatever_they_show(
    init: Callable[..., Any], page: live.LivePage, browser: Chromium, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(num_cpus=1, log_to_driver=False)
    plain, looks = live._ANSWERS["/look"], [0]

    def changing(query: Any) -> Any:
        """Every second look shows a node with more resources, which wait, and larger numbers."""
        found = plain(query)
        looks[0] += 1
        if looks[0] % 2:
            found["nodes"][0]["resources_total"] |= {"a_long_name_of_a_resource": 123_456.75}
            found["actors"] += [{"actor_id": f"{number}", "state": state, "class_name": "A"} for number in range(99) for state in STATES]
            found |= {"demands": [{}] * 12_345, "load": 123.456, "object_store_memory": 1 << 50}
        return found

    monkeypatch.setitem(live._ANSWERS, "/look", changing)
    shown(browser, page, size)
    until(browser, "page.tiles.size > 1")
    places = (
        "JSON.stringify([...document.querySelectorAll('.tile')].map((each) =>"
        " [each.firstChild.textContent, ...['x', 'y', 'width', 'height'].map((side) => each.getBoundingClientRect()[side])]))"
    )
    browser.value(f"(window.before = {places}, window.was = page.now)")
    for _look in range(2):
        until(browser, "page.now !== window.was")
        assert browser.value(f"{places} === window.before")
        browser.value("(window.was = page.now)")
    fits(browser)


@in_a_browser
def test_in_a_browser_many_processes_that_do_not_answer_take_a_line(
    init: Callable[..., Any], page: live.LivePage, browser: Chromium, monkeypatch: pytest.MonkeyPatch
) -> None:
    init(num_cpus=1, log_to_driver=False)
    plain = live._ANSWERS["/look"]
    silent = [f"the worker of pid {pid} does not answer within 3 s: it is stopped" for pid in range(1000, 1300)]
    monkeypatch.setitem(live._ANSWERS, "/look", lambda query: {**plain(query), "missing": [*silent, "tasks of pid 7: a fault"]})
    shown(browser, page, "wide")
    until(browser, "document.querySelector('#missing').textContent")
    shown_text = browser.value("document.querySelector('#missing').textContent")
    assert "the worker of pid 1002 and 297 more: does not answer within 3 s: it is stopped; tasks of pid 7: a fault" in shown_text


@in_a_browser
@pytest.mark.parametrize("size", SIZES)
def test_in_a_browser_a_timeline_of_two_hundred_thousand_slices_is_drawn_with_times_that_do_not_overlap(
    browser: Chromium, size: str, tmp_path: Path
) -> None:
    """In 20 lanes, over 20 seconds."""
    spans = [Span(CALL, number * 2_000_000, number * 2_000_000 + 1_500_000, "calls", "Actor.f", f"{number}") for number in range(10_000)]
    text, count = timeline_page([Recording(1000 + lane, f"Actor({lane:08x})", spans) for lane in range(20)])
    assert count == 200_000
    (tmp_path / "timeline.html").write_text(text)
    browser.screen(*SIZES[size], "light")
    browser.complaints()  # those of the page before
    browser.load((tmp_path / "timeline.html").as_uri())
    assert browser.complaints() == []
    # The lane in the middle is coloured from end to end.
    inked = browser.value(
        "(() => { const row = pen.getImageData(LEFT + 2, middle(10), width - LEFT - 4, 1).data;"
        " return row.filter((value, place) => place % 4 === 0 && value < 250).length / (row.length / 4); })()"
    )
    assert inked > 0.9
    times = browser.value("canvas.dataset.times").split("|")
    assert len(times) >= 2 and all(re.fullmatch(r"\d+ s", each) for each in times)
    for _zoom in range(8):
        browser.value(
            "(() => { const middle = (from + to) / 2, part = (to - from) / 20; from = middle - part; to = middle + part; draw(); })()"
        )
        times = browser.value("canvas.dataset.times").split("|")
        assert len(set(times)) == len(times) >= 1 and all(re.fullmatch(r"[\d.]+ (s|ms|µs)", each) for each in times)
        widths = browser.value("canvas.dataset.times.split('|').map((each) => pen.measureText(each).width)")
        assert sum(widths) + 8 * len(widths) < SIZES[size][0] * 0.8
    fits(browser)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_lets_go_of_the_port(page: live.LivePage) -> None:
    if (pid := os.fork()) == 0:
        os._exit(0 if page.socket.fileno() < 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
