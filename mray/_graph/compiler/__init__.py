"""From DAG nodes to a running graph: the passes, in the process that compiles.

    DAG nodes --validate--> Graph --resolve--> + channels --schedule--> + operations --deadlock--> Plan --allocate--> CompiledGraph
                              |                    ^
                              +- ask_sites (`mray._graph.sites`), try_pairs (`mray._graph.trials`): only where an edge may need a device;
                                 `shared_gpus` starts MPS before, where its ends share one

Every pass but `allocate` is a function of frozen data (`mray._graph.plan`): no channel exists until all is decided, so an error of an
earlier pass has nothing to undo. `allocate` undoes its own work when it fails. Only `compile` knows the order of the passes.

    pass               a step of compiling, named by its verb: one module each
    validated graph    the user's DAG nodes, checked: a `Graph`, with its constants, its handles and its communicators
    carrier            a communicator that carries a graph's tensors: the user's, an accelerator's, or NCCL's
    group              steps of several actors that synchronize: a collective, of which each blocks until all of them run
    place              an operation by its actor and its index in the actor's program: the nodes of the deadlock pass's graph
    function worker    an actor that is leased to run plain functions of the graph, while the graph lives

Rejected: passes that allocate as they go. A graph that is refused late would leave channels behind, and the plan could not be printed,
drawn or simulated without actors.
"""
