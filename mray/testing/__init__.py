"""Pretended parts of a machine, and named points where a process can be stopped: for tests, of mray and of programs that use it.

::

    null          GPUs of host memory (MRAY_NULL_DEVICES): null_memory, null_stream, null_array; null_nccl carries collectives
    points        steps of the runtime's protocols at which a process is delayed or dies (MRAY_POINTS)

Nothing of mray imports this package: `mray._device.platform` and `mray._common.named_points` load its modules by name.
"""
