"""The public names of Ray 2.60, module by module, and those that mray adds.

Only names that mray may have are of interest: a name of mray that is in neither table is a slip.
"""

from __future__ import annotations

#: By the module of mray; the names are separated by blanks.
RAY: dict[str, str] = {
    "mray": """
        ActorClassID ActorID ClusterID DynamicObjectRefGenerator FunctionID JobID LOCAL_MODE Language LoggingConfig NodeID ObjectID
        ObjectRef ObjectRefGenerator PlacementGroupID SCRIPT_MODE TaskID UniqueID WORKER_MODE WorkerID __version__ actor
        available_resources cancel client cloudpickle cluster_resources cpp_function dag exceptions experimental get
        get_actor get_gpu_ids get_runtime_context init is_initialized java_actor_class java_function kill method nodes put
        remote remote_function runtime_context runtime_env shutdown timeline types util wait
    """,
    "mray.dag": """
        BIND_INDEX_KEY COLLECTIVE_OPERATION_KEY ClassMethodNode ClassNode CollectiveOutputNode DAGContext DAGInputData
        DAGNODE_TYPE_KEY DAGNode DAGOperationFuture FunctionNode GPUFuture IS_CLASS_METHOD_OUTPUT_KEY InputAttributeNode
        InputNode MultiOutputNode PARENT_CLASS_NODE_KEY PREV_CLASS_METHOD_CALL_KEY plot
    """,
    "mray.exceptions": """
        ActorAlreadyExistsError ActorDiedError ActorHandleNotFoundError ActorPlacementGroupRemoved ActorUnavailableError
        ActorUnschedulableError AsyncioActorExit AuthenticationError CrossLanguageError GetTimeoutError LocalRayletDiedError
        NodeDiedError ObjectFetchTimedOutError ObjectFreedError ObjectLostError ObjectReconstructionFailedError
        ObjectRefStreamEndOfStreamError ObjectStoreFullError OufOfBandObjectRefSerializationException OutOfDiskError
        OutOfMemoryError OwnerDiedError PendingCallsLimitExceeded PlasmaObjectNotAvailable RayActorError
        RayCgraphCapacityExceeded RayChannelError RayChannelTimeoutError RayDirectTransportError RayError RaySystemError
        RayTaskError ReferenceCountingAssertionError RpcError RuntimeEnvSetupError StreamingGeneratorReplayInconsistentError
        TaskCancelledError TaskPlacementGroupRemoved TaskUnschedulableError UnserializableException UserCodeException
        WorkerCrashedError
    """,
    "mray.actor": "ActorClass ActorClassInheritanceException ActorHandle ActorMethod ActorProxy exit_actor method",
    "mray.runtime_context": "RuntimeContext get_runtime_context",
    "mray.runtime_env": "RuntimeEnv RuntimeEnvConfig",
    "mray.cloudpickle": """
        CloudPickler Pickler dump dump_debug dumps dumps_debug load loads pickle register_pickle_by_value unregister_pickle_by_value
    """,
    "mray.remote_function": "RemoteFunction",
    "mray.types": "ObjectRef",
    "mray.cross_language": "Language cpp_actor_class cpp_function java_actor_class java_function",
    "mray.job_config": "JobConfig",
    "mray.util": """
        ActorPool accelerators as_completed collective connect deregister_serializer disable_log_once_globally disconnect
        enable_periodic_logging get_current_placement_group get_node_instance_id get_node_ip_address get_placement_group
        inspect_serializability iter list_named_actors log_once map_unordered pdb placement_group placement_group_table
        register_serializer remove_placement_group
    """,
    "mray.util.accelerators": """
        AMD_INSTINCT_MI100 AMD_INSTINCT_MI210 AMD_INSTINCT_MI250 AMD_INSTINCT_MI250x AMD_INSTINCT_MI300A AMD_INSTINCT_MI300x
        AMD_INSTINCT_MI300x_HF AMD_INSTINCT_MI308x AMD_INSTINCT_MI325x AMD_INSTINCT_MI350x AMD_INSTINCT_MI355x AMD_RADEON_HD_7900
        AMD_RADEON_R9_200_HD_7900 APPLE_M1 APPLE_M1_MAX APPLE_M1_PRO APPLE_M1_ULTRA APPLE_M2 APPLE_M2_MAX APPLE_M2_PRO APPLE_M2_ULTRA
        APPLE_M3 APPLE_M3_MAX APPLE_M3_PRO APPLE_SILICON AWS_NEURON_CORE FURIOSA_RNGD GOOGLE_TPU_V2 GOOGLE_TPU_V3 GOOGLE_TPU_V4
        GOOGLE_TPU_V5LITEPOD GOOGLE_TPU_V5P GOOGLE_TPU_V6E GOOGLE_TPU_V7X HUAWEI_NPU_910B HUAWEI_NPU_910B4 INTEL_GAUDI INTEL_MAX_1100
        INTEL_MAX_1550 METAX_C500 METAX_C550 MOBILINT_ARIES MOBILINT_REGULUS NVIDIA_A100 NVIDIA_A100_40G NVIDIA_A100_80G NVIDIA_B200
        NVIDIA_B300 NVIDIA_GB200 NVIDIA_GB300 NVIDIA_H100 NVIDIA_H20 NVIDIA_H200 NVIDIA_L4 NVIDIA_L40S NVIDIA_RTX_PRO_6000 NVIDIA_TESLA_A10G
        NVIDIA_TESLA_K80 NVIDIA_TESLA_P100 NVIDIA_TESLA_P4 NVIDIA_TESLA_T4 NVIDIA_TESLA_V100 NVIDIA_TESLA_A100
    """,
    "mray.util.accelerators.accelerators": """
        AMD_INSTINCT_MI100 AMD_INSTINCT_MI210 AMD_INSTINCT_MI250 AMD_INSTINCT_MI250x AMD_INSTINCT_MI300A AMD_INSTINCT_MI300x
        AMD_INSTINCT_MI300x_HF AMD_INSTINCT_MI308x AMD_INSTINCT_MI325x AMD_INSTINCT_MI350x AMD_INSTINCT_MI355x AMD_RADEON_HD_7900
        AMD_RADEON_R9_200_HD_7900 APPLE_M1 APPLE_M1_MAX APPLE_M1_PRO APPLE_M1_ULTRA APPLE_M2 APPLE_M2_MAX APPLE_M2_PRO APPLE_M2_ULTRA
        APPLE_M3 APPLE_M3_MAX APPLE_M3_PRO APPLE_SILICON AWS_NEURON_CORE FURIOSA_RNGD GOOGLE_TPU_V2 GOOGLE_TPU_V3 GOOGLE_TPU_V4
        GOOGLE_TPU_V5LITEPOD GOOGLE_TPU_V5P GOOGLE_TPU_V6E GOOGLE_TPU_V7X HUAWEI_NPU_910B HUAWEI_NPU_910B4 INTEL_GAUDI INTEL_MAX_1100
        INTEL_MAX_1550 METAX_C500 METAX_C550 MOBILINT_ARIES MOBILINT_REGULUS NVIDIA_A100 NVIDIA_A100_40G NVIDIA_A100_80G NVIDIA_B200
        NVIDIA_B300 NVIDIA_GB200 NVIDIA_GB300 NVIDIA_H100 NVIDIA_H20 NVIDIA_H200 NVIDIA_L4 NVIDIA_L40S NVIDIA_RTX_PRO_6000 NVIDIA_TESLA_A10G
        NVIDIA_TESLA_K80 NVIDIA_TESLA_P100 NVIDIA_TESLA_P4 NVIDIA_TESLA_T4 NVIDIA_TESLA_V100
    """,
    "mray.util.annotations": "AnnotationType Deprecated DeveloperAPI PublicAPI RayDeprecationWarning",
    "mray.util.check_serialize": "FailureTuple inspect_serializability",
    "mray.util.collective": """
        allgather allgather_multigpu allreduce allreduce_multigpu barrier broadcast broadcast_multigpu create_collective_group
        destroy_collective_group get_collective_group_size get_group_handle get_rank gloo_available init_collective_group
        is_backend_available is_group_initialized nccl_available recv recv_multigpu reduce reduce_multigpu reducescatter
        reducescatter_multigpu register_collective_backend send send_multigpu
    """,
    "mray.util.collective.backend_registry": "register_collective_backend",
    "mray.util.collective.collective": """
        allgather allgather_multigpu allreduce allreduce_multigpu barrier broadcast broadcast_multigpu create_collective_group
        destroy_collective_group get_collective_group_size get_group_handle get_rank gloo_available init_collective_group
        is_backend_available is_group_initialized nccl_available recv recv_multigpu reduce reduce_multigpu reducescatter
        reducescatter_multigpu register_collective_backend send send_multigpu
    """,
    "mray.util.collective.collective_group.base_collective_group": "BaseGroup",
    "mray.util.collective.collective_group.nccl_collective_group": "NCCLGroup",
    "mray.util.collective.types": """
        AllGatherOptions AllReduceOptions Backend BarrierOptions BroadcastOptions RecvOptions ReduceOp ReduceOptions
        ReduceScatterOptions SendOptions cupy_available torch_available unset_timeout_ms
    """,
    "mray.util.debug": "disable_log_once_globally enable_periodic_logging log_once reset_log_once",
    "mray.util.metrics": "Counter Gauge Histogram",
    "mray.util.multiprocessing": "JoinableQueue Pool TimeoutError",
    "mray.util.multiprocessing.pool": "AsyncResult IMapIterator OrderedIMapIterator Pool UnorderedIMapIterator",
    "mray.util.joblib": "register_ray",
    "mray.util.helpers": "as_completed map_unordered",
    "mray.util.placement_group": """
        PlacementGroup VALID_PLACEMENT_GROUP_STRATEGIES check_placement_group_index get_current_placement_group get_placement_group
        placement_group placement_group_table remove_placement_group validate_placement_group
    """,
    "mray.util.scheduling_strategies": """
        DoesNotExist Exists In LabelMatchExpressionsT NodeAffinitySchedulingStrategy NodeLabelSchedulingStrategy NotIn
        PlacementGroupSchedulingStrategy SchedulingStrategyT
    """,
    "mray.util.serialization": "StandaloneSerializationContext deregister_serializer register_serializer",
    "mray.util.state": """
        get_actor get_job get_log get_node get_objects get_placement_group get_task get_worker list_actors list_cluster_events list_jobs
        list_logs list_nodes list_objects list_placement_groups list_runtime_envs list_tasks list_workers summarize_actors
        summarize_objects summarize_tasks StateApiClient
    """,
    "mray.util.state.api": """
        get_actor get_job get_log get_node get_objects get_placement_group get_task get_worker list_actors list_cluster_events list_jobs
        list_logs list_nodes list_objects list_placement_groups list_runtime_envs list_tasks list_workers summarize_actors
        summarize_objects summarize_tasks StateApiClient
    """,
    "mray.util.state.common": """
        ActorState DEFAULT_LIMIT DEFAULT_RPC_TIMEOUT GetApiOptions JobState ListApiOptions NodeState ObjectState PlacementGroupState
        RAY_MAX_LIMIT_FROM_API_SERVER StateResource StateSchema SummaryApiOptions SummaryResource TaskState WorkerState
        remove_ansi_escape_codes
    """,
    "mray.util.state.exception": "DataSourceUnavailable RayStateApiException ServerUnavailable",
    "mray.util.queue": "Empty Full Queue",
    "mray.util.actor_pool": "ActorPool",
    "mray.experimental": """
        CommunicatorMetadata RDTManager TensorTransportManager TensorTransportMetadata deregister_nixl_memory get_local_object_locations
        get_object_locations register_nixl_memory register_nixl_memory_pool register_tensor_transport set_nixl_cuda_stream set_resource
        set_target_device_for_ref set_target_for_ref wait_tensor_freed
    """,
    "mray.experimental.internal_kv": """
        _internal_kv_del _internal_kv_exists _internal_kv_get _internal_kv_initialized _internal_kv_list _internal_kv_put
    """,
    "mray.experimental.rdt": """
        CommunicatorMetadata RDTManager TensorTransportManager TensorTransportMetadata deregister_nixl_memory register_nixl_memory
        register_nixl_memory_pool register_tensor_transport set_nixl_cuda_stream set_target_device_for_ref set_target_for_ref
        wait_tensor_freed
    """,
    "mray.experimental.locations": "get_local_object_locations get_object_locations",
    "mray.experimental.channel": "CPUCommunicator Communicator",
    "mray.experimental.channel.common": "ChannelOutputType",
    "mray.experimental.channel.accelerator_context": """
        AcceleratorContext is_accelerator_context_registered register_accelerator_context
    """,
    "mray.experimental.channel.auto_transport_type": "AutoTransportType TypeHintResolver",
    "mray.experimental.channel.communicator": "Communicator ReduceOp TorchTensorAllocator",
    "mray.experimental.channel.cpu_communicator": "CPUCommunicator",
    "mray.experimental.channel.nccl_group": "_NcclGroup",
    "mray.dag.input_node": "DAGInputData InputAttributeNode InputNode",
    "mray.dag.output_node": "MultiOutputNode",
    "mray.dag.dag_node": "DAGNode",
    "mray.dag.compiled_dag_node": "CompiledDAG",
    "mray.dag.py_obj_scanner": "SourceType TransformedType _PyObjScanner",
    "mray.dag.context": "DAGContext",
    "mray.dag.class_node": "ClassMethodNode ClassNode",
    "mray.dag.function_node": "FunctionNode",
    "mray.dag.vis_utils": "plot",
    "mray.dag.collective_node": "CollectiveOutputNode _CollectiveOperation",
    "mray.experimental.compiled_dag_ref": "CompiledDAGFuture CompiledDAGRef",
    "mray.experimental.channel.torch_tensor_type": "TorchTensorType",
    "mray.experimental.collective": """
        allgather allreduce create_collective_group destroy_all_collective_groups destroy_collective_group get_collective_groups
        reducescatter
    """,
    "mray.experimental.collective.collective": """
        create_collective_group destroy_all_collective_groups destroy_collective_group get_collective_groups
    """,
    "mray.experimental.collective.communicator": "Communicator CommunicatorHandle",
    "mray.experimental.collective.operations": "allgather allreduce reducescatter",
    "mray.experimental.tqdm_ray": "instance safe_print tqdm",
    "mray.util.rpdb": "set_trace",
    "mray.experimental.util.types": "AllGatherOp AllReduceOp Device ReduceOp ReduceScatterOp _CollectiveOp",
}

