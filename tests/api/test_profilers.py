"""Other profilers that see compiled graphs: torch's, and NVIDIA's through `nvtx`."""

from __future__ import annotations

import json
import os
import signal as signals
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.full import full

pytestmark = pytest.mark.only("mray")  # a process has one torch profiler

#: The driver needs no torch, whose import takes seconds.
TORCH = """
    import sys, time
    import ENGINE as ray
    from ENGINE.dag import InputNode

    ray.init(num_cpus=2, preload=["torch"])

    @ray.remote(num_cpus=0)
    class Worker:
        def square(self, size):
            import torch
            torch.ones(size, size) @ torch.ones(size, size)
            return size

    first, second = Worker.remote(), Worker.remote()
    with InputNode() as value:
        graph = second.square.bind(first.square.bind(value)).experimental_compile()
    for _ in range(3):
        ray.get(graph.execute(4))
    if sys.argv[1] == "raises":
        raise KeyError("the script fails")
    if sys.argv[1] == "interrupted":
        print("running", flush=True)
        time.sleep(300)
"""


def traces_in(folder: Path) -> list[list[dict]]:
    return [json.loads(path.read_text())["traceEvents"] for path in sorted(folder.iterdir())]


@pytest.mark.parametrize(
    ("end", "name"),
    [
        ("returns", "RAY_CGRAPH_ENABLE_TORCH_PROFILING"),
        # An interrupt, below, is an exception as well.
        pytest.param("raises", "MRAY_CGRAPH_ENABLE_TORCH_PROFILING", marks=full),
    ],
)
def test_torch_profiles_of_every_actor_are_written_however_the_script_ends(run_program, tmp_path: Path, end: str, name: str) -> None:
    pytest.importorskip("torch")
    done = run_program(TORCH, end, env={name: "1"}, check=False)
    assert done.returncode == (end == "raises"), done.stderr
    check_torch(tmp_path / "compiled_graph_torch_profiles")


def test_torch_profiles_are_written_when_the_script_is_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(TORCH).replace("ENGINE", "mray"))
    environment = {**os.environ, "MRAY_CGRAPH_ENABLE_TORCH_PROFILING": "1"}
    command = [sys.executable, str(program), "interrupted"]
    # A group of its own: Ctrl-C reaches all of a terminal's group.
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, process_group=0) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.strip() == "running":
                break
        os.killpg(running.pid, signals.SIGINT)
        running.stdout.read()
    assert running.returncode != 0
    check_torch(tmp_path / "compiled_graph_torch_profiles")


def check_torch(folder: Path) -> None:
    traces = traces_in(folder)
    assert len(traces) == 2
    for events in traces:
        names = [event.get("name", "") for event in events]
        assert names.count("compute: Worker.square") == 3
        assert names.count("aten::mm") == 3
        assert sum(name.startswith("serialize: ") for name in names) == 3


def test_a_profile_merges_what_torch_tells(run_program, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    run_program(
        """
        import ENGINE as ray
        from ENGINE.dag import InputNode

        ray.init(num_cpus=2, preload=["torch"])

        @ray.remote(num_cpus=0)
        class Worker:
            def square(self, size):
                import torch
                torch.ones(size, size) @ torch.ones(size, size)
                return size

        worker = Worker.remote()
        with InputNode() as value:
            graph = worker.square.bind(value).experimental_compile()
        ray.get(graph.execute(4))
        with graph.profile("trace.json", torch=True) as profile:
            for _ in range(3):
                ray.get(graph.execute(4))
        assert not profile.notes and not profile.lost, (profile.notes, profile.lost)
        graph.teardown()
        """,
        env={"RAY_CGRAPH_ENABLE_NVTX_PROFILING": "1"} if _has_nvtx() else {},
    )
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    computes = [event for event in events if event.get("cat") == "compute"]
    products = [event for event in events if event.get("name") == "aten::mm"]
    assert len(computes) == len(products) == 3
    for compute, product in zip(computes, sorted(products, key=lambda event: event["ts"]), strict=True):
        # The clocks agree to some microseconds.
        assert compute["ts"] - 50 <= product["ts"] <= compute["ts"] + compute["dur"] + 50


def _has_nvtx() -> bool:
    try:
        import nvtx  # noqa: F401
    except ImportError:
        return False
    return True


def test_nvtx_that_is_not_installed_is_an_error_at_compile_time(run_program) -> None:
    done = run_program(
        """
        import sys
        import ENGINE as ray
        from ENGINE.dag import InputNode

        ray.init(num_cpus=2)

        @ray.remote(num_cpus=0)
        class Worker:
            def __init__(self):
                sys.modules["nvtx"] = None

            def echo(self, value):
                return value

        worker = Worker.remote()
        with InputNode() as value:
            dag = worker.echo.bind(value)
        try:
            dag.experimental_compile()
        except ImportError as error:
            print("refused:", error)
        """,
        env={"MRAY_CGRAPH_ENABLE_NVTX_PROFILING": "1"},
    )
    assert "refused:" in done.stdout
    assert "pip install nvtx" in done.stdout
