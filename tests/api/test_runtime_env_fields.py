"""The fields of a `runtime_env`, as a dict and as a `RuntimeEnv`: types, texts, the form it is kept in; folders, archives, hooks."""

from __future__ import annotations

import importlib.util
import os
import pickle
import tarfile
import threading
import zipfile

import pytest


def function():
    """Never called."""


@pytest.fixture
def RuntimeEnv(ray):
    return ray.runtime_env.RuntimeEnv


@pytest.fixture
def RuntimeEnvConfig(ray):
    return ray.runtime_env.RuntimeEnvConfig


WRONG = [
    ({"pip": 3}, TypeError, r"runtime_env\['pip'\] must be of type str or List\[str\], got <class 'int'>"),
    ({"pip": {"a": 3}}, ValueError, "can only have these fields: packages, pip_check, pip_install_options and pip_version, but got: .'a'."),
    ({"pip": {"pip_check": True}}, ValueError, r"runtime_env\['pip'\] must include field 'packages'"),
    ({"pip": {"packages": ["a"], "pip_check": 1}}, TypeError, "must be of type bool, got <class 'int'>"),
    ({"pip": {"packages": ["a"], "pip_version": 1}}, TypeError, "must be of type str, got <class 'int'>"),
    ({"pip": "/no/such/file.txt"}, ValueError, "/no/such/file.txt is not a valid file"),
    ({"uv": 3}, TypeError, r"runtime_env\['uv'\] must be of type List\[str\], or dict, got <class 'int'>"),
    ({"uv": {"a": 3}}, ValueError, "can only have these fields: packages, uv_check, uv_version and uv_pip_install_options"),
    ({"uv": {"packages": [1]}}, TypeError, "for 0-th item"),
    ({"pip": ["a"], "uv": ["b"]}, ValueError, "cannot be specified at the same time"),
    ({"working_dir": 3}, TypeError, "`working_dir` must be a string, got <class 'int'>."),
    ({"py_modules": "x"}, TypeError, "`py_modules` must be a list of strings, got <class 'str'>."),
    ({"py_modules": [3]}, TypeError, "`py_module` must be a string, got <class 'int'>."),
    ({"excludes": "x"}, TypeError, r"runtime_env\['excludes'\] must be of type List\[str\], got <class 'str'>"),
    ({"config": 3}, TypeError, r"runtime_env\['config'\] must be of type dict or RuntimeEnvConfig, got: <class 'int'>"),
    ({"config": {"setup_timeout_seconds": 0}}, ValueError, "setup_timeout_seconds must be greater than zero or equals to -1, got: 0"),
    ({"config": {"setup_timeout_seconds": 1.5}}, TypeError, "setup_timeout_seconds must be of type int, got: <class 'float'>"),
    ({"config": {"eager_install": 0}}, TypeError, "eager_install must be a boolean. got <class 'int'>"),
    ({"env_vars": {"A": 1}}, TypeError, "must be of type Dict.str, str.*the value 1 is of type <class 'int'>"),
]

#: Variables that no process can have. On Ray whoever asks for them waits for ever.
IMPOSSIBLE = [{"": "a"}, {"A=B": "c"}, {"A\0": "b"}, {"A": "b\0c"}, {"A": "\ud800"}, {"\ud800": "a"}]


@pytest.mark.parametrize(("fields", "error", "text"), WRONG)
def test_a_wrong_field_is_refused_where_it_is_written(RuntimeEnv, fields, error, text):
    with pytest.raises(error, match=text):
        RuntimeEnv(**fields)


@pytest.mark.only("mray")
@pytest.mark.parametrize(("fields", "error", "text"), WRONG)
def test_a_dict_is_checked_like_the_object(ray, fields, error, text):
    """Ray checks some at the call."""
    with pytest.raises(error, match=text):
        ray.remote(runtime_env=fields)(function)
    with pytest.raises(error, match=text):
        ray.remote(function).options(runtime_env=fields)


@pytest.mark.only("mray")
@pytest.mark.parametrize("variables", IMPOSSIBLE, ids=ascii)
def test_variables_that_no_process_can_have_are_refused(ray, RuntimeEnv, variables):
    with pytest.raises(ValueError, match="no process can have"):
        RuntimeEnv(env_vars=variables)
    with pytest.raises(ValueError, match="no process can have"):
        ray.remote(function).options(runtime_env={"env_vars": variables})


