"""How the processes of a session are started, watched and reaped.

::

    driver: template ──▶ node: supervisor ──▶ zygote ──fork──▶ workers
                                        └──▶ interpreters, wrapped: workers that cannot be forked

`launch` starts an interpreter of ours; `host_program` says which interpreter that is. `template` starts the node of the next session
before it is wanted. `supervisor` holds the zygote and the workers, and hears how each ends. `line_coverage` has workers measured,
`object_counts` counts what a process holds, for tests of growth.
"""
