"""Rules of import that neither the layer contracts (setup.cfg) nor ruff (function-level imports) can say."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys

import pytest

from tests.house.rooms import beside_the_kernel
from tests.house.source import ROOT, functions, imports, modules, mray_imports, nodes, top_package

#: Optional packages: imported inside the function that needs them.
OPTIONAL = {"torch", "cupy", "cupy_backends", "nvtx", "graphviz", "tqdm", "rich", "ray", "markdown_it", "pygments", "argcomplete"}
#: Programs to read, whose imports stand where a user's would; who lacks a package is not offered those that need it.
PROGRAMS = "mray/examples/"
#: The one package that may import Ray, and is imported by nobody who does not want it.
RAY_ONLY_IN = ("mray/_backends/ray/", "mray/_libraries/core/", "mray/examples/libraries/")

#: Files that touch the process's environment, each with its reason. Everything else asks `mray._common.settings`.
ENVIRONMENT: dict[str, str] = {
    "mray/_common/settings.py": "declares every setting",
    "mray/_backends/local/environment.py": "sets the variables of a simulated process while it runs",
    "mray/_device/mps_control.py": "hands its own to the daemons of MPS, and to the program that speaks to them",
    "mray/_ipc/process.py": "moves its text, in a process that was forked where others are started by exec",
    "mray/_runtime/environment/environments.py": "expands variables of the caller, and takes its own out of a worker's",
    "mray/_ipc/sessions.py": "finds the folder for temporary files, by variables of Python's `tempfile`",
    "mray/_common/cache.py": "finds the user's cache folder",
    "mray/_runtime/environment/packages.py": "finds in a worker the driver's interpreter",
    "mray/_runtime/processes/foresight.py": "sees whether a worker has changed variables that a package reads when it is imported",
    "mray/_runtime/processes/interpreters.py": "hands the node's environment to builders of packages",
    "mray/_runtime/processes/launch.py": "has the folders of a PYTHONPATH searched that the program has set",
    "mray/_runtime/environment/package_builder.py": "hands its own to the installers",
    "mray/_runtime/session/launching.py": "hands the driver's environment to the node",
    "mray/_joining/persistent.py": "finds the session of a worker from which this process descends, by the variable that marks it",
    "mray/_runtime/processes/line_coverage.py": "gives workers the variables by which coverage finds its measurement",
    "mray/_runtime/processes/template.py": "hands the driver's environment to a template, and takes on that of a session in what it forks",
    "mray/_runtime/processes/supervisor.py": "hands the node's environment to the zygote and to workers",
    "mray/_runtime/processes/zygote.py": "gives a worker the variables of its runtime_env",
    "mray/_runtime/worker/devices.py": "reads which accelerators the process may use",
    "mray/_runtime/worker/own_process.py": "sets variables of a worker's devices for a task",
    "mray/_runtime/processes/native_threads.py": "sets OMP_NUM_THREADS for a task",
    "mray/_backends/entry.py": "takes what was handed to a worker started by exec",
    "mray/cli/completion.py": "reads the line that a shell completes, in argcomplete's variables",
    "mray/cli/on_path.py": "puts the folder with the command ray before the others of PATH",
    "mray/pytest_plugin/leaks.py": "marks what descends from a test run, and gives its sessions a place",
    "mray/pytest_plugin/stacks.py": "PYTEST_TIMEOUT, a variable of pytest-timeout",
    "mray/_ipc/discovery.py": "CUDA_VISIBLE_DEVICES of the user, a variable of CUDA and no setting of mray",
}


@pytest.mark.parametrize(
    "package",
    [
        "numpy",
        "torch",
        "asyncio",
        "cloudpickle",
        "multiprocessing",
        "concurrent.futures",
        "argparse",
        "logging",
        "json",
        "uuid",
        "pathlib",
        "tempfile",
    ],
)
def test_import_mray_leaves_out(package: str) -> None:
    program = f"import sys, mray; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


#: Module by which a process begins -> modules of the standard library that it does without, since others wait for it.
BEGINNINGS = {
    "mray._backends.native_start": ("logging", "pickle", "json", "uuid", "tempfile", "shutil", "mray._runtime.client"),
    "mray._runtime.node.node": ("logging", "inspect", "dataclasses", "pickle", "uuid", "mray._api"),
}


@pytest.mark.parametrize("module", BEGINNINGS)
def test_the_start_of_a_session_imports_little(module: str) -> None:
    code = (
        "import sys; face = sys.modules['mray'] = type(sys)('mray'); face.__path__ = [sys.argv[1]]\n"
        "import importlib; importlib.import_module(sys.argv[2]); print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, str(ROOT / "mray"), module]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert not {name for name in BEGINNINGS[module] if name in loaded}


def test_a_session_on_cpus_loads_nothing_that_lies_beside_the_kernel() -> None:
    program = """
