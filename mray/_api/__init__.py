r"""The user's objects (functions, classes, handles, refs, DAG nodes, verbs), and the contract of the engine behind them.

In every process. Nothing here knows a socket, a segment or a scheduler::

    f.remote(x)  A.remote(x)  h.m.remote(x)  get  put  wait ...          this package
          \            |            |          |
           `------------+-----+------+----------'
                              |
                  current_backend(): Backend                             loaded by name: `mray._backends.native`, ...

Calls and options are checked here, so that a wrong call fails where it is written.

====================  ====================================================================================================
blueprint             an actor class as handles know it: methods, signatures, options; it travels by value
backend               the object behind the verbs in this process; `Backend` is its contract
hint                  how the tensors of a DAG node's result travel, and where they arrive
outline               a summary of a DAG node for the code that draws it
counterpart           Ray's own module, where Ray is the engine
====================  ====================================================================================================

Rejected: one handle object per method on the actor handle (a cycle would keep the actor alive), and `__getattr__` for methods (slower).
"""
