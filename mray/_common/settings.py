"""Every environment variable that changes what mray does. No other module reads ``os.environ`` for a setting.

Variables are read when needed, never cached, so that a program may set one at any time before the session it concerns. mray's name wins
over Ray's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from mray._common.kept import os
from mray._common.record import Record
from mray._common.version import RAY_VERSION

_Value = TypeVar("_Value")

_FALSE = frozenset({"", "0", "false", "no", "off"})


def _flag(text: str) -> bool:
    return text.strip().lower() not in _FALSE


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _version(text: str) -> str:
    if not text[:1].isdigit():
        raise ValueError("expected a version of Ray, such as 2.58.0")
    return text


def _object(text: str) -> dict[str, Any]:
    import json  # noqa: PLC0415  (the node imports this module on the way to the first answer of a session)

    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


class NullDevices(Record):
    """The null GPUs of a machine (`mray.testing.null`)."""

    gpus: int
    #: Bytes of each GPU.
    memory: int = 1 << 30
    #: Whether they access each other's memory.
    peer: bool = True
    #: Consecutive GPUs with NVLink between them; 0: no topology.
    island: int = 0
    #: Copies between two of them bring wrong contents, as over a misconfigured PCI bus.
    garbled: bool = False
    #: Seconds by which each piece of work is delayed.
    late: float = 0.0
    #: Separates the memory of processes with different scopes.
    scope: str = ""
    #: This process opens memory of others, its streams set and await host words, and it exports memory.
    ipc: bool = True
    words: bool = True
    exports: bool = True
    #: Calls that may wait for the device do so: opening and closing, freeing, the first launch of each kernel.
    waits: bool = False


_NULL_FLAGS = ("peer", "garbled", "ipc", "words", "exports", "waits")


def _null_devices(text: str) -> NullDevices | None:
    first, *options = (part.strip() for part in text.split(","))
    values: dict[str, Any] = {}
    for option in options:
        name, _equals, value = (part.strip() for part in option.partition("="))
        if name in ("memory", "island", *_NULL_FLAGS):
            values[name] = int(value)
        elif name == "late":
            values[name] = float(value)
        elif name == "scope" and value.replace("-", "").replace("_", "").isalnum():
            values[name] = value
        else:
            raise ValueError(
                f"expected memory=BYTES, {'=, '.join(_NULL_FLAGS)}=0 or 1, island=GPUS, late=SECONDS or scope=WORD, not {option!r}"
            )
    count = int(first or 0)
    flags = {name: values[name] for name in _NULL_FLAGS if name in values}
    if count < 0 or values.get("memory", 1) <= 0 or values.get("island", 0) < 0 or not 0 <= values.get("late", 0) < 3600:
        raise ValueError("expected a number of GPUs, and valid values")
    if not {0, 1}.issuperset(flags.values()):
        raise ValueError(f"expected 0 or 1 for {' and '.join(flags)}")
    values.update({name: bool(flag) for name, flag in flags.items()})
    return NullDevices(count, **values) if count else None


class Setting(Record, Generic[_Value]):
    name: str
    parse: Callable[[str], _Value]
    default: _Value
    doc: str
    #: "" if Ray has none.
    ray: str = ""

    def get(self) -> _Value:
        """Raises ValueError that names the variable when its text is invalid."""
        for name in (self.name, self.ray):
            text = os.environ.get(name) if name else None
            if text is None:
                continue
            try:
                return self.parse(text)
            except ValueError as error:
                raise ValueError(f"environment variable {name}={text!r}: {error}") from None
        return self.default

    def is_set(self) -> bool:
        return self.name in os.environ or (self.ray != "" and self.ray in os.environ)

    @property
    def kind(self) -> str:
        words = {_flag: "flag", _names: "names", _object: "JSON object", int: "int", float: "float", str: "text"}
        return words.get(self.parse, "text")


#: Modes of NVIDIA's MPS.
MPS_WORDS = ("off", "on", "auto")


def _mps(text: str) -> str:
    if text not in MPS_WORDS:
        raise ValueError(f"expected one of {', '.join(MPS_WORDS)}")
    return text


ALL: dict[str, Setting[Any]] = {}


def _declare(name: str, parse: Callable[[str], _Value], default: _Value, doc: str, ray: str = "") -> Setting[_Value]:
    setting = Setting(name, parse, default, doc, ray)
    ALL[name] = setting
    return setting


_no_path: str | None = None
_no_flag: bool | None = None
_no_number: float | None = None
_no_names: tuple[str, ...] = ()
_no_items: dict[str, Any] = {}
_no_devices: NullDevices | None = None

TMPDIR = _declare("MRAY_TMPDIR", str, _no_path, "Directory in which sessions create theirs, instead of the system's.", "RAY_TMPDIR")
ADDRESS = _declare(
    "MRAY_ADDRESS",
    str,
    _no_path,
    "The address of `init()` without one: `auto`, a session's `host:port`, its directory, `local`.",
    "RAY_ADDRESS",
)
NUM_CPUS = _declare("MRAY_NUM_CPUS", float, _no_number, "CPUs of a session that starts without `num_cpus`; see `mray run --num-cpus`.")
WEB = _declare("MRAY_WEB", _flag, False, "Whether `init` serves the live page when it is not given `web`; see `mray run --web`.")
CACHE_DIR = _declare("MRAY_CACHE_DIR", str, _no_path, "Cache directory for packages of runtime environments; `~/.cache/mray` by default.")
BACKEND = _declare("MRAY_BACKEND", str, "native", "The engine that `init` starts: a module of `mray._backends`.")
LOCAL_SEED = _declare("MRAY_LOCAL_SEED", int, 0, "With `init(local_mode=True)`: the seed of the order of tasks and actors.")
LOCAL_SKIP_SLEEPS = _declare(
    "MRAY_LOCAL_SKIP_SLEEPS", _flag, False, "With `init(local_mode=True)`: when every thread sleeps, advance the clock instead of sleeping."
)
AS_VERSION = _declare(
    "MRAY_RAY_VERSION",
    _version,
    RAY_VERSION,
    "The version in `ray.__version__` and the metadata of the package `ray`, for programs that require another. It changes no behaviour.",
)
MOST_ROWS = _declare(
    "MRAY_MAX_LIMIT_FROM_API_SERVER", int, 10_000, "Maximum rows in a listing of the state.", "RAY_MAX_LIMIT_FROM_API_SERVER"
)
RUNTIME_ENV_HOOK = _declare(
    "MRAY_RUNTIME_ENV_HOOK",
    str,
    _no_path,
    "`module.function` that `init` calls with its `runtime_env` (or None), and whose result is used instead.",
    "RAY_RUNTIME_ENV_HOOK",
)
PRELOAD = _declare("MRAY_PRELOAD", _names, _no_names, "Modules that every worker starts with, besides `init(preload=...)`; or `auto`.")
#: In place of a module: those that workers of the program's previous session imported.
AUTO = "auto"
NAMESPACE = _declare("MRAY_NAMESPACE", str, _no_path, "Namespace of named actors when `init` is given none.", "RAY_JOB_NAMESPACE")
ENABLE_AUTO_CONNECT = _declare(
    "MRAY_ENABLE_AUTO_CONNECT",
    _flag,
    True,
    "Whether the first call starts a session when `init` was not called.",
    "RAY_ENABLE_AUTO_CONNECT",
)
WARN_BLOCKING_GET = _declare(
    "MRAY_WARN_BLOCKING_GET_INSIDE_ASYNC",
    _flag,
    True,
    "Whether an async actor warns once of a `get` that blocks its event loop.",
    "RAY_WARN_BLOCKING_GET_INSIDE_ASYNC",
)
OVERRIDE_RESOURCES = _declare(
    "MRAY_OVERRIDE_RESOURCES", _object, _no_items, "Resources of the node, instead of those given to `init`.", "RAY_OVERRIDE_RESOURCES"
)
OVERRIDE_LABELS = _declare(
    "MRAY_OVERRIDE_LABELS", _object, _no_items, "Labels of the node, instead of those given to `init`.", "RAY_OVERRIDE_LABELS"
)
DEDUP_LOGS = _declare(
    "MRAY_DEDUP_LOGS",
    _flag,
    _no_flag,
    "Whether equal lines of several workers are printed once; by default on terminals and in notebooks only.",
    "RAY_DEDUP_LOGS",
)
LOG_PREFIX = _declare(
    "MRAY_LOG_PREFIX",
    _flag,
    _no_flag,
    "Whether each line of a worker is prefixed with `(name pid=…)`; by default on terminals and in notebooks only.",
)
LOG_TO_DRIVER = _declare("MRAY_LOG_TO_DRIVER", _flag, True, "Whether the driver prints the output of workers.", "RAY_LOG_TO_DRIVER")
KEPT_SESSIONS = _declare(
    "MRAY_KEPT_SESSIONS",
    int,
    3,
    "How many ended sessions leave their logs and records of calls, each 16 MB at most; 0: none.",
)
FULL_TRACEBACKS = _declare("MRAY_FULL_TRACEBACKS", _flag, False, "Whether tracebacks include mray's own frames.")
TQDM_PATCH_PRINT = _declare(
    "MRAY_TQDM_PATCH_PRINT",
    _flag,
    True,
    "Whether text that the driver prints stands above progress bars.",
    "RAY_TQDM_PATCH_PRINT",
)
LOGGING_CONFIG_ENCODING = _declare(
    "MRAY_LOGGING_CONFIG_ENCODING",
    str,
    _no_path,
    "`TEXT` or `JSON`: the default encoding of the `LoggingConfig` of `init`.",
    "RAY_LOGGING_CONFIG_ENCODING",
)
BREAKPOINT = _declare(
    "MRAY_BREAKPOINT",
    str,
    "terminal",
    "The behaviour of `breakpoint()` in a worker: `terminal` debugs in the driver's terminal and raises without one, `wait` waits for "
    "`mray debug`, `raise` raises.",
)
PROFILER_TIMEOUT = _declare(
    "MRAY_PROFILER_TIMEOUT", float, 60.0, "Seconds that a profiler may take to write its file after its worker has ended."
)
ALLOW_OUT_OF_BAND_REFS = _declare(
    "MRAY_ALLOW_OUT_OF_BAND_OBJECT_REF_SERIALIZATION",
    _flag,
    True,
    "Whether a ref may be pickled outside of calls and objects; its object then lives until the session ends.",
    "RAY_allow_out_of_band_object_ref_serialization",
)


def _left_alone(name: str, variable: str = "") -> Setting[bool]:
    doc = f"Leave {variable or name} of tasks and actors alone."
    return _declare(f"MRAY_NOSET_{name}", _flag, False, doc, f"RAY_EXPERIMENTAL_NOSET_{name}")


NOSET_CUDA_VISIBLE_DEVICES = _left_alone("CUDA_VISIBLE_DEVICES")
NOSET_TPU_VISIBLE_CHIPS = _left_alone("TPU_VISIBLE_CHIPS")
NOSET_NEURON_RT_VISIBLE_CORES = _left_alone("NEURON_RT_VISIBLE_CORES")
NOSET_HABANA_VISIBLE_MODULES = _left_alone("HABANA_VISIBLE_MODULES")
NOSET_ASCEND_RT_VISIBLE_DEVICES = _left_alone("ASCEND_RT_VISIBLE_DEVICES")
NOSET_RBLN_RT_VISIBLE_DEVICES = _left_alone("RBLN_RT_VISIBLE_DEVICES", "RBLN_DEVICES")
NOSET_FURIOSA_DEVICES = _left_alone("FURIOSA_DEVICES")
NOSET_MBLT_RT_VISIBLE_DEVICES = _left_alone("MBLT_RT_VISIBLE_DEVICES", "QBRUNTIME_VISIBLE_DEVICES")
NOSET_TENSTORRENT_VISIBLE_DEVICES = _left_alone("TENSTORRENT_VISIBLE_DEVICES", "TT_VISIBLE_DEVICES")
ACCEL_ENV_VAR_OVERRIDE_ON_ZERO = _declare(
    "MRAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
    _flag,
    False,
    "Hide accelerators from tasks and actors that request none.",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
)
OBJECT_SPILLING_DIRECTORY = _declare(
    "MRAY_OBJECT_SPILLING_DIRECTORY",
    str,
    _no_path,
    "Directory of objects that do not fit in memory; by default in the session's directory.",
    "RAY_object_spilling_directory",
)
OBJECT_SPILLING_CONFIG = _declare(
    "MRAY_OBJECT_SPILLING_CONFIG",
    _object,
    _no_items,
    "The same in Ray's format: type `filesystem`, with the path in its `params`.",
    "RAY_object_spilling_config",
)
AUTOMATIC_OBJECT_SPILLING = _declare(
    "MRAY_AUTOMATIC_OBJECT_SPILLING_ENABLED",
    _flag,
    True,
    "Whether objects that do not fit in memory go to disk; otherwise their creation raises ObjectStoreFullError.",
    "RAY_automatic_object_spilling_enabled",
)
LOCAL_FS_CAPACITY_THRESHOLD = _declare(
    "MRAY_LOCAL_FS_CAPACITY_THRESHOLD",
    float,
    0.95,
    "The share of a disk that may be in use before writing an object raises OutOfDiskError.",
    "RAY_local_fs_capacity_threshold",
)
KEPT_OBJECT_MEMORY = _declare(
    "MRAY_KEPT_OBJECT_MEMORY",
    float,
    0.5,
    "The share of `object_store_memory` that a process may retain from freed objects, to reuse it without page faults; released when "
    "memory is short.",
)
VERBOSE_SPILL_LOGS = _declare(
    "MRAY_VERBOSE_SPILL_LOGS",
    int,
    2 << 30,
    "The driver logs when this many bytes of objects have been spilled, and at each doubling; 0: never.",
    "RAY_verbose_spill_logs",
)
WARN_WAITING = _declare(
    "MRAY_WARN_WAITING",
    float,
    10.0,
    "Seconds after which the driver logs, once, calls that wait for resources held by actors or placement groups, and calls that wait "
    "for each other; 0: never.",
)
RAISE_DEADLOCKS = _declare(
    "MRAY_RAISE_DEADLOCKS",
    _flag,
    False,
    "Whether a wait of calls that wait for each other raises DeadlockError, after the seconds of MRAY_WARN_WAITING.",
)
IGNORE_UNHANDLED_ERRORS = _declare(
    "MRAY_IGNORE_UNHANDLED_ERRORS",
    _flag,
    False,
    "Whether the error of a call is not logged when its ref is released without a `get`.",
    "RAY_IGNORE_UNHANDLED_ERRORS",
)
MEMORY_USAGE_THRESHOLD = _declare(
    "MRAY_MEMORY_USAGE_THRESHOLD",
    float,
    0.95,
    "The share of memory in use above which the node ends a worker, before the kernel ends a process.",
    "RAY_memory_usage_threshold",
)
MEMORY_MONITOR_REFRESH_MS = _declare(
    "MRAY_MEMORY_MONITOR_REFRESH_MS",
    int,
    250,
    "Milliseconds between checks of the memory when it is nearly full; 0: never check.",
    "RAY_memory_monitor_refresh_ms",
)
MEMINFO = _declare("MRAY_MEMINFO", str, "/proc/meminfo", "The file that lists the machine's memory, for tests.")
ACTOR_GRACEFUL_SHUTDOWN_TIMEOUT_MS = _declare(
    "MRAY_ACTOR_GRACEFUL_SHUTDOWN_TIMEOUT_MS",
    int,
    0,
    "Milliseconds that an actor's `__ray_shutdown__` may take before its process is killed; 0: as long as it takes.",
    "RAY_actor_graceful_shutdown_timeout_ms",
)
TASK_RETRY_DELAY_MS = _declare(
    "MRAY_TASK_RETRY_DELAY_MS",
    int,
    1000,
    "Milliseconds before a failed task or call is retried, before an actor that crashed in its constructor is restarted, and before a "
    "call to a restarting actor fails; 0: immediately.",
    "RAY_task_retry_delay_ms",
)
TASK_OOM_RETRIES = _declare(
    "MRAY_TASK_OOM_RETRIES",
    int,
    -1,
    "How often a task with retries is retried after the memory monitor ended it; -1: without limit.",
    "RAY_task_oom_retries",
)
TASK_OOM_RETRY_DELAY_BASE_MS = _declare(
    "MRAY_TASK_OOM_RETRY_DELAY_BASE_MS",
    int,
    1000,
    "Milliseconds before the first of these retries; doubled each time, up to a minute.",
    "RAY_task_oom_retry_delay_base_ms",
)
WORKER_OOM_SCORE_ADJUSTMENT = _declare(
    "MRAY_WORKER_OOM_SCORE_ADJUSTMENT",
    int,
    1000,
    "The preference of the kernel's OOM killer for workers over the driver and the node, 0 to 1000.",
    "RAY_worker_oom_score_adjustment",
)
WORKER_NICENESS = _declare(
    "MRAY_WORKER_NICENESS",
    int,
    0,
    "The niceness of workers relative to the driver; 15 with Ray.",
    "RAY_worker_niceness",
)
TASK_MAX_RETRIES = _declare(
    "MRAY_TASK_MAX_RETRIES", int, 3, "How often a task whose worker died is retried, unless it sets `max_retries`.", "RAY_TASK_MAX_RETRIES"
)
CANCEL_ON_INTERRUPT = _declare(
    "MRAY_CANCEL_ON_INTERRUPT", _flag, True, "Whether Ctrl-C in a `get` or `wait` of the driver cancels the tasks that it waits for."
)
SEMAPHORES = _declare(
    "MRAY_SEMAPHORES",
    _flag,
    False,
    "Whether processes wake each other by POSIX semaphores, which need no descriptors, instead of eventfds.",
)
SPIN = _declare(
    "MRAY_SPIN",
    _flag,
    True,
    "Whether a wait polls for some microseconds before it sleeps, unless many more processes than cores are awake.",
)
CGRAPH_SUBMIT_TIMEOUT = _declare(
    "MRAY_CGRAPH_SUBMIT_TIMEOUT", float, 10.0, "Seconds that `execute` of a compiled graph waits for room.", "RAY_CGRAPH_submit_timeout"
)
CGRAPH_GET_TIMEOUT = _declare(
    "MRAY_CGRAPH_GET_TIMEOUT",
    float,
    _no_number,
    "Seconds that `get` of a compiled graph's result waits; forever by default.",
    "RAY_CGRAPH_get_timeout",
)
CGRAPH_TEARDOWN_TIMEOUT = _declare(
    "MRAY_CGRAPH_TEARDOWN_TIMEOUT",
    float,
    30.0,
    "Seconds that `teardown` of a compiled graph waits for its actors.",
    "RAY_CGRAPH_teardown_timeout",
)
CGRAPH_BUFFER_SIZE_BYTES = _declare(
    "MRAY_CGRAPH_BUFFER_SIZE_BYTES", int, 1_000_000, "First size of a compiled graph's buffers; they grow.", "RAY_CGRAPH_buffer_size_bytes"
)
CGRAPH_MAX_INFLIGHT = _declare(
    "MRAY_CGRAPH_MAX_INFLIGHT_EXECUTIONS",
    int,
    10,
    "Maximum number of executions of a compiled graph in flight.",
    "RAY_CGRAPH_max_inflight_executions",
)
CGRAPH_MAX_BUFFERED = _declare(
    "MRAY_CGRAPH_MAX_BUFFERED_RESULTS", int, 1000, "Maximum unread results of a compiled graph.", "RAY_CGRAPH_max_buffered_results"
)
CGRAPH_OVERLAP = _declare(
    "MRAY_CGRAPH_OVERLAP_GPU_COMMUNICATION",
    _flag,
    False,
    "Overlap transfers between GPUs with computing.",
    "RAY_CGRAPH_overlap_gpu_communication",
)
CGRAPH_VISUALIZE_SCHEDULE = _declare(
    "MRAY_CGRAPH_VISUALIZE_SCHEDULE",
    _flag,
    False,
    "Compiling a graph writes its schedule into `compiled_graph_schedule.json`, a trace for Perfetto.",
    "RAY_CGRAPH_VISUALIZE_SCHEDULE",
)
CGRAPH_TORCH_PROFILING = _declare(
    "MRAY_CGRAPH_ENABLE_TORCH_PROFILING",
    _flag,
    False,
    "Run the torch profiler in the actors of compiled graphs; traces are written to `compiled_graph_torch_profiles`.",
    "RAY_CGRAPH_ENABLE_TORCH_PROFILING",
)
CGRAPH_NVTX_PROFILING = _declare(
    "MRAY_CGRAPH_ENABLE_NVTX_PROFILING",
    _flag,
    False,
    "Annotate the operations of actors in compiled graphs through the package `nvtx`, for Nsight Systems.",
    "RAY_CGRAPH_ENABLE_NVTX_PROFILING",
)
PICKLE_VERBOSE_DEBUG = _declare(
    "MRAY_PICKLE_VERBOSE_DEBUG",
    _flag,
    False,
    "`cloudpickle.dumps_debug` prints which parts of a value cannot be pickled.",
    "RAY_PICKLE_VERBOSE_DEBUG",
)
CLOUD_INSTANCE_ID = _declare(
    "MRAY_CLOUD_INSTANCE_ID",
    str,
    "",
    "The id of this machine in a cloud, for `util.get_node_instance_id`.",
    "RAY_CLOUD_INSTANCE_ID",
)
AS_RAY = _declare("MRAY_AS_RAY", _flag, False, "After the import of mray, `import ray` means mray; see `mray run`.")
LIBRARIES = _declare("MRAY_LIBRARIES", _flag, False, "As MRAY_AS_RAY, with Ray's own libraries; see `mray run --libraries`.")
HEAD_START = _declare(
    "MRAY_HEAD_START",
    _flag,
    True,
    "Whether a second process imports Ray's libraries together with the program, and sessions are forked from it.",
)
MPS = _declare(
    "MRAY_MPS",
    _mps,
    "off",
    "Whether processes that share a GPU use NVIDIA's MPS, unless `init` says otherwise: `off`, `on`, `auto`.",
)
MPS_DIRECTORY = _declare(
    "MRAY_MPS_DIRECTORY", str, "/tmp/nvidia-mps", "The directory of an MPS daemon if CUDA_MPS_PIPE_DIRECTORY is not set, for tests."
)
NULL_DEVICES = _declare(
    "MRAY_NULL_DEVICES",
    _null_devices,
    _no_devices,
    "GPUs to pretend in host memory, for tests, and options: "
    "`4,memory=1073741824,peer=0,island=2,garbled=1,late=0.002,scope=word,ipc=0,words=0,exports=0,waits=1`.",
)
DEVICE_POOL_BYTES = _declare(
    "MRAY_DEVICE_POOL_BYTES",
    int,
    64 << 20,
    "Minimum growth in bytes of a process's pool of device memory for edges and tensor transports, one pool per device.",
)
PEER_ACCESS = _declare(
    "MRAY_PEER_ACCESS",
    _flag,
    True,
    "Whether GPUs read each other's memory; set 0 if `mray doctor` finds wrong contents. NCCL_P2P_DISABLE=1 means the same.",
)
NULL_NCCL_VERSION = _declare("MRAY_NULL_NCCL_VERSION", int, 23000, "Version of NCCL on pretended GPUs, as NCCL counts: 22705 is 2.27.5.")
POINTS = _declare(
    "MRAY_POINTS",
    _object,
    _no_items,
    "Delays and deaths at named points of the runtime, for tests: see `mray.testing.points`. Read when a process starts.",
)


def has_peer_access() -> bool:
    """Whether the user allows GPUs to access each other's memory."""
    return PEER_ACCESS.get() and of_library("NCCL_P2P_DISABLE") in (None, "", "0")


