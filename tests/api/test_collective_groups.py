"""Groups of actors that are made from outside."""

from __future__ import annotations

import importlib
import warnings

import numpy as np
import pytest


@pytest.fixture
def groups(ray_session):
    """The module that makes groups; afterwards there is none."""
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Ray imports misses libraries of GPUs
        module = importlib.import_module(f"{ray_session.__name__}.experimental.collective")
    yield module
    module.destroy_all_collective_groups()


@pytest.fixture
def member(ray_session, groups):
    """Makes actors that use collectives by the name of their group."""
    name = ray_session.__name__

    @ray_session.remote(num_cpus=0)
    class Member:
        def rank(self, group):
            collective = importlib.import_module(f"{name}.util.collective")
            return collective.get_rank(group), collective.get_collective_group_size(group)

        def sum(self, value, group):
            tensor = np.full(4, value, np.float32)
            importlib.import_module(f"{name}.util.collective").allreduce(tensor, group)
            return tensor.tolist()

        def sum_by_wrapper(self, value, group):
            tensor = np.full(4, value, np.float32)
            importlib.import_module(f"{name}.experimental.collective").allreduce(tensor, group)
            return tensor.tolist()

        def initialized(self, group):
            return importlib.import_module(f"{name}.util.collective").is_group_initialized(group)

    return Member.remote


def test_actors_are_made_a_group(ray_session, groups, member):
    ray = ray_session
    actors = [member() for _ in range(3)]
    group = groups.create_collective_group(actors, backend="torch_gloo", name="three")
    assert (group.name, group.backend, group.actors) == ("three", "GLOO", actors)
    assert [group.get_rank(actor) for actor in [*actors, member()]] == [0, 1, 2, -1]
    assert ray.get([actor.rank.remote("three") for actor in actors]) == [(0, 3), (1, 3), (2, 3)]
    assert ray.get([actor.sum.remote(value, "three") for value, actor in enumerate(actors)]) == [[3.0] * 4] * 3


def test_a_group_without_a_name_gets_one(ray_session, groups, member):
    group = groups.create_collective_group([member(), member()], backend="gloo")
    assert group.name
    assert ray_session.get(group.actors[1].rank.remote(group.name)) == (1, 2)


def test_the_bound_operations_work_in_a_group_too(ray_session, groups, member):
    actors = [member(), member()]
    groups.create_collective_group(actors, backend="gloo", name="called")
    assert ray_session.get([actor.sum_by_wrapper.remote(2, "called") for actor in actors]) == [[4.0] * 4] * 2


def test_groups_are_found_by_their_members_and_backend(groups, member):
    one, two, three = member(), member(), member()
    group = groups.create_collective_group([one, two], backend="gloo", name="pair")
    assert groups.get_collective_groups([one]) == [group]
    assert groups.get_collective_groups([two, one], backend="gloo") == [group]
    assert groups.get_collective_groups([one, three]) == []
    assert groups.get_collective_groups([one], backend="nccl") == []
    assert groups.get_collective_groups([]) == [group]


@pytest.mark.parametrize("by_name", [True, False], ids=["by its name", "by its handle"])
def test_a_destroyed_group_frees_its_actors(ray_session, groups, member, by_name):
    actors = [member(), member()]
    group = groups.create_collective_group(actors, backend="gloo", name="first")
    groups.destroy_collective_group("first" if by_name else group)
    assert groups.get_collective_groups(actors) == []
    assert not any(ray_session.get([actor.initialized.remote("first") for actor in actors]))
    groups.create_collective_group(actors, backend="gloo", name="second")
    assert ray_session.get([actor.sum.remote(1, "second") for actor in actors]) == [[2.0] * 4] * 2


def test_an_actor_is_in_one_group_of_a_backend(groups, member):
    shared = member()
    groups.create_collective_group([shared, member()], backend="gloo", name="taken")
    with pytest.raises(RuntimeError, match="already in group for backend GLOO. Actors can currently only participate in at most one"):
        groups.create_collective_group([shared, member()], backend="gloo")


def test_an_actor_is_in_a_group_once(groups, member):
    twice = member()
    with pytest.raises(ValueError, match="All actors must be unique"):
        groups.create_collective_group([twice, twice], backend="gloo")


def test_a_backend_that_does_not_exist(groups, member):
    with pytest.raises(ValueError, match="Unrecognized backend: 'pigeon'. Only NCCL and GLOO are supported"):
        groups.create_collective_group([member()], backend="pigeon")


@pytest.mark.parametrize("group", ["nothing", 7])
def test_a_group_that_does_not_exist(groups, group):
    text = "No group with name nothing found." if group == "nothing" else "Expected CommunicatorHandle or str"
    with pytest.raises(ValueError, match=text):
        groups.destroy_collective_group(group)


def test_a_group_with_a_dead_member_can_be_destroyed(ray_session, groups, member):
    actors = [member(), member()]
    group = groups.create_collective_group(actors, backend="gloo", name="mourning")
    ray_session.kill(actors[0])
    groups.destroy_collective_group(group)
    assert groups.get_collective_groups([actors[1]]) == []


@pytest.mark.only("mray", "local")
def test_a_name_is_used_once(groups, member):
    groups.create_collective_group([member()], backend="gloo", name="unique")
    with pytest.raises(ValueError, match="There is a group with name unique already"):
        groups.create_collective_group([member()], backend="gloo", name="unique")


@pytest.mark.only("mray", "local")
def test_what_could_not_be_made_leaves_its_actors_free(ray_session, groups, member, kill_and_wait):
    ray = ray_session
    living, dead = member(), member()
    ray.get([living.initialized.remote("x"), dead.initialized.remote("x")])
    kill_and_wait(dead)
    with pytest.raises(ray.exceptions.RayActorError):
        groups.create_collective_group([dead, living], backend="gloo", name="broken")
    assert groups.get_collective_groups([living]) == []
    groups.create_collective_group([living], backend="gloo", name="again")
    assert ray.get(living.sum.remote(1, "again")) == [1.0] * 4
