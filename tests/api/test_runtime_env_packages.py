"""`pip`, `uv` and `py_executable` in a runtime_env: packages from files, installed without a network."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import zipfile

import pytest

pytestmark = pytest.mark.only("mray")  # Ray's agent installs virtualenv and downloads


def wheel(folder, name, value, requires=""):
    """A package of one module with the constant VALUE and a program of its own name."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    about = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VALUE = {value!r}\n\n\ndef main():\n    print(VALUE)\n")
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/entry_points.txt", f"[console_scripts]\n{name} = {name}:main\n")
        archive.writestr(f"{about}/RECORD", "")
    return str(path)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A cache of this file's own."""
    place = tmp_path_factory.mktemp("packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRAY_CACHE_DIR", str(place / "cache"))
        yield place


@pytest.fixture(scope="module")
def tiny(place):
    """The runtime_env with a tiny package, by pip."""
    return {"pip": ["--no-index", wheel(place, "mray_tiny", "tiny")]}


def environments(place):
    folder = place / "cache" / "environments"
    return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture
def seen(ray):
    def seen():
        import cloudpickle
        import mray_tiny

        return mray_tiny.VALUE, sys.prefix, os.environ["VIRTUAL_ENV"], cloudpickle.__name__

    return ray.remote(seen)


def test_a_task_can_import_what_pip_installed_and_the_driver_cannot(ray_session, place, tiny, seen):
    ray = ray_session
    value, prefix, virtual, other = ray.get(seen.options(runtime_env=tiny).remote())
    assert (value, other) == ("tiny", "cloudpickle")
    assert prefix == virtual == str(place / "cache" / "environments" / environments(place)[0])
    with pytest.raises(ImportError):
        import mray_tiny  # noqa: F401
    with pytest.raises(ImportError):
        ray.get(seen.remote())


def test_programs_of_the_packages_are_on_the_path(ray_session, tiny):
    ray = ray_session

    @ray.remote(runtime_env=tiny)
    def run():
        import subprocess

        return subprocess.run(["mray_tiny"], capture_output=True, text=True, check=True).stdout

    assert ray.get(run.remote()) == "tiny\n"


def test_an_actor_its_children_and_its_restart_have_the_packages(ray_session, place, tiny, seen, eventually):
    ray = ray_session

    @ray.remote(runtime_env=tiny, max_restarts=1, max_task_retries=-1)
    class A:
        def __init__(self):
            import mray_tiny

            self.value = mray_tiny.VALUE

        def values(self):
            return self.value, ray.get(seen.remote()), ray.get(seen.options(runtime_env={"env_vars": {"X": "1"}}).remote())

        def pid(self):
            return os.getpid()

    actor = A.remote()
    value, child, other = ray.get(actor.values.remote())
    assert value == child[0] == other[0] == "tiny"
    assert child[1] == other[1]
    os.kill(ray.get(actor.pid.remote()), 9)
    assert ray.get(actor.values.remote())[0] == "tiny"
    assert len(environments(place)) == 1


def test_the_same_packages_are_installed_once_whatever_else_differs(ray_session, place, tiny, seen):
    ray = ray_session
    before = environments(place)
    packages = [*tiny["pip"], tiny["pip"][-1]]
    environment = {"pip": {"packages": packages, "pip_check": False}, "env_vars": {"OTHER": "1"}, "config": {"setup_timeout_seconds": 500}}
    assert ray.get(seen.options(runtime_env=environment).remote())[0] == "tiny"
    assert ray.get(seen.options(runtime_env=ray.runtime_env.RuntimeEnv(**environment)).remote())[0] == "tiny"
    assert environments(place) == before


def test_a_failed_installation_is_reported_with_what_pip_said_and_leaves_nothing(ray_session, place):
    ray = ray_session
    before = environments(place)

    @ray.remote
    def f():
        return 1

    failing = f.options(runtime_env={"pip": ["--no-index", "mray-no-such-package"]})
    refs = [failing.remote() for _ in range(3)]
    assert ray.get(f.remote()) == 1  # nobody else waits for it
    for ref in refs:
        with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="No matching distribution found for mray-no-such-package"):
            ray.get(ref)
    assert environments(place) == before


def test_an_actor_whose_packages_cannot_be_installed_is_dead_with_the_reason(ray_session, place, tmp_path):
    ray = ray_session
    broken = tmp_path / "broken-1.0-py3-none-any.whl"
    broken.write_text("no archive")

    @ray.remote(runtime_env={"pip": ["--no-index", str(broken)]})
    class A:
        def f(self):
            return 1

    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="broken"):
        ray.get(A.remote().f.remote())


