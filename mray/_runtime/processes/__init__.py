"""How the processes of a session are started, watched and reaped.

::

    driver: template ──▶ node: supervisor ──▶ zygote ──fork──▶ workers
                                        └──▶ interpreters, wrapped: workers that cannot be forked

`launch` starts an interpreter by exec; `host_program` says which interpreter that is. `template` forks nodes, so that a session starts
sooner. `supervisor` starts the zygote and the workers, and learns how each ends. `native_threads` has libraries compute with as many
threads as a task has CPUs, preloaded ones too. `foresight` has the zygote import ahead for `preload="auto"`. `line_coverage`
has workers measured by coverage.py, `object_counts` counts the objects of a process, for tests of growth.

====================  ====================================================================================================
supervisor            the part of the node that starts, watches and reaps processes
template              a process that forks the nodes of one driver's sessions
host program          the program that a driver runs in: python, or another with Python inside
wrapper               a profiler's command that a worker runs under; `_Wrapped` is one worker with its wrapper
lifeline              a pipe whose end tells a process that the node has ended (`mray._ipc.process`)
orphan                a process that a dead worker has left behind
====================  ====================================================================================================
"""
