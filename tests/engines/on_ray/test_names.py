"""The table of names is compared with the Ray that is installed: a name of Ray that it does not account for is found here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from mray._common.version import RAY_VERSION
from mray._libraries.names import MODULES, Stand

Names = dict[str, Any]

#: Signatures that differ on purpose, and why: a name, or a method of it.
DIFFERENT = {
    # Users do not make these.
    "ActorClass": "made by @remote",
    "ActorHandle": "made by @remote",
    "ActorMethod": "made by @remote",
    "CompiledDAG": "made by experimental_compile",
    "CompiledDAGFuture": "made by execute_async",
    "CompiledDAGRef": "made by execute",
    "DAGNodeBase": "DAG nodes have one base class",
    "ObjectRefGenerator": "made by calls",
    "PlacementGroup": "made by placement_group",
    "RemoteFunction": "made by @remote",
    "RuntimeContext": "made by get_runtime_context",
    # Their parameters.
    "ActorDiedError": "what it takes are facts by name",
    "DAGContext": "defaults are read from the settings when one is made; get waits for ever",
    "RuntimeEnv.get": "a dict's own",
    "ObjectRef": "made by calls and put",
    "AsyncResult": "made by a pool",
    "FailureTuple": "made by inspect_serializability",
    "Pool.apply": "args=() as CPython's pool has it",
    "Pool.apply_async": "args=() as CPython's pool has it",
    "IMapIterator": "made by a pool",
    "OrderedIMapIterator": "made by a pool",
    "UnorderedIMapIterator": "made by a pool",
    "BaseGroup": "made by init_collective_group",
    "ActorState": "a record, with what is known",
    "PlacementGroupState": "a record, with what is known",
    "TaskState": "a record, with what is known",
    "WorkerState": "a record, with what is known",
    "client": "there is none",
    "create_collective_group": "no time limit: a member that dies ends the wait",
    "init_collective_group": "no time limit: a member that dies ends the wait",
    "init": "what is logged is up to the program's own logging, and arguments about a cluster come with **others",
    "shutdown": "returns when all processes are gone",
}
#: Methods that are not there, and why.
LACKING = {
    "binary_to_object_ref": "it is about the inside of Ray",
    "build_proto_runtime_env_config": "it is about the inside of Ray",
    "conda_uri": "mray makes no archives of environments",
    "create_channel": "channels of graphs are made by the compiler",
    "ensure_logging_config": "init reads it",
    "for_actor_creation_task": "ids tell nothing of a cluster",
    "for_actor_task": "ids tell nothing of a cluster",
    "for_driver_task": "ids tell nothing of a cluster",
    "for_fake_task": "ids tell nothing of a cluster",
    "for_normal_task": "ids tell nothing of a cluster",
    "from_proto": "it is about the inside of Ray",
    "get_address": "mray has no server of a dashboard",
    "get_extension": "mray has no plugins of environments",
    "get_object_refs_from_last_execute": "a graph keeps no refs",
    "get_result_type": "it is about the inside of Ray's graphs",
    "get_version": "mray has no server of a dashboard",
    "has_conflicting_filters": "listing says so",
    "is_local_node": "there is one node",
    "of": "ids tell nothing of a cluster",
    "owner_address": "ids tell nothing of a cluster",
    "pip_uri": "mray makes no archives of environments",
    "plugin_uris": "mray has no plugins of environments",
    "plugins": "mray has no plugins of environments",
    "py_container_run_options": "mray runs no containers",
    "py_container_worker_path": "mray runs no containers",
    "py_modules_uris": "mray makes no archives of environments",
    "recv_stream": "communicators on the CPU have no streams",
    "redis_shard_hash": "it is about the inside of Ray",
    "schema_dict": "jobs are not submitted",
    "send_stream": "communicators on the CPU have no streams",
    "uv_uri": "mray makes no archives of environments",
    "virtualenv_name": "mray makes no archives of environments",
    "working_dir_uri": "mray makes no archives of environments",
    "DAGDriverProxyActor": "it is about the inside of Ray's graphs",
}
#: Packages that Ray has copied, and mray has not.
FOREIGN = ("ray.cloudpickle",)


def asked(*arguments: str, given: Any = None) -> Any:
    program = Path(__file__).with_name("names_of_ray.py")
    done = subprocess.run([sys.executable, str(program), *arguments], input=json.dumps(given), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def theirs() -> Names:
    return asked()


@pytest.fixture(scope="module")
def ours(theirs: Names) -> Names:
    return asked("mray", given={module: list(names or ()) for module, names in theirs.items()})


def test_the_table_is_of_the_installed_ray() -> None:
    from importlib.metadata import version

    assert version("ray") == RAY_VERSION


def test_every_module_and_name_of_ray_is_accounted_for(theirs: Names, ours: Names) -> None:
    unknown = [module for module, found in ours.items() if isinstance(found, str) and "not in mray" not in found]
    for module, names in theirs.items():
        stand = MODULES.get(module)
        if not isinstance(ours[module], str) and not (isinstance(stand, Stand) and stand.private):
            unknown += [f"{module}.{name}" for name in names or () if name not in ours[module]]
    assert not unknown, "\n".join(unknown)
    assert len(theirs) > 100, "the modules of Ray were found"


def test_every_call_that_ray_takes_is_taken(theirs: Names, ours: Names) -> None:
    different = {}
    for module, names in theirs.items():
        if isinstance(ours[module], str) or module.startswith(FOREIGN):
            continue
        for name, methods in (names or {}).items():
            described = ours[module].get(name, "")
            if isinstance(described, str):  # absent, or private
                continue
            for method, signature in methods.items():
                known = {name, f"{name}.{method}"} if method else {name}
                if method not in described:
                    if method not in LACKING:
                        different[f"{module}.{name}.{method}"] = "is not there"
                elif not known & DIFFERENT.keys() and (wrong := refused(signature, described[method])):
                    different[f"{module}.{name}.{method}".rstrip(".")] = wrong
    assert not different, "\n".join(f"{name}: {wrong}" for name, wrong in different.items())


def refused(theirs: list[list[Any]] | None, ours: list[list[Any]] | None) -> str:
    """Which calls of one signature the other does not take; "" for none."""
    if theirs is None or ours is None:
        return ""
    found = {name: (kind, default) for name, kind, default in ours}
    kinds = {kind for kind, _default in found.values()}
    wrong = []
    for name, kind, default in theirs:
        if name == "self":
            continue  # nobody gives it by name
        if kind.startswith("VAR_"):
            if kind not in kinds and name not in ("args", "kwargs"):
                wrong.append(f"*{name}")
        elif name in found:
            its_kind, its_default = found[name]
            if its_kind != kind and not (kind == "KEYWORD_ONLY" and its_kind == "POSITIONAL_OR_KEYWORD"):
                wrong.append(f"{name} is {its_kind}")
            elif default is not None and its_default != default:
                wrong.append(f"{name}={its_default}, not {default}")
        elif kind == "KEYWORD_ONLY" and "VAR_KEYWORD" not in kinds:
            wrong.append(f"{name}=")
        elif kind != "KEYWORD_ONLY" and "VAR_POSITIONAL" not in kinds:
            wrong.append(name)
    names = {name for name, _kind, _default in theirs}
    wrong += [
        f"needs {name}" for name, (kind, default) in found.items() if name not in names and default is None and not kind.startswith("VAR_")
    ]
    return ", ".join(wrong)
