"""Every place in mray that takes bytes apart, and which decoder of `tests/fuzz/decoders.py` it is, or why it needs none.

A place is ``module:function`` below mray. `tests/fuzz/test_places.py` compares the list with the source, so that a new decoder is thought
of.
"""

from __future__ import annotations

import ast

#: Functions that take bytes apart.
_READ = {"loads", "load", "unpack", "unpack_from", "frombuffer", "from_buffer", "from_buffer_copy", "recv_fds", "b85decode"}
_DECODE = {"decode", "decode_message", "decode_unknown", "decode_short", "first_message", "from_text"}

#: Decoder -> the places that are tried by it.
TRIED: dict[str, tuple[str, ...]] = {
    "frame": (
        "_ipc.frames:_count",
        "_ipc.frames:decode",
        "_ipc.frames:decode_message",
        "_runtime.processes.supervisor:Supervisor._zygote_spoke",
        "_runtime.processes.zygote:Zygote._serve",
        "_runtime.processes.template:_Running._receive_pid",
        "_runtime.processes.template:serve",
        "_runtime.client.descriptors:Descriptors.fetch",
        "_runtime.node.introducer:Introducer._asked",
        "_ipc.introductions:Introductions._read",
        "_ipc.introductions:_number",
        "_ipc.introductions:receive_welcome",
    ),
    "first frame": ("_ipc.frames:decode_unknown",),
    "stream of a stranger": ("_ipc.connection:SocketConnection._meet",),
    "stream of a peer": ("_ipc.connection:SocketConnection._take",),
    "ring of a peer": ("_ipc.connection:SocketConnection.read_ring", "_ipc.connection:_frames"),
    "answer of the node": ("_ipc.frames:first_message", "_observe.observer:_Reader.feed"),
    "variable of a worker": (
        "_ipc.frames:from_text",
        "_backends.entry:_run_builder",
        "_backends.entry:_run_worker",
        "_runtime.environment.environments:set_up",
        "_runtime.environment.environments:_call_hook",
        "_runtime.environment.packages:_base",
    ),
    "wrapper": ("_runtime.processes.launch:Wrapper.decode",),
    "interpreter": ("_runtime.processes.launch:LaunchedInterpreter.decode",),
    "ring": ("_ipc.ring:", "_channel.shm:", "_channel.shm:ShmReader._decode_passed_on", "_ipc.frames:decode_short"),
    "place of a slot": ("_ipc.slots:SlotReader._find_slot", "_ipc.slots:SlotReader.open", "_ipc.slots:SlotReader.borrow"),
    "array": ("_channel.array_form:_remember", "_channel.array_form:decode_array"),
    "tensor": ("_channel.tensor_form:_remember", "_channel.tensor_form:decode_tensor"),
    "packed value": ("_objects.serializer:deserialize", "_objects.serializer:has_tensors"),
    "board": ("_channel.board:Board.view",),
    "file of a member": ("_channel.rendezvous:Meeting.read",),
    "address": ("_joining.address:_read",),
    "record of an ended session": ("_ipc.kept_sessions:read_records",),
    "file of a breakpoint": ("_runtime.session.breakpoints:stops",),
    "note of a worker": ("_runtime.session.driver_output:OutputPrinter._take",),
}

