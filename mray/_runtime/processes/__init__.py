"""How the processes of a session are started, watched and reaped.

::

    driver: template ──▶ node: supervisor ──▶ zygote ──fork──▶ workers
                                        └──▶ interpreters, wrapped: workers that cannot be forked

====================  ====================================================================================================
template              a process that forks the nodes of one driver's sessions
host program          the program that a driver runs in: python, or another with Python inside
wrapper               a profiler's command that a worker runs under; `_Wrapped` is one worker with its wrapper
lifeline              a pipe whose end notifies a process of the node's exit (`mray._ipc.process`)
orphan                a child of a dead worker
====================  ====================================================================================================
"""
