"""Requests that this engine refuses before Ray sees them, since Ray would hang, abort the process or fail later. No cluster."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace
from typing import Any

import pytest

ray = pytest.importorskip("ray")


import mray  # noqa: E402
from mray import exceptions  # noqa: E402
from mray._api.backend import Backend  # noqa: E402
from mray._api.current import set_backend  # noqa: E402
from mray._backends.ray import wrappers  # noqa: E402
from mray._backends.ray.connecting import connect, ray_address  # noqa: E402
from mray._backends.ray.ray_backend import RayBackend  # noqa: E402
from mray._backends.ray.ray_compiled import RayGraph  # noqa: E402
from mray._backends.ray.within import NativeWithin  # noqa: E402
from mray._common.options import session_options  # noqa: E402


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """One that is connected to nothing."""
    made = RayBackend(driver=True)
    monkeypatch.setattr(made, "shutdown", lambda: None)
    set_backend(made)
    yield made
    set_backend(None)


@pytest.mark.parametrize("verb", [
    lambda backend, ref: backend.get([ref], None),
    lambda backend, ref: backend.wait([ref], 1, None),
    lambda backend, ref: backend.cancel(ref, False, True),
    lambda backend, ref: backend.then(ref, lambda: None),
    lambda backend, ref: next(backend.wait_in_loop(ref)),
    lambda backend, ref: mray.remote(lambda value: value).remote(ref),
], ids=["get", "wait", "cancel", "future", "await", "argument"])  # fmt: skip
def test_a_ref_that_nobody_made_is_said_to_be_one(backend: Any, verb: Any) -> None:
    with pytest.raises(ValueError, match="no session created it"):
        verb(backend, mray.ObjectRef(b"x" * 28))


@pytest.mark.parametrize(("index", "ready", "cancelled"), [(1, True, False), (1, False, True), (2, True, True)],
                         ids=["done", "not done", "item of a generator"])  # fmt: skip
def test_ray_is_not_asked_to_cancel_what_is_done(
    backend: Any, monkeypatch: pytest.MonkeyPatch, index: int, ready: bool, cancelled: bool
) -> None:
    """It would abort the process when it has not taken down yet that the task is done."""
    asked = []
    monkeypatch.setattr(ray, "wait", lambda refs, **_options: (refs, []) if ready else ([], refs))
    monkeypatch.setattr(ray, "cancel", lambda entry, **_options: asked.append(entry))
    mray.cancel(mray.ObjectRef(b"t" * 24 + index.to_bytes(4, "little"), "entry"))
    assert asked == (["entry"] if cancelled else [])


def handle_of(session: Any) -> Any:
    """A handle that carries one of Ray's, of this session; without one, a handle of a session of mray's own."""

    class Actor:
        def method(self) -> None: ...

    blueprint = mray.remote(Actor)._blueprint  # type: ignore[attr-defined]
    carried = SimpleNamespace(_ray_cluster_and_job=session, method=SimpleNamespace(remote=fail)) if session else None
    return mray._api.actor.make_handle(blueprint, b"a" * 16, carried, None, carried)


def fail(*_args: Any, **_keywords: Any) -> None:
    raise Exception("Failed to submit task to actor")


@pytest.mark.parametrize("session", [("there", 1), None], ids=["on Ray", "of mray's own"])
def test_a_handle_of_a_former_session_says_so(backend: Any, monkeypatch: pytest.MonkeyPatch, session: Any) -> None:
    worker = SimpleNamespace(current_cluster_and_job=("here", 2))
    monkeypatch.setattr(ray._private.worker, "global_worker", worker)
    old = handle_of(session)
    with pytest.raises(exceptions.ActorDiedError, match="session that has ended") as caught:
        old.method.remote()
    assert caught.value.class_name == "Actor"
    with pytest.raises(exceptions.ActorDiedError, match="session that has ended"):
        backend.export_handle(old)
    with pytest.raises(Exception, match="Failed to submit"):
        handle_of(worker.current_cluster_and_job).method.remote()
    backend.export_handle(handle_of(worker.current_cluster_and_job))


def test_an_address_of_rays_client_is_refused_and_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'ray://head:10001' is an address for Ray's client.*on a machine of the cluster"):
        ray_address("ray://head:10001")
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    connect(session_options())
    monkeypatch.setattr(ray.util.client.ray, "is_connected", lambda: True)
    with pytest.raises(RuntimeError, match="connected to Ray through Ray's client.*on a machine of the cluster"):
        connect(session_options())


#: Verbs that are right for a ref or a handle of the cluster, too: nothing is known of it, or it is an error, or they never get one.
ALSO_OF_THE_CLUSTER = {
    "actor_state",
    "has_left",
    "hold_actor",
    "on_out_of_scope",
    "restore_graph",
    "set_tensor_target",
    "settle",
    "tensor_transport_of",
}


def test_a_session_within_asks_of_every_ref_and_handle_whose_it_is() -> None:
    takes = {
        name
        for name in dir(Backend)
        if inspect.isfunction(verb := inspect.getattr_static(Backend, name))
        and {"ref", "refs", "handle", "object_id", "actor_id"}.intersection(inspect.signature(verb).parameters)
    }
    assert takes - vars(NativeWithin).keys() == ALSO_OF_THE_CLUSTER


def test_the_shell_of_a_function_of_the_program_is_of_the_programs_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/x/program.py"))
    assert wrappers._module_name("__main__") == "program"
    assert wrappers._module_name("package.module") == "package.module"


@pytest.mark.parametrize(("given", "expected"), [(None, "/tmp/sessions/ray"), ("/tmp/elsewhere", "/tmp/elsewhere")])
def test_the_folder_of_sessions_is_not_rays_to_open(monkeypatch: pytest.MonkeyPatch, given: str | None, expected: str) -> None:
    """Ray makes its folder writable for every user."""
    monkeypatch.setenv("MRAY_TMPDIR", "/tmp/sessions")
    seen: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda **options: seen.update(options))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    connect(session_options(address="ray:local", temp_dir=given))
    assert seen["_temp_dir"] == expected


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("report", "`ray stack` shows where the actors are"),
        ("visualize_schedule", "`actor_to_execution_schedule` has each actor's operations"),
        ("statistics", "measure in the program"),
        ("profile", "set RAY_CGRAPH_ENABLE_TORCH_PROFILING=1 or RAY_CGRAPH_ENABLE_NVTX_PROFILING=1 for the program"),
    ],
)
def test_what_rays_graphs_lack_is_refused_with_what_to_do_instead(verb: str, instead: str) -> None:
    graph = RayGraph(SimpleNamespace(), None, 1, None, {})
    with pytest.raises(NotImplementedError, match=rf"{verb}\(\) of a compiled graph is mray's own.* On Ray: {instead}\."):
        getattr(graph, verb)()


def test_a_picture_with_counters_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"statistics\(\) of a compiled graph is mray's own"):
        RayGraph(SimpleNamespace(), None, 1, None, {}).visualize(statistics=True)
