"""The small modules of `util`: metrics, annotations, log_once, and the table of values. Runs on mray and on real Ray."""

from __future__ import annotations

import importlib
import os
import pickle
import signal as signals
import urllib.request
import warnings

import pytest


@pytest.fixture
def module(ray):
    """Imports a module of the engine by its name below the package."""
    return lambda name: importlib.import_module(f"{ray.__name__}.{name}")


# ------------------------------------------------------------------------------------- a table of values
@pytest.fixture
def kv(ray_session, module):
    return module("experimental.internal_kv")


def test_values_are_put_got_and_deleted(kv):
    assert kv._internal_kv_initialized()
    assert kv._internal_kv_get("nothing") is None
    assert kv._internal_kv_put("key", "value") is False
    assert kv._internal_kv_get(b"key") == b"value"
    assert kv._internal_kv_exists("key")
    assert kv._internal_kv_del("key") == 1
    assert kv._internal_kv_del("key") == 0
    assert not kv._internal_kv_exists("key")


def test_a_value_is_replaced_unless_it_may_not(kv):
    kv._internal_kv_put("again", "1")
    assert kv._internal_kv_put("again", "2", overwrite=False) is True
    assert kv._internal_kv_get("again") == b"1"
    assert kv._internal_kv_put("again", "3") is True
    assert kv._internal_kv_get("again") == b"3"


def test_namespaces_and_prefixes_divide_keys(kv):
    for key in ("p:1", "p:2", "q:1"):
        kv._internal_kv_put(key, key, namespace="there")
    assert kv._internal_kv_get("p:1") is None
    assert sorted(kv._internal_kv_list("p:", namespace=b"there")) == [b"p:1", b"p:2"]
    assert kv._internal_kv_del("p:", del_by_prefix=True, namespace="there") == 2
    assert kv._internal_kv_list("", namespace="there") == [b"q:1"]


def test_every_process_sees_the_same_values(ray_session, kv):
    kv._internal_kv_put("from the driver", "1")
    name = kv.__name__

    @ray_session.remote
    def task():
        there = importlib.import_module(name)
        there._internal_kv_put("from a task", "2")
        return there._internal_kv_get("from the driver")

    assert ray_session.get(task.remote()) == b"1"
    assert kv._internal_kv_get("from a task") == b"2"


def test_there_is_no_table_without_a_session(fresh, module):
    assert not module("experimental.internal_kv")._internal_kv_initialized()


# --------------------------------------------------------------------------------------------- metrics
@pytest.fixture
def metrics(ray_session, module):
    return module("util.metrics")


def test_a_counter_takes_positive_numbers_only(metrics):
    counter = metrics.Counter("taken", "how many", ("kind",))
    counter.inc(tags={"kind": "a"})
    counter.inc(2.5, tags={"kind": "a"})
    with pytest.raises(ValueError, match=r"value must be >0, got 0"):
        counter.inc(0, tags={"kind": "a"})
    with pytest.raises(TypeError, match="value must be int or float"):
        counter.inc("1", tags={"kind": "a"})


def test_tags_are_checked(metrics):
    gauge = metrics.Gauge("level", tag_keys=("a", "b"))
    with pytest.raises(ValueError, match="Missing value for tag key"):
        gauge.set(1, tags={"a": "1"})
    assert gauge.set_default_tags({"b": "2"}) is gauge
    gauge.set(1, tags={"a": "1"})
    gauge.set(None)
    with pytest.raises(ValueError, match="Unrecognized tag key c"):
        gauge.set_default_tags({"c": "1"})
    with pytest.raises(TypeError, match="Tag values must be str"):
        gauge.set(1, tags={"a": 1})
    with pytest.raises(TypeError, match="tag_keys should be a tuple"):
        metrics.Gauge("level", tag_keys=["a"])
    with pytest.raises(TypeError, match="Tag keys must be str"):
        metrics.Gauge("level", tag_keys=(1,))


def test_a_histogram_needs_boundaries(metrics):
    with pytest.raises(ValueError, match="boundaries argument should be provided"):
        metrics.Histogram("sizes")
    with pytest.raises(ValueError, match="Invalid `boundaries` argument at index 0"):
        metrics.Histogram("sizes", boundaries=[0, 1])
    histogram = metrics.Histogram("sizes", "bytes", boundaries=[1, 10])
    histogram.observe(3)
    assert histogram.info == {"name": "sizes", "description": "bytes", "tag_keys": (), "default_tags": {}, "boundaries": [1, 10]}