#: Names of mray that Ray does not have, with the reason for each.
OWN: dict[str, dict[str, str]] = {
    "mray.dag": {"output": "memory for the result of a method, which crosses between processes of a GPU without a copy"},
    "mray.exceptions": {
        "DeadlockError": "calls wait for each other, with the chain, where a setting asks for it: Ray waits forever",
        "PlacementGroupUnschedulableError": "a GetTimeoutError at once, with the reason: Ray waits until the time is up",
    },
    "mray.util.executor": {"Executor": "a concurrent.futures.Executor of actors"},
    "mray.util.shared": {
        "Statistics": "how many arrays were made in shared memory, and sent with and without a copy",
        "array": "arrays made in shared memory, which are sent without a copy",
        "empty": "the same",
        "empty_like": "the same",
        "full": "the same",
        "statistics": "how often a copy was made after all",
        "zeros": "the same",
    },
    "mray.util.testing": {"reset": "a session that begins anew, for tests: Ray has to be started again"},
    "mray.util.interleavings": {
        "explore": "a program in many orders of its steps: Ray has no engine whose order can be chosen",
        "decisions": "the order in which this session has gone so far",
    },
    "mray.util.joblib": {"register_mray": "`register_ray` under mray's own name"},
    "mray.util": {"progress": "`get` for a long list of refs, with a bar"},
    "mray.util.state": {
        "get_graph": "one compiled graph",
        "list_channels": "the edges of compiled graphs",
        "list_graphs": "compiled graphs: Ray's state does not know them",
    },
    "mray.util.state.api": {
        "SessionView": "one look at a session, for several listings",
        "get_graph": "one compiled graph",
        "list_channels": "the edges of compiled graphs",
        "list_graphs": "compiled graphs: Ray's state does not know them",
    },
    "mray.util.state.common": {"ChannelState": "a record of `list_channels`", "GraphState": "a record of `list_graphs`"},
}
