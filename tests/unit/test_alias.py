"""The import hook that puts mray behind the name ``ray``. Each case runs in an interpreter of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(program: str) -> str:
    """What a program prints after the alias is installed; a failed assertion in it fails the test."""
    done = subprocess.run([sys.executable, "-c", f"import mray.cli.as_ray\n{program}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    "statement",
    [
        "import ray, mray; assert ray.remote is mray.remote and ray.ObjectRef is mray.ObjectRef",
        "import ray.dag, mray.dag; assert ray.dag is mray.dag",
        "import mray.dag, ray.dag; assert ray.dag is mray.dag",
        "from ray import dag; import mray.dag; assert dag is mray.dag",
        "from ray.dag import InputNode; import mray.dag; assert InputNode is mray.dag.InputNode",
        "import ray.exceptions as e; from mray.exceptions import RayError; assert e.RayError is RayError",
        "import importlib, mray; assert importlib.import_module('ray.dag') is mray.dag",
        "import ray.util, sys; assert sys.modules['ray.util'] is sys.modules['mray.util']",
    ],
)
def test_modules_are_the_same_objects_under_both_names(statement: str) -> None:
    run(statement)


def test_the_version_is_that_of_ray_under_its_name_alone() -> None:
    program = """
import importlib.metadata, ray, mray
from ray import __version__
from mray._common.version import __version__ as ours
print(ray.__version__ == __version__ == importlib.metadata.version("ray") == importlib.metadata.version("Ray"), mray.__version__ == ours)
print(__version__)
print(sum(each.name == "ray" for each in importlib.metadata.distributions()), importlib.metadata.packages_distributions()["ray"]
      if hasattr(importlib.metadata, "packages_distributions") else ["ray"])
try:
    importlib.metadata.version("ray_of_nobody")
except importlib.metadata.PackageNotFoundError:
    print("not found")
"""
    assert run(program).splitlines() == ["True True", "2.60.0", "1 ['ray']", "not found"]


@pytest.mark.parametrize(("one", "other"), [("ray", "mray"), ("mray", "ray")])
def test_what_is_set_under_one_name_is_there_under_both(one: str, other: str) -> None:
    program = f"""
import ray, mray
{one}.get = {one}.made = "ours"
assert {other}.get == {other}.made == "ours"
del {other}.made
assert not hasattr({one}, "made")
{one}.__version__ = "mine"
print({other}.__version__ != "mine")
"""
    assert run(program) == "True"


def test_a_program_that_holds_the_package_itself_can_be_pickled() -> None:
    program = """
import cloudpickle, pickle, ray, mray
for each in (ray, mray, lambda: (ray.__version__, mray.__version__)):
    again = pickle.loads(cloudpickle.dumps(each))
    assert again is each or again() == each(), each
print(b"mray.cli.alias" in cloudpickle.dumps(ray))
"""
    assert run(program) == "True"
    pickled = run("import cloudpickle, ray; print(cloudpickle.dumps(ray).hex())")
    elsewhere = f"import pickle, mray; print(pickle.loads(bytes.fromhex({pickled!r})) is mray)"
    assert subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=True).stdout.strip() == "True"


def test_modules_keep_their_own_name() -> None:
    assert (
        run("import ray.dag; print(ray.__name__, ray.__spec__.name, ray.dag.__name__, ray.dag.__spec__.name)")
        == "mray mray mray.dag mray.dag"
    )


def test_pickles_name_mray() -> None:
    assert run("import pickle, ray.exceptions; print(b'mray.exceptions' in pickle.dumps(ray.exceptions.RayError))") == "True"


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ("import ray.tune", "ray.tune"),
        ("import ray.tune.search", "ray.tune"),
        ("from ray.tune import run", "ray.tune"),
        ("from ray import tune", "ray.tune"),
        ("import importlib; importlib.import_module('ray.tune')", "ray.tune"),
    ],
)
def test_what_mray_lacks_is_named(statement: str, missing: str) -> None:
    program = f"try:\n    {statement}\nexcept ImportError as error:\n    print(type(error).__mro__[1].__name__, error.name, '|', error)"
    assert run(program) == f"ModuleNotFoundError {missing} | No module named {missing!r}: this part of Ray is not in mray"


def test_a_missing_attribute_is_named() -> None:
    text = run("import ray\ntry:\n    ray.tune\nexcept AttributeError as error:\n    print(error)")
    assert "mray" in text
    assert "tune" in text


def test_an_installed_ray_is_not_found(tmp_path: object) -> None:
    program = (
        f"import sys, pathlib; pathlib.Path({str(tmp_path)!r}, 'ray.py').write_text('real = 1'); sys.path.insert(0, {str(tmp_path)!r})\n"
    )
    run(program + "import ray, mray; assert ray.get is mray.get")


def test_an_imported_ray_cannot_be_replaced() -> None:
    program = "import sys, types; sys.modules['ray'] = types.ModuleType('ray')\nimport mray.cli.as_ray"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ImportError: the package 'ray' is imported already" in done.stderr


def test_installing_twice_is_installing_once() -> None:
    assert run("import sys; from mray.cli.alias import install; n = len(sys.meta_path); install(); print(len(sys.meta_path) - n)") == "0"


def test_importing_the_module_alone_installs_nothing() -> None:
    program = "import sys, mray.cli.alias, mray.cli; print('ray' in sys.modules, any('Alias' in type(f).__name__ for f in sys.meta_path))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"
