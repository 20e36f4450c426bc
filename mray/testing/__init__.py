"""Pretended parts of a machine, and named points where a process can be stopped: for tests, of mray and of programs that use it.

::

    null          GPUs of host memory (MRAY_NULL_DEVICES): null_memory, null_stream, null_array; null_nccl carries collectives
    points        steps of the runtime's protocols at which a process is delayed or dies (MRAY_POINTS)

Nothing of mray imports this package: `mray._device.platform` and `mray._common.named_points` load a module of it by name where its setting
asks for one.

Nouns
-----
pretended device      a GPU of host memory, whose work is done later and whose mistakes are errors
point                 a named step of a protocol; a comment in the source, until the setting makes a call of it
rule                  the fate of a process at some points
"""
