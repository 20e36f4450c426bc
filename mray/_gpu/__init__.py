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

The kernel (`import mray; init; tasks, actors, objects, graphs on CPUs`) imports neither this nor `mray._device` below: a process loads
`gpus` or `tensor_transport` by name when the first graph or value needs them (`mray._runtime.client.client.Client.late`), a node with
GPUs `mps`.

Rejected: giving the input to all actors of a chain of edges at the same time, so that each queues its wait, its kernels and its word
without waiting for the previous one. A method that raises would then have had later kernels run on old bytes, so results would be held
back until all previous actors have reported success, which is the message that was to be spared; a method that reads its argument on the
host (``.item()``, a branch) blocks its actor until its turn; an actor that occurs twice in a chain waits for itself; and waiting streams
fill the hardware queues of their process, whose other streams wait with them.

====================  ====================================================================================================
edge                  a channel of a graph whose tensors stay on devices: by CUDA IPC, through pinned memory, by NCCL
lease                 device memory that a writer lends its readers, until each has released it
remembered lease      one whose tensor both ends know, so that a message is a number; with it, output: a result created in its memory
holder, receiver      the process that has the tensors of an object with form TENSORS; one that fetches them
loan                  tensors that a holder has lent to a receiver, until the receiver's last view dies
daemon, client        MPS's: the process that serves a GPU, with a server below it; a process whose work that server does
trial, obstacle       whether one process can open memory and timelines of another; the reason why not
====================  ====================================================================================================
"""
