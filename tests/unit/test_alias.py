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
        "import ray, mray; assert ray is mray",
        "import ray.dag, mray.dag; assert ray.dag is mray.dag",
        "import mray.dag, ray.dag; assert ray.dag is mray.dag",
        "from ray import dag; import mray.dag; assert dag is mray.dag",
        "from ray.dag import InputNode; import mray.dag; assert InputNode is mray.dag.InputNode",
        "import ray.exceptions as e; from mray.exceptions import RayError; assert e.RayError is RayError",
        "import importlib, mray; assert importlib.import_module('ray.dag') is mray.dag",
        "import ray, sys; assert sys.modules['ray'] is sys.modules['mray']",
    ],
)
def test_modules_are_the_same_objects_under_both_names(statement: str) -> None:
    run(statement)


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
    run(program + "import ray, mray; assert ray is mray")


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
