"""GPUs: their memory, and how tensors of one process become visible to another. Layers above know no vendor.

    device               the contract: platform, device
      cuda               NVIDIA's, through the driver's API by ctypes; torch's tensors (libcuda, cuda_context, cuda_tensors, nvml)
    platform             the devices of this process: CUDA's, or the null devices of `mray.testing.null`
    memory_pool, pinned_memory   memory that is shared with others, in regions that are exported once
    mappings             memory of other processes that is open here
    timelines            progress of streams: host words that streams of any process wait for
    exports, imports     tensors that are sent; tensors that are received
    foreign              arrays that are no tensors of the platform, and travel through host memory
    staging              memory that tensors of other devices are copied to, on streams of their own
    death_watch          exits of processes whose work streams may wait for
    device_faults        a fault of the own device, which ends the process
    lending              streams, which are never destroyed while a process may wait for them
    gpu_checks           what `mray doctor` says of GPUs, with peer_check
    mps_control          NVIDIA's control program of MPS
    nccl_library, libnccl        the library for collectives; NVIDIA's, as torch has loaded it

====================  ====================================================================================================
platform              a kind of devices, such as CUDA's
pool                  device memory in regions, each exported once to other processes
export                a tensor that is sent: its facts, a point, a lease
import                a received tensor: opened memory, released with its last view
timeline, point       numbers that a stream counts up in a host word; one of them, at which earlier work is done
mark                  the time at which a stream reached a point of its work, for traces
====================  ====================================================================================================

Nothing here waits for a device, or sends anything: the facts of an export are plain data, which graph edges (`mray._gpu.cuda_ipc`) and
calls (`mray._gpu.device_loans`) carry, along with the releases of `imports`.

CUDA is called through the driver's API, which every machine with a GPU has, and which shares its context with torch and cupy. Rejected:
cupy's or torch's bindings of the runtime (one is another big dependency, the other lacks half of what is needed), and a compiled
extension.
"""
