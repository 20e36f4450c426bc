"""Engines: what runs behind the user's verbs. Loaded by name (`mray._api.current`), so that an engine's imports are paid by those who use
it.

`native` is mray's own: it wires the runtime (`mray._runtime`) and the graphs (`mray._graph`), which do not know each other. `entry` is
where the processes of a session begin, `worker_process` what a worker runs, `graph_host` what a process offers to graphs.
"""
