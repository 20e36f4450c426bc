"""The driver program of `test_faults.py`; not a test.

    python program.py VICTIM PHASE MANNER FOLDER

It brings the victim into the phase, says so by the file ``reached`` (with the victim's pid where only we know it), lets the
test or a thread of the victim (``os._exit``) do the harm, reports what whoever waited got, checks that everything else still
works, and ends.
"""

import os
import sys
import threading
import time
import traceback

import numpy

import mray as ray

VICTIM, PHASE, MANNER, FOLDER = sys.argv[1:5]
EXIT_STATUS = 3


def path(name):
    return os.path.join(FOLDER, name)


def reached(pid=None):
    with open(path("reached.new"), "w") as file:
        file.write(str(pid or os.getpid()))
    os.rename(path("reached.new"), path("reached"))


def wait_for(name):
    while not os.path.exists(path(name)):
        time.sleep(0.002)


def exit_when_told():
    """In a thread of the victim: `os._exit` when the test says so."""

    def run():
        wait_for("exit")
        os._exit(EXIT_STATUS)

    if MANNER == "os._exit":
        threading.Thread(target=run, daemon=True).start()


def reached_when_inside():
    """Say "reached" once the main thread is inside a call of mray."""
    main = threading.main_thread().ident

    def run():
        while "/mray/_" not in sys._current_frames()[main].f_code.co_filename:
            time.sleep(0.001)
        reached()

    threading.Thread(target=run, daemon=True).start()


# ----------------------------------------------------------------------- what victims do in each phase
def busy():
    exit_when_told()
    reached()
    wait_for("release")
    return "released"


def putting():
    exit_when_told()
    array = numpy.ones(1 << 20, dtype=numpy.uint8)
    for number in range(1_000_000):
        ref = ray.put(array)
        if number == 5:
            reached()
        if os.path.exists(path("release")):
            break
    del ref
    return "released"


def getting(refs):
    exit_when_told()
    reached_when_inside()
    return ray.get(refs[0])


def streaming():
    exit_when_told()
    array = numpy.ones(1 << 20, dtype=numpy.uint8)
    for number in range(1_000_000):
        yield array if number % 4 == 0 else number
        if number == 5:
            reached()
        if os.path.exists(path("release")):
            break
    yield "released"


def last_of(generator):
    for ref in generator:
        value = ray.get(ref, timeout=50)
    return value


def prepare():
    exit_when_told()
    return os.getpid()


class Victim:
    def prepare(self):
        return prepare()

    def busy(self, *_):
        return busy()

    def putting(self):
        return putting()

    def getting(self, refs):
        return getting(refs)

    @ray.method(_generator_backpressure_num_objects=3)
    def streaming(self):
        yield from streaming()

    def echo(self, value):
        return value


@ray.remote
class Late:
    """Answers when the test says so."""

    def wait(self):
        wait_for("release")
        return "released"


@ray.remote
class Counter:
    def __init__(self):
        self.count = 0

    def increment(self):
        self.count += 1
        return self.count


@ray.remote
def add(a, b):
    return a + b


stream = ray.remote(max_retries=0, _generator_backpressure_num_objects=3)(streaming)


# ------------------------------------------------------------------------------------------- reporting
def say(key, text=""):
    print(key, " ".join(str(text).split()), flush=True)


def report(wait):
    """Run what waits for the victim and say what came of it."""
    try:
        say("RESULT", wait())
    except ray.exceptions.RayError as error:
        say("ERROR", ",".join(cls.__name__ for cls in type(error).__mro__))
        say("TEXT", error)
    except BaseException:
        say("UNEXPECTED", traceback.format_exc())


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pid):
    while not gone(pid):
        time.sleep(0.002)


def check_the_rest(bystander):
    """Independent work goes on, and new work can start."""
    assert ray.get(bystander.increment.remote(), timeout=50) == 2
    assert ray.get(add.remote(1, 2), timeout=50) == 3
    fresh = Counter.remote()
    assert ray.get(fresh.increment.remote(), timeout=50) == 1
    array = numpy.ones(1 << 20, dtype=numpy.uint8)
    assert ray.get(ray.put(array)).sum() == 1 << 20
    say("REST", "ok")


# ------------------------------------------------------------------------------- one function per victim
def worker():
    """The victim is the worker of a task."""
    if PHASE == "rest":
        pid = ray.get(ray.remote(prepare).remote())
        reached(pid)
        wait_until_gone(pid)
        return
    if PHASE == "stream":
        report(lambda: last_of(stream.remote()))
        return
    if PHASE == "get":
        late = Late.remote()
        ref = ray.remote(max_retries=0)(getting).remote([late.wait.remote()])
    else:
        ref = ray.remote(max_retries=0)({"task": busy, "put": putting}[PHASE]).remote()
    report(lambda: ray.get(ref, timeout=50))


