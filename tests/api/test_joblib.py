"""`util.joblib`: joblib's loops on actors. Runs on mray and on real Ray."""

from __future__ import annotations

import importlib
import os
import time

import pytest

joblib = pytest.importorskip("joblib")
Parallel, delayed = joblib.Parallel, joblib.delayed


@pytest.fixture(autouse=True)
def parallel(ray_session):
    """The backend of every test's loops."""
    importlib.import_module(f"{ray_session.__name__}.util.joblib").register_ray()
    with joblib.parallel_config("ray", n_jobs=2):
        yield


def test_values_come_back_in_order():
    offset = 7
    assert Parallel()(delayed(lambda value: value + offset)(value) for value in range(100)) == list(range(7, 107))


def test_calls_run_in_other_processes():
    pids = set(Parallel()(delayed(os.getpid)() for _ in range(20)))
    assert pids
    assert os.getpid() not in pids


def test_a_failure_is_raised_and_the_next_loop_works():
    def fail(value):
        if value == 5:
            raise ValueError("five")
        return value

    with pytest.raises(ValueError, match="five"):
        Parallel()(delayed(fail)(value) for value in range(50))
    assert Parallel()(delayed(fail)(value) for value in range(3)) == [0, 1, 2]


def test_loops_can_be_nested():
    def inner(count):
        return sum(Parallel(n_jobs=2)(delayed(pow)(value, 2) for value in range(count)))

    assert Parallel()(delayed(inner)(count) for count in range(6)) == [0, 0, 1, 5, 14, 30]


def test_large_arrays_arrive_whole():
    import numpy

    array = numpy.arange(1_000_000)

    def add(whole, number, again):
        return int(whole[number] + again[-1])

    assert Parallel()(delayed(add)(array, number, again=array) for number in range(8)) == list(range(999_999, 1_000_007))


def test_no_jobs_at_all_are_refused():
    with joblib.parallel_config("ray", n_jobs=0), pytest.raises(ValueError, match="n_jobs == 0 in Parallel has no meaning"):
        Parallel()(delayed(abs)(1) for _ in range(1))


def test_all_cpus_are_those_of_the_session():
    with joblib.parallel_config("ray", n_jobs=-1):
        assert Parallel()._effective_n_jobs() == 4


@pytest.mark.only("mray", "local")
def test_it_has_mrays_name_too(ray_session):
    importlib.import_module("mray.util.joblib").register_mray()
    with joblib.parallel_config("mray", n_jobs=2):
        assert Parallel()(delayed(abs)(-value) for value in range(5)) == list(range(5))


@pytest.mark.only("mray", "local")  # Ray makes a pool for each loop, and returns lists only
def test_actors_are_kept_for_the_next_loop_and_give_arrays_back(ray_session, eventually):
    import numpy

    pids = set(Parallel()(delayed(os.getpid)() for _ in range(20)))
    assert pids & set(Parallel()(delayed(os.getpid)() for _ in range(20)))
    array = numpy.zeros(1_000_000)
    stream = Parallel(return_as="generator")(delayed(lambda whole, n: n + whole[0])(array, n) for n in range(5))
    assert list(stream) == [0, 1, 2, 3, 4]
    from mray.util.joblib import _backend

    assert _backend._kept is not None
    assert all(not worker.jobs for worker in _backend._kept[0].workers)


@pytest.mark.only("mray", "local")
def test_a_failure_ends_what_still_runs(ray_session, tmp_path, eventually):
    def work(value):
        if value == 1:
            raise ValueError("one")
        (tmp_path / str(os.getpid())).touch()
        time.sleep(1000)

    with pytest.raises(ValueError, match="one"):
        Parallel()(delayed(work)(value) for value in range(2))
    eventually(lambda: not any(os.path.exists(f"/proc/{path.name}") for path in tmp_path.iterdir()))


@pytest.mark.only("mray", "local")
def test_threads_of_libraries_are_limited():
    with joblib.parallel_config("ray", n_jobs=2, inner_max_num_threads=3):
        assert set(Parallel()(delayed(os.getenv)("OMP_NUM_THREADS") for _ in range(4))) == {"3"}


def test_a_grid_search_of_scikit_learn_runs_on_it():
    search = pytest.importorskip("sklearn.model_selection")
    from sklearn.datasets import load_iris
    from sklearn.svm import SVC

    features, labels = load_iris(return_X_y=True)
    grid = search.GridSearchCV(SVC(), {"C": [0.1, 1, 10]}, cv=3)
    grid.fit(features, labels)
    here = search.GridSearchCV(SVC(), {"C": [0.1, 1, 10]}, cv=3, n_jobs=1)
    with joblib.parallel_config("sequential"):
        here.fit(features, labels)
    assert grid.best_params_ == here.best_params_
    assert grid.best_score_ == pytest.approx(here.best_score_)
