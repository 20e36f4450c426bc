"""Points: not there unless they are switched on, and then what the rules say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from mray.testing import points
from tests.checkout import python_path

ROOT = Path(__file__).resolve().parents[2]


def declared() -> dict[str, str]:
    """Every point of the package by name: the file, relative to the package."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "mray").rglob("*.py")):
        for _indent, point, _which in points.POINT.findall(path.read_bytes()):
            assert point.decode() not in found, "two points have one name"
            found[point.decode()] = str(path.relative_to(ROOT / "mray"))
    return found


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def test_no_two_points_have_one_name_and_there_are_dozens() -> None:
    assert len(declared()) > 60


def test_every_comment_that_means_a_point_is_one() -> None:
    lines = [line.strip() for path in (ROOT / "mray").rglob("*.py") for line in path.read_text(encoding="utf-8").splitlines()]
    assert sum(line.startswith("# POINT") for line in lines) == len(declared())


@pytest.mark.parametrize("file", sorted(set(declared().values())))
def test_a_module_is_the_same_bytecode_without_its_points(file: str) -> None:
    """Off, a point costs nothing: it is a comment. On, it is a call, and no line has moved."""
    source = (ROOT / "mray" / file).read_bytes()
    bare = b"\n".join(b"" if line.strip().startswith(b"# POINT ") else line for line in source.split(b"\n"))
    compiled = compile(source, "module", "exec")
    assert compiled == compile(bare, "module", "exec")
    assert not any("mray.testing.points" in code.co_consts for code in codes(compiled))
    changed = points.with_points(source)
    assert changed.count(b"\n") == source.count(b"\n")
    names = {constant for code in codes(compile(changed, "module", "exec")) for constant in code.co_consts if isinstance(constant, str)}
    assert {name for name, where in declared().items() if where == file} <= names


def run(rules: list[dict[str, Any]], body: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """A program that may `reach` points, with these rules."""
    program = "from mray.testing.points import reach, switch_on\nswitch_on()\n" + textwrap.dedent(body)
    environ = {**os.environ, "PYTHONPATH": python_path(), "MRAY_POINTS": json.dumps({"seed": 3, "rules": rules, **more})}
    return subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("manner", "status"), [("_exit", 7), ("exit", 7), ("raise", 1), ("SIGKILL", -signal.SIGKILL), ("SIGTERM", -signal.SIGTERM)]
)
def test_a_process_ends_at_a_point_in_the_manner_of_the_rule(manner: str, status: int) -> None:
    done = run([{"at": "here", "do": manner}], "reach('there')\nprint('there', flush=True)\nreach('here')\nprint('here')")
    assert (done.returncode, done.stdout) == (status, "there\n")


def test_a_rule_says_which_time_in_which_process_and_once_of_all(tmp_path: Path) -> None:
    logs = {name: tmp_path / name for name in ("nth", "in", "once", "never")}
    rules = [
        {"at": "a*", "nth": 2, "do": "nothing", "log": str(logs["nth"])},
        {"in": "node", "do": "nothing", "log": str(logs["in"])},
        {"once": str(tmp_path / "flag"), "do": "nothing", "log": str(logs["once"])},
        {"at": "b", "chance": 0, "do": "_exit", "log": str(logs["never"])},
    ]
    done = run(rules, "for name in ('ab', 'b', 'ac', 'becomes node', 'ad', 'b'):\n    reach(name)")
    assert done.returncode == 0, done.stderr

    def said(name: str) -> list[str]:
        return [line.split(" ", 1)[1] for line in logs[name].read_text().splitlines()]

    assert said("nth") == ["driver ac"]
    assert said("in") == ["node becomes node", "node ad", "node b"]
    assert said("once") == ["driver ab"]
    assert not logs["never"].exists()
    assert (tmp_path / "flag").read_text().endswith(" driver ab")


def test_chance_follows_the_seed() -> None:
    body = "for number in range(40):\n    try:\n        reach('x')\n    except RuntimeError:\n        print(number)"
    rules = [{"chance": 0.3, "do": "raise"}]
    first = run(rules, body)
    assert 0 < len(first.stdout.split()) < 40
    assert run(rules, body).stdout == first.stdout
    assert run(rules, body, seed=4).stdout != first.stdout


@pytest.mark.parametrize("rule", [{"do": "wait"}, {"at": "x"}, {"do": "delay", "when": 1}])
def test_a_rule_that_means_nothing_is_an_error(rule: dict[str, Any]) -> None:
    assert "no rule for a point" in run([rule]).stderr


SESSION = """
import mray

mray.init(num_cpus=1, logging_level="ERROR")

@mray.remote
def f(x):
    return x + 1

@mray.remote
class A:
    def f(self, x):
        return x + 1

a = A.remote()
with mray.dag.InputNode() as value:
    graph = a.f.bind(value).experimental_compile()
print(mray.get([f.remote(1), a.f.remote(2)]), mray.get(graph.execute(3)), len(mray.get(mray.put(b"x" * 200_000))))
graph.teardown()
mray.shutdown()
"""


def test_every_kind_of_process_of_a_session_stops_at_its_points(tmp_path: Path) -> None:
    log = tmp_path / "log"
    rules = [{"do": "delay", "seconds": 0.0005, "log": str(log)}]
    (tmp_path / "program.py").write_text(SESSION)
    environ = {**os.environ, "PYTHONPATH": python_path(), "MRAY_POINTS": json.dumps({"rules": rules})}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[2, 3] 4 200000\n", done.stderr
    reached = {tuple(line.split(" ", 2)[1:]) for line in log.read_text().splitlines()}
    assert {process for process, _name in reached} == {"driver", "node", "zygote", "worker", "actor"}
    assert {
        ("driver", "directory made"),
        ("driver", "lease granted"),
        ("driver", "segment created"),
        ("driver", "entry written"),
        ("node", "member known"),
        ("node", "workers ended"),
        ("zygote", "worker forked"),
        ("worker", "task returned"),
        ("actor", "actor constructed"),
        ("actor", "graph value computed"),
    } <= reached
    cached = {path.name: path.read_bytes() for path in (ROOT / "mray").rglob("leases.*.pyc")}
    assert {name for name, code in cached.items() if b"lease granted" in code} <= {f"leases.{sys.implementation.cache_tag}.opt-points.pyc"}


def test_bytecode_with_points_is_kept_until_the_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "module.py"
    for number in (1, 2):
        path.write_text(f"number = {number}\n# POINT here\n")
        for _from_source_then_kept in range(2):
            code = points._Loader("mray.module", str(path)).get_code("mray.module")
            assert code is not None
            assert {number, "here"} <= {constant for each in codes(code) for constant in each.co_consts}
    (kept,) = (tmp_path / "__pycache__").iterdir()
    assert kept.name.endswith(".opt-points.pyc")


def test_a_session_without_the_setting_has_no_finder() -> None:
    program = "import sys, mray, mray.testing.points as p\nprint(p._points, any(each is p._Finder for each in sys.meta_path))"
    environ = {name: value for name, value in os.environ.items() if name != "MRAY_POINTS"} | {"PYTHONPATH": python_path()}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout == "None False\n"
