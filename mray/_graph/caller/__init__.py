"""A compiled graph in the hands of its callers: threads and event loops of the process that compiled it, and other processes.

    threads ------------> execute, get --+
    event loops --------> LoopWatcher ---+--> CompiledGraph ---> input ring ---> actors
                                                  Results <----- output rings <---+
    other processes ----> GraphCopy -----> a CompiledGraph of their own, with channels to the same actors (`copies`)

A graph is its executions (`executions.Executions`: the state, counters, results, the ends of channels, and the lock that guards them), and
what users see of it besides (`compiled.CompiledGraph`). Claims (refs and futures) own only whether they are done.

    execution      one input on its way through the graph, by its number: submitted, in flight until its results have come, then finished
    result         one output of one execution: a value, or a `Failed`
    kept           said of a result: finished, and not taken by its claim yet
    claim          the right to take one result once: `CompiledDAGRef`, `CompiledDAGFuture`
    backpressure   the answer of `execute` to too many executions in flight or kept results: refuse, or wait for room
    room           the state in which one more execution may be submitted
    completion     a callback for a finished execution, or for room: for callers that wait without a thread
    loop watcher   the watch of an event loop over the doorbells of its process
    owner          the process that compiled a graph; other processes get a `GraphHandle` of it
    copy           the graph once more, with channels of its own, in another process that executes it
    liveness       whether all actors live; the kernel is asked before a result in device memory is read

Rejected: a thread that reads results and completes futures (a hand-over costs more than the round trip); an object for the executions
behind `CompiledGraph` instead of a base (its calls would be one hop longer on the path of `execute` and `get`).
"""
