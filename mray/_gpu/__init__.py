"""GPUs beside the kernel: edges of graphs whose tensors stay on devices, and values whose tensors stay with their makers.

::

    kernel                                                                     here
    _graph: `gpu_edges.GpuEdges` ◀──────── implements ── gpus ──▶ cuda_ipc, nccl_edge, placed, checked_writer: the ends of edges
                                                          │        trial: whether processes can open each other's memory
                                                          └──────▶ device_spans: marks of streams in a profile
    _channel: groups, `Communicator` ◀──── implements ── nccl ──▶ nccl_member ──▶ stream_group: members that go through NCCL
    _runtime: `mps_contract.Mps` ◀──────── implements ── mps: daemons by which processes share a GPU without taking turns, in the node
    _runtime: `tensor_contract.Tensors` ◀─ implements ── tensor_transport ──▶ device_loans, registered_transports, tensor_calls

The kernel (`import mray; init; tasks, actors, objects, graphs on CPUs`) imports nothing of this, nor of `mray._device` below: a process
loads `gpus` or `tensor_transport` by name when the first graph or value needs them (`mray._runtime.client.client.Client.late`), a node with
GPUs `mps`.

====================  ====================================================================================================
edge                  a channel of a graph whose tensors stay on devices: by CUDA IPC, through pinned memory, by NCCL
lease                 device memory that a writer lends its readers, until each has let go of it
holder, receiver      the process that keeps the tensors of an object with form TENSORS; one that fetches them
loan                  tensors that a holder has lent to a receiver, and takes back when the receiver's last view is gone
daemon, client        MPS's: the process that serves a GPU, with a server below it; one whose work that server does
trial, obstacle       whether one process can open memory and timelines of another; the reason why not
====================  ====================================================================================================
"""
