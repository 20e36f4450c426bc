"""Progress bars of many processes, and of long lists of refs."""

from __future__ import annotations

import io
import os
import re
import sys
import weakref

import pytest

pytest.importorskip("tqdm")

START = """
import os
import sys
import time
import ENGINE as ray
from ENGINE.experimental.tqdm_ray import tqdm

sys.stderr.isatty = lambda: not os.environ.get("PIPE")  # bars are drawn for a person
ray.init(num_cpus=4, include_dashboard=False, logging_level="ERROR", log_to_driver=True)
"""


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*[mA]", "", text)


def drawings(text, name):
    """The drawings of a bar, one after the other: (text before it, percent)."""
    return [(match[1], int(match[2])) for match in re.finditer(rf"([^\r\n]*{name}): +(\d+)%", plain(text))]


@pytest.mark.processes("bars of one process are drawn where they are made; tests/engines/local shows it")
def test_bars_of_tasks_are_drawn_by_the_driver_under_the_workers_pid(run_program):
    done = run_program(
        START
        + """
@ray.remote
def work(number):
    bar = tqdm(desc=f"job {number}", total=5, flush_interval_s=0)
    for _ in range(5):
        bar.update(1)
    bar.close()
    return os.getpid()

sys.stdout.write("PIDS %s\\n" % ray.get([work.remote(number) for number in range(3)]))
time.sleep(3 if ray.__name__ == "ray" else 0)
"""
    )
    pids = re.findall(r"\d+", next(line for line in done.stdout.splitlines() if line.startswith("PIDS")))
    for number in range(3):
        drawn = drawings(done.stderr, f"job {number}")
        assert drawn[-1][1] == 100
        assert re.search(r"\(pid=(\d+)\) job", drawn[-1][0])[1] in pids
    assert "uuid" not in done.stdout + done.stderr


def test_an_iterable_is_wrapped_and_given_through(run_program):
    done = run_program(
        START
        + """
@ray.remote
def work():
    return list(tqdm(range(40, 43), desc="items", flush_interval_s=0))

print("VALUES", ray.get(work.remote()), list(tqdm("ab", desc="own", flush_interval_s=0)))
time.sleep(3 if ray.__name__ == "ray" else 0)
"""
    )
    assert "VALUES [40, 41, 42] ['a', 'b']" in done.stdout
    assert drawings(done.stderr, "items")[-1][1] == 100
    assert drawings(done.stderr, "own")[-1] == ("own", 100)


def test_a_bar_that_says_little_ends_complete(run_program):
    # An interval of an hour: only the first and the last message are sent.
    done = run_program(
        START
        + """
@ray.remote
def work():
    bar = tqdm(total=1000, desc="quick", flush_interval_s=3600)
    for _ in range(1000):
        bar.update()
    bar.set_description("unheard")
    bar.close()

ray.get(work.remote())
time.sleep(3 if ray.__name__ == "ray" else 0)
"""
    )
    assert drawings(done.stderr, "(?:quick|unheard)")[-1][1] == 100


@pytest.mark.only("mray")
def test_a_pipe_gets_no_bars_and_a_terminal_gets_whole_numbers(run_program):
    program = START + "list(tqdm(range(3), desc='items', flush_interval_s=0))"
    assert "| 3/3 [" in run_program(program).stderr
    assert run_program(program, env={"PIPE": "1"}).stderr == ""


@pytest.mark.only("mray")
def test_lines_that_are_printed_meanwhile_stand_alone(run_program):
    done = run_program(
        START
        + """
@ray.remote
def work():
    bar = tqdm(total=3, desc="bar", flush_interval_s=0)
    for number in range(3):
        bar.update(1)
        print("line", number, flush=True)
    bar.close()

own = tqdm(total=2, desc="driver", flush_interval_s=0)
own.update(1)
print("printed beside a bar")
ray.get(work.remote())
own.close()
print("printed after the last\\n", end="")  # in one piece: what workers have printed may come at any moment
"""
    )
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("line")] == ["line 0", "line 1", "line 2"]
    assert "printed beside a bar" in lines
    assert "printed after the last" in lines


@pytest.mark.only("mray")
def test_on_a_terminal_bars_end_before_the_value_comes_and_leave_the_next_lines_whole(run_program, tmp_path):
    (tmp_path / "inner.py").write_text(
        START.replace("ENGINE", "mray")
        + """
import fcntl, struct, termios
fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))  # or bars have no columns

@ray.remote
def work(number):
    for _ in tqdm(range(6), desc=f"job {number}", flush_interval_s=0.05):
        time.sleep(0.02)
    return number

for turn in range(3):
    print("values", ray.get([work.remote(number) for number in range(3)]))
    print("of turn", turn)
first, second = work.remote(8), work.remote(9)
ray.wait([first, second])
print("one", "after", "the other", flush=True, file=sys.stderr)
print(ray.get([first, second]))
"""
    )
    text = plain(run_program("import pty, sys\npty.spawn([sys.executable, 'inner.py'])\n").stdout).replace("\r\n", "\n")
    pieces = re.split(r"^values \[0, 1, 2\]\nof turn \d\n", text, flags=re.MULTILINE)
    assert len(pieces) == 4
    assert all(f"job {number}: 100%" in piece for piece in pieces[:3] for number in range(3))
    assert "one after the other\n" in text
    assert text.rpartition("%")[2].endswith("\n[8, 9]\n")


