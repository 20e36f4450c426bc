"""Mistakes that everybody makes once, and all of what a script, the interpreter or a notebook shows of them."""

import os
import re
import sys
import threading

import pytest

pytestmark = pytest.mark.only("mray")

PRELUDE = """
LOCK = threading.Lock()

@ray.remote
def job(path):
    return load(path)

def load(path):
    return {}[path]

@ray.remote
def add(a, b=2):
    return a + b

@ray.remote
def leaves():
    sys.exit("bye")

@ray.remote
def locks():
    return {"lock": threading.Lock()}

@ray.remote
def uses():
    return LOCK

@ray.remote(num_cpus=0)
class Counter:
    def add(self, n=1):
        return n
    def fails(self):
        return [][1]
    def leaves(self):
        sys.exit(3)

class Model:
    def __init__(self):
        self.lock = LOCK

"""
#: The last statement of a program that begins with these, and what its traceback has below that statement.
MISTAKES = [
    ("ray.get(job.remote('x'))", r"mray.exceptions.RayTaskError\(KeyError\): ray::job\(\) \(.*\)\n(  .*\n)+KeyError: 'x'"),
    ("ray.get(Counter.remote().fails.remote())", r"mray.exceptions.RayTaskError\(IndexError\): .*\n(  .*\n)+IndexError: list index .*"),
    ("ray.get(leaves.remote())", r"mray.exceptions.WorkerCrashedError: .* The task leaves raised SystemExit\('bye'\)."),
    (
        "ray.get(Counter.remote().leaves.remote())",
        r"mray.exceptions.ActorDiedError: .*\n(\t.*\n)+.*Counter.leaves raised SystemExit\(3\)\..*",
    ),
    ("add(1)", r"TypeError: Remote functions cannot be called directly. Instead of running '.*add\(\)', try '.*add.remote\(\)'."),
    ("Counter()", r"TypeError: Actors cannot be instantiated directly. Instead of 'Counter\(\)', use 'Counter.remote\(\)'."),
    ("Counter.remote().add(1)", r"TypeError: Actor methods cannot be called directly. Instead of running .*add\(\)', try .*"),
    ("Counter.remote().ad.remote()", r"AttributeError: 'ActorHandle' object has no attribute 'ad'(. Did you mean: 'add'\?)?"),
    ("add.remote()", r"TypeError: missing a required argument: 'a', in a call of add\(a, b=2\)"),
    ("add.remote(1, c=3)", r"TypeError: got an unexpected keyword argument 'c', in a call of add\(a, b=2\)"),
    ("Counter.remote(3)", r"TypeError: too many positional arguments, in a call of Counter\(\)"),
    ("Counter.remote().add.remote(1, 2)", r"TypeError: too many positional arguments, in a call of Counter.add\(n=1\)"),
    ("ray.get(5)", r"ValueError: Invalid type of object refs, <class 'int'>, is given. .*"),
    ("ray.wait(add.remote(1))", r"TypeError: wait\(\) expected a list of .*, got a single .*"),
    ("ray.put(add.remote(1))", r"TypeError: Calling 'put' on an ray.ObjectRef is not allowed. .*"),
    ("ray.get(add.remote(1), timeout='5')", r"TypeError: timeout is a number of seconds, or None to wait forever, not '5'"),
    ("ray.wait([add.remote(1)], timeout=float('nan'))", r"ValueError: timeout is a finite number of seconds, or None to .*, not nan"),
    (
        "ray.remote(num_cpu=2)(load)",
        r"ValueError: Invalid option keyword num_cpu for .* Did you mean 'num_cpus'\? Valid ones are .*",
    ),
    ("Counter.options(nam='x')", r"ValueError: Invalid option keyword nam for actors. Did you mean 'name'\? Valid ones are .*"),
    (
        "ray.method(num_return=2)",
        r"AssertionError: Unexpected keyword argument to @ray.method: 'num_return'. Did you mean 'num_returns'\? The supported .*",
    ),
    ("ray.init(num_cpu=2)", r"RuntimeError: Unknown keyword argument\(s\): num_cpu. Did you mean 'num_cpus'\?"),
    ("ray.init()", r"RuntimeError: Maybe you called ray.init twice by accident\? .*"),
    ("ray.get_actor('nobody')", r"ValueError: Failed to look up actor with name 'nobody'. .*"),
    (
        "add.remote(LOCK)",
        r"TypeError: Could not .*<.*lock .*> for .*\nargument `a` of add, a `_thread.lock`, cannot be pickled: make it inside the task .*",
    ),
    ("add.remote(1, b=[Model()])", r"TypeError: Could not .*\nargument `b\[0\].lock` of add, a `_thread.lock`, cannot be pickled: .*"),
    (
        "uses.remote()",
        r"TypeError: Could not .*\n`LOCK` that uses uses, a `_thread.lock`, cannot be pickled: make it inside the function .*",
    ),
    ("ray.get(locks.remote())", r"mray.*\nTypeError: Could not .*\n`value\['lock'\]`, a `_thread.lock`, cannot be pickled: .*"),
    ("ray.put([LOCK])", r"TypeError: Could not serialize the put value .*:\n`value\[0\]`, a `_thread.lock`, cannot be pickled: .*"),
    ("ray.method(tensor_transport='nvlink')(load)", r"ValueError: Invalid tensor transport: NVLINK. There are 'object_store', .*'nccl'."),
    (
        "ray.dag.InputNode().with_tensor_transport('nvlink')",
        r"ValueError: Invalid transport type: nvlink. Transport must be one of 'auto', 'nccl', .* mray has 'cuda_ipc' and 'cpu', too.",
    ),
    (
        "ray.get(add.options(num_cpus=99).remote(1))",
        r"mray.exceptions.TaskUnschedulableError: The task is not schedulable: The task add asks for CPU: 99, and this machine has .*",
    ),
]