def of_library(name: str) -> str | None:
    """A variable of a library that mray uses, and no setting of mray."""
    return os.environ.get(name)


def propose_to_library(name: str, value: str) -> None:
    """Set the variable of an unused library unless the user has set it."""
    os.environ.setdefault(name, value)


@contextlib.contextmanager
def proposed(setting: Setting[Any], text: str) -> Iterator[None]:
    """Set a variable for a while, unless the environment has it."""
    if setting.is_set():
        yield
        return
    os.environ[setting.name] = text
    try:
        yield
    finally:
        os.environ.pop(setting.name, None)


def named_address() -> str | None:
    """The session that the environment names; None for none or one of Ray's."""
    address = ADDRESS.get()
    return None if address in (None, "", "auto", "local") or address.startswith("ray:") else address


def join_everywhere(address: str) -> None:
    """Make `init` of this process and its children join this session, unless the program or the environment names another."""
    if not ADDRESS.is_set():
        os.environ[ADDRESS.name] = address


def choose_everywhere(setting: Setting[Any], text: str) -> None:
    """Set a setting for this process and its children, as the command line asks."""
    os.environ[setting.name] = text


def preloaded_everywhere() -> tuple[str, ...]:
    """Modules that every worker of every session starts with."""
    return tuple(name for name in PRELOAD.get() if name != AUTO)


def preload_everywhere(module: str) -> None:
    """Make every worker of every session of this process and its children import a module first."""
    names = PRELOAD.get()
    if module not in names:
        os.environ[PRELOAD.name] = ",".join((*names, module))