#: Why a place needs none -> the places.
NOT_TRIED: dict[str, tuple[str, ...]] = {
    "a pickle of the session's own code or values: whoever sends it is one of ours, and may run code here anyway": (
        "_api.blueprint:ActorBlueprint.from_wire",
        "_backends.native:NativeBackend._handle_of",
        "_gpu.stream_group:StreamGroup.tell_all",
        "_graph.actor.loop:GraphService.attaching",
        "_graph.actor.loop:GraphService.handle",
        "_graph.watch.profile:Profile._begin_everywhere",
        "_graph.watch.profile:Profile.stop",
        "_graph.watch.profiled:profile",
        "_graph.caller.copies:end_copy",
        "_graph.watch.report:counters",
        "_graph.watch.report:program_states",
        "_graph.sites:_ask_for_sites",
        "_gpu.gpus:Gpus.answer",
        "_graph.trials:try_pairs",
        "_objects.arrays:restore_array",
        "_objects.remote_error:text_of",
        "_objects.remote_error:unpickle_error",
        "_objects.tensors:restore_tensor",
        "_runtime.worker.unpacker:Unpacker.arguments_on_main",
        "_runtime.worker.unpacker:Unpacker.function",
        "_runtime.worker.packer:Packer.is_retried",
        "_runtime.worker.executor:Executor.become",
        "_gpu.registered_transports:receive",
        "_gpu.registered_transports:decode_transport",
        "proxy._interpreter:Interpreter.serve",
        "util._worker_pool:PoolMember.begin",
        "util._worker_pool:PoolMember._begin",
        "util._worker_pool:PoolMember.map",
        "util._worker_pool:PoolMember.starmap",
        "util._worker_pool:unpack",
        "util.executor:_Chunk.settle",
        "util.multiprocessing.pool:MapResult._set",
        "util.multiprocessing.pool:IMapIterator._set",
    ),
    "what Ray brings": ("_backends.ray.ray_backend:arrive", "_backends.ray.ray_backend:RayBackend.restore_ref"),
    "a view of memory; what it shows is read by `deserialize`": ("_objects.store:reading_of",),
    "memory of this process's own": ("_ipc.zero_copy:ZeroCopyBuffer.exporter", "_ipc.mapped:", "util.shared:_tensor"),
    "load means import there: names of modules that the program has imported, or of Ray's": (
        "_libraries.facade:_FacadeLoader.exec_module",
        "_libraries.facade:_PlaceFinder.iter_modules",
        "_libraries.facade:_changes",
        "_libraries.facade:_face_of",
        "_libraries.facade:_find",
        "_libraries.facade:_source",
        "_libraries.facade:load_facade",
        "_libraries.facade:names_of",
        "_libraries.ray_names:target",
        "_libraries.head_start:_load",
        "_libraries.head_start:once",
        "_runtime.processes.template:HeadStart.load",
    ),
    "what this process has made itself": (
        "_channel.shm:ShmWriter.last_size",
        "proxy._errors:portable",
        "proxy._errors:Portable.__reduce__",
    ),
    "bytecode beside the package's source: a program that may write there may write the source": ("testing.points:_Loader.get_code",),
    "what the kernel or a library tells": (
        "cli.loopback:_asked",
        "_ipc.connection:_credentials",
        "_device.cuda:CudaPlatform.nccl",
        "_device.cuda:find_platform",
        "_trace.torch_profiler:TorchProfiler.stop",
    ),
    "what the user has written": (
        "_api.runtime_env:RuntimeEnv.deserialize",
        "_common.settings:_object",
        "_common.spilling:_path_of",
        "_libraries.core.serve_client:parse_runtime_env_args",
        "cli.commands.start:_object",
        "examples.image_pipeline:load_batch",
        "examples.libraries.serve:main",
    ),
    "options in the session's own folder: a process that cannot read them ends and says why": ("_runtime.processes.template:_become_node",),
    "of devices: a handle is taken by the driver of the GPU, which refuses it": (
        "_gpu.cuda_ipc:CudaIpcReader._decode",
        "_device.cuda:CudaDevice.open_memory",
    ),
    "of pretended and pinned memory: the file that a handle names must be the one that it says, and as large": (
        "testing.null_memory:device_of",
        "testing.null_memory:open_exported",
        "_device.pinned_memory:PinnedMemory.open",
        "_device.pinned_memory:owner_of",
    ),
    "words of a ring's own readers, which no other process maps": ("_device.timelines:point_of",),
    "an id of NCCL, from another rank of the group": ("_device.libnccl:LibNccl.NcclCommunicator",),
    "between the ranks of a pretended NCCL, which break together": (
        "testing.null_nccl:NcclCommunicator._check_ranks",
        "testing.null_nccl:_meet",
        "testing.null_nccl:_read_message",
        "testing.null_nccl:_reduced",
        "testing.null_nccl:_results",
    ),
    "another load, or a name like it": (
        "_backends.call_spans:CallSpans._unpacking.covered",
        "_common.history:History.__getitem__",
        "_common.history:History.__iter__",
        "_common.history:History.newest",
        "_decide.scheduler.affinity:CpuLoads.__init__",
        "_decide.scheduler.affinity:CpuLoads._least_loaded",
        "_decide.scheduler.affinity:CpuLoads._load",
        "_decide.scheduler.affinity:CpuLoads.give",
        "_decide.scheduler.affinity:CpuLoads.take",
        "testing.null_stream:NullStream.launch",
        "cli.__init__:_complete",
        "cli.__init__:main",
        "cli.ray_command:run",
        "cli.commands.run:main",
    ),
}


def reads(node: ast.AST) -> bool:
    """Whether this very node takes bytes apart."""
    if isinstance(node, ast.Attribute):
        return node.attr in _READ | _DECODE - {"decode"}  # (decode is a method of bytes, too)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READ | _DECODE
