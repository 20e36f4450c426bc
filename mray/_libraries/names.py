"""The table of Ray's modules, and of the names that mray has elsewhere or not at all.

A module that is not here and that mray has under the same path stands for itself. A test compares all of it with an installed Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RAY = "ray"


class Stand(NamedTuple):
    #: the module that has its names, of mray or of a package that Ray has copied; "" for none
    ours: str = ""
    #: names that are elsewhere: ``module:attribute`` or ``module``
    also: Mapping[str, str] = {}
    #: names that mray does not have, and why
    absent: Mapping[str, str] = {}
    #: why mray does not have the other names
    reason: str = "it is about the inside of Ray, and mray is made otherwise"
    #: Names that clients use of a private module are in `also`; no other name is accounted for.
    private: bool = False


class Lack(NamedTuple):
    """A module of Ray that mray does not have, with its submodules."""

    reason: str
    #: whether it can be imported all the same, with names that raise when they are used
    mentioned: bool = False


LIBRARY = "it is one of Ray's libraries: use `mray run --libraries`, or `import mray.libraries` before the first `import ray`"
ONE_NODE = "mray runs on one machine, which is one node"
CLIENT = "Ray's client reaches a cluster from outside; with mray the driver is on the machine"
INTERNAL = Stand().reason
PYTHON_ONLY = "mray runs Python"
DEPRECATED = "Ray has deprecated it"
NIXL = "NIXL moves tensors between hosts, and mray runs on one"
GRAPH_INSIDE = "it is about the inside of Ray's compiled graphs, and mray's are made otherwise"
CHANNELS = "it belongs to the channels inside of Ray's compiled graphs; pass values in calls of actors, or compile a graph"
STATE_INSIDE = "it is about the inside of Ray's state API; the functions of ray.util.state and their records are there"
CLUSTER_EVENTS = "its events are those of an autoscaler, and mray runs on one machine"
ENVIRONMENTS = "mray makes no archives of environments; list_actors(detail=True) lists the variables of each actor"
TRANSPORT_INSIDE = "it is about the inside of Ray's transports; mray has its own"


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


MODULES: dict[str, Stand | Lack] = {
    "ray": Stand(
        "mray",
        also={
            "worker": "ray._private.worker",
            "state": "ray._private.state",
            "ray_constants": "ray._private.ray_constants",
            "serialization": "ray._private.serialization",
            "_config": "mray._libraries.core.raylet:CONFIG",
        },
        absent={"ClientBuilder": CLIENT},
    ),
    "ray.actor": Stand("mray.actor", also={"_actor_launch_hook": "mray._libraries.launch_hooks:NONE"}),
    "ray.client_builder": Lack(CLIENT),
    "ray.cloudpickle.cloudpickle": Stand("cloudpickle.cloudpickle", also=_from("mray.cloudpickle", "CloudPickler Pickler dump dumps")),
    "ray.cloudpickle.cloudpickle_fast": Stand("cloudpickle.cloudpickle", also=_from("mray.cloudpickle", "CloudPickler Pickler dump dumps")),
    "ray.cloudpickle.compat": Lack(INTERNAL),
    "ray.cloudpickle.py_pickle": Stand("pickle", also={"Pickler": "pickle:_Pickler"}),
    "ray.cluster_utils": Stand(reason=ONE_NODE),
    "ray.core": Lack(INTERNAL),
    "ray.cross_language": Stand("mray.cross_language", reason=PYTHON_ONLY),
    "ray.internal": Stand(private=True),
    "ray.log": Lack(INTERNAL),
    "ray.remote_function": Stand("mray.remote_function", also={"_task_launch_hook": "mray._libraries.launch_hooks:NONE"}),
    "ray.runtime_env.runtime_env": Stand("mray.runtime_env"),
    "ray.widgets": Lack(INTERNAL),
    "ray._version": Stand(also={"version": "ray:__version__", "commit": "ray:__commit__"}),
    # ------------------------------------------------------------------------------------------ graphs
    "ray.dag": Stand("mray.dag", reason=GRAPH_INSIDE),
    "ray.dag.base": Stand(also={"DAGNodeBase": "mray.dag:DAGNode"}),
    "ray.dag.compiled_dag_node": Stand("mray.dag.compiled_dag_node", reason=GRAPH_INSIDE),
    "ray.dag.constants": Stand("mray._libraries.core.dag_constants"),
    "ray.dag.context": Stand(
        "mray.dag.context",
        also=_from(
            "mray._libraries.core.dag_constants",
            """
            DEFAULT_BUFFER_SIZE_BYTES DEFAULT_GET_TIMEOUT_S DEFAULT_MAX_BUFFERED_RESULTS DEFAULT_MAX_INFLIGHT_EXECUTIONS
            DEFAULT_OVERLAP_GPU_COMMUNICATION DEFAULT_READ_ITERATION_TIMEOUT_S DEFAULT_SUBMIT_TIMEOUT_S DEFAULT_TEARDOWN_TIMEOUT_S
            """,
        ),
    ),
    "ray.dag.dag_node_operation": Lack(GRAPH_INSIDE),
    "ray.dag.dag_operation_future": Lack(GRAPH_INSIDE),
    "ray.dag.experimental": Stand(private=True),
    "ray.dag.format_utils": Lack(GRAPH_INSIDE),
    "ray.dag.input_node": Stand("mray.dag.input_node", reason=GRAPH_INSIDE),
    "ray.dag.utils": Lack(GRAPH_INSIDE),
    # ------------------------------------------------------------------------------------ experimental
    "ray.experimental": Stand("mray.experimental", reason=TRANSPORT_INSIDE),
    "ray.experimental.channel": Stand("mray.experimental.channel", reason=CHANNELS),
    "ray.experimental.channel.auto_transport_type": Stand("mray.experimental.channel.auto_transport_type", reason=GRAPH_INSIDE),
    "ray.experimental.channel.cached_channel": Stand(reason=CHANNELS),
    "ray.experimental.channel.common": Stand("mray.experimental.channel.common", reason=CHANNELS),
    "ray.experimental.channel.communicator_handle": Lack(GRAPH_INSIDE),
    "ray.experimental.channel.intra_process_channel": Stand(reason=CHANNELS),
    "ray.experimental.channel.serialization_context": Stand(reason=CHANNELS),
    "ray.experimental.channel.shared_memory_channel": Stand(reason=CHANNELS),
    "ray.experimental.channel.torch_tensor_accelerator_channel": Lack(GRAPH_INSIDE),
    "ray.experimental.channel.utils": Lack(GRAPH_INSIDE),
    "ray.experimental.dynamic_resources": Stand(reason=DEPRECATED),
    "ray.experimental.gradio_utils": Lack(LIBRARY),
    "ray.experimental.internal_kv": Stand(
        "mray.experimental.internal_kv",
        also={
            **_from("mray._libraries.core.gcs_client", "_pin_runtime_env_uri internal_kv_get_gcs_client"),
            "global_gcs_client": "mray._libraries.core.gcs_client:connected",
        },
    ),
    "ray.experimental.job": Lack(ONE_NODE),
    "ray.experimental.multiprocessing": Stand("ray.util.multiprocessing"),
    "ray.experimental.multiprocessing.pool": Stand("ray.util.multiprocessing.pool"),
    "ray.experimental.queue": Stand("ray.util.queue"),
    "ray.experimental.rdt": Stand("mray.experimental.rdt", reason=TRANSPORT_INSIDE),
    "ray.experimental.rdt.collective_tensor_transport": Stand(reason=TRANSPORT_INSIDE),
    "ray.experimental.rdt.cuda_ipc_transport": Stand(reason=TRANSPORT_INSIDE),
    "ray.experimental.rdt.nixl_memory_pool": Lack(NIXL),
    "ray.experimental.rdt.nixl_tensor_transport": Lack(NIXL),
    "ray.experimental.rdt.rdt_manager": Stand(
        also=_from("mray.experimental.rdt", "set_target_device_for_ref set_target_for_ref wait_tensor_freed"),
        reason=TRANSPORT_INSIDE,
    ),
    "ray.experimental.rdt.rdt_store": Lack(TRANSPORT_INSIDE),
    "ray.experimental.rdt.tensor_transport_manager": Stand("mray._api.tensor_transport_manager", reason=TRANSPORT_INSIDE),
    "ray.experimental.rdt.util": Stand(
        also=_from(
            "mray.experimental.rdt",
            "deregister_nixl_memory register_nixl_memory register_nixl_memory_pool register_tensor_transport set_nixl_cuda_stream",
        ),
        reason=TRANSPORT_INSIDE,
    ),
    "ray.experimental.sandbox": Lack("it runs containers, and mray does not"),
    "ray.experimental.shuffle": Lack(LIBRARY),
    "ray.experimental.state": Stand(private=True),
    "ray.experimental.state.api": Stand("ray.util.state.api"),
    "ray.experimental.state.common": Stand("ray.util.state.common"),
    "ray.experimental.state.custom_types": Lack(STATE_INSIDE),
    "ray.experimental.state.exception": Stand("ray.util.state.exception"),
    "ray.experimental.state.state_cli": Lack(STATE_INSIDE),
    "ray.experimental.state.state_manager": Lack(STATE_INSIDE),
    "ray.experimental.state.util": Lack(STATE_INSIDE),
    "ray.experimental.tf_utils": Lack("Ray has removed it"),
    # -------------------------------------------------------------------------------------------- util
    "ray.util.accelerators.tpu": Lack("it is about slices of TPUs, which are many machines"),
    "ray.util.actor_group": Lack(DEPRECATED),
    "ray.util.check_open_ports": Lack("mray opens no port"),
    "ray.util.check_serialize": Stand("mray.util.check_serialize", also={"FailureTuple": "mray.util.check_serialize:FailTuple"}),
    "ray.util.client": Stand("mray._libraries.core.client", reason=CLIENT, private=True),
    "ray.util.client.api": Lack(CLIENT),
    "ray.util.client.client_app": Lack(CLIENT),
    "ray.util.client.client_pickler": Lack(CLIENT),
    "ray.util.client.common": Lack(CLIENT),
    "ray.util.client.dataclient": Lack(CLIENT),
    "ray.util.client.logsclient": Lack(CLIENT),
    "ray.util.client.options": Lack(CLIENT),
    "ray.util.client.ray_client_helpers": Lack(CLIENT),
    "ray.util.client.runtime_context": Lack(CLIENT),
    "ray.util.client.server": Lack(CLIENT),
    "ray.util.client.worker": Lack(CLIENT),
    "ray.util.client_connect": Stand(reason=CLIENT),
    "ray.util.collective.collective": Stand(
        "mray.util.collective.collective", also=_from("mray._libraries.core.network_utils", "get_address_and_port")
    ),
    "ray.util.collective.collective_group.cuda_stream": Lack(INTERNAL),
    "ray.util.collective.collective_group.nccl_util": Lack(INTERNAL),
    "ray.util.collective.collective_group.torch_gloo_collective_group": Lack(INTERNAL),
    "ray.util.collective.const": Lack(INTERNAL),
    "ray.util.collective.util": Lack(INTERNAL),
    "ray.util.common": Lack(INTERNAL),
    "ray.util.dask": Lack(LIBRARY),
    "ray.util.debugpy": Lack("mray has no debugger for Visual Studio Code; breakpoint() stops a task"),
    "ray.util.horovod": Lack("Ray has removed it"),
    "ray.util.iter": Lack(DEPRECATED),
    "ray.util.iter_metrics": Lack(DEPRECATED),
    "ray.util.joblib.ray_backend": Stand(also={"RayBackend": "mray.util.joblib._backend:MrayBackend"}),
    "ray.util.lightgbm": Lack("Ray has removed it"),
    "ray.util.multiprocessing.pool": Stand(
        "mray.util.multiprocessing.pool", absent={"PoolTaskError": "a pool raises what its function raises"}
    ),
    "ray.util.placement_group": Stand(
        "mray.util.placement_group",
        also={
            "_validate_bundles": "mray._common.placement_options:check_bundles",
            "_validate_bundle_label_selector": "mray._common.placement_options:check_selector_list",
            "_valid_resource_shape": "mray._common.placement_options:fits",
        },
    ),
    "ray.util.queue": Stand("mray.util.queue", also=_from("mray.util.queue", "_QueueActor")),
    "ray.util.serialization": Stand(
        "mray.util.serialization", also=_from("mray._libraries.core.serialization", "StandaloneSerializationContext")
    ),
    "ray.util.serialization_addons": Lack(INTERNAL),
    "ray.util.sgd": Lack("Ray has removed it"),
    "ray.util.spark": Lack(ONE_NODE),
    "ray.util.state.api": Stand(
        "mray.util.state.api", reason=STATE_INSIDE, absent={"list_cluster_events": CLUSTER_EVENTS, "list_runtime_envs": ENVIRONMENTS}
    ),
    "ray.util.state.common": Stand("mray.util.state.common", reason=STATE_INSIDE),
    "ray.util.state.exception": Stand("mray.util.state.exception", reason=STATE_INSIDE),
    "ray.util.state.state_cli": Lack(STATE_INSIDE),
    "ray.util.state.state_manager": Lack(STATE_INSIDE),
    "ray.util.state.util": Lack(STATE_INSIDE),
    "ray.util.timer": Stand("mray._libraries.core.timer", private=True),
    "ray.util.tpu": Lack("it is about slices of TPUs, which are many machines"),
    "ray.util.tracing.tracing_helper": Stand("mray._libraries.core.tracing", private=True),
    "ray.util.tracing": Lack("mray has no trace contexts of OpenTelemetry; ray.timeline shows what ran", mentioned=True),
    "ray.util.xgboost": Lack("Ray has removed it"),
    # -------------------------------------------------- what Ray calls private, and clients use all the same
    "ray._common": Stand(private=True),
    "ray._common.network_utils": Stand(
        "mray._libraries.core.network_utils",
        also=_from("mray._libraries.core.raylet", "node_ip_address_from_perspective"),
        private=True,
    ),
    "ray._common.test_utils": Stand("mray._libraries.core.test_utils", private=True),
    "ray._common.utils": Stand("mray._libraries.core.system_memory", private=True),
    "ray._private": Stand(private=True),
    "ray._private.async_compat": Stand("mray._libraries.core.async_compat", private=True),
    "ray._private.auto_init_hook": Stand("mray._libraries.core.auto_init_hook", private=True),
    "ray._private.client_mode_hook": Stand("mray._libraries.core.client_mode_hook", private=True),
    "ray._private.internal_api": Stand("mray._libraries.core.internal_api", private=True),
    "ray._private.profiling": Stand("mray._libraries.core.profiling", private=True),
    "ray._private.serialization": Stand("mray._libraries.core.serialization", private=True),
    "ray._private.services": Stand(
        also={
            **_from("mray.util", "get_node_ip_address"),
            **_from("mray._libraries.core.raylet", "node_ip_address_from_perspective"),
            "resolve_ip_for_localhost": "mray._ipc.discovery:reachable",
        },
        private=True,
    ),
    "ray._private.state": Stand(
        "mray._libraries.core.state", also=_from("mray", "available_resources cluster_resources nodes timeline"), private=True
    ),
    "ray._private.test_utils": Stand("mray._libraries.core.test_utils", private=True),
    "ray._private.utils": Stand("mray._libraries.core.system_memory", private=True),
    "ray._private.worker": Stand(
        "mray._libraries.core.worker",
        also=_from("mray", "LoggingConfig cancel get get_actor get_gpu_ids init is_initialized kill put remote shutdown wait"),
        private=True,
    ),
    "ray._raylet": Stand(
        "mray._libraries.core.raylet",
        also={
            **_from(
                "mray",
                """
                ActorClassID ActorID ClusterID DynamicObjectRefGenerator FunctionID JobID NodeID ObjectID ObjectRef ObjectRefGenerator
                PlacementGroupID TaskID UniqueID WorkerID
                """,
            ),
            **_from("mray._libraries.core.network_utils", "build_address get_localhost_ip is_ipv6 is_localhost parse_address"),
            "BaseID": "mray._common.ids:BaseID",
            "GcsClient": "mray._libraries.core.gcs_client:GcsClient",
            "Language": "mray.cross_language:Language",
            "StreamingGeneratorStats": "mray._api.ref_generator:StreamingGeneratorStats",
            "merge_instantaneous_total_cython": "mray._libraries.core.time_series:merge_instantaneous_total",
            "time_weighted_average_cython": "mray._libraries.core.time_series:time_weighted_average",
        },
        private=True,
    ),
    "ray.scripts": Stand(private=True),
    "ray.scripts.scripts": Stand("mray.cli.ray_command", private=True),
    # --------------------------------------------------------------------------------------- libraries
    "ray.air": Lack(LIBRARY),
    "ray.autoscaler": Lack(ONE_NODE, mentioned=True),
    "ray.autoscaler.sdk": Stand("mray._libraries.core.autoscaler", private=True),
    "ray.dashboard": Lack("mray has no dashboard; mray top --web and mray list show what runs", mentioned=True),
    # Clients of the core mention its names.
    "ray.data": Stand(reason=LIBRARY),
    "ray.job_submission": Lack(ONE_NODE, mentioned=True),
    "ray.llm": Lack(LIBRARY),
    "ray.rllib": Lack(LIBRARY),
    "ray.serve": Lack(LIBRARY),
    "ray.train": Lack(LIBRARY),
    "ray.tune": Lack(LIBRARY),
    "ray.workflow": Lack("Ray has removed it"),
}
