"""Compiled graphs: a fixed pattern of actor calls, turned into loops over channels.

    driver: CompiledGraph                         actor: GraphService, between ordinary calls
      validate -> resolve -> schedule -> deadlock
      allocate ------ one request each ---------> open the ends, compile a Program
      execute ------> input ring ---------------> READ, COMPUTE, WRITE ---> other actors' rings
      get <---------- output rings <------------- ...
      teardown ------ one request each ---------> close the ends

 The passes are pure functions over frozen data (`plan`), and only `allocate` has effects. Errors of methods are
values that travel along the edges. The runtime reports a death as an event, to all waiting threads; nothing here times out by itself.
The compiler imports the caller's room; caller and actor do not import each other.

    endpoint       the driver, an actor by its id, or a worker of the graph's functions: one side of a channel
    source         something with a value in each execution: the input, or one output of a step
    step           one call of a method or function in each execution
    operation      READ, COMPUTE or WRITE: one thing that an actor does in each execution
    site           the devices that a process offers to edges
    trial          the opening of a little memory of another process, before a transport depends on it
    ends           the readers and writers of one endpoint

Rejected: an endless task per actor as the loop (it would answer nothing else, and two graphs could not share it); a thread per graph
(methods would leave the main thread, and a hand-over costs more than the round trip); a channel per edge (see `mray._channel`).
"""