def test_an_installation_that_takes_too_long_is_ended(ray_session, place, tmp_path):
    """pip opens a named pipe, into which nobody writes."""
    ray = ray_session
    before = environments(place)
    os.mkfifo(tmp_path / "endless.txt")
    environment = {"pip": [f"-r {tmp_path}/endless.txt"], "config": {"setup_timeout_seconds": 1}}
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="setup_timeout_seconds=1"):
        ray.get(ray.remote(lambda: 1).options(runtime_env=environment).remote())
    assert environments(place) == before


def complete(place, name):
    return (place / "cache" / "environments" / name / "complete.json").exists()


def test_a_requirements_file_is_read_and_pip_check_run(ray_session, place, tmp_path):
    ray = ray_session
    needy = wheel(tmp_path, "mray_needy", "needy", "Requires-Dist: mray-no-such-package\n")
    (tmp_path / "requirements.txt").write_text(f"--no-index\n{needy}\n")
    packages = {"packages": str(tmp_path / "requirements.txt"), "pip_check": True, "pip_install_options": ["--no-deps"]}
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="mray-needy 1.0 requires mray-no-such-package"):
        ray.get(ray.remote(lambda: 1).options(runtime_env={"pip": packages}).remote())


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
def test_a_task_can_import_what_uv_installed(ray_session, place, tiny, seen):
    ray = ray_session
    packages = {"packages": tiny["pip"][1:], "uv_pip_install_options": ["--no-index", "--no-cache"]}
    assert ray.get(seen.options(runtime_env={"uv": packages}).remote())[0] == "tiny"


# ------------------------------------------------------------------------------------------ py_executable
@pytest.fixture
def stand_in(tmp_path):
    """A program that notes that it was asked and becomes our interpreter."""
    path = tmp_path / "my python"
    path.write_text(f'#!/bin/sh\necho "$@" | wc -l >> "{tmp_path}/asked"\nexport STAND_IN=yes\nexec "{sys.executable}" "$@"\n')
    path.chmod(0o700)
    return path


def test_py_executable_starts_the_workers(ray_session, stand_in):
    ray = ray_session

    @ray.remote
    def f():
        return os.environ.get("STAND_IN")

    assert ray.get(f.options(runtime_env={"py_executable": f"'{stand_in}'"}).remote()) == "yes"
    assert (stand_in.parent / "asked").exists()
    assert ray.get(f.remote()) is None


def test_py_executable_may_be_a_command(ray_session):
    ray = ray_session

    @ray.remote
    class A:
        def f(self):
            return os.environ.get("GIVEN"), os.getpid()

    actor = A.options(runtime_env={"py_executable": f"env GIVEN=here {sys.executable}"}, max_restarts=1, max_task_retries=1).remote()
    given, pid = ray.get(actor.f.remote())
    assert given == "here"
    os.kill(pid, 9)
    again = ray.get(actor.f.remote())
    assert again[0] == "here"
    assert again[1] != pid


def test_an_interpreter_that_is_not_there_or_does_not_work_is_named(ray_session):
    ray = ray_session
    f = ray.remote(lambda: 1)
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="no program 'mray-no-such-python'"):
        f.options(runtime_env={"py_executable": "mray-no-such-python"}).remote()
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="exit code 1"):
        ray.get(f.options(runtime_env={"py_executable": "/bin/false"}).remote())


# ------------------------------------------------------------------------------------------ job
def test_the_packages_of_a_job_are_installed_as_it_starts(fresh, init, place, eventually):
    ray = fresh
    path = wheel(place, "mray_eager", "eager")
    before = environments(place)
    init(num_cpus=1, runtime_env={"pip": ["--no-index", path]})
    eventually(lambda: any(complete(place, name) for name in set(environments(place)) - set(before)))

    @ray.remote
    def f():
        import mray_eager

        return mray_eager.VALUE

    assert ray.get(f.remote()) == "eager"


def test_with_eager_install_off_nothing_is_installed_before_the_first_task(fresh, init, place, tmp_path):
    ray = fresh
    path = wheel(tmp_path, "mray_lazy", "lazy")
    context = init(num_cpus=1, runtime_env={"pip": ["--no-index", path], "config": {"eager_install": False}})
    logs = os.path.join(context["session_dir"], "logs")
    assert ray.cluster_resources()["CPU"] == 1

    def builds():
        return [name for name in os.listdir(logs) if name.startswith("environment-")]

    assert not builds()

    @ray.remote
    def f():
        import mray_lazy

        return mray_lazy.VALUE

    assert ray.get(f.remote()) == "lazy"
    assert len(builds()) == 1