@pytest.mark.only("mray")
def test_a_state_is_no_part_of_a_line_or_a_log_file(run_program):
    done = run_program(
        START
        + """
@ray.remote
def work():
    print("begins ", end="", flush=True)
    tqdm(total=3, desc="bar", flush_interval_s=0).update(1)
    print("and ends", flush=True)
    return ray.get_runtime_context().get_worker_id()

worker = ray.get(work.remote())
logs = ray.get_runtime_context().get_temp_dir() + "/" + ray.get_runtime_context().get_session_name() + "/logs"
text = ""
while not text.endswith("ends\\n"):
    text = "".join(open(logs + "/" + name).read() for name in os.listdir(logs) if worker in name)
    time.sleep(0.01)
sys.stdout.write(repr(text) + "\\n")
"""
    )
    assert "begins and ends" in done.stdout.splitlines()
    assert repr("begins and ends\n") in done.stdout


@pytest.mark.only("mray")
def test_without_tqdm_a_warning_says_so_once_and_the_program_runs(run_program):
    done = run_program(
        """
        import sys
        sys.modules["tqdm"] = sys.modules["tqdm.auto"] = None
        import ENGINE as ray
        from ENGINE.experimental.tqdm_ray import tqdm

        for _ in range(2):
            print("VALUES", list(tqdm(range(2), flush_interval_s=0)))
        """
    )
    assert done.stdout.count("VALUES [0, 1]") == 2
    assert done.stderr.count("tqdm is not installed") == 1


# --------------------------------------------------------------------------------------------- the board
@pytest.fixture
def board(ray, engine, monkeypatch):
    """A board that draws on a file, in a driver or not."""
    if engine != "mray":
        pytest.skip("only for mray")
    from tqdm.auto import tqdm

    from mray._runtime.session.progress_bars import BarBoard

    monkeypatch.setenv("MRAY_TQDM_PATCH_PRINT", "0")
    board = BarBoard()
    screen = io.StringIO()

    class Bar(tqdm):
        monitor_interval = 0
        _lock = board.lock

        def __init__(self, **options):
            super().__init__(**options, file=screen)

    board._kind = Bar
    board.screen = screen
    yield board
    board.forget_others()


def state(name, pid=1, pos=0, x=1, closed=False, total=10):
    return {"uuid": name, "pid": pid, "pos": pos, "x": x, "closed": closed, "total": total, "desc": name, "unit": "it"}


def lines(board):
    """Names of the bars from top to bottom."""
    return [bar.state["uuid"] for bar in sorted(board._bars.values(), key=lambda bar: -bar.drawn.pos)]


def test_each_bar_has_a_line_and_those_of_a_process_stand_together(board):
    for each in (state("a"), state("b", pid=2), state("c", pid=1), state("d", pid=2, pos=-1), state("e", pid=3)):
        board.process_state_update(each)
    assert lines(board) == ["a", "c", "d", "b", "e"]
    assert sorted(-bar.drawn.pos for bar in board._bars.values()) == [0, 1, 2, 3, 4]


def test_the_lines_close_up_when_a_bar_ends_or_a_process_does(board):
    for each in (state("a"), state("b", pid=2), state("c", pid=3), state("d", pid=3)):
        board.process_state_update(each)
    board.process_state_update(state("a", x=10, closed=True))
    assert lines(board) == ["b", "c", "d"]
    board.forget(3)
    assert lines(board) == ["b"]
    assert sorted(-bar.drawn.pos for bar in board._bars.values()) == [0]
    assert "a: 100%" in board.screen.getvalue()


def test_a_bar_may_go_back_and_change_its_total(board):
    board.process_state_update(state("a", x=8))
    board.process_state_update(state("a", x=2, total=4))
    assert " 50%" in board.screen.getvalue().rpartition("\r")[2]


def test_hidden_bars_draw_nothing_until_they_are_shown_again(board):
    board.process_state_update(state("a"))
    board.hide_bars()
    before = board.screen.getvalue()
    board.process_state_update(state("a", x=5))
    assert " 50%" not in board.screen.getvalue()[len(before) :]
    board.unhide_bars()
    assert " 50%" in board.screen.getvalue()[len(before) :]


