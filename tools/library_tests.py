"""Ray's own tests of its libraries, on Ray and on mray: for `tools/libraries --tests`.

Ray's wheel has no tests. They are read from a checkout of Ray's source: links to the installed package, with the folders of tests of the
checkout among them, are the package ``ray`` of both runs.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path

from environment import ROOT
from ray_source import FOLDER

#: Seconds of one test, and of a file of them.
TIME_LIMIT, TIME_LIMIT_OF_FILE = 180, 1200
#: How each engine runs a module, after the name of the Python.
ENGINES = {"Ray": ("-m", "pytest"), "mray": ("-m", "mray", "run", "--libraries", "-m", "pytest")}
_OPTIONS = ("-v", "--tb=short", "-p", "no:cacheprovider", f"--timeout={TIME_LIMIT}")
#: Output of workers may stand between the name of a test and how it ended.
_ENDED = re.compile(r"^ray/(\S+\.py::\S+) .*?(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) +\[ *\d+%\]", re.MULTILINE | re.DOTALL)


def make_package(checkout: Path, folder: Path) -> None:
    """The installed package as links, with the tests of a checkout, and the settings that pytest has there."""
    shutil.copytree(FOLDER, folder / "ray", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    for root, target in ((checkout / "python" / "ray", folder / "ray"), (checkout / "rllib", folder / "ray" / "rllib")):
        for tests in filter(Path.is_dir, root.rglob("tests")):
            shutil.copytree(tests, target / tests.relative_to(root), dirs_exist_ok=True)
    shutil.copy(checkout / "pytest.ini", folder)


def run_file(engine: str, file: str, folder: Path, log: Path) -> dict[str, str]:
    """How the tests of a file ended on one engine; the output is added to a log. Processes that the run leaves behind end with it."""
    path = os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")])
    with log.open("a+") as stream:
        begin = stream.tell()
        running = subprocess.Popen(
            [sys.executable, *ENGINES[engine], *_OPTIONS, f"ray/{file}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            running.wait(TIME_LIMIT_OF_FILE)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        stream.seek(begin)
        # A test whose end fails has two lines: the later one holds.
        return dict(_ENDED.findall(stream.read()))


def table(checkout: Path, files: list[str]) -> Iterator[str]:
    """The lines as they come: of each file the tests that pass on Ray, those of them that pass on mray, and the others; then the sums."""
    yield f"# {date.today()}: Ray's own tests of its libraries; {os.cpu_count()} cores, Python {platform.python_version()}"
    yield f"{'pass on Ray':>12}{'on mray too':>13}"
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_package(checkout, folder)
        for file in files:
            on_ray, on_mray = (run_file(engine, file, folder, Path(tempfile.gettempdir(), f"libraries-{engine}.log")) for engine in ENGINES)
            passed = [test for test, word in on_ray.items() if word == "PASSED"]
            lost = [test for test in passed if on_mray.get(test) != "PASSED"]
            counts[file.removeprefix("util/").partition("/")[0]].update(ray=len(passed), mray=len(passed) - len(lost))
            yield f"{len(passed):12}{len(passed) - len(lost):13}  {file}"
            yield from (f"{'':27}{on_mray.get(test, 'missing').lower()}: {test.partition('::')[2]}" for test in lost)
    counts["all"] = sum(counts.values(), Counter())
    yield from (
        f"{count['ray']:12}{count['mray']:13}  {library}: {count['mray'] / max(count['ray'], 1):.1%}" for library, count in counts.items()
    )
