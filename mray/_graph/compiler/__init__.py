"""From DAG nodes to a running graph: the passes, in the process that compiles.

    DAG nodes --validate--> Graph --resolve--> + channels --schedule--> + operations --deadlock--> Plan --allocate--> CompiledGraph
                              |                    ^
                              +- ask_sites (`mray._graph.sites`), try_pairs (`mray._graph.trials`): only where an edge may need a device;
                                 `shared_gpus` starts MPS before, where its ends share one

Passes but `allocate` are functions of frozen data (`mray._graph.plan`), so that their errors have nothing to undo. `allocate` undoes its
own work when it fails.

    carrier            a communicator that carries a graph's tensors: the user's, an accelerator's, or NCCL's
    group              steps of several actors that synchronize: a collective, of which each blocks until all of them run
    place              an operation by its actor and its index in the actor's program: the nodes of the deadlock pass's graph

Rejected: passes that allocate: a graph refused late would leave channels behind.
"""