def test_a_name_prometheus_refuses_is_discarded(metrics):
    with pytest.warns(UserWarning, match="Invalid metric name"):
        counter = metrics.Counter("has blanks")
    counter.inc()
    with pytest.raises(ValueError, match="Empty name"):
        metrics.Counter("")


def test_a_metric_pickles_as_one_of_the_same_name(metrics):
    counter = pickle.loads(pickle.dumps(metrics.Counter("sent", "calls", ("kind",))))
    assert counter.info == {"name": "sent", "description": "calls", "tag_keys": ("kind",), "default_tags": {}}
    assert pickle.loads(pickle.dumps(metrics.Histogram("sent_sizes", boundaries=[1.0]))).boundaries == [1.0]


@pytest.mark.only("mray")  # Ray exports through an agent beside each node
def test_the_port_of_metrics_tells_what_every_process_counted_until_the_session_ends(fresh, init):
    parser = pytest.importorskip("prometheus_client.parser")
    from mray.util.metrics import Counter, Gauge, Histogram

    ray = fresh
    port = init(num_cpus=2, _metrics_export_port=0).address_info["metrics_export_port"]

    @ray.remote
    class Worker:
        def count(self):
            Counter("work_done", "calls", ("kind",)).inc(3, tags={"kind": "b"})
            sizes = Histogram("work_sizes", "bytes", boundaries=[1, 10])
            for size in (0.5, 5, 7, 50):
                sizes.observe(size)
            return ray.get_runtime_context().get_worker_id()

    odd = 'a "b"\\\n'
    Counter("work_done", "calls", ("kind",)).inc(tags={"kind": odd})
    Gauge("work_level", "now").set(4)
    worker = Worker.remote()
    worker_id = ray.get(worker.count.remote())
    child = os.fork()
    if not child:
        os.kill(os.getpid(), signals.SIGSTOP)  # it lives on while the session ends
        os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    address = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(address) as answer:
        told = {family.name: family for family in parser.text_string_to_metric_families(answer.read().decode())}
    done = {sample.labels["kind"]: sample for sample in told["ray_work_done"].samples}
    assert (told["ray_work_done"].type, told["ray_work_done"].documentation) == ("counter", "calls")
    assert (done[odd].value, done["b"].value, done["b"].labels["WorkerId"]) == (1, 3, worker_id)
    assert [sample.value for sample in told["ray_work_level"].samples] == [4]
    sizes = [
        (sample.name.removeprefix("ray_work_sizes_"), sample.labels.get("le"), sample.value) for sample in told["ray_work_sizes"].samples
    ]
    assert sizes == [("bucket", "1.0", 1), ("bucket", "10.0", 3), ("bucket", "+Inf", 4), ("count", None, 4), ("sum", None, 62.5)]
    assert told["mray_resources_total"].samples
    ray.shutdown()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address)
    os.kill(child, signals.SIGKILL)
    os.waitpid(child, 0)


# ----------------------------------------------------------------------------- annotations and log_once
def test_annotations_mark_and_document(module):
    annotations = module("util.annotations")

    @annotations.PublicAPI(stability="beta")
    def new():
        """Does it."""

    @annotations.DeveloperAPI
    class Inner:
        """Is it."""

    assert "beta" in new.__doc__
    assert new.__doc__.startswith("Does it.")
    assert "DeveloperAPI" in Inner.__doc__
    assert new._annotated_type is annotations.AnnotationType.PUBLIC_API
    with pytest.raises(AssertionError):
        annotations.PublicAPI(stability="gamma")(new)


def test_a_deprecated_name_warns_when_asked_to(module):
    annotations = module("util.annotations")

    @annotations.Deprecated(message="Use `new`.", warning=True)
    def old():
        return 1

    @annotations.Deprecated(warning=True)
    class Old:
        pass

    @annotations.Deprecated
    def quiet():
        return 2

    with pytest.warns(annotations.RayDeprecationWarning, match="Use `new`"):
        assert old() == 1
    with pytest.warns(annotations.RayDeprecationWarning):
        assert isinstance(Old(), Old)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert quiet() == 2


def test_log_once_says_yes_once(module):
    debug = module("util.debug")
    debug.reset_log_once("key")
    assert [debug.log_once("key"), debug.log_once("key")] == [True, False]
    debug.reset_log_once("key")
    assert debug.log_once("key")


def test_names_of_accelerators_are_rays(module):
    accelerators = module("util.accelerators")
    assert (accelerators.INTEL_GAUDI, accelerators.NVIDIA_A100) == ("Intel-GAUDI", "A100")
    with pytest.warns(DeprecationWarning, match="NVIDIA_A100"):
        assert accelerators.NVIDIA_TESLA_A100 == "A100"
