"""Figures of the package that may only fall: code, prose, names past the doors, texts of errors that no test has, stale names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house import code, doors, ideas, nets, prose, raises, rooms
from tests.house.code import Size
from tests.house.nets import SLACK, Row
from tests.house.source import comments, modules


def test_no_figure_of_a_room_is_larger_than_its_record_nor_much_smaller() -> None:
    wrong = list(nets.faults(nets.found().rooms, nets.recorded().rooms))
    assert not wrong, "\n".join(wrong)


def test_no_figure_of_the_whole_is_larger_than_its_record_nor_smaller() -> None:
    wrong = list(nets.faults_of_whole(nets.found().whole, nets.recorded().whole))
    assert not wrong, "\n".join(wrong)


def test_texts_name_what_exists() -> None:
    stale = nets.found().lists["stale names"]
    assert not stale, "\n".join(stale)


# ------------------------------------------------------------------------------------------- the record
def test_growth_is_a_fault_and_so_is_a_record_that_is_out_of_date() -> None:
    record = {"_ipc": Row(100, 50), "cli": Row(100, 50)}
    assert not list(nets.faults({"_ipc": Row(100, 50), "cli": Row(100 - SLACK.lines, 50)}, record))
    (grown,) = nets.faults({"_ipc": Row(100, 51), "cli": Row(100, 50)}, record)
    assert grown.startswith("_ipc: statements grew: 51")
    (fallen,) = nets.faults({"_ipc": Row(99 - SLACK.lines, 50), "cli": Row(100, 50)}, record)
    assert fallen.startswith("_ipc: lines fell: 84") and "--record" in fallen


def test_a_room_without_a_record_has_grown_and_a_record_without_a_room_has_fallen() -> None:
    lines = list(nets.faults({"new": Row(2, 1)}, {"old": Row(100, 50)}))
    assert [line.partition(",")[0] for line in lines] == [
        "new: lines grew: 2",
        "new: statements grew: 1",
        "old: lines fell: 0",
        "old: statements fell: 0",
    ]


def test_figures_of_the_whole_are_compared_if_they_were_counted() -> None:
    record = {"ideas": 3, "files of all walks": 100}
    most = 100 + nets.TOLERANCE["files of all walks"]
    assert not list(nets.faults_of_whole({"ideas": 3}, record))
    assert not list(nets.faults_of_whole({"files of all walks": most}, record))
    assert [line.partition(":")[0] for line in nets.faults_of_whole({"ideas": 2}, record)] == ["ideas fell"]
    assert [line.partition(":")[0] for line in nets.faults_of_whole({"files of all walks": most + 1}, record)] == [
        "files of all walks grew"
    ]


def test_recording_lowers_the_record_and_never_raises_it() -> None:
    record = {"_ipc": Row(100, 50), "cli": Row(100, 50), "gone": Row(9, 5)}
    assert nets.lower({"_ipc": Row(90, 60), "cli": Row(110, 40)}, record) == {"_ipc": Row(90, 50), "cli": Row(100, 40)}


def test_a_record_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "RECORD", tmp_path / "nets.txt")
    record = nets.Record({"_ipc": Row(1, 2, 3, 4, 5), ".": Row(lines=6)}, {"stale names": 0, "retired words": 7})
    nets.write(record)
    assert nets.recorded() == record


# ------------------------------------------------------------------------------------------- rooms
def test_rooms_beside_the_kernel_are_those_of_its_contract() -> None:
    assert {"_gpu", "cli", "_backends/session_trace.py"} <= set(rooms.beside_the_kernel())
    assert rooms.room_of("mray/_backends/session_trace.py") == "_backends/session_trace.py"
    assert rooms.room_of("mray/_backends/native.py") == "_backends" and rooms.room_of("mray/exceptions.py") == "."
    assert rooms.guest_of("cli/commands/top.py") == "cli" and rooms.guest_of("_device/cuda.py") == "_gpu"
    assert rooms.guest_of("_ipc/ring.py") is None and rooms.guest_of("client.py") is None


# ------------------------------------------------------------------------------------------- code
def test_blanks_comments_and_docstrings_are_no_code() -> None:
    source = '"""Of the module.\n\nTwo paragraphs.\n"""\n\n# Comment\nx = 1  # one\n\ndef f():\n    "Of it."\n    return """\n    text"""\n'
    assert code.size(ast.parse(source), source) == Size(lines=4, statements=5)


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".js", "// one\nf();  // two\n\n/* three\nfour */\ng();\n"),
        (".css", "/* one\n*/\nbody {\n}\n"),
        (".html", "<!-- one\n\ntwo -->\n<p>\n</p>\n"),
    ],
)
def test_pages_have_code_without_their_comments(suffix: str, source: str) -> None:
    assert code.size_of_page(source, suffix) == Size(lines=2)


# ------------------------------------------------------------------------------------------- doors
def test_names_past_the_doors_are_counted_once_for_each_room() -> None:
    sources = {
        "mray/cli/one.py": "from mray._ipc.ring import Ring, word\nfrom mray._api import x\nimport mray._inside.y, mray._trace.span",
        "mray/cli/two.py": "import mray._ipc.ring.Ring, mray.util._worker.z, mray.cli._own\nfrom mray import __version__",
        "mray/_device/cuda.py": "from mray._gpu.mps import MPS\nfrom mray._ipc.ring import Ring",
        "mray/_ipc/connection.py": "from mray._trace.span import Span",
        "mray/_inside/memory.py": "from mray._ipc.ring import Ring",
    }
    assert doors.deep_names({path: ast.parse(source) for path, source in sources.items()}) == {
        "cli": {"mray._ipc.ring.Ring", "mray._ipc.ring.word", "mray._trace.span", "mray.util._worker.z"},
        "_gpu": {"mray._ipc.ring.Ring"},
    }


def test_names_of_a_door_are_its_exports() -> None:
    assert doors.exports([ast.parse("__all__ = ['a', 'b']\nc = 1"), ast.parse("__all__ = ['b']")]) == {"a", "b"}


# ------------------------------------------------------------------------------------------- prose
def test_comments_are_found_but_not_in_texts() -> None:
    source = 'x = "# no"  # One.\n#: Two\ny = f"{x} # no"\nz = """\n# no\n"""  # é three\n'
    assert list(comments(ast.parse(source), source)) == [(1, "One."), (2, "Two"), (6, "é three")]