import sys

import mray
from mray.dag import InputNode


class Worker:
    def loaded(self, _value):
        return [name for name in sys.modules if name.startswith("mray.")]


mray.init(num_cpus=1, logging_level="ERROR")
worker = mray.remote(Worker).remote()
with InputNode() as given:
    graph = worker.loaded.bind(given).experimental_compile()
assert mray.get(mray.remote(lambda value: value).remote(mray.put(2))) == 2
print(*mray.get(graph.execute(1)), *(name for name in sys.modules if name.startswith("mray.")))
"""
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    loaded = {name.removeprefix("mray.").replace(".", "/") for name in said.split()}
    assert "_graph/actor/loop" in loaded
    by_mray_dag = {"_picture/plot", "_picture/graphviz"}
    assert not {name for name in loaded if any(name.startswith(f"{room}/") for room in beside_the_kernel() if room != "dag")} - by_mray_dag


def test_optional_packages_are_imported_where_they_are_needed() -> None:
    at_top = []
    for name, tree in modules().items():
        optional = {(line, module) for line, module in imports(tree) if top_package(module) in OPTIONAL}
        if optional and not name.startswith((PROGRAMS, *RAY_ONLY_IN)):
            inside = {found for function in functions(tree) for found in imports(function)}
            for_types = {found for branch in nodes(tree) if _is_for_type_checkers(branch) for found in imports(branch)}
            at_top += [f"{name}:{line} {module}" for line, module in optional - inside - for_types]
    assert not at_top


def _is_for_type_checkers(branch: ast.AST) -> bool:
    return isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"


def cycle_among(trees: dict[str, ast.Module]) -> list[str]:
    """Modules each of which imports the one before, the first again at the end; none where there is no such ring."""
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): tree for path, tree in trees.items()}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, tree in names.items():
        for imported in mray_imports(tree):
            module = imported if imported in names else imported.rpartition(".")[0]
            if module in names and module != name:
                graph[name].add(module)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        ring: list[str] = error.args[1]
        return ring
    return []


def test_imports_have_no_cycle_even_those_of_annotations_and_of_functions() -> None:
    assert cycle_among(modules()) == []


@pytest.mark.parametrize(
    "back",
    [
        "from mray import one",
        "from mray.one import Name",
        "import mray.one",
        "if TYPE_CHECKING:\n    from mray.one import Name",
        "def function():\n    from mray.one import Name",
        "importlib.import_module('mray.one')",
    ],
)
def test_a_cycle_is_seen(back: str) -> None:
    there = ast.parse("from mray.two.part import part")
    assert set(cycle_among({"mray/one.py": there, "mray/two/part.py": ast.parse(back)})) == {"mray.one", "mray.two.part"}
    assert not cycle_among({"mray/one.py": there, "mray/two/part.py": ast.parse("import mray.two.part")})


def test_only_one_package_imports_ray() -> None:
    found = {
        f"{name}:{line}"
        for name, tree in modules().items()
        if not name.startswith(RAY_ONLY_IN)
        for line, module in imports(tree)
        if top_package(module) == "ray"
    }
    assert not found


def test_only_the_package_between_processes_imports_posix_ipc() -> None:
    importing = {name for name, tree in modules().items() for _line, module in imports(tree) if top_package(module) == "posix_ipc"}
    assert {name.rpartition("/")[0] for name in importing} == {"mray/_ipc"}


def test_only_settings_reads_the_environment() -> None:
    readers = {name for name, tree in modules().items() if any(_reads_environment(expression) for expression in nodes(tree))}
    assert readers - set(ENVIRONMENT) == set()
    assert set(ENVIRONMENT) - readers == set(), "these entries of ENVIRONMENT are no more needed"


def _reads_environment(expression: ast.AST) -> bool:
    if isinstance(expression, ast.Attribute):
        return (
            isinstance(expression.value, ast.Name) and expression.value.id == "os" and expression.attr in ("environ", "environb", "getenv")
        )
    return (
        isinstance(expression, ast.ImportFrom)
        and expression.module == "os"
        and any(alias.name in ("environ", "getenv") for alias in expression.names)
    )
