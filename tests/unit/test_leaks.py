"""Comparisons of a test run's resources (`mray.pytest_plugin.leaks`)."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from mray._ipc.reaper import local_name
from mray.pytest_plugin import leaks
from mray.pytest_plugin.leaks import Belongings


@pytest.fixture
def nothing():
    return Belongings(set(), {}, set(), set(), {}, set(), 0)


def test_what_was_there_before_is_not_left_behind():
    before = Belongings.now()
    assert Belongings.now().more_than(before) == []


def test_a_marked_process_is_found_by_its_environment_and_others_are_not(nothing):
    program = "import sys; print(flush=True); sys.stdin.read()"
    unmarked = {name: value for name, value in os.environ.items() if name != leaks.MARK}
    start = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", program], **start) as ours,
        subprocess.Popen([sys.executable, "-c", program], env=unmarked, **start) as other,
    ):
        assert ours.stdout.readline() and other.stdout.readline()
        # As if neither were a child: their parents are dead.
        now = dataclasses.replace(nothing, processes={ours.pid, other.pid})
        (found,) = now.more_than(nothing)
        ours.stdin.close()
        assert leaks.is_foreign(f"mray-test-channel-{other.pid}-7f-table")
        other.stdin.close()
    assert found.startswith(f"process {ours.pid}: ")
    assert "sys.stdin.read" in found


def test_a_process_that_has_just_begun_a_program_is_found(nothing):
    """In the middle of an exec the kernel shows no environment."""
    for _ in range(100):
        with subprocess.Popen(["sleep", "1000"]) as child:
            try:
                assert len(dataclasses.replace(nothing, processes={child.pid}).more_than(nothing)) == 1
            finally:
                child.kill()


def test_descriptors_are_compared_by_what_they_lead_to(nothing):
    before = dataclasses.replace(nothing, files={3: "socket:[1]", 4: "/a", 5: "pipe:[7]"})
    after = dataclasses.replace(nothing, files={6: "socket:[2]", 4: "/b", 5: "pipe:[7]", 8: "pipe:[9]"})
    assert after.more_than(before) == ["file descriptor 8 -> pipe:[9]", "file descriptor 4 -> /b"]


def test_what_the_driver_of_gpus_keeps_open_is_not_left_behind_and_the_rest_is(nothing):
    driver = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia0", "/dev/zero", "/dev/shm/cuda.shm.0.1f.1"]
    unnamed = ["anon_inode:[eventfd]", "anon_inode:[eventfd]", "anon_inode:[eventpoll]", "pipe:[1]", "pipe:[2]", "socket:[3]"]
    first = dataclasses.replace(nothing, files=dict(enumerate(driver + unnamed)))
    assert first.more_than(nothing) == []
    file = dataclasses.replace(nothing, files={**first.files, 100: "/tmp/file"})
    assert file.more_than(nothing) == ["file descriptor 100 -> /tmp/file"]
    many = dataclasses.replace(nothing, files={**first.files, **{100 + number: f"pipe:[{number}]" for number in range(20)}})
    assert len(many.more_than(nothing)) == 20 + len(unnamed) - leaks._MOST_OF_CONTEXT
    # The next test has its context already.
    later = dataclasses.replace(nothing, files={**first.files, 100: "anon_inode:[eventfd]", 101: "/dev/zero"})
    assert later.more_than(first) == ["file descriptor 100 -> anon_inode:[eventfd]"]


def test_threads_of_a_session_that_goes_on_may_change(nothing):
    session, own = threading.Thread(name="mray-reader"), threading.Thread(name="own")
    after = dataclasses.replace(nothing, threads={session, own})
    assert sorted(after.more_than(nothing)) == ["thread mray-reader", "thread own"]
    assert after.more_than(nothing, node_pid=1) == ["thread own"]


def test_device_memory_above_the_slack_is_left_behind(nothing):
    after = dataclasses.replace(nothing, device_memory=leaks.GPU_SLACK + (1 << 20))
    assert after.more_than(nothing) == ["GPU memory: 65 MiB of tensors"]
    assert dataclasses.replace(nothing, device_memory=leaks.GPU_SLACK).more_than(nothing) == []


@pytest.mark.parametrize(("used", "expected"), [(True, 30), (False, 0)])
def test_device_memory_is_asked_of_torch_only_where_it_is_used(monkeypatch, used, expected):
    cuda = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: used, device_count=lambda: 2, memory_allocated=lambda device: 10 * (device + 1)
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert leaks.gpu_memory() == expected


def test_what_is_seen_late_is_left_behind_too(monkeypatch):
    """A look that takes longer than the patience, as on a busy machine, excuses nobody."""
    monkeypatch.setattr(leaks, "PATIENCE", 0.0)
    monkeypatch.setattr(leaks, "LASTING", 0.01)
    before = leaks.Belongings.now()
    with open(__file__), pytest.raises(pytest.fail.Exception, match="left behind:(\n.*)*  file descriptor .*test_leaks.py"):
        leaks.assert_nothing_left(before)
    leaks.assert_nothing_left(before)


def test_names_of_others_that_come_and_go_while_it_looks_are_nobodys_here(monkeypatch):
    monkeypatch.setattr(leaks, "PATIENCE", 0.0)
    monkeypatch.setattr(leaks, "LASTING", 0.0)
    before = leaks.Belongings.now()
    name = f"mray-{os.getpid()}came-and-went-object"
    path = leaks.SHARED_MEMORY / name

    def is_foreign(asked: str) -> bool:
        """The process that had it mapped gives it up during the look."""
        if asked == name:
            path.unlink(missing_ok=True)
            return False
        return True  # of other runs

    path.touch()
    with monkeypatch.context() as patch:
        patch.setattr(leaks, "is_foreign", is_foreign)
        leaks.assert_nothing_left(before)
    assert not path.exists()


def test_a_name_belongs_to_the_session_that_somebody_else_has_mapped():
    assert not leaks.is_foreign(f"mray-{local_name(0)}-object")
    assert not leaks.is_foreign("mray-00000000nobody-object")
    assert not leaks.is_foreign(f"mray-test-{os.getpid()}-store")
    assert not leaks.is_foreign(f"mray-test-channel-{os.getpid()}-7f-table")
    unmarked = {name: value for name, value in os.environ.items() if name != leaks.MARK}
    program = "import sys; from mray._ipc.reaper import local_name; print(local_name(0), flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], env=unmarked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        name = f"mray-{other.stdout.readline().strip()}-object"
        assert leaks.is_foreign(name)
        other.stdin.close()
    assert not leaks.is_foreign(name)
