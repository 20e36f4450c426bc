"""The callers of a compiled graph: threads and event loops of the process that compiled it, and other processes.

    threads ------------> execute, get --+
    event loops --------> LoopWatcher ---+--> CompiledGraph ---> input ring ---> actors
                                                  Results <----- output rings <---+
    other processes ----> GraphCopy -----> their own CompiledGraph, with channels to the same actors (`copies`)

`executions.Executions` has the state, counters, results, channel endpoints and the lock that guards them; `compiled.CompiledGraph` adds
the rest of what users see.

    execution      one input on its way through the graph, by number: submitted, in flight until its results have arrived, then finished
    result         one output of one execution: a value, or a `Failed`
    kept           of a result: finished, and not yet taken by its claim
    claim          the right to take one result once: `CompiledDAGRef`, `CompiledDAGFuture`
    backpressure   how `execute` responds to too many executions in flight or kept results: refuse, or wait for room
    room           the state in which one more execution may be submitted
    completion     a callback for a finished execution, or for room: for callers that wait without a thread
    loop watcher   watches the doorbells of the process for one event loop
    owner          the process that compiled a graph; other processes receive a `GraphHandle` of it
    copy           the graph in another process that executes it, with its own channels
    liveness       whether all actors live

Rejected: a thread that reads results and completes futures (a hand-over costs more than the round trip); composing `CompiledGraph` with
an object for the executions instead of a base class (one more call on the path of `execute` and `get`).
"""