def test_words_are_those_of_docstrings_and_comments() -> None:
    source = '"""Two words."""\nx = "not these words"  # One.\n'
    assert prose.words(ast.parse(source), source) == 3


TREES = {
    "mray/ring.py": ast.parse(
        "import threading\n"
        "class Base:\n    def close(self): self.closed = True\n"
        "class Ring(Base, threading.Thread):\n    rows: int\n    def take(self, count): return f'edge_of_{count}'\n"
        "OPTIONS = {'max_retries': 1}\n"
    )
}


@pytest.mark.parametrize(
    "text",
    [
        "`Ring`, `Ring.take`, `Ring.close`, `Ring.closed`, `Ring.rows`, `Ring.join` and Ring.remote",
        "`mray.ring.Ring.take` and `ring.OPTIONS`",
        "`max_retries`, edge_of_3 and `count`",
        "`threading.Thread.join`, `dict.get`, `ProcessLookupError` and KeyError",
        "`torch.cuda.MemPool` and PyTorch",
        "``anything.at.all`` and sock_diag(7)",
        "An example:\n\n    class MyModel(Actor):\n        my_name = 1",
    ],
)
def test_names_that_exist_are_not_stale(text: str) -> None:
    assert not [name for name in prose.named(text) if not prose.Names(TREES).exists(name)]


@pytest.mark.parametrize(
    "name",
    ["gone", "Ring.gone", "Ring.take.gone", "mray.ring.gone", "mray.gone.Ring", "ring.gone", "threading.gone", "RingGuard", "Base.join"],
)
def test_a_name_that_exists_nowhere_is_stale(name: str) -> None:
    source = f"# See `{name}`.\n"
    trees = {"mray/here.py": ast.parse(source)}
    assert list(prose.stale(trees, {"mray/here.py": source}, prose.Names(TREES))) == [f"mray/here.py:1: {name}"]


