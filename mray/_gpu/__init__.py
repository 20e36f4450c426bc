"""GPUs beside the kernel: graph edges whose tensors stay on devices, and values whose tensors stay with the process that created them.

::

    kernel                                                                     here
    _graph: `gpu_edges.GpuEdges` ◀──────── implements ── gpus ──▶ cuda_ipc, nccl_edge, placed, checked_writer: the ends of edges
                                                          │        remembered, outputs: messages that are a number, without a copy
                                                          │        trial: whether processes can open each other's memory
                                                          └──────▶ device_spans: marks of streams in a profile
    _channel: groups, `Communicator` ◀──── implements ── nccl ──▶ nccl_member ──▶ stream_group: members that go through NCCL
    _runtime: `mps_contract.Mps` ◀──────── implements ── mps: daemons by which processes share a GPU concurrently, in the node
    _runtime: `tensor_contract.Tensors` ◀─ implements ── tensor_transport ──▶ device_loans, registered_transports, tensor_calls

The kernel imports neither this nor `mray._device` below: a process loads `gpus` or `tensor_transport` by name when a graph or value
needs them (`mray._runtime.client.client.Client.late`), a node with GPUs `mps`.

Rejected: giving the input to all actors of a chain of edges at the same time, so that each queues its kernels without waiting for the
previous one: after a method that raises, later kernels run on old bytes, so results must await all previous actors' success, the very
message to be spared; and an actor that occurs twice in a chain waits for itself.
"""
