"""Engines: what runs behind the user's verbs. Loaded by name (`mray._api.current`), so that only programs that use an engine import it.

`native` is mray's own.

====================  ====================================================================================================
engine, backend       what runs behind the verbs; the object that a process calls for them
simulated process     a process of the engine in one process (`local`)
wrapper               a function or class that Ray runs instead of the user's (`ray`)
counterpart           Ray's own module instead of one of mray's, where Ray runs behind
host                  the part of a process that compiled graphs use
====================  ====================================================================================================
"""
