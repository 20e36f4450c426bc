"""A task's own time limit, and the pauses before its retries: options of mray's own."""

from __future__ import annotations

import hashlib
import time
from itertools import pairwise

import pytest

pytestmark = pytest.mark.only("mray")


def test_a_task_that_runs_for_too_long_fails_with_a_timeout_error_that_shows_its_line(ray_session):
    ray = ray_session

    @ray.remote(timeout_s=0.1)
    def sleeps(seconds):
        time.sleep(seconds)  # the line
        return seconds

    assert ray.get(sleeps.remote(0)) == 0
    with pytest.raises(TimeoutError, match=r"# the line\n(.*\n)*.*sleeps has run for longer than its timeout_s=0.1"):
        ray.get(sleeps.remote(3600))
    assert ray.get(sleeps.remote(0)) == 0
    with pytest.raises(TimeoutError, match="sleeps has run for longer than its timeout_s=0.2"):
        ray.get(sleeps.options(timeout_s=0.2).remote(3600))


def test_the_time_in_the_queue_does_not_count(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote(timeout_s=2)
    def sleeps():
        time.sleep(0.3)
        return time.monotonic()

    # Together they take longer than the limit of each.
    assert len(ray.get([sleeps.remote() for _ in range(8)])) == 8


def test_a_timeout_is_retried_where_its_class_is_named_and_the_next_task_of_the_worker_is_not_interrupted(fresh, init, tmp_path):
    ray = fresh
    init(num_cpus=1)
    path = str(tmp_path / "attempts")

    @ray.remote(timeout_s=0.1, retry_exceptions=[TimeoutError], max_retries=3, retry_delay_s=0)
    def sleeps_at_first(path, attempts):
        with open(path, "a") as file:
            file.write("x")
        with open(path) as file:
            if len(file.read()) <= attempts:
                time.sleep(3600)
        return "done"

    @ray.remote
    def spins():
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        return "spun"

    refs = [sleeps_at_first.remote(path, 3), spins.remote()]
    assert ray.get(refs) == ["done", "spun"]
    with pytest.raises(TimeoutError):
        ray.get(sleeps_at_first.options(retry_exceptions=[KeyError]).remote(path, 100))


def test_calls_that_the_task_has_made_are_cancelled_with_it(ray_session, signal):
    ray, begun = ray_session, signal()

    @ray.remote(num_cpus=0)
    def child(begun):
        ray.get(begun.send.remote())
        time.sleep(3600)

    @ray.remote(num_cpus=0)
    def parent(box, begun):
        ref = child.remote(begun)
        ray.get(box.put.remote([ref]))
        return ray.get(ref)

    @ray.remote(num_cpus=0)
    class Box:
        def put(self, refs):
            self.refs = refs

        def take(self):
            return self.refs

    box = Box.remote()
    ref = parent.options(timeout_s=1).remote(box, begun)
    with pytest.raises(TimeoutError, match="parent has run for longer than its timeout_s=1"):
        ray.get(ref)
    if ray.get(begun.is_set.remote()):
        (inner,) = ray.get(box.take.remote())
        with pytest.raises(ray.exceptions.TaskCancelledError):
            ray.get(inner)


def test_a_generator_gives_what_it_has_made_and_then_the_error(ray_session):
    ray = ray_session

    @ray.remote(timeout_s=0.2)
    def items():
        yield 1
        time.sleep(3600)

    refs = items.remote()
    assert ray.get(next(refs)) == 1
    with pytest.raises(TimeoutError, match="items has run for longer than its timeout_s=0.2"):
        ray.get(next(refs))


@pytest.mark.processes("the worker of the task ends")
def test_a_task_in_c_code_ends_with_its_worker(ray_session):
    ray = ray_session

    @ray.remote(timeout_s=0.1, max_retries=0)
    def hashes():
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)  # minutes

    with pytest.raises(ray.exceptions.WorkerCrashedError, match="did not end 5 s after its timeout_s=0.1"):
        ray.get(hashes.remote())


def test_each_retry_has_the_pause_that_its_task_asks_for(ray_session, tmp_path):
    ray = ray_session
    path = str(tmp_path / "attempts")

    @ray.remote(max_retries=3, retry_exceptions=True, retry_delay_s=[0, 0.2, 0.4])
    def fails(path):
        with open(path, "a") as file:
            file.write(f"{time.monotonic()}\n")
        raise KeyError

    with pytest.raises(KeyError):
        ray.get(fails.remote(path))
    with open(path) as file:
        pauses = [later - earlier for earlier, later in pairwise(map(float, file))]
    assert len(pauses) == 3
    assert pauses[1] >= 0.2
    assert pauses[2] >= 0.4