@pytest.mark.parametrize(("statement", "shown"), MISTAKES)
def test_a_mistake_is_shown_in_few_lines_none_of_them_mrays(ray_session, tmp_path, capsys, statement, shown):
    program = tmp_path / "program.py"
    program.write_text(f"{PRELUDE}{statement}\n")
    try:
        exec(
            compile(program.read_text(), program, "exec"), {"ray": ray_session, "sys": sys, "threading": threading, "__name__": "__main__"}
        )
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__.tb_next)
    told = capsys.readouterr().err
    assert re.fullmatch(rf"Traceback \(most .*\n  File .*program.py.*\n    .*\n([ ^~]+\n)?{shown}\n", told), told
    assert len(told.splitlines()) <= 12
    assert os.path.dirname(ray_session.__file__) not in told


def test_a_time_limit_says_what_is_waited_for_and_who_has_what_it_needs(fresh):
    fresh.init(num_cpus=1)

    @fresh.remote(num_cpus=1)
    class Holder:
        def ready(self):
            return True

    @fresh.remote
    def waits():
        return None

    holder = Holder.remote()
    assert fresh.get(holder.ready.remote())
    with pytest.raises(fresh.exceptions.GetTimeoutError) as caught:
        fresh.get(waits.remote(), timeout=0.3)
    assert re.fullmatch(
        r"Get timed out: some object\(s\) not ready after 0.3 s. waits is queued. task waits cannot be scheduled right now: it asks for "
        r"{'CPU': 1.0}, 0 of 1 CPU are free, and none is released until these end: actor Holder \(pid \d+\) has 1.",
        str(caught.value),
    )


def test_a_graph_that_was_torn_down_is_named(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Step:
        def go(self, x):
            return x

    step = Step.remote()
    with ray.dag.InputNode() as x:
        graph = step.go.bind(x).experimental_compile()
    graph.teardown()
    with pytest.raises(ray.exceptions.RayChannelError, match="Channel closed: the compiled graph of Step.go was torn down"):
        graph.execute(1)


def test_a_step_of_a_graph_that_exits_is_named(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=0)
    class Step:
        def leave(self, x):
            sys.exit(3)

    step = Step.remote()
    with ray.dag.InputNode() as x:
        graph = step.leave.bind(x).experimental_compile()
    with pytest.raises(ray.exceptions.ActorDiedError, match=r"Step.leave, a step of a compiled graph, raised SystemExit\(3\)\."):
        ray.get(graph.execute(1))
    graph.teardown()


def test_a_daemon_thread_that_waits_as_the_program_ends_says_nothing(run_program):
    done = run_program(
        """
        import threading, mray as ray
        ray.init(num_cpus=1)
        @ray.remote
        class Step:
            def go(self, x):
                import time
                time.sleep(60 if x else 0)
        with ray.dag.InputNode() as x:
            graph = Step.remote().go.bind(x).experimental_compile()
        ray.get(graph.execute(0))
        begun = threading.Event()
        def waits():
            ref = graph.execute(1)
            begun.set()
            ray.get(ref)
        threading.Thread(target=waits, daemon=True).start()
        begun.wait()
        """
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