@pytest.mark.only("mray")
def test_what_mray_does_not_set_up_is_refused_with_what_to_do(ray, RuntimeEnv):
    """Ray sets it up."""
    for field, value in (("conda", "name"), ("container", {"image": "x"}), ("image_uri", "x"), ("java_jars", ["x"])):
        with pytest.raises(NotImplementedError, match=field):
            RuntimeEnv(**{field: value})
        with pytest.raises(NotImplementedError, match=field):
            ray.remote(runtime_env={field: value})(function)


@pytest.mark.differs("Ray takes fields that nobody knows, and does nothing about them")
def test_a_field_that_nobody_knows(RuntimeEnv):
    if RuntimeEnv.__module__.startswith("ray."):  # mray looks at it first, with Ray behind it, too
        assert RuntimeEnv(env_var={"A": "1"}) == {"env_var": {"A": "1"}}
        return
    with pytest.raises(ValueError, match="no field 'env_var'"):
        RuntimeEnv(env_var={"A": "1"})


def test_packages_are_kept_in_one_form(RuntimeEnv, tmp_path):
    (tmp_path / "requirements.txt").write_text("a\nb==1\n")
    assert RuntimeEnv(pip=["a", "b", "a"])["pip"] == {"packages": ["a", "b"], "pip_check": False}
    assert RuntimeEnv(pip=str(tmp_path / "requirements.txt"))["pip"] == {"packages": ["a", "b==1"], "pip_check": False}
    whole = {"packages": ["a"], "pip_check": True, "pip_version": "==23"}
    assert RuntimeEnv(pip=whole)["pip"] == whole
    assert RuntimeEnv(uv=["a", "a"])["uv"] == {"packages": ["a"], "uv_check": False}
    assert RuntimeEnv(pip=[]) == {}
    assert RuntimeEnv(env_vars={}) == {}


def test_a_runtime_env_is_a_dict_that_tells_its_fields(RuntimeEnv, RuntimeEnvConfig):
    environment = RuntimeEnv(env_vars={"A": "1"}, py_executable="python", config={"setup_timeout_seconds": 3})
    assert environment.env_vars() == {"A": "1"}
    assert environment.py_executable() == "python"
    assert not environment.has_pip()
    assert not environment.has_uv()
    assert not environment.has_working_dir()
    assert isinstance(environment["config"], RuntimeEnvConfig)
    expected = {"setup_timeout_seconds": 3, "eager_install": True, "log_files": []}
    assert environment.to_dict() == {"env_vars": {"A": "1"}, "py_executable": "python", "config": expected}
    assert environment.get("nothing", 7) == 7
    environment.set("pip", ["a"])
    assert environment.has_pip()
    assert environment.pip_config()["packages"] == ["a"]
    with pytest.raises(TypeError):
        environment["env_vars"] = 3


def test_a_runtime_env_travels_as_json(RuntimeEnv):
    environment = RuntimeEnv(env_vars={"A": "1"}, pip=["a"])
    again = RuntimeEnv.deserialize(environment.serialize())
    assert again.env_vars() == {"A": "1"}
    assert again.pip_config()["packages"] == ["a"]


def test_a_config_is_a_dict_with_defaults(RuntimeEnvConfig):
    assert RuntimeEnvConfig() == {"setup_timeout_seconds": 600, "eager_install": True, "log_files": []}
    assert RuntimeEnvConfig.default_config() == RuntimeEnvConfig()
    assert RuntimeEnvConfig(setup_timeout_seconds=-1)["setup_timeout_seconds"] == -1
    assert RuntimeEnvConfig(log_files=["a"]).to_dict()["log_files"] == ["a"]


def test_the_context_shows_the_environment_merged(fresh, init):
    ray = fresh
    init(num_cpus=1, runtime_env={"env_vars": {"JOB": "1", "BOTH": "job"}, "config": {"setup_timeout_seconds": 30}})
    context = ray.get_runtime_context
    f = ray.remote(lambda: context().runtime_env)
    seen = ray.get(f.options(runtime_env={"env_vars": {"BOTH": "task"}}).remote())
    assert seen["env_vars"] == {"JOB": "1", "BOTH": "task"}
    assert seen["config"]["setup_timeout_seconds"] == 30


