"""A head start for libraries: the process that sessions are forked from imports the program's libraries at the same time as the program, or
is forked from the driver after the import.

In the driver, in the thread that imports. Of Ray's packages those count that the program names, not what these import. They become the
`preload` of sessions.

::

    mray run --libraries program.py                 `once`: the imports that the program begins with ──fork──▶ template    one import
    python program.py, with import mray.libraries       └─ the program
    any other driver                                `beside`: import ray.data ──exec, once; LOAD──▶ template: the same     two,
    concurrently

A process that has run code of the program is not forked: it may have threads, and may have changed what it has imported. So the
program's first imports are done in their order, as far as they are of the standard library, of Ray and of `HARMLESS` packages.

No such process is started in workers and in children of `multiprocessing`, for another engine or a session that runs elsewhere, and
within a single test, which is to leave nothing.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import PathFinder
from types import FrameType

from mray._api.current import backend_if_started
from mray._backends import entry
from mray._common import settings
from mray._inside.startup import line_coverage, template

LIBRARIES = frozenset({"ray.data", "ray.rllib", "ray.serve", "ray.train", "ray.tune"})
#: modules whose frames are between an import statement and the imported module
_IMPORTING = frozenset({"importlib", "importlib._bootstrap", "importlib._bootstrap_external", "mray"})
#: third-party packages whose import starts no thread and opens no GPU
HARMLESS = frozenset({"fastapi", "gymnasium", "numpy", "pandas", "pyarrow", "pydantic", "requests", "starlette", "torch"})

_start: template.HeadStart | None = None
_thread = threading.local()


@contextlib.contextmanager
def beside(package: str) -> Iterator[None]:
    """Context manager for the import of one of Ray's libraries."""
    if getattr(_thread, "imports", False) or backend_if_started() is not None:
        yield
        return
    _thread.imports = True
    try:
        if not getattr(_thread, "once", False):
            _load(package)
        yield
    finally:
        _thread.imports = False
    settings.preload_everywhere(package)
    if _start is not None:
        _start.settle()


def _load(package: str) -> None:
    global _start
    if _start is None:
        if not _is_wanted():
            return
        _start = template.current = template.HeadStart()
        _start.load("mray.libraries")
    _start.load(package)


def _is_wanted() -> bool:
    multiprocessing = sys.modules.get("multiprocessing.process")
    return (
        settings.HEAD_START.get()
        and template.current is None
        and template.HeadStart.has_a_driver()
        and settings.BACKEND.get() == "native"
        and not settings.ADDRESS.is_set()
        and not settings.POINTS.get()
        and line_coverage.request({}) is None
        and (multiprocessing is None or multiprocessing.parent_process() is None)
    )


# ------------------------------------------------------------------------------------- before the program
def once(source: str | bytes, name: str, done: int = 0) -> None:
    """Do the imports that a program begins with, if one is of Ray's libraries, and fork the process that its sessions begin in.

    In a process that has done nothing else yet, and whose ``__main__`` is the program's. `name`: its file's, for warnings. `done`: the
    line that it has reached. A failing import is left to the program.
    """
    global _start
    try:
        imports = list(_first_imports(ast.parse(source)))
    except (SyntaxError, ValueError):
        return
    if done and not any(each.lineno == done for each in imports):
        return
    imports = [each for each in imports if each.lineno > done]
    if not (any(map(_has_library, imports)) and _is_plain() and _is_wanted()):
        return
    scratch = {"__name__": "__main__"}
    _thread.once = True
    try:
        with template.importing(), contextlib.suppress(Exception):
            for statement in imports:
                exec(compile(ast.Module([statement], []), name, "exec", dont_inherit=True), scratch)
    finally:
        _thread.once = False
    _start = template.current = template.HeadStart()
    if not _start.split_off(lambda options: entry.main("template", "-", "-", options)):
        for module in settings.preloaded_everywhere():
            _start.load(module)
    gc.unfreeze()  # for the program they are ordinary objects


def once_for(importer: FrameType | None) -> None:
    """`once`, if this frame, or the one that it imports for, is of the program's file, at one of its first imports."""
    while importer is not None and importer.f_globals.get("__name__") in _IMPORTING:
        importer = importer.f_back
    program = vars(sys.modules["__main__"])
    if importer is not None and importer.f_globals is program and importer.f_code.co_name == "<module>":
        with contextlib.suppress(OSError), open(program.get("__file__", ""), "rb") as file:
            once(file.read(), importer.f_code.co_filename, importer.f_lineno)


def _first_imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports before anything else, without those for type checkers."""
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if not all(map(_is_harmless, _names(statement))):
                return
            if _names(statement) != ["__future__"]:
                yield statement
        elif not _does_nothing(statement):
            return


def _does_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return not statement.orelse and ast.unparse(statement.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _names(statement: ast.Import | ast.ImportFrom) -> list[str]:
    """The statement's modules; [""] for a relative import."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    return [statement.module or "" if not statement.level else ""]


def _is_harmless(module: str) -> bool:
    top = module.partition(".")[0]
    if top in ("ray", "mray"):
        return True
    # A file of the program may have the name.
    return (top in sys.stdlib_module_names or top in HARMLESS) and PathFinder.find_spec(top, sys.path[:1]) is None


def _has_library(statement: ast.Import | ast.ImportFrom) -> bool:
    modules = _names(statement)
    if isinstance(statement, ast.ImportFrom):
        modules += [f"{modules[0]}.{alias.name}" for alias in statement.names]
    return any(".".join(module.split(".")[:2]) in LIBRARIES for module in modules)


def _is_plain() -> bool:
    """Whether the interpreter was started as those of sessions are, without a debugger or profiler."""
    first = "".join(sys.orig_argv[1:2])
    return (first == "-m" or not first.startswith("-")) and sys.gettrace() is None and sys.getprofile() is None
