"""Tasks: arguments, closures, several returns, nesting, blocking, retries."""

from __future__ import annotations

import gc
import os
import signal as signals
import threading
import time

import pytest


def test_a_function_runs_elsewhere_and_returns_a_value(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return os.getpid()

    assert ray.get(f.remote()) != os.getpid()


def test_all_kinds_of_parameters_arrive(ray_session):
    ray = ray_session

    @ray.remote
    def f(a, b=2, *args, c, d=4, **kwargs):
        return a, b, args, c, d, kwargs

    assert ray.get(f.remote(1, c=3)) == (1, 2, (), 3, 4, {})
    assert ray.get(f.remote(1, 5, 6, 7, c=3, d=8, e=9)) == (1, 5, (6, 7), 3, 8, {"e": 9})
    assert ray.get(f.remote(c=3, a=1)) == (1, 2, (), 3, 4, {})


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((1,), {"a": 1})])
def test_the_signature_is_checked_at_the_call(ray_session, arguments):
    ray = ray_session

    @ray.remote
    def f(a, b=2):
        return a

    with pytest.raises(TypeError):
        f.remote(*arguments[0], **arguments[1])


def test_positional_arguments_are_counted_although_keywords_are_required(ray_session):
    ray = ray_session

    @ray.remote
    def f(a, b=2, *, c):
        return a, b, c

    with pytest.raises(TypeError, match="too many positional arguments"):
        f.remote(1, 2, 3, c=4)
    assert ray.get(f.remote(1, 3, c=4)) == (1, 3, 4)


def test_a_missing_argument_is_named(ray_session):
    ray = ray_session

    @ray.remote
    def f(first, second):
        return first

    with pytest.raises(TypeError, match="missing a required argument: 'second'"):
        f.remote(1)


