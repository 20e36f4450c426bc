"""The few tests that run with every Python's required packages need no others."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

from tests.house.source import ROOT

#: Packages that tests import and the least of the requirements lack.
OTHERS = ("torch", "hypothesis")
#: Plugins of pytest that are among these.
PLUGINS = ("pytest_timeout", "pytest_benchmark.plugin", "mray.pytest_plugin")


def corner_files() -> list[str]:
    """Those that `tools/matrix --corners` runs."""
    tree = ast.parse((ROOT / "tools" / "matrix").read_text())
    (tests,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "CORNER_TESTS"
    )
    return sorted({test.partition("::")[0] for test in tests})


def test_tests_for_every_python_are_collected_without_further_packages() -> None:
    files = corner_files()
    assert files
    program = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1].split(), None)); import pytest; sys.exit(pytest.main(sys.argv[2:]))"
    options = ["-q", "--collect-only", "-p", "no:cacheprovider", *(word for plugin in PLUGINS for word in ("-p", plugin))]
    command = [sys.executable, "-c", program, " ".join(OTHERS), *options, *files]
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