def actor():
    victim = ray.remote(Victim).remote()
    if PHASE == "rest":
        pid = ray.get(victim.prepare.remote())
        reached(pid)
        wait_until_gone(pid)
        report(lambda: ray.get(victim.echo.remote(1), timeout=50))
    elif PHASE in ("task", "put"):
        ref = {"task": victim.busy, "put": victim.putting}[PHASE].remote()
        queued = victim.echo.remote(1)
        report(lambda: ray.get(ref, timeout=50))
        report(lambda: ray.get(queued, timeout=50))
    elif PHASE == "get":
        late = Late.remote()
        ref = victim.getting.remote([late.wait.remote()])
        report(lambda: ray.get(ref, timeout=50))
    elif PHASE == "stream":
        report(lambda: last_of(victim.streaming.remote()))
    else:
        graph = compiled(victim)
        report(lambda: ray.get(graph.execute(1), timeout=50))
        graph.teardown()


def compiled(victim):
    """A graph of three actors; the one in the middle is the victim."""
    first, last = ray.remote(Victim).remote(), ray.remote(Victim).remote()
    with ray.dag.InputNode() as value:
        node = last.echo.bind(victim.busy.bind(first.echo.bind(value)))
    return node.experimental_compile()


def driver():
    """The victim is this process: what follows never returns."""
    exit_when_told()
    if PHASE == "rest":
        reached()
    elif PHASE == "task":
        ref = ray.remote(lambda: wait_for("never")).remote()
        ray.wait([ref], timeout=0.1)
        reached()
    elif PHASE == "put":
        putting()
    elif PHASE == "get":
        late = Late.remote()
        reached_when_inside()
        ray.get(late.wait.remote())
    elif PHASE == "stream":
        last_of(stream.remote())
    else:
        graph = compiled(ray.remote(Victim).remote())
        ray.get(graph.execute(1))
    threading.Event().wait()


def node():
    """The victim is the node: the session is over, and whoever waits is told."""
    if PHASE == "rest":
        reached()
        wait_for("harmed")
        report(lambda: ray.get(add.remote(1, 2), timeout=50))
    elif PHASE == "task":
        report(lambda: ray.get(ray.remote(max_retries=0)(busy).remote(), timeout=50))
    elif PHASE == "put":

        def put():
            array = numpy.ones(1 << 20, dtype=numpy.uint8)
            number = 0
            while not os.path.exists(path("harmed")):
                ray.put(array)
                number += 1
                if number == 5:
                    reached()
            return ray.get(add.remote(1, 2), timeout=50)

        report(put)
    elif PHASE == "get":
        late = Late.remote()
        reached_when_inside()
        report(lambda: ray.get(late.wait.remote(), timeout=50))
    elif PHASE == "stream":
        report(lambda: last_of(stream.remote()))
    else:
        graph = compiled(ray.remote(Victim).remote())
        report(lambda: ray.get(graph.execute(1), timeout=50))
        graph.teardown()


def zygote():
    """The victim is the zygote: nobody notices."""
    if PHASE == "rest":
        reached()
        wait_for("release")
        say("RESULT", "released")
    elif PHASE in ("task", "put"):
        report(lambda: ray.get(ray.remote(max_retries=0)({"task": busy, "put": putting}[PHASE]).remote(), timeout=50))
    elif PHASE == "get":
        late = Late.remote()
        reached_when_inside()
        report(lambda: ray.get(late.wait.remote(), timeout=50))
    elif PHASE == "stream":
        report(lambda: last_of(stream.remote()))
    else:
        graph = compiled(ray.remote(Victim).remote())
        report(lambda: ray.get(graph.execute(1), timeout=50))
        graph.teardown()


def main():
    ray.init(num_cpus=4, logging_level="ERROR")
    bystander = Counter.remote()
    assert ray.get(bystander.increment.remote()) == 1
    {"worker": worker, "actor": actor, "driver": driver, "node": node, "zygote": zygote}[VICTIM]()
    if VICTIM == "node":
        del bystander
        ray.shutdown()
        ray.init(num_cpus=2, logging_level="ERROR")
        assert ray.get(add.remote(1, 2)) == 3
        say("REST", "ok")
    else:
        check_the_rest(bystander)
    ray.shutdown()
    say("DONE")


if __name__ == "__main__":
    main()