def test_a_remote_function_may_not_be_called_directly(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return 1

    with pytest.raises(TypeError, match=r"Remote functions cannot be called directly. Instead of running '.*f\(\)', try '.*f.remote\(\)'"):
        f()


def test_the_decorator_takes_options(ray_session):
    ray = ray_session

    @ray.remote(num_cpus=2, num_returns=2)
    def f():
        return 1, 2

    first, second = f.remote()
    assert ray.get([first, second]) == [1, 2]


def test_remote_may_be_applied_to_a_function_later(ray_session):
    ray = ray_session

    def f(x):
        return x + 1

    assert ray.get(ray.remote(f).remote(1)) == 2
    assert ray.get(ray.remote(num_cpus=1)(f).remote(1)) == 2
    assert f(1) == 2


def test_a_remote_function_knows_where_it_is_from(ray_session):
    ray = ray_session

    @ray.remote
    def described():
        """Its description."""

    assert described._function.__doc__ == "Its description."
    assert described._function_name.endswith("described")


def test_a_lambda_may_be_remote(ray_session):
    assert ray_session.get(ray_session.remote(lambda x: x * 2).remote(21)) == 42


def test_underscore_remote_takes_args_and_options(ray_session):
    ray = ray_session

    @ray.remote
    def f(a, b):
        return a, b

    assert ray.get(f._remote(args=[1], kwargs={"b": 2})) == (1, 2)
    assert ray.get(f._remote(args=[1], kwargs={"b": (3, 4)}, num_returns=1, num_cpus=1)) == (1, (3, 4))


def test_closures_are_captured_at_the_first_call(ray_session):
    ray = ray_session
    value = 1

    @ray.remote
    def f():
        return value

    assert ray.get(f.remote()) == 1
    value = 2
    assert ray.get(f.remote()) == 1


def test_a_session_takes_functions_and_classes_as_they_are_at_their_first_use_in_it(fresh, init):
    ray = fresh
    value = 1

    @ray.remote
    def f():
        return value

    @ray.remote
    class A:
        def value(self):
            return value

    def values():
        return ray.get([f.remote(), A.remote().value.remote()])

    init(num_cpus=2)
    assert values() == [1, 1]
    value = 2
    assert values() == [1, 1]
    ray.shutdown()
    init(num_cpus=2)
    assert values() == [2, 2]
    value = 3
    assert values() == [2, 2]


def test_functions_of_the_same_name_are_different_functions(ray_session):
    ray = ray_session
    refs = []
    for number in range(5):

        @ray.remote
        def f(number=number):
            return number

        refs.append(f.remote())
    assert ray.get(refs) == list(range(5))


class Burden:
    """Captured by functions, and counted in the workers that have them."""


def made_anew(ray, kind):
    """Call a new remote function that has a burden; the pids of the workers that had it."""
    burden = Burden()

    @ray.remote
    def job():
        return os.getpid(), type(burden).__name__

    @ray.remote
    def items():
        yield os.getpid(), type(burden).__name__

    @ray.remote
    def failing():
        raise ValueError(os.getpid(), type(burden).__name__)

    @ray.remote(num_cpus=0)
    def outer(job):
        return os.getpid(), *ray.get(job.remote()), type(burden).__name__

    if kind == "generator":
        return [ray.get(item)[0] for item in items.remote()]
    if kind == "error":
        with pytest.raises(ValueError) as caught:
            ray.get(failing.remote())
        return [caught.value.cause.args[0]]
    if kind == "passed on":
        return [pid for pid in ray.get(outer.remote(job)) if isinstance(pid, int)]
    if kind == "options":
        return [ray.get(job.options(name="named", num_cpus=0.5).remote())[0], ray.get(job.remote())[0]]
    return [ray.get(job.remote())[0]]


@pytest.mark.only("mray")  # Ray's workers keep each function; in one process all have each
@pytest.mark.parametrize("kind", ["plain", "options", "generator", "error", "passed on"])
def test_a_worker_keeps_no_function_that_nobody_has_any_more(ray_session, eventually, kind):
    ray = ray_session

    @ray.remote(num_cpus=0.25)
    def burdens(many):
        gc.collect()
        time.sleep(0.05 if many else 0)  # so that each goes to a worker of its own
        return os.getpid(), sum(type(each).__name__ == "Burden" for each in gc.get_objects())

    pids = {pid for _ in range(6) for pid in made_anew(ray, kind)}
    gc.collect()
    left = {}

    def all_have_gone():
        left.update(ray.get([burdens.remote(True) for _ in range(4)]))
        left.update(ray.get([burdens.options(num_cpus=each).remote(False) for each in (0, 0.5, 1)]))
        return pids & left.keys() and not any(left.values())

    eventually(all_have_gone)


def test_of_two_functions_that_are_pickled_alike_one_may_go(ray_session):
    ray = ray_session

    def make():
        @ray.remote
        def job(number):
            return number + 1

        return job

    stays = make()
    assert ray.get(stays.remote(1)) == 2
    for number in range(20):
        goes = make()
        assert ray.get(goes.remote(number)) == number + 1
        del goes
        assert ray.get([stays.remote(number), stays.remote(number)]) == [number + 1] * 2
    flying = [make().remote(number) for number in range(50)]
    assert ray.get(flying) == list(range(1, 51))


def test_recursion(ray_session):
    ray = ray_session

    @ray.remote
    def factorial(n):
        return 1 if n == 0 else n * ray.get(factorial.remote(n - 1))

    assert ray.get(factorial.remote(4)) == 24


def test_mutual_recursion_and_names_defined_later(ray_session):
    ray = ray_session

    @ray.remote
    def even(n):
        return True if n == 0 else ray.get(odd.remote(n - 1))

    @ray.remote
    def odd(n):
        return False if n == 0 else ray.get(even.remote(n - 1))

    assert ray.get(even.remote(4)) is True


def test_num_returns_zero_returns_none_at_once(ray_session):
    ray = ray_session

    @ray.remote(num_returns=0)
    def f():
        return None

    assert f.remote() is None


def test_several_returns_are_several_refs(ray_session):
    ray = ray_session

    @ray.remote(num_returns=3)
    def f():
        return 1, 2, 3

    refs = f.remote()
    assert len(refs) == 3
    assert ray.get(refs) == [1, 2, 3]
    assert ray.get(f.options(num_returns=1).remote()) == (1, 2, 3)


def test_several_returns_of_a_list(ray_session):
    ray = ray_session

    @ray.remote(num_returns=2)
    def f():
        return ["a", "b"]

    assert ray.get(f.remote()) == ["a", "b"]


@pytest.mark.parametrize(("returned", "declared"), [((1, 2), 3), ((1, 2, 3), 2)])
def test_a_wrong_number_of_returns_is_a_value_error(ray_session, returned, declared):
    ray = ray_session

    @ray.remote(num_returns=declared)
    def f():
        return returned

    for ref in f.remote():
        with pytest.raises(ValueError):
            ray.get(ref)


def test_returning_no_sequence_for_several_returns_is_an_error(ray_session):
    ray = ray_session

    @ray.remote(num_returns=2)
    def f():
        return 1

    with pytest.raises(TypeError, match="(?i)num_returns|len"):
        ray.get(f.remote()[0])


def test_num_returns_none_means_the_default(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return 1

    assert ray.get(f.options(num_returns=None).remote()) == 1


def test_refs_become_values_in_their_places(ray_session):
    ray = ray_session

    @ray.remote
    def given(*args, **kwargs):
        return args, kwargs

    @ray.remote
    class Keeper:
        def __init__(self, *args, **kwargs):
            self.given = args, kwargs

        def get(self, *args, **kwargs):
            return self.given, (args, kwargs)

    one, large = ray.put("one"), bytes(200_000)
    args, kwargs = (None, one, [1], large, one, None), {"a": one, "args": None, "b": large, "self_": [2]}
    expected = ((None, "one", [1], large, "one", None), {"a": "one", "args": None, "b": large, "self_": [2]})
    assert ray.get(given.remote(*args, **kwargs)) == expected
    keeper = Keeper.remote(*args, **kwargs)
    assert ray.get(keeper.get.remote(*args, **kwargs)) == (expected, expected)
    # A value that is not there yet, and one that never is.
    assert ray.get(given.remote(0, given.remote(one), x=given.remote())) == ((0, (("one",), {})), {"x": ((), {})})

    @ray.remote
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ray.get(given.remote(1, x=fail.remote()))


def test_refs_as_arguments_become_values(ray_session):
    ray = ray_session

    @ray.remote
    def add(a, b=0):
        return a + b

    x = add.remote(1)
    assert ray.get(add.remote(x, b=x)) == 2
    assert ray.get(add.remote(x, ray.put(5))) == 6


def test_nested_refs_stay_refs(ray_session):
    ray = ray_session

    @ray.remote
    def f(refs):
        return [isinstance(ref, ray.ObjectRef) for ref in refs], ray.get(refs)

    assert ray.get(f.remote([ray.put(1), ray.put(2)])) == ([True, True], [1, 2])


def test_the_same_ref_may_be_passed_many_times(ray_session):
    ray = ray_session

    @ray.remote
    def f(*args):
        return sum(args)

    ref = ray.put(1)
    assert ray.get(f.remote(*[ref] * 20)) == 20


def test_long_chains_of_tasks(ray_session):
    ray = ray_session

    @ray.remote
    def increment(x):
        return x + 1

    ref = increment.remote(0)
    for _ in range(99):
        ref = increment.remote(ref)
    assert ray.get(ref) == 100


def test_many_inlined_arguments(ray_session):
    ray = ray_session

    @ray.remote
    def f(*args):
        return sum(map(len, args))

    refs = [ray.put(b"x" * 50_000) for _ in range(200)]
    assert ray.get(f.remote(*refs)) == 10_000_000
    assert ray.get(f.remote(*[b"x" * 50_000] * 200)) == 10_000_000


def test_large_arguments_and_results(ray_session):
    ray = ray_session

    @ray.remote
    def f(value):
        return value + b"!"

    value = os.urandom(3_000_000)
    assert ray.get(f.remote(value)) == value + b"!"


def test_none_and_containers_come_back_as_they_are(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    for value in (None, True, 0, -1, 2**100, 1.5, "é", b"", (), [], {}, {1: [2, (3, {4})]}, frozenset({1})):
        back = ray.get(f.remote(value))
        assert back == value
        assert type(back) is type(value)


def test_tasks_start_tasks(ray_session):
    ray = ray_session

    @ray.remote
    def leaf(x):
        return x * x

    @ray.remote
    def tree():
        return sum(ray.get([leaf.remote(i) for i in range(5)]))

    assert ray.get([tree.remote() for _ in range(3)]) == [30] * 3


def test_a_ref_may_be_returned(ray_session):
    ray = ray_session

    @ray.remote
    def inner():
        return "inner"

    @ray.remote
    def outer():
        return inner.remote()

    ref = ray.get(outer.remote())
    assert isinstance(ref, ray.ObjectRef)
    assert ray.get(ref) == "inner"


def test_several_levels_of_returned_refs(ray_session):
    ray = ray_session

    @ray.remote
    def level(n):
        return ray.put("bottom") if n == 0 else level.remote(n - 1)

    value = level.remote(3)
    for _ in range(5):
        value = ray.get(value)
    assert value == "bottom"


def test_deep_trees_finish_on_one_cpu(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    def tree(depth):
        if depth == 0:
            return 1
        return sum(ray.get([tree.remote(depth - 1), tree.remote(depth - 1)]))

    assert ray.get(tree.remote(4)) == 16


def test_a_task_that_waits_gives_its_cpu_back(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    def inner():
        return 1

    @ray.remote
    def outer():
        ready, _ = ray.wait([inner.remote()])
        return len(ready)

    assert ray.get(outer.remote()) == 1


def test_queued_tasks_do_not_starve_behind_one_that_blocks(fresh, init, signal):
    ray = fresh
    init(num_cpus=1)
    gate = signal()

    @ray.remote
    def blocks(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.005)
        return "unblocked"

    @ray.remote
    def opens(gate):
        ray.get(gate.send.remote())

    @ray.remote
    def waits(refs):
        return ray.get(refs[0])

    ref = ray.put(0)
    blocked = waits.remote([waits.remote([ref])])
    refs = [waits.remote([blocks.options(num_cpus=0).remote(gate)]), opens.remote(gate)]
    assert ray.get(refs) == ["unblocked", None]
    assert ray.get(blocked) == 0


@pytest.mark.processes("one process has one place for all tasks")
def test_who_asks_for_what_is_there_keeps_its_cpus(fresh, init, eventually):
    """No further worker begins to run for the moment in which a value is brought, however many ask."""
    ray = fresh
    init(num_cpus=2)
    there = [ray.put(number) for number in range(3)]

    @ray.remote
    def gets(refs):
        ray.get([*refs, *refs])
        return os.getpid()

    @ray.remote
    def waits(refs):
        ray.wait(refs, num_returns=2)
        return os.getpid()

    def workers():
        return set(ray.get([task.remote(there) for _ in range(25) for task in (gets, waits)]))

    # A machine that is busy may keep the owner from answering in time, and then what has begun beside stays while there are tasks.
    eventually(lambda: ray.available_resources().get("CPU") == 2 and len(workers()) <= 2)


@pytest.mark.processes("stops one")
def test_who_asks_one_that_does_not_answer_lets_others_run(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote(num_cpus=0)
    class Owner:
        def pid(self):
            return os.getpid()

        def make(self):
            return [ray.put(3)]

    @ray.remote
    def gets(refs, pause):
        os.kill(pause, signals.SIGSTOP)
        return ray.get(refs)

    @ray.remote
    def resumes(pause):
        os.kill(pause, signals.SIGCONT)

    owner = Owner.remote()
    pid = ray.get(owner.pid.remote())
    refs = ray.get(owner.make.remote())
    assert ray.get([gets.remote(refs, pid), resumes.remote(pid)], timeout=60) == [[3], None]


def test_submitting_and_getting_from_many_threads(ray_session):
    ray = ray_session

    @ray.remote
    def f(x):
        return x

    results: list[bool] = []

    def run(number):
        refs = [f.remote((number, i)) for i in range(20)]
        ray.wait(refs, num_returns=len(refs))
        results.append(ray.get(refs) == [(number, i) for i in range(20)] and ray.get(ray.put(number)) == number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_threads_inside_a_task_may_use_the_api(ray_session):
    ray = ray_session

    @ray.remote
    def leaf(x):
        return x

    @ray.remote
    def f():
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(4) as pool:
            return sorted(pool.map(lambda i: ray.get(leaf.remote(i)), range(8)))

    assert ray.get(f.remote()) == list(range(8))


def test_a_multiprocessing_pool_works_in_a_task(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        import multiprocessing

        with multiprocessing.get_context("fork").Pool(2) as pool:
            return pool.map(abs, [-1, -2, 3])

    assert ray.get(f.remote()) == [1, 2, 3]


def test_code_over_95_mib_is_refused(ray_session):
    ray = ray_session
    ballast = b"x" * (96 * 1024 * 1024)

    @ray.remote
    def f():
        return len(ballast)

    with pytest.raises(ValueError, match=r"The remote function \S+\.f is too large"):
        f.remote()


@pytest.mark.processes("reads its title")
def test_the_process_title_names_the_function(ray_session):
    ray = ray_session

    @ray.remote
    def unusual_name():
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().rstrip(b"\0").decode()

    def steps():
        for _ in range(2):
            with open("/proc/self/cmdline", "rb") as file:
                yield file.read().partition(b"\0")[0].decode()

    assert ray.get(unusual_name.remote()).startswith("ray::unusual_name")
    assert ray.get(unusual_name.options(name="chosen").remote()).startswith("ray::chosen")
    named = ray.remote(steps).options(name="counts").remote()
    assert [ray.get(title) for title in named] == ["ray::counts"] * 2


def test_an_invocation_decorator_sees_every_call(ray_session):
    ray = ray_session

    def decorate(function):
        def wrap(invocation):
            def call(args, kwargs):
                return invocation((args[0] + 1,), kwargs)

            return call

        function.__ray_invocation_decorator__ = wrap
        return function

    @ray.remote
    @decorate
    def f(x):
        return x

    assert ray.get(f.remote(1)) == 2


@pytest.mark.processes("the variable is read once in a process")
def test_omp_num_threads_is_the_number_of_cpus(ray_session):
    ray = ray_session

    @ray.remote
    def f():
        return os.environ.get("OMP_NUM_THREADS")

    if "OMP_NUM_THREADS" in os.environ:
        pytest.skip("set by whoever runs the tests")
    assert ray.get(f.remote()) == "1"
    assert ray.get(f.options(num_cpus=2).remote()) == "2"
    assert ray.get(f.options(num_cpus=0.5).remote()) == "1"
    assert ray.get(f.options(runtime_env={"env_vars": {"OMP_NUM_THREADS": "7"}}).remote()) == "7"
    assert ray.get(f.remote()) == "1"


def test_a_coroutine_function_may_not_be_a_task(ray):
    async def f():
        return 1

    with pytest.raises(ValueError, match="(?i)async"):
        ray.remote(f)


def test_a_crash_is_retried(ray_session, tmp_path):
    ray = ray_session
    counter = tmp_path / "attempts"

    @ray.remote(max_retries=2)
    def f(path):
        with open(path, "a") as file:
            file.write("x")
        if os.path.getsize(path) < 3:
            os._exit(1)
        return "done"

    assert ray.get(f.remote(str(counter))) == "done"
    assert counter.read_text() == "xxx"


def test_a_crash_is_not_retried_if_not_asked(ray_session, tmp_path):
    ray = ray_session
    counter = tmp_path / "attempts"

    @ray.remote(max_retries=0)
    def f(path):
        with open(path, "a") as file:
            file.write("x")
        os._exit(1)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(f.remote(str(counter)))
    assert counter.read_text() == "x"


def test_application_errors_are_retried_on_request_only(ray_session, tmp_path):
    ray = ray_session

    def attempt(path):
        with open(path, "a") as file:
            file.write("x")
        raise KeyError(os.path.getsize(path))

    plain, asked = tmp_path / "plain", tmp_path / "asked"
    f = ray.remote(attempt)
    with pytest.raises(KeyError):
        ray.get(f.remote(str(plain)))
    with pytest.raises(KeyError):
        ray.get(f.options(retry_exceptions=True, max_retries=2).remote(str(asked)))
    assert (plain.read_text(), asked.read_text()) == ("x", "xxx")


@pytest.mark.parametrize(("listed", "attempts"), [([KeyError], 3), ([ValueError], 1), ([LookupError], 3)])
def test_retry_exceptions_may_be_a_list(ray_session, tmp_path, listed, attempts):
    ray = ray_session
    path = tmp_path / "attempts"

    @ray.remote(max_retries=2, retry_exceptions=listed)
    def f(path):
        with open(path, "a") as file:
            file.write("x")
        raise KeyError("k")

    with pytest.raises(KeyError):
        ray.get(f.remote(str(path)))
    assert len(path.read_text()) == attempts


def test_a_worker_ends_after_max_calls(ray_session):
    ray = ray_session

    @ray.remote(max_calls=2)
    def f():
        return os.getpid()

    pids = [ray.get(f.remote()) for _ in range(6)]
    assert max(pids.count(pid) for pid in pids) <= 2


def test_a_worker_is_used_again_without_max_calls(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    def f():
        return os.getpid()

    assert len({ray.get(f.remote()) for _ in range(10)}) == 1


def test_a_worker_at_max_calls_waits_for_its_children(ray_session, tmp_path):
    ray = ray_session
    path = str(tmp_path / "go")

    @ray.remote
    def child(path):
        while not os.path.exists(path):
            time.sleep(0.005)
        return "child"

    @ray.remote(max_calls=1)
    def parent(path):
        return [child.remote(path)]

    (ref,) = ray.get(parent.remote(path))
    open(path, "w").close()
    assert ray.get(ref) == "child"


def test_tasks_of_different_length_finish_in_their_own_time(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def slow(gate):
        while not ray.get(gate.is_set.remote()):
            time.sleep(0.005)
        return "slow"

    @ray.remote
    def fast(i):
        return i

    blocked = slow.remote(gate)
    assert ray.get([fast.remote(i) for i in range(50)]) == list(range(50))
    ready, _ = ray.wait([blocked], timeout=0)
    assert ready == []
    ray.get(gate.send.remote())
    assert ray.get(blocked) == "slow"


def test_independent_tasks_run_at_the_same_time(ray_session, signal):
    ray = ray_session
    gate = signal()

    @ray.remote
    def meet(gate, others):
        ray.get(gate.arrive.remote())
        while ray.get(gate.count.remote()) < others:
            time.sleep(0.005)
        return True

    assert ray.get([meet.remote(gate, 4) for _ in range(4)]) == [True] * 4


def test_a_module_in_the_closure_travels_by_name(ray_session):
    ray = ray_session
    import math

    @ray.remote
    def f(x):
        return math.sqrt(x)

    assert ray.get(f.remote(9)) == 3


def test_refs_may_be_captured_in_a_closure(ray_session):
    ray = ray_session
    ref = ray.put("captured")

    @ray.remote
    def f():
        return ray.get(ref)

    assert ray.get(f.remote()) == "captured"


def test_a_worker_that_ends_after_each_task_is_not_given_another(ray_session):
    ray = ray_session

    @ray.remote(max_calls=1, max_retries=0)
    def f(i):
        return i

    assert [ray.get(f.remote(i)) for i in range(8)] == list(range(8))


def test_a_worker_at_its_last_call_takes_no_more_tasks_while_what_it_owns_is_held(ray_session):
    ray = ray_session

    @ray.remote(max_calls=2)
    def f(i):
        return [ray.put(i)]

    held = [ray.get(f.remote(i), timeout=30) for i in range(5)]
    assert [ray.get(refs[0]) for refs in held] == list(range(5))


def test_short_tasks_do_not_wait_behind_a_long_one(ray_session, tmp_path):
    ray = ray_session
    gate = str(tmp_path / "gate")

    @ray.remote
    def short():
        return 1

    @ray.remote
    def long():
        while not os.path.exists(gate):
            time.sleep(0.01)
        return 2

    for _ in range(300):  # from now on many are pushed ahead to one worker
        ray.get(short.remote())
    running = long.remote()
    try:
        assert ray.get([short.remote() for _ in range(8)], timeout=30) == [1] * 8
        assert ray.wait([running], timeout=0) == ([], [running])
    finally:
        open(gate, "w").close()
    assert ray.get(running) == 2


@pytest.mark.only("mray", "local")  # on Ray the first thread that is done takes the CPU back, and the others wait for ever
def test_a_thread_of_a_task_that_is_done_waiting_leaves_the_others_their_cpu(fresh, init):
    ray = fresh
    init(num_cpus=1)

    @ray.remote
    def child(seconds):
        time.sleep(seconds)
        return 1

    @ray.remote
    def parent():
        got = []

        def wait(seconds):
            got.append(ray.get(child.remote(seconds)))

        threads = [threading.Thread(target=wait, args=(seconds,)) for seconds in (0, 0.5, 0.5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return got

    assert ray.get(parent.remote(), timeout=60) == [1, 1, 1]