def test_a_line_of_the_program_stays_whole_while_states_arrive(board):
    board.process_state_update(state("a"))
    board.write_beside(board.screen, "begun ")
    before = board.screen.getvalue()
    assert before.endswith("begun ")
    for each in (state("a", x=5), state("b", x=3), state("a", x=6)):
        board.process_state_update(each)
    board.write_beside(board.screen, "and")
    board.write_beside(board.screen, " ended\n")
    assert board.screen.getvalue()[len(before) :].startswith("and ended\n")
    assert " 60%" in board.screen.getvalue()
    assert lines(board) == ["a", "b"]


def test_a_line_that_the_program_does_not_end_is_ended_for_the_bars(board, monkeypatch):
    from mray._runtime.session import progress_bars

    board.process_state_update(state("a"))
    board.write_beside(board.screen, "working ...")
    monkeypatch.setattr(progress_bars, "_SILENCE", 0.0)
    board.process_state_update(state("a", x=5))
    assert "working ...\n" in board.screen.getvalue()
    assert " 50%" in board.screen.getvalue().rpartition("working ...\n")[2]
    board.write_beside(board.screen, "the last")
    board.forget(1)
    assert "the last\n" in board.screen.getvalue()


def test_the_streams_are_the_programs_own_again_after_the_last_bar(board, monkeypatch):
    monkeypatch.setenv("MRAY_TQDM_PATCH_PRINT", "1")
    out = sys.stdout
    board.process_state_update(state("a"))
    assert sys.stdout is not out
    assert sys.stdout.encoding == out.encoding
    sys.stdout.writelines(["two ", "pieces\n"])
    board.process_state_update(state("a", x=10, closed=True))
    assert sys.stdout is out


def test_a_print_that_is_under_way_when_the_last_bar_ends_has_its_stream(board, monkeypatch):
    """CPython's `print` holds no reference to the stream that it writes to."""
    monkeypatch.setenv("MRAY_TQDM_PATCH_PRINT", "1")
    out, seen = sys.stdout, []

    class Ends:
        def __str__(self):
            seen.append(weakref.ref(sys.stdout))
            board.process_state_update(state("a", x=10, closed=True))
            return "ended"

    board.process_state_update(state("a"))
    print(Ends(), "and", "more")
    assert sys.stdout is out
    assert seen[0]() is not None
    board.process_state_update(state("b"))
    assert sys.stdout is seen[0]()
    board.process_state_update(state("b", closed=True))


def test_a_bar_without_an_iterable_cannot_be_iterated(ray):
    import importlib

    tqdm = importlib.import_module(f"{ray.__name__}.experimental.tqdm_ray").tqdm
    with pytest.raises(ValueError, match="No iterable provided"):
        list(tqdm(total=3))


def test_totals_and_counts_can_be_read_and_set(ray):
    import importlib

    tqdm = importlib.import_module(f"{ray.__name__}.experimental.tqdm_ray").tqdm
    bar = tqdm([1, 2, 3], flush_interval_s=3600)
    assert (bar.n, bar.total) == (0, 3)
    bar.n, bar.total = 2, 8
    assert (bar.n, bar.total) == (2, 8)
    assert tqdm(iter([1])).total is None


# --------------------------------------------------------------------------------------------- progress
@pytest.mark.only("mray")
def test_progress_gives_the_values_in_order(ray_session, capfd, monkeypatch):
    ray = ray_session
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    f = ray.remote(lambda number: number * 10)
    refs = [f.remote(number) for number in range(50)]
    assert ray.util.progress([*refs, refs[0]], desc="fifty") == [number * 10 for number in range(50)] + [0]
    assert drawings(capfd.readouterr().err, "fifty")[-1][1] == 100
    assert ray.util.progress([]) == []


@pytest.mark.only("mray")
def test_progress_waits_for_all_before_it_raises(ray_session):
    ray = ray_session

    @ray.remote
    class Log:
        def __init__(self):
            self.seen = []

        def add(self, number):
            self.seen.append(number)

        def all(self):
            return self.seen

    @ray.remote
    def work(log, number):
        if not number:
            raise ValueError("the first")
        ray.get(log.add.remote(number))

    log = Log.remote()
    with pytest.raises(ValueError, match="the first"):
        ray.util.progress([work.remote(log, number) for number in range(8)])
    assert sorted(ray.get(log.all.remote())) == list(range(1, 8))


@pytest.mark.only("mray")
def test_progress_ends_in_time(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote(max_retries=0)
    def waits(gate):
        while not ray.get(gate.is_set.remote()):
            pass
        return os.getpid()

    refs = [ray.put(1), waits.remote(gate)]
    with pytest.raises(ray.exceptions.GetTimeoutError, match="1 of 2"):
        ray.util.progress(refs, timeout=0.1)
    ray.get(gate.send.remote())
    assert ray.util.progress(refs)[0] == 1