def test_a_session_that_ends_or_dies_takes_its_builders_along(run_program, tmp_path, eventually):
    """Both the builder and the pip that it runs."""
    os.mkfifo(tmp_path / "endless.txt")
    program = f"""
        import os, sys, time
        import ENGINE as ray

        ray.init(num_cpus=1, logging_level="ERROR", runtime_env={{"pip": ["-r {tmp_path}/endless.txt"]}})
        while not [pid for pid in os.listdir("/proc") if pid.isdigit() and b"requirements.txt" in read(pid)]:
            time.sleep(0.02)
        if sys.argv[1] == "die":
            os.kill(os.getpid(), 9)
        """
    read = """
        def read(pid):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read()
            except OSError:
                return b""
            return words if FOLDER in words else b""
        """.replace("FOLDER", repr(str(tmp_path).encode()))

    def running():
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"requirements.txt" in (words := file.read()) and str(tmp_path).encode() in words:
                        found.append(pid)
            except OSError:
                continue
        return found

    for how in ("end", "die"):
        run_program(read + program, how, env={"MRAY_CACHE_DIR": str(tmp_path / "cache")}, check=how == "end")
        eventually(lambda: not running())


def builders(session_dir):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"builder" in words and session_dir.encode() in words:
            found.append(int(pid))
    return found


@pytest.fixture
def hanging(fresh, init, place, tmp_path, eventually):
    """A session in which a task waits for pip, which waits for its requirements: the task's ref, the builder's pid, where pip reads."""
    ray = fresh
    session_dir = init(num_cpus=1)["session_dir"]
    path = tmp_path / "endless.txt"
    os.mkfifo(path)

    def value():
        import mray_told

        return mray_told.VALUE

    ref = ray.remote(value).options(runtime_env={"pip": ["--no-index", f"-r {path}"]}).remote()
    eventually(lambda: len(builders(session_dir)) == 1)
    return ref, builders(session_dir)[0], path


def test_a_builder_that_is_killed_is_named_to_who_waits(fresh, hanging, place):
    ray = fresh
    ref, pid, _path = hanging
    os.kill(pid, 9)
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="pip failed .it was killed by SIGKILL"):
        ray.get(ref)
    assert ray.get(ray.remote(lambda: 1).remote()) == 1


def test_a_zygote_that_dies_leaves_builders_alone(fresh, hanging, place, tmp_path, eventually):
    ray = fresh
    ref, pid, path = hanging
    with open(f"/proc/{pid}/stat") as file:
        node = int(file.read().rsplit(")", 1)[1].split()[1])

    def zygotes():
        with open(f"/proc/{node}/task/{node}/children") as file:
            return [int(child) for child in file.read().split() if b"ray::zygote" in title(child)]

    def title(child):
        with contextlib.suppress(OSError), open(f"/proc/{child}/cmdline", "rb") as file:
            return file.read()
        return b""  # it has just ended, and was waited for

    (zygote,) = zygotes()
    os.kill(zygote, 9)
    eventually(lambda: zygotes() and zygotes() != [zygote])
    os.kill(pid, 0)
    path.write_text(wheel(tmp_path, "mray_told", "told") + "\n")
    assert ray.get(ref) == "told"


def test_the_childs_way_to_an_interpreter_replaces_the_parents(ray_session, tiny, stand_in):
    ray = ray_session

    @ray.remote(num_cpus=0)
    def child():
        return os.environ.get("STAND_IN"), os.environ.get("VIRTUAL_ENV")

    @ray.remote(num_cpus=0, runtime_env=tiny)
    def parent(program):
        return ray.get(child.options(runtime_env={"py_executable": program}).remote()), os.environ["VIRTUAL_ENV"]

    (stood_in, _virtual), own = ray.get(parent.remote(f"'{stand_in}'"))
    assert stood_in == "yes"
    assert own


def test_what_was_installed_is_written_down(place):
    for name in environments(place):
        if complete(place, name):
            recipe = json.loads((place / "cache" / "environments" / name / "complete.json").read_text())
            assert recipe["tool"] in ("pip", "uv")
            assert recipe["python"][0] == sys.executable
