"""How the processes of a session are started, watched and reaped.

::

    driver: template ──▶ node: supervisor ──▶ zygote ──fork──▶ workers
                                        └──▶ interpreters, wrapped: workers that cannot be forked

`launch` starts an interpreter by exec; `host_program` finds that interpreter. `template` forks nodes, for a faster start of sessions.
`supervisor` starts the zygote and the workers, and learns how each exits. `native_threads` sets the number of threads of libraries to
the CPUs of a task. `foresight` has the zygote import ahead for `preload="auto"`. `line_coverage` has coverage.py measure workers,
`object_counts` counts the objects of a process, for leak tests. `process` is the contract of a worker's process.

====================  ====================================================================================================
supervisor            the part of the node that starts, watches and reaps processes
template              a process that forks the nodes of one driver's sessions
host program          the program that a driver runs in: python, or another with Python inside
wrapper               a profiler's command that a worker runs under; `_Wrapped` is one worker with its wrapper
lifeline              a pipe whose end notifies a process of the node's exit (`mray._ipc.process`)
orphan                a child of a dead worker
====================  ====================================================================================================
"""