def test_classes_and_joined_names_are_found_without_quotes() -> None:
    assert list(prose.named("A RingGuard and a row_of_ring, with Ring.gone.")) == ["RingGuard", "Ring.gone", "row_of_ring"]


def test_a_path_of_no_file_is_stale() -> None:
    source = "# In _ipc/ring.py, mray/_ipc/gone.py, bench/gone.py, `pyproject.toml` and `gone.py`.\n"
    lines = prose.stale({"mray/here.py": ast.parse(source)}, {"mray/here.py": source}, prose.Names(modules()))
    assert [line.rpartition(" ")[2] for line in lines] == ["bench/gone.py", "gone.py", "mray/_ipc/gone.py"]


# ------------------------------------------------------------------------------------------- errors
SOURCE = """
def f(x):
    raise ValueError(f"the ring of {x} has no more room")
    raise ValueError(f"its {x} was destroyed by {x}")
    raise ValueError("short")
    raise
"""


@pytest.mark.parametrize(
    ("test", "left"),
    [
        ("", [3, 4]),
        ('match="has no more room"', [4]),
        ("match=r'no\\ more\\ room'", [4]),
        ('match="it has "\n    "no more"', [4]),
        ("assert 'was destroyed by' in text", [3]),
        ("has no room more; destroyed was by", [3, 4]),
    ],
)
def test_errors_are_tested_if_three_words_of_them_stand_in_a_test(test: str, left: list[int]) -> None:
    assert [statement.line for _path, statement in raises.untested({"mray/x.py": ast.parse(SOURCE)}, [test])] == left


# ------------------------------------------------------------------------------------------- ideas
def test_an_idea_has_one_name() -> None:
    trees = {"mray/_ipc/one.py": ast.parse("class A:\n    def then(self): ...\n    def on_ready(self): ...\ndef thence(): ...")}
    assert ideas.double(trees, [("wait", r"[:.](then|on_ready|add_waiter)$")]) == ["wait: then beside on_ready"]
    assert not ideas.double(trees, [("wait", r"[:.](on_ready|add_waiter)$")])


TERMS = """
| term | meaning | defined in | retired words |
|---|---|---|---|
| session info | attributes | `x.py` | fact, facts |
| ring | a queue | `y.py` | |

Also retired as parts of names: `company` (batch).

## Phrases

| retired phrase | write |
|---|---|
| at once | immediately |
| is gone, has gone | has exited |
"""


def test_retired_words_are_those_of_the_terms() -> None:
    words = ideas.retired_words(TERMS)
    assert words == {"fact": "session info", "facts": "session info", "company": "batch"}
    tree = ast.parse("def read_facts(company): factory = 1")
    assert ideas.retired({"mray/x.py": tree}, words) == [
        "mray/x.py:1: read_facts: say 'session info'",
        "mray/x.py:1: company: say 'batch'",
    ]


def test_retired_phrases_are_found_in_texts() -> None:
    phrases = ideas.retired_phrases(TERMS)
    assert phrases == {"at once": "immediately", "is gone": "has exited", "has gone": "has exited"}
    source = '"""At\nonce."""\nx = f"{1} at once, " "at\tonce"  # It is gone, that once.\n'
    page = "# A page\n\nAt\nonce it is gone. `that` once\n"
    found = ideas.phrases({"mray/x.py": ast.parse(source)}, {"mray/x.py": source}, {"README.md": page}, phrases)
    assert sorted(found) == [
        "README.md:3: At once: write 'immediately'",
        "README.md:4: is gone: write 'has exited'",
        "mray/x.py:1: At once: write 'immediately'",
        "mray/x.py:3: at once: write 'immediately'",
        "mray/x.py:3: at once: write 'immediately'",
        "mray/x.py:3: is gone: write 'has exited'",
    ]
