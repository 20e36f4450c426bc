"""The callers of a compiled graph: threads and event loops of the process that compiled it, and other processes.

    threads ------------> execute, get --+
    event loops --------> LoopWatcher ---+--> CompiledGraph ---> input ring ---> actors
                                                  Results <----- output rings <---+
    other processes ----> GraphCopy -----> their own CompiledGraph, with channels to the same actors (`copies`)

    execution      one input on its way through the graph, by number: submitted, in flight until its results have arrived, then finished
    claim          the right to take one result once: `CompiledDAGRef`, `CompiledDAGFuture`
    backpressure   how `execute` responds to too many executions in flight or kept results: refuse, or wait for room

Rejected: a thread that reads results (a hand-over costs more than the round trip); an object for the executions instead of a base
class (one more call in `execute` and `get`).
"""
