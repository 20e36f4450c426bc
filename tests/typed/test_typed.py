"""Programs for type checkers: what they are told of each line is what the comments in the programs say.

`tools/typed` checks the same programs against Ray's own annotations, where Ray is installed.
"""

import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import mray
from mray.actor import ActorClass, ActorHandle, ActorProxy

TOOL = Path(__file__).parents[2] / "tools" / "typed"


def typed(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(TOOL), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("--plugin",)], ids=["plain", "plugin"])
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_programs_are_typed_as_their_comments_say(checker: str, options: tuple[str, ...]) -> None:
    if checker == "mypy":
        pytest.importorskip("mypy")
    elif shutil.which("pyright") is None:
        pytest.skip("pyright is not installed")
    done = typed("--checker", checker, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_program_that_is_typed_otherwise_is_told(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text("reveal_type(1)  # str\nx: int = 1  # error\ny: int = ''\nreveal_type(str())  # str\n")
    done = typed(str(program))
    told = [line.rpartition("program.py:")[2].partition(":")[0] for line in done.stdout.splitlines()[:-1]]
    assert (done.returncode, told) == (1, ["1", "2", "3"])


@pytest.mark.parametrize("generic", [mray.ObjectRef, mray.ObjectRefGenerator, ActorClass, ActorHandle, ActorProxy])
def test_generic_types_take_a_type_while_the_program_runs(generic: typing.Any) -> None:
    named = generic[int]
    assert int in typing.get_args(named) or any(int in typing.get_args(part) for part in typing.get_args(named))


def test_refs_and_generators_have_no_dict_for_being_generic() -> None:
    assert not hasattr(mray.ObjectRef(b"x" * 28), "__dict__")
    assert "__dict__" not in dir(mray.ObjectRefGenerator)
