"""GPUs: their memory, and how the tensors of one process are seen by another. Layers above know no vendor.

    device               the contract: platform, device
      cuda               NVIDIA's, through the driver's API by ctypes; torch's tensors (libcuda, cuda_context, cuda_tensors, nvml)
    platform             the devices that this process has: CUDA's, or the pretended ones of `mray.testing.null`
    memory_pool, pinned_memory   memory that is shared with others, in regions that are exported once
    mappings             memory of others that this process has open
    timelines            how far streams have come: words of the host that streams of any process wait for
    exports              tensors on their way out
    foreign              arrays that are no tensors of the platform, and go another way
    imports              tensors that come in
    staging              memory that tensors of other devices are copied to, on streams of their own
    death_watch          the deaths of processes whose work streams may wait for
    device_faults        the own device's breakdown, which ends the process
    lending              streams, which are never destroyed while somebody may wait for them
    mps_control          NVIDIA's control program of MPS: daemons, and what they are told
    nccl_library, libnccl        the library that carries collectives; NVIDIA's, as torch has loaded it

====================  ====================================================================================================
platform              a kind of devices, such as CUDA's
pool                  device memory in regions, each exported once to other processes
export                a tensor on its way out: its facts, a point, a lease
import                a tensor that came in: memory that is opened, released when its last view goes
timeline, point       numbers that a stream counts up in a word of the host; one of them, at which earlier work is done
mark                  when a stream came to a place in its work, for who looks on
====================  ====================================================================================================

Nothing here waits for a device, and nothing crosses to another process by itself: the facts that `exports` gives of a tensor are plain
data, which edges of graphs (`mray._gpu.cuda_ipc`) and calls (`mray._gpu.device_loans`) carry, and the releases of
`imports` they carry back.

CUDA is called through the driver's API, which every machine with a GPU has, and which shares its context with torch and cupy. Rejected:
cupy's or torch's bindings of the runtime (one is another big dependency, the other lacks half of what is needed), and a compiled
extension.
"""