# ------------------------------------------------------------------------------------------ folders
@pytest.fixture
def project(tmp_path):
    """A folder with a module, data, and things that are not wanted."""
    project = tmp_path / "project"
    for name, text in {
        "mray_there.py": "VALUE = 7\n",
        "data/keep.txt": "keep",
        "data/drop.bin": "drop",
        "data/deep/drop.bin": "drop",
        "data/deep/keep.bin": "keep",
        "build/drop.txt": "drop",
        "logs/build/keep.txt": "keep",
    }.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return project


@pytest.fixture
def files():
    def files():
        found = [os.path.relpath(os.path.join(folder, name), ".") for folder, _, names in os.walk(".") for name in names]
        return sorted(name for name in found if not os.path.basename(name).startswith("."))

    return files


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_excludes_are_patterns_as_of_gitignore(fresh, init, project, files):
    ray = fresh
    init(num_cpus=1, runtime_env={"working_dir": str(project), "excludes": ["*.bin", "!keep.bin", "/build", "data/keep.txt"]})
    seen = ray.get(ray.remote(files).remote())
    assert [name for name in seen if "__pycache__" not in name] == ["data/deep/keep.bin", "logs/build/keep.txt", "mray_there.py"]


@pytest.mark.processes("folders, modules and hooks are a whole process's")
@pytest.mark.parametrize("kind", ["zip", "tar.gz"])
def test_a_working_dir_may_be_an_archive(fresh, init, project, tmp_path, kind):
    ray = fresh
    archive = tmp_path / f"project.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(archive, "w") as file:
            file.write(project / "mray_there.py", "mray_there.py")
    else:
        with tarfile.open(archive, "w:gz") as file:
            file.add(project / "mray_there.py", "mray_there.py")
    init(num_cpus=1, runtime_env={"working_dir": str(archive)})

    @ray.remote
    def f():
        import mray_there

        return mray_there.VALUE, "mray_there.py" in os.listdir(".")

    assert ray.get(f.remote()) == (7, True)


@pytest.mark.processes("folders, modules and hooks are a whole process's")
@pytest.mark.only("mray")
def test_each_task_and_actor_may_have_a_folder_of_its_own(ray_session, project, tmp_path):
    """On Ray local folders are for jobs only."""
    ray = ray_session
    other = tmp_path / "other"
    other.mkdir()

    @ray.remote
    class A:
        def cwd(self):
            return os.getcwd()

    f = ray.remote(lambda: os.getcwd())
    environment = {"working_dir": str(project)}
    assert ray.get(f.options(runtime_env=environment).remote()) == str(project)
    assert ray.get(A.options(runtime_env={"working_dir": str(other)}).remote().cwd.remote()) == str(other)
    assert ray.get(f.remote()) == os.getcwd()


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_a_folder_that_is_not_there_is_named(fresh, init):
    with pytest.raises(ValueError, match="/no/such/folder"):
        init(num_cpus=1, runtime_env={"working_dir": "/no/such/folder"})


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_files_of_the_job_may_be_deleted_when_the_session_has_started(fresh, init, tmp_path):
    ray = fresh
    archive, module = tmp_path / "given.zip", tmp_path / "mray_single.py"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("mray_zipped.py", "VALUE = 6\n")
    module.write_text("VALUE = 5\n")
    (tmp_path / "mray_beside.py").write_text("")
    init(num_cpus=1, runtime_env={"working_dir": str(archive), "py_modules": [str(module)]})
    archive.unlink()
    module.unlink()

    @ray.remote
    def f():
        import mray_single
        import mray_zipped

        return mray_single.VALUE, mray_zipped.VALUE, importlib.util.find_spec("mray_beside") is None

    assert ray.get(f.remote()) == (5, 6, True)


@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_excludes_are_for_modules_too(fresh, init, tmp_path):
    ray = fresh
    for folder, names in (("mray_package", ("__init__", "keep", "drop")), ("mray_folder", ("keep", "drop"))):
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"{name}.py").write_text("")
    init(num_cpus=1, runtime_env={"py_modules": [str(tmp_path / "mray_package"), str(tmp_path / "mray_folder")], "excludes": ["drop.py"]})

    @ray.remote
    def f():
        modules = [f"{folder}.{name}" for folder in ("mray_package", "mray_folder") for name in ("keep", "drop")]
        return [name for name in modules if importlib.util.find_spec(name) is not None]

    assert ray.get(f.remote()) == ["mray_package.keep", "mray_folder.keep"]


