"""The table of Ray's modules, and of the names that mray has elsewhere or not at all.

A module that is not here and that mray has at the same place (``ray.util.queue``, `mray.util.queue`) stands for itself. A test compares
all of it with an installed Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

RAY = "ray"


class Stand(NamedTuple):
    """The parts of a module of Ray."""

    #: The module that has its names, of mray or of a package that Ray has copied; "" for none.
    ours: str = ""
    #: Names that are elsewhere: ``module:attribute`` or ``module``.
    also: Mapping[str, str] = {}
    #: Names that mray does not have, and why.
    absent: Mapping[str, str] = {}
    #: Whether clients have no business here. Names that they use all the same are in `also`, and no other name is accounted for.
    private: bool = False


class Lack(NamedTuple):
    """A module of Ray that mray does not have, with all that is below it."""

    reason: str


LIBRARY = "it is one of Ray's libraries, and mray is its core"
ONE_NODE = "mray runs on one machine, which is one node"
CLIENT = "Ray's client reaches a cluster from outside; with mray the driver is on the machine"
INTERNAL = "it is about the inside of Ray, and mray is made otherwise"
PYTHON_ONLY = "mray runs Python"
DEPRECATED = "Ray has deprecated it"
NIXL = "NIXL moves tensors between hosts, and mray runs on one"
GRAPH_INSIDE = "it is about the inside of Ray's compiled graphs, and mray's are made otherwise"
STATE_INSIDE = "it is about the inside of Ray's state API; the functions of ray.util.state and their records are there"
CLUSTER_EVENTS = "its events are those of an autoscaler, and mray runs on one machine"
ENVIRONMENTS = "mray makes no archives of environments; list_actors(detail=True) tells the variables of each actor's"
TRANSPORT_INSIDE = "it is about the inside of Ray's transports; mray has its own"


def _absent(names: str, reason: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


def _from(module: str, names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names.split()}


MODULES: dict[str, Stand | Lack] = {
    "ray": Stand(
        "mray",
        also={
            "worker": "ray._private.worker",
            "state": "ray._private.state",
            **_from("mray.cross_language", "Language"),
            **_from("mray._libraries.core.worker", "logger RESTORE_WORKER_MODE SPILL_WORKER_MODE"),
        },
        absent={
            **_absent("ClientBuilder", CLIENT),
            **_absent("AUTO_INIT_APIS NON_AUTO_INIT_APIS", INTERNAL),
            **_absent("ray_constants serialization", INTERNAL),
        },
    ),
    "ray.actor": Stand(
        "mray.actor",
        also={"_actor_launch_hook": "mray._libraries.launch_hooks:NONE"},
        absent=_absent("DEFAULT_MAX_CONCURRENCY_ASYNC STREAMING_GENERATOR_RETURN", INTERNAL),
    ),
    "ray.client_builder": Lack(CLIENT),
    "ray.cloudpickle": Stand(
        "mray.cloudpickle",
        also=_from(
            "cloudpickle.cloudpickle",
            """
            DEFAULT_PROTOCOL DELETE_GLOBAL EXTENDED_ARG GLOBAL_OPS HAVE_ARGUMENT LOAD_GLOBAL PYPY STORE_GLOBAL dynamic_subimport
            instance is_tornado_coroutine list_registry_pickle_by_value subimport
            """,
        ),
    ),
    "ray.cloudpickle.cloudpickle": Stand("cloudpickle.cloudpickle", also=_from("mray.cloudpickle", "CloudPickler Pickler dump dumps")),
    "ray.cloudpickle.cloudpickle_fast": Stand("cloudpickle.cloudpickle", also=_from("mray.cloudpickle", "CloudPickler Pickler dump dumps")),
    "ray.cloudpickle.compat": Lack(INTERNAL),
    "ray.cloudpickle.py_pickle": Stand("pickle", also={"Pickler": "pickle:_Pickler"}),
    "ray.cluster_utils": Stand(absent=_absent("AutoscalingCluster Cluster FAKE_HEAD_NODE_ID", ONE_NODE)),
    "ray.core": Lack(INTERNAL),
    "ray.cross_language": Stand("mray.cross_language", absent=_absent("cpp_actor_class cpp_function", PYTHON_ONLY)),
    "ray.internal": Stand(private=True),
    "ray.log": Lack(INTERNAL),
    "ray.remote_function": Stand(
        "mray.remote_function",
        also={"_task_launch_hook": "mray._libraries.launch_hooks:NONE"},
        absent=_absent("STREAMING_GENERATOR_RETURN", INTERNAL),
    ),
    "ray.runtime_env.runtime_env": Stand(
        "mray.runtime_env",
        absent=_absent("DEFAULT_RUNTIME_ENV_TIMEOUT_SECONDS OPTION_TO_NO_PATH_VALIDATION_FN OPTION_TO_VALIDATION_FN", INTERNAL),
    ),
    "ray.widgets": Lack(INTERNAL),
    "ray._version": Stand(also={"version": "mray._common.version:RAY_VERSION", "commit": "mray._common.version:RAY_COMMIT"}),
    # ------------------------------------------------------------------------------------------ graphs
    "ray.dag": Stand("mray.dag", absent=_absent("DAGOperationFuture GPUFuture", GRAPH_INSIDE)),
    "ray.dag.base": Stand(also={"DAGNodeBase": "mray.dag:DAGNode"}),
    "ray.dag.class_node": Stand(
        "mray.dag.class_node",
        also=_from("mray.dag", "BIND_INDEX_KEY IS_CLASS_METHOD_OUTPUT_KEY PARENT_CLASS_NODE_KEY PREV_CLASS_METHOD_CALL_KEY"),
    ),
    "ray.dag.collective_node": Stand(
        "mray.dag.collective_node", also=_from("mray.dag", "COLLECTIVE_OPERATION_KEY IS_CLASS_METHOD_OUTPUT_KEY")
    ),
    "ray.dag.compiled_dag_node": Stand(
        "mray.dag.compiled_dag_node",
        also=_from(
            "mray._libraries.core.dag_constants",
            "RAY_CGRAPH_ENABLE_NVTX_PROFILING RAY_CGRAPH_ENABLE_TORCH_PROFILING RAY_CGRAPH_VISUALIZE_SCHEDULE",
        ),
        absent=_absent(
            """
            CompiledTask ExecutableTask build_compiled_dag_from_ray_dag do_allocate_channel do_cancel_executable_tasks
            do_exec_tasks do_profile_tasks
            """,
            GRAPH_INSIDE,
        ),
    ),
    "ray.dag.constants": Stand(
        "mray._libraries.core.dag_constants",
        also=_from(
            "mray.dag",
            """
            BIND_INDEX_KEY COLLECTIVE_OPERATION_KEY DAGNODE_TYPE_KEY IS_CLASS_METHOD_OUTPUT_KEY PARENT_CLASS_NODE_KEY
            PREV_CLASS_METHOD_CALL_KEY
            """,
        ),
    ),
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
    "ray.dag.input_node": Stand("mray.dag.input_node", absent=_absent("IN_CONTEXT_MANAGER", GRAPH_INSIDE)),
    "ray.dag.utils": Lack(GRAPH_INSIDE),
    # ------------------------------------------------------------------------------------ experimental
    "ray.exceptions": Stand("mray.exceptions", absent=_absent("PYTHON", INTERNAL)),
    "ray.experimental": Stand(
        "mray.experimental", absent={**_absent("RDTManager", TRANSPORT_INSIDE), **_absent("set_resource", DEPRECATED)}
    ),
    "ray.experimental.channel": Stand(
        "mray.experimental.channel",
        also=_from("mray.experimental.channel.common", "ChannelInterface ChannelOutputType"),
        absent=_absent("TorchTensorAcceleratorChannel", GRAPH_INSIDE),
    ),
    "ray.experimental.channel.auto_transport_type": Stand(
        "mray.experimental.channel.auto_transport_type", absent=_absent("TypeHintResolver", GRAPH_INSIDE)
    ),
    "ray.experimental.channel.common": Stand(
        "mray.experimental.channel.common", absent=_absent("retry_and_check_interpreter_exit", GRAPH_INSIDE)
    ),
    "ray.experimental.channel.communicator_handle": Lack(GRAPH_INSIDE),
    "ray.experimental.channel.shared_memory_channel": Stand(
        "mray.experimental.channel.shared_memory_channel", absent=_absent("ReaderRefInfo", GRAPH_INSIDE)
    ),
    "ray.experimental.channel.torch_tensor_accelerator_channel": Lack(GRAPH_INSIDE),
    "ray.experimental.channel.utils": Lack(GRAPH_INSIDE),
    "ray.experimental.dynamic_resources": Stand(absent=_absent("set_resource", DEPRECATED)),
    "ray.experimental.gradio_utils": Lack(LIBRARY),
    "ray.experimental.internal_kv": Stand("mray.experimental.internal_kv", absent=_absent("internal_kv_get_gcs_client", INTERNAL)),
    "ray.experimental.job": Lack(ONE_NODE),
    "ray.experimental.multiprocessing": Stand("ray.util.multiprocessing"),
    "ray.experimental.multiprocessing.pool": Stand("ray.util.multiprocessing.pool"),
    "ray.experimental.queue": Stand("ray.util.queue"),
    "ray.experimental.rdt": Stand("mray.experimental.rdt", absent=_absent("RDTManager", TRANSPORT_INSIDE)),
    "ray.experimental.rdt.collective_tensor_transport": Stand(
        absent=_absent(
            "CollectiveCommunicatorMetadata CollectiveTensorTransport CollectiveTransportMetadata GLOOTensorTransport NCCLTensorTransport",
            TRANSPORT_INSIDE,
        )
    ),
    "ray.experimental.rdt.cuda_ipc_transport": Stand(
        absent=_absent("CudaIpcCommunicatorMetadata CudaIpcTransport CudaIpcTransportMetadata", TRANSPORT_INSIDE)
    ),
    "ray.experimental.rdt.nixl_memory_pool": Lack(NIXL),
    "ray.experimental.rdt.nixl_tensor_transport": Lack(NIXL),
    "ray.experimental.rdt.rdt_manager": Stand(
        also=_from("mray.experimental.rdt", "set_target_device_for_ref set_target_for_ref wait_tensor_freed"),
        absent=_absent("ObjectStoreFetchRequest RDTManager RDTMeta RDTSource TransferMetadata", TRANSPORT_INSIDE),
    ),
    "ray.experimental.rdt.rdt_store": Lack(TRANSPORT_INSIDE),
    "ray.experimental.rdt.tensor_transport_manager": Stand(
        "mray._api.tensor_transport_manager", absent=_absent("FetchRequest", TRANSPORT_INSIDE)
    ),
    "ray.experimental.rdt.util": Stand(
        also=_from(
            "mray.experimental.rdt",
            "deregister_nixl_memory register_nixl_memory register_nixl_memory_pool register_tensor_transport set_nixl_cuda_stream",
        ),
        absent=_absent(
            """
            DEFAULT_TRANSPORTS TransportManagerInfo create_empty_tensors_from_metadata device_match_transport
            get_tensor_transport_manager get_transport_data_type is_one_sided_transport normalize_and_validate_tensor_transport
            register_custom_tensor_transports_on_actor
            """,
            TRANSPORT_INSIDE,
        ),
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
    "ray.experimental.tqdm_ray": Stand("mray.experimental.tqdm_ray", absent=_absent("RAY_TQDM_MAGIC", INTERNAL)),
    "ray.experimental.tf_utils": Lack("Ray has removed it"),
    # -------------------------------------------------------------------------------------------- util
    "ray.util": Stand(
        "mray.util",
        also={
            **_from("mray.util.annotations", "PublicAPI"),
            **_from("mray._libraries.core.client_mode_hook", "client_mode_hook"),
            **_from("mray._libraries.core.auto_init_hook", "wrap_auto_init"),
        },
        absent={
            **_absent("connect disconnect", CLIENT),
            **_absent("ray_debugpy", "mray has no debugger for Visual Studio Code; breakpoint() stops a task"),
        },
    ),
    "ray.util.accelerators.tpu": Lack("it is about slices of TPUs, which are many machines"),
    "ray.util.actor_group": Lack(DEPRECATED),
    "ray.util.check_open_ports": Lack("mray opens no port"),
    "ray.util.check_serialize": Stand("mray.util.check_serialize", also={"FailureTuple": "mray.util.check_serialize:FailTuple"}),
    "ray.util.client": Stand("mray._libraries.core.client", absent=_absent("RayAPIStub", CLIENT), private=True),
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
    "ray.util.client_connect": Stand(absent=_absent("connect disconnect", CLIENT)),
    "ray.util.collective.backend_registry": Stand("mray.util.collective.backend_registry", absent=_absent("BackendRegistry", INTERNAL)),
    "ray.util.collective.collective": Stand(
        "mray.util.collective.collective", absent=_absent("GroupManager get_address_and_port synchronize", INTERNAL)
    ),
    "ray.util.collective.collective_group.cuda_stream": Lack(INTERNAL),
    "ray.util.collective.collective_group.nccl_util": Lack(INTERNAL),
    "ray.util.collective.collective_group.torch_gloo_collective_group": Lack(INTERNAL),
    "ray.util.collective.const": Lack(INTERNAL),
    "ray.util.collective.util": Lack(INTERNAL),
    "ray.util.common": Lack(INTERNAL),
    "ray.util.dask": Lack(LIBRARY),
    "ray.util.debug": Stand("mray.util.debug", absent=_absent("Suspect", INTERNAL)),
    "ray.util.debugpy": Lack("mray has no debugger for Visual Studio Code; breakpoint() stops a task"),
    "ray.util.helpers": Stand("mray.util.helpers", absent=_absent("DEFAULT_BACKPRESSURE_SIZE DEFAULT_CHUNK_SIZE", INTERNAL)),
    "ray.util.horovod": Lack("Ray has removed it"),
    "ray.util.iter": Lack(DEPRECATED),
    "ray.util.iter_metrics": Lack(DEPRECATED),
    "ray.util.joblib.ray_backend": Stand(also={"RayBackend": "mray.util.joblib._backend:MrayBackend"}),
    "ray.util.lightgbm": Lack("Ray has removed it"),
    "ray.util.multiprocessing.pool": Stand(
        "mray.util.multiprocessing.pool",
        absent={
            **_absent("PoolTaskError", "a pool raises what its function raises"),
            **_absent("RAY_ADDRESS_ENV ResultThread div_round_up ray_get_if_needed ray_put_if_needed", INTERNAL),
        },
    ),
    "ray.util.placement_group": Stand(
        "mray.util.placement_group",
        also={
            "_validate_bundles": "mray._common.placement:check_bundles",
            "_validate_bundle_label_selector": "mray._common.placement:check_selector_list",
            "_valid_resource_shape": "mray._common.placement:fits",
        },
        absent=_absent("NODE_ID_LABEL_KEY PLACEMENT_GROUP_BUNDLE_RESOURCE_NAME check_placement_group_index", INTERNAL),
    ),
    "ray.util.serialization": Stand(
        "mray.util.serialization", also=_from("mray._libraries.core.serialization", "StandaloneSerializationContext")
    ),
    "ray.util.serialization_addons": Lack(INTERNAL),
    "ray.util.sgd": Lack("Ray has removed it"),
    "ray.util.spark": Lack(ONE_NODE),
    "ray.util.state": Stand("mray.util.state", absent={"list_cluster_events": CLUSTER_EVENTS, "list_runtime_envs": ENVIRONMENTS}),
    "ray.util.state.api": Stand(
        "mray.util.state.api",
        absent={
            **_absent("list_cluster_events", CLUSTER_EVENTS),
            **_absent("list_runtime_envs", ENVIRONMENTS),
            **_absent("warnings_on_slow_request", STATE_INSIDE),
        },
    ),
    "ray.util.state.common": Stand(
        "mray.util.state.common",
        absent=_absent(
            """
            AVAILABLE_STATES ActorSummaries ActorSummaryPerClass ClusterEventState DEFAULT_DOWNLOAD_FILENAME DEFAULT_LOG_LIMIT
            DRIVER_TASK_ID_PREFIX GetLogOptions Humanify IS_PYDANTIC_2 Link ListApiResponse NestedTaskSummary ObjectSummaries
            ObjectSummaryPerKey RAY_MAX_LIMIT_FROM_DATA_SOURCE RuntimeEnvState StateSummary SummaryApiResponse TaskSummaries
            TaskSummaryPerFuncOrClassName dict_to_state filter_fields protobuf_message_to_dict protobuf_to_task_state_dict
            resource_to_schema state state_column
            """,
            STATE_INSIDE,
        ),
    ),
    "ray.util.state.exception": Stand("mray.util.state.exception", absent=_absent("DataSourceUnavailable", STATE_INSIDE)),
    "ray.util.state.state_cli": Lack(STATE_INSIDE),
    "ray.util.state.state_manager": Lack(STATE_INSIDE),
    "ray.util.state.util": Lack(STATE_INSIDE),
    "ray.util.timer": Lack(INTERNAL),
    "ray.util.tpu": Lack("it is about slices of TPUs, which are many machines"),
    "ray.util.tracing": Lack("mray has no trace contexts of OpenTelemetry; ray.timeline tells what ran"),
    "ray.util.xgboost": Lack("Ray has removed it"),
    # -------------------------------------------------- what Ray calls private, and clients use all the same
    "ray._common": Stand(private=True),
    "ray._common.network_utils": Stand("mray._libraries.core.network_utils", private=True),
    "ray._common.test_utils": Stand("mray._libraries.core.test_utils", private=True),
    "ray._common.utils": Stand("mray._libraries.core.system_memory", private=True),
    "ray._private": Stand(private=True),
    "ray._private.auto_init_hook": Stand("mray._libraries.core.auto_init_hook", private=True),
    "ray._private.client_mode_hook": Stand("mray._libraries.core.client_mode_hook", private=True),
    "ray._private.internal_api": Stand("mray._libraries.core.internal_api", private=True),
    "ray._private.services": Stand(also=_from("mray.util", "get_node_ip_address"), private=True),
    "ray._private.state": Stand("mray._libraries.core.state", private=True),
    "ray._private.test_utils": Stand("mray._libraries.core.test_utils", private=True),
    "ray._private.utils": Stand("mray._libraries.core.system_memory", private=True),
    "ray._private.worker": Stand("mray._libraries.core.worker", private=True),
    "ray._raylet": Stand(
        also={
            **_from("mray.cross_language", "Language"),
            **_from(
                "mray",
                """
                ActorClassID ActorID ClusterID DynamicObjectRefGenerator FunctionID JobID NodeID ObjectID ObjectRef
                ObjectRefGenerator PlacementGroupID TaskID UniqueID WorkerID
                """,
            ),
            **_from("mray._common.ids", "BaseID"),
        },
        private=True,
    ),
    # --------------------------------------------------------------------------------------- libraries
    "ray.air": Lack(LIBRARY),
    "ray.autoscaler": Lack(ONE_NODE),
    "ray.dashboard": Lack("mray has no dashboard; mray top and mray list show what runs"),
    # Clients of the core mention its names at their top.
    "ray.data": Stand(
        absent=_absent(
            """
            ActorPoolStrategy BlockBasedFileDatasink Catalog CatalogAccessMode ClickHouseTableSettings DataContext DataIterator
            DatabricksUnityCatalog Dataset DatasetContext DatasetIterator DatasetSummary Datasink Datasource ExecutionOptions
            ExecutionResources FileShuffleConfig KafkaAuthConfig MixStoppingCondition NodeIdStr Preprocessor RandomSeedConfig
            ReadTask ReaderFormat ResolvedSource RowBasedFileDatasink SaveMode Schema SinkMode TaskPoolStrategy from_arrow
            from_arrow_refs from_blocks from_daft from_dask from_huggingface from_items from_mars from_modin from_numpy
            from_numpy_refs from_pandas from_pandas_refs from_spark from_tf from_torch list_stats_summaries range range_tensor
            read_audio read_avro read_binary_files read_clickhouse read_csv read_datasource read_delta read_delta_sharing_tables
            read_hudi read_iceberg read_images read_json read_kafka read_lance read_lerobot read_mcap read_mongo read_numpy
            read_orc read_parquet read_snowflake read_sql read_text read_tfrecords read_unity_catalog read_videos read_webdataset
            read_zarr
            """,
            LIBRARY,
        )
    ),
    "ray.job_submission": Lack(ONE_NODE),
    "ray.llm": Lack(LIBRARY),
    "ray.rllib": Lack(LIBRARY),
    "ray.serve": Lack(LIBRARY),
    "ray.train": Lack(LIBRARY),
    "ray.tune": Lack(LIBRARY),
    "ray.workflow": Lack("Ray has removed it"),
}
