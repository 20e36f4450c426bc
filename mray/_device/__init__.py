"""GPUs: their memory, and how tensors of one process become visible to another. Layers above know no vendor.

    device               the contract: platform, device
      cuda               NVIDIA's (libcuda, cuda_context, cuda_tensors, nvml)
    platform             the devices of this process: CUDA's, or the null devices of `mray.testing.null`
    memory_pool, pinned_memory   memory that is shared with others, in regions that are exported once
    mappings             memory of other processes that is open here
    timelines            progress of streams: host words that streams of any process wait for
    exports, imports     tensors that are sent; tensors that are received
    foreign              arrays that are no tensors of the platform
    staging              memory that tensors of other devices are copied to, on separate streams
    death_watch          exits of processes whose work streams may wait for
    lending              streams, which are never destroyed
    gpu_checks           GPU checks of `mray doctor`, with peer_check

Nothing here waits for a device, or sends anything: graph edges (`mray._gpu.cuda_ipc`) and calls (`mray._gpu.device_loans`) carry the
facts of exports and the releases of `imports`.

Rejected: cupy's or torch's bindings of the runtime (one is another big dependency, the other lacks half of what is needed), and a
compiled extension.
"""
