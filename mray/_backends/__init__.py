"""Engines: what runs behind the user's verbs. Loaded by name (`mray._api.current`), so that only programs that use an engine import it.

`native` is mray's own: it wires the runtime (`mray._runtime`) and the graphs (`mray._graph`), which do not import each other. `entry` is
where the processes of a session begin, `worker_main` the main function of a worker, `graph_host` the part of a process that graphs use.

====================  ====================================================================================================
engine, backend       what runs behind the verbs; the object that a process calls for them
simulated process     a process of the engine in one process (`local`)
wrapper               a function or class that Ray runs instead of the user's (`ray`)
counterpart           Ray's own module instead of one of mray's, where Ray runs behind
host                  the part of a process that compiled graphs use
====================  ====================================================================================================
"""
