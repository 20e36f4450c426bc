"""The address of the machine, by which executors of inference engines place their workers, and that of the session, ``host:port``."""

from __future__ import annotations

import importlib
import os
import socket

import pytest

from mray._ipc.reaper import PORT_LINK
from tests.api.conftest import MODULE


def route_out() -> str:
    """The address that a program finds for itself: of the socket by which it would reach others; nothing is sent."""
    for family, target in ((socket.AF_INET, "8.8.8.8"), (socket.AF_INET6, "2001:4860:4860::8888")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((target, 53))
                return str(sock.getsockname()[0])
        except OSError:
            pass
    return "127.0.0.1"


def addresses(ray):
    """Every place of the public API that tells the node's address."""
    importlib.import_module(f"{MODULE}.util")
    (node,) = ray.nodes()
    (resource,) = [name for name in node["Resources"] if name.startswith("node:") and name != "node:__internal_head__"]
    (available,) = [name for name in ray.available_resources() if name.startswith("node:") and name != "node:__internal_head__"]
    return {
        "listed": node["NodeManagerAddress"],
        "name": node["NodeName"],
        "resource": resource.removeprefix("node:"),
        "available": available.removeprefix("node:"),
        "util": ray.util.get_node_ip_address(),
        "worker": ray.get(ray.remote(num_cpus=0)(ray.util.get_node_ip_address).remote()),
        "context": ray.get_runtime_context().worker.node_ip_address,
        "control store": ray.get_runtime_context().gcs_address.rpartition(":")[0].strip("[]"),
    }


def test_the_node_has_the_address_of_the_route_out_wherever_it_is_asked(ray_session):
    told = addresses(ray_session)
    if ray_session.get_runtime_context().gcs_address == "local":  # one process: nobody can join it
        del told["control store"]
    assert set(told.values()) == {route_out()}, told


def test_before_there_is_a_session_it_is_the_same(fresh):
    assert fresh.util.get_node_ip_address() == route_out()
    assert not fresh.is_initialized()


def test_the_internal_head_is_a_resource_beside_it(ray_session):
    assert ray_session.cluster_resources()["node:__internal_head__"] == 1
    assert ray_session.cluster_resources()[f"node:{route_out()}"] == 1


def test_work_is_placed_by_the_address(ray_session):
    ray = ray_session
    place = f"node:{route_out()}"
    where = ray.remote(lambda: ray.get_runtime_context().get_node_id())
    here = ray.nodes()[0]["NodeID"]

    class Worker:
        def ready(self):
            return ray.get_runtime_context().get_node_id()

    actor = ray.remote(Worker).options(num_cpus=0, resources={place: 0.001}).remote()
    assert ray.get(actor.ready.remote(), timeout=60) == here
    assert ray.get(where.options(resources={place: 0.01}).remote(), timeout=60) == here
    affinity = importlib.import_module(f"{MODULE}.util.scheduling_strategies").NodeAffinitySchedulingStrategy
    assert ray.get(where.options(scheduling_strategy=affinity(here, soft=False)).remote(), timeout=60) == here


@pytest.mark.parametrize("strategy", ["PACK", "STRICT_PACK", "SPREAD"])
def test_a_bundle_may_ask_for_the_address(ray_session, strategy):
    ray = ray_session
    group = ray.util.placement_group([{"CPU": 1, f"node:{route_out()}": 0.001}, {"CPU": 1}], strategy=strategy)
    assert group.wait(60)
    table = ray.util.placement_group_table(group)
    assert set(table["bundles_to_node_id"].values()) == {ray.nodes()[0]["NodeID"]}
    strategies = importlib.import_module(f"{MODULE}.util.scheduling_strategies")
    in_bundle = strategies.PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    address = ray.remote(num_cpus=1)(ray.util.get_node_ip_address).options(scheduling_strategy=in_bundle)
    assert ray.get(address.remote(), timeout=60) == route_out()
    ray.util.remove_placement_group(group)


@pytest.mark.parametrize("asked", ["127.0.0.2", "127.0.0.1", "localhost"])
@pytest.mark.only("mray", "local", "ray")
def test_the_argument_of_init_holds_and_this_machine_by_itself_is_the_route_out(fresh, init, asked):
    init(num_cpus=1, _node_ip_address=asked)
    told = addresses(fresh)
    if fresh.get_runtime_context().gcs_address == "local":
        del told["control store"]
    assert set(told.values()) == {"127.0.0.2" if asked == "127.0.0.2" else route_out()}, told


def test_an_address_that_is_no_text_is_refused(fresh):
    with pytest.raises((TypeError, ValueError, AttributeError)):
        fresh.init(num_cpus=1, _node_ip_address="")
    assert not fresh.is_initialized()


# ------------------------------------------------------------------------------------------------ host:port
@pytest.mark.processes("one process has nothing to join")
def test_the_address_of_the_session_is_a_host_and_a_port_everywhere(ray_session):
    ray = ray_session
    context = ray.init(ignore_reinit_error=True, logging_level="ERROR")
    told = {
        ray.get_runtime_context().gcs_address,
        ray.get(ray.remote(num_cpus=0)(lambda: ray.get_runtime_context().gcs_address).remote()),
        context.address_info["gcs_address"],
        context.address_info["address"],
    }
    (address,) = told
    host, _colon, port = address.rpartition(":")
    assert host.strip("[]") == route_out()
    assert 0 < int(port) < 65536


JOINER = """
import sys
import ENGINE as ray
ray.init(address=sys.argv[1] or None, namespace="here", logging_level="ERROR")
print(ray.get_runtime_context().gcs_address, ray.get(ray.get_actor("it").get.remote()))
"""


@pytest.mark.processes("another process")
@pytest.mark.parametrize("form", ["argument", "variable", "auto and the variable", "localhost", "loopback"])
def test_a_program_beside_the_session_joins_it_by_host_and_port(fresh, init, run_program, form):
    ray = fresh
    init(num_cpus=1, namespace="here")
    address = ray.get_runtime_context().gcs_address
    port = address.rpartition(":")[2]

    class It:
        def get(self):
            return 7

    it = ray.remote(It).options(name="it", num_cpus=0).remote()
    ray.get(it.get.remote())
    named = {
        "argument": address,
        "variable": "",
        "auto and the variable": "auto",
        "localhost": f"localhost:{port}",
        "loopback": f"127.0.0.1:{port}",
    }[form]
    env = {"RAY_ADDRESS": address} if "variable" in form else {}
    done = run_program(JOINER, named, env=env)
    assert done.stdout.split()[-1] == "7"
    assert done.stdout.split()[0].rpartition(":")[2] == port


@pytest.mark.only("mray")
@pytest.mark.parametrize("where", ["default", "elsewhere"])
def test_every_form_of_asking_knows_the_session_by_host_and_port(fresh, init, tmp_path, where):
    from mray.util.state import list_nodes
    from mray.util.state.api import session_directory

    context = init(num_cpus=1, **({"_temp_dir": str(tmp_path)} if where == "elsewhere" else {}))
    assert session_directory(context["address"]) == context["session_dir"]
    (node,) = list_nodes(address=context["address"])
    assert node.node_ip == route_out()


@pytest.mark.only("mray")
def test_the_port_of_a_session_names_nothing_when_it_has_ended_and_nothing_is_left_of_it(fresh, init):
    context = init(num_cpus=1)
    port = int(context["address"].rpartition(":")[2])
    place = os.readlink(os.path.join(context["session_dir"], PORT_LINK))
    assert os.path.lexists(place)
    fresh.shutdown()
    assert not os.path.lexists(place)
    with pytest.raises(ConnectionError, match=f":{port}"):
        fresh.init(address=context["address"])


@pytest.mark.only("mray")
def test_the_port_of_a_session_on_another_machine_is_not_that_of_one_here(fresh, init):
    import mray
    from mray.util.state.api import session_directory
    from mray.util.state.exception import ServerUnavailable

    context = init(num_cpus=1)
    other = "198.51.100.7:" + context["address"].rpartition(":")[2]
    with pytest.raises(ServerUnavailable):
        session_directory(other)
    mray.shutdown()
    with pytest.raises(ConnectionError, match=r"cannot connect to '198\.51\.100\.7"):
        fresh.init(address=other)


@pytest.mark.only("mray")
def test_sessions_side_by_side_have_ports_of_their_own(run_program, fresh, init):
    context = init(num_cpus=1)
    done = run_program("import mray; print(mray.init(num_cpus=1, logging_level='ERROR')['address'])")
    assert done.stdout.strip().partition(":")[0] == context["address"].partition(":")[0]
    assert done.stdout.strip() != context["address"]


@pytest.mark.only("mray")
def test_no_process_of_a_session_has_a_socket_of_the_network(fresh, init):
    ray = fresh
    init(num_cpus=1)

    def sockets() -> list[str]:
        own = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{fd}")}
        held = []
        for kind in ("tcp", "tcp6", "udp", "udp6"):
            with open(f"/proc/self/net/{kind}") as table:
                held += [line for line in table.read().splitlines()[1:] if f"socket:[{line.split()[9]}]" in own]
        return held

    assert ray.get(ray.remote(sockets).remote()) == sockets() == []


@pytest.mark.only("mray", "ray")
def test_the_node_of_the_process_as_libraries_look_at_it_tells_the_same(run_program):
    program = """
    import mray.as_ray, ray
    import ray._private.services as services
    import ray._private.worker as worker
    from ray._common.network_utils import node_ip_address_from_perspective
    context = ray.init(num_cpus=1, _node_ip_address="127.0.0.2", logging_level="ERROR")
    node = worker._global_node
    print(node.node_ip_address, worker.global_worker.node_ip_address, services.get_node_ip_address(), node.address_info["node_ip_address"])
    print(node.gcs_address == node.address == context.address_info["gcs_address"], node.node_id == context["node_id"])
    resolve = services.resolve_ip_for_localhost
    print(node_ip_address_from_perspective() == ROUTE, resolve("192.0.2.77"))
    """
    first = "import ray" if MODULE == "ray" else "import mray.as_ray, ray"
    program = program.replace("ROUTE", repr(route_out())).replace("import mray.as_ray, ray", first)
    lines = run_program(program).stdout
    assert lines.splitlines() == [" ".join(["127.0.0.2"] * 4), "True True", "True 192.0.2.77"]