@pytest.mark.processes("folders, modules and hooks are a whole process's")
@pytest.mark.only("mray")
def test_files_of_a_task_are_taken_over_at_its_call(ray_session, tmp_path):
    """On Ray local files are for jobs only."""
    ray = ray_session
    module, broken = tmp_path / "mray_of_task.py", tmp_path / "broken.zip"
    module.write_text("VALUE = 5\n")
    broken.write_text("no archive")

    @ray.remote
    def f():
        import mray_of_task

        return mray_of_task.VALUE

    ref = f.options(runtime_env={"py_modules": [str(module)], "excludes": ["x"]}).remote()
    module.unlink()
    assert ray.get(ref) == 5
    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="not a zip file"):
        f.options(runtime_env={"working_dir": str(broken)}).remote()


# ------------------------------------------------------------------------------------------ hooks
@pytest.mark.processes("folders, modules and hooks are a whole process's")
def test_a_hook_that_cannot_be_pickled_is_refused_at_once(fresh, init):
    lock = threading.Lock()
    with pytest.raises(fresh.exceptions.RuntimeEnvSetupError, match="Failed to export the setup function"):
        init(num_cpus=1, runtime_env={"worker_process_setup_hook": lambda: lock})


@pytest.fixture
def env_hook(tmp_path, monkeypatch):
    """Names a function as the hook of environments that gives every job a variable."""
    (tmp_path / "mray_env_hook.py").write_text("def hook(environment):\n    return {'env_vars': {'HOOKED': str(environment)}}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "mray_env_hook.hook")


@pytest.mark.parametrize(("skip", "seen"), [(False, "None"), (True, None)])
def test_a_jobs_environment_is_what_the_hook_makes_of_it(fresh, init, env_hook, skip, seen):
    ray = fresh
    init(num_cpus=1, _skip_env_hook=skip)
    assert ray.get(ray.remote(lambda: os.environ.get("HOOKED")).remote()) == seen


@pytest.mark.only("mray", "local")
def test_an_environment_hook_that_is_not_there_is_named(fresh, init, monkeypatch):
    """On Ray the error is that of the import."""
    monkeypatch.setenv("RAY_RUNTIME_ENV_HOOK", "mray_no_such_module.hook")
    with pytest.raises(ValueError, match="RUNTIME_ENV_HOOK='mray_no_such_module.hook'"):
        init(num_cpus=1)


@pytest.mark.processes("folders, modules and hooks are a whole process's")
@pytest.mark.differs("Ray says that the worker has died, after all retries")
def test_a_hook_that_raises_fails_what_waits_for_the_worker(fresh, init, engine):
    ray = fresh

    def hook():
        raise ValueError("hook failed")

    init(num_cpus=1, runtime_env={"worker_process_setup_hook": hook})

    @ray.remote(max_retries=0 if engine == "ray" else 3)
    def f():
        return 1

    @ray.remote
    class A:
        def f(self):
            return 1

    if engine == "ray":
        with pytest.raises(ray.exceptions.WorkerCrashedError):
            ray.get(f.remote())
        return
    for ref in [*(f.remote() for _ in range(10)), A.remote().f.remote()]:
        with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match="hook failed"):
            ray.get(ref)


def test_fields_can_be_pickled(RuntimeEnv):
    environment = RuntimeEnv(env_vars={"A": "1"}, config={"setup_timeout_seconds": 3})
    assert dict(pickle.loads(pickle.dumps(dict(environment)))) == environment


@pytest.mark.processes("no process is started that could fail")
@pytest.mark.only("mray")  # what Ray says of it is the output of its agent
def test_who_cannot_be_started_is_told_of_without_what_the_variables_say(ray_session, capfd):
    ray = ray_session

    @ray.remote(runtime_env={"env_vars": {"TOKEN": "a secret", "LARGE": "x" * 200_000}})
    def function():
        """Never called: no process may have a variable of this size."""

    with pytest.raises(ray.exceptions.RuntimeEnvSetupError, match=r"\['LARGE', 'TOKEN'\]") as caught:
        ray.get(function.remote())
    shown = str(caught.value) + "".join(capfd.readouterr())
    assert "a secret" not in shown and "xxx" not in shown
