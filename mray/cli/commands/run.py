"""``mray run``: execute a script, a module or a line of code with mray behind the name ``ray``.

The driver becomes what ``python script.py`` would be: the same ``sys.argv``, ``sys.path[0]``, ``__main__``, exit status and tracebacks.
The code runs in this process and not in a child, so that signals, the terminal and debuggers see one process.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import linecache
import os
import pkgutil
import sys
from collections.abc import Mapping
from types import CodeType, ModuleType, TracebackType
from typing import Any, NamedTuple, NoReturn

from mray._common import settings
from mray.cli.completion import completed, is_asked
from mray.cli.on_path import put_on_path

SUMMARY = "run a script written for Ray on mray"

USAGE = """\
usage: mray run [option ...] script [argument ...]
       mray run [option ...] -m module [argument ...]
       mray run [option ...] -c code [argument ...]

Runs a program written for Ray on mray: `import ray` and `from ray.x import y` mean mray, in its workers too.

  --libraries   ray.data, ray.tune, ray.train, ray.serve and ray.rllib are Ray's own files, of the installed package ray
  --num-cpus N  CPUs of a session that the program starts without num_cpus
  --web         serve a page about each session; the log has its address
  script        a file, a folder or zip file with a __main__.py, or - for standard input
  -m module     a module or package, as in python -m
  -c code       the text of the program, as in python -c"""


_VARIABLES: dict[str, settings.Setting[Any]] = {"--num-cpus": settings.NUM_CPUS, "--web": settings.WEB}


class _Program(NamedTuple):
    source: CodeType | bytes | str
    #: the source's in tracebacks
    name: str
    argv0: str
    attributes: Mapping[str, object]
    #: the source of a program that is compiled already
    text_of_code: str | None = None

    def code(self) -> CodeType:
        if isinstance(self.source, CodeType):
            return self.source
        code: CodeType = compile(self.source, self.name, "exec", dont_inherit=True)
        return code

    def text(self) -> bytes | str:
        return self.text_of_code or "" if isinstance(self.source, CodeType) else self.source


class _CannotRunError(Exception):
    """`status`: Python's exit status for it."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def main(arguments: list[str]) -> int:
    """Errors of the program propagate, `SystemExit` too."""
    if is_asked():
        completed(_parser())
    try:
        given, arguments = _options(arguments)
    except ValueError as error:
        print(f"mray run: {error}\n\n{USAGE}", file=sys.stderr)
        return 2
    if not arguments or arguments[0] in ("--help", "-h"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    kind, rest = (arguments[0], arguments[1:]) if arguments[0] in ("-m", "-c") else ("", arguments)
    if not rest or (not kind and rest[0].startswith("-") and rest[0] != "-"):
        print(f"mray run: {f'{kind} needs an argument' if kind else f'no option {rest[0]}'}\n\n{USAGE}", file=sys.stderr)
        return 2
    for name in given.keys() & _VARIABLES.keys():
        settings.choose_everywhere(_VARIABLES[name], given[name])
    try:
        importlib.import_module("mray.libraries" if "--libraries" in given else "mray.as_ray")
    except ImportError as error:
        print(f"mray run: {error}", file=sys.stderr)
        return 1
    put_on_path()
    load = {"-m": _from_module, "-c": _from_text, "": _from_file}[kind]
    try:
        program = load(rest[0])
    except _CannotRunError as error:
        print(f"mray run: {error}", file=sys.stderr)
        return error.status
    _execute(program, rest[1:])
    return 0


def _parser() -> argparse.ArgumentParser:
    """For completion: the program's own words follow the script."""
    parser = argparse.ArgumentParser(prog="mray run")
    for option in ("--libraries", "--web"):
        parser.add_argument(option, action="store_true")
    for option in ("--num-cpus", "-m", "-c"):
        parser.add_argument(option)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    return parser


def _options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """The options before the program, and the words from it on."""
    given: dict[str, str] = {}
    while words:
        name, equals, value = words[0].partition("=")
        if words[0] in ("--libraries", "--web"):
            given[name] = "1"
            words = words[1:]
        elif name == "--num-cpus":
            value, words = (value, words[1:]) if equals else ("".join(words[1:2]), words[2:])
            try:
                number = float(value)
            except ValueError:
                number = -1
            if not (number >= 0 and number.is_integer()):
                raise ValueError(f"--num-cpus needs a whole number, not {value!r}")
            given[name] = value
        else:
            break
    return given, words


def _from_text(text: str) -> _Program:
    _search_first("")
    if sys.version_info >= (3, 13):  # afterwards Python's tracebacks show these lines
        linecache.cache["<string>"] = (len(text), None, text.splitlines(keepends=True), "<string>")
    return _Program(text, "<string>", "-c", {"__spec__": None, "__package__": None})


def _from_file(name: str) -> _Program:
    if name == "-":
        _search_first("")
        return _Program(sys.stdin.buffer.read(), "<stdin>", "-", {"__spec__": None, "__package__": None})
    path = os.path.join(os.getcwd(), name)  # not normalised, as in Python
    if pkgutil.get_importer(path) is not None:  # a folder, or a zip file with any name
        _search_first(path, asked=True)
        spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
        if spec is None:
            raise _CannotRunError(f"can't find '__main__' module in {path!r}", 1)
        return _from_spec(spec, name)
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise _CannotRunError(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}", 2) from error
    _search_first(os.path.dirname(os.path.realpath(path)))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    return _Program(source, path, name, {"__file__": path, "__cached__": None, "__loader__": loader, "__spec__": None, "__package__": None})


def _from_module(name: str) -> _Program:
    _search_first(os.getcwd())
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
            if spec is None:
                raise _CannotRunError(f"No module named {name}.__main__; {name!r} is a package and cannot be directly executed", 1)
    except ModuleNotFoundError as error:
        raise _CannotRunError(f"Error while finding module specification for {name!r} ({type(error).__name__}: {error})", 1) from error
    if spec is None:
        raise _CannotRunError(f"No module named {name}", 1)
    return _from_spec(spec, spec.origin or name)


def _from_spec(spec: importlib.machinery.ModuleSpec, argv0: str) -> _Program:
    # Looked up by name: on some Pythons the importer of zip files is no `importlib.abc.InspectLoader`.
    get_code = getattr(spec.loader, "get_code", None)
    code = None if get_code is None else get_code(spec.name)
    if code is None:
        raise _CannotRunError(f"No code object available for {spec.name}", 1)
    attributes = {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__spec__": spec,
        "__package__": spec.parent,
    }
    get_source = getattr(spec.loader, "get_source", lambda _name: None)
    return _Program(code, code.co_filename, argv0, attributes, get_source(spec.name))


def _search_first(folder: str, *, asked: bool = False) -> None:
    """Put the program's folder where Python put the folder of this command.

    Without such a folder, Python still adds a folder or zip file that it runs.
    """
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        sys.path[0] = folder
    elif asked:
        sys.path.insert(0, folder)


def _execute(program: _Program, arguments: list[str]) -> None:
    sys.argv[:] = [program.argv0, *arguments]
    main = ModuleType("__main__")
    main.__dict__.update(program.attributes, __builtins__=builtins)
    sys.modules["__main__"] = main
    code: CodeType | None = None
    try:
        code = program.code()
        if "mray.libraries" in sys.modules:
            importlib.import_module("mray._libraries.head_start").once(program.text(), program.name)
        exec(code, main.__dict__)
    except Exception as error:
        _raise_from(code, error)
    except KeyboardInterrupt as error:
        # Python itself ends such a process by the signal, after its exit handlers.
        _raise_from(code, error)


def _raise_from(code: CodeType | None, error: BaseException) -> NoReturn:
    """Let `error` end the process, shown without the frames above `code` (all of them if it never ran).

    Raising it again adds mray's frames, so the exception hook that is installed by then removes them.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code is not code:
        traceback = traceback.tb_next
    shown = sys.excepthook

    def excepthook(kind: type[BaseException], value: BaseException, found: TracebackType | None) -> Any:
        if value is error:
            value.__traceback__ = found = traceback
        return shown(kind, value, found)

    sys.excepthook = excepthook
    raise error
