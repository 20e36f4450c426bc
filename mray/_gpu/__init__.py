"""GPUs beside the kernel: edges of graphs whose tensors stay on devices, and values whose tensors stay with their makers.

::

    kernel                                                                     here
    _graph: `gpu_edges.GpuEdges` ◀──────── implements ── gpus ──▶ cuda_ipc, nccl_edge, placed, checked_writer: the ends of edges
                                                          │        remembered, outputs: messages that are a number, without a copy
                                                          │        trial: whether processes can open each other's memory
                                                          └──────▶ device_spans: marks of streams in a profile
    _channel: groups, `Communicator` ◀──── implements ── nccl ──▶ nccl_member ──▶ stream_group: members that go through NCCL
    _runtime: `mps_contract.Mps` ◀──────── implements ── mps: daemons by which processes share a GPU without taking turns, in the node
    _runtime: `tensor_contract.Tensors` ◀─ implements ── tensor_transport ──▶ device_loans, registered_transports, tensor_calls

The kernel (`import mray; init; tasks, actors, objects, graphs on CPUs`) imports nothing of this, nor of `mray._device` below: a process
loads `gpus` or `tensor_transport` by name when the first graph or value needs them (`mray._runtime.client.client.Client.late`), a node with
GPUs `mps`.

Not done: to give the input to all actors of a chain of edges at once, so that each queues its wait, its kernels and its word without
waiting for the one before, and no host stands between two kernels. The facts of what is sent are known before it is made where a lease is
remembered. But a method that raises has then had later kernels run on old bytes, so results would be held back until all actors before have
said that they succeeded, which is the message that was to be spared; a method that looks at its argument on the host (``.item()``, a
branch) blocks its actor until its turn; an actor twice in a chain waits for itself where its second step is queued first; and streams that
wait fill the hardware queues of their process (8, at most 32), whose other streams wait with them.

====================  ====================================================================================================
edge                  a channel of a graph whose tensors stay on devices: by CUDA IPC, through pinned memory, by NCCL
lease                 device memory that a writer lends its readers, until each has let go of it
remembered lease      one whose tensor both ends know, so that a message is a number; with it, output: a result made in its memory
holder, receiver      the process that keeps the tensors of an object with form TENSORS; one that fetches them
loan                  tensors that a holder has lent to a receiver, and takes back when the receiver's last view is gone
daemon, client        MPS's: the process that serves a GPU, with a server below it; one whose work that server does
trial, obstacle       whether one process can open memory and timelines of another; the reason why not
====================  ====================================================================================================
"""
