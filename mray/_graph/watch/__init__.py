"""Observing a graph while it runs: reports of each actor's position, counters, profiles, and other profilers.

    caller                                                 actor
    report ------------ REPORT, to its reading thread ---> the position of its program, read from its main thread's stack
    statistics -------- STATISTICS ----------------------> counters of its writers
    Profile: start ---- PROFILE_NOW ---------------------> a probe around its program from the next execution on
             stop ----- UNPROFILE -----------------------> its spans

A graph that is not observed pays nothing: there is no switch on the path of an execution. Counters are those that channels have anyway;
a report reads the stack; a probe is compiled into the list of actions, or out of it.

    report         text for users: the operation of each actor, and the peers that it waits for
    program state  an actor's answer for a report
    counters       numbers that channels have: messages written, waiting, slots in use
    profile        the time between `start` and `stop`, with the spans of all processes
    span           the time of one operation (`mray._trace.span`)
    probe          a wrapper around reads, writes and methods that makes spans or ranges
    mark           a point of a device's stream; two of them make a span of the device
    attachment     the functions of a graph that begin a profile, put its probes around the caller's ends and remove them
    profiler       the torch profiler or NVTX, while the graph lives

Rejected: a second loop for profiled programs (it would be another program than the one to be measured).
"""
