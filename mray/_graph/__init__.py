"""Compiled graphs: a fixed pattern of actor calls, turned into loops over channels.

    driver: CompiledGraph                         actor: GraphService, between ordinary calls
      validate -> resolve -> schedule -> deadlock
      allocate ------ one request each ---------> open the ends, compile a Program
      execute ------> input ring ---------------> READ, COMPUTE, WRITE ---> other actors' rings
      get <---------- output rings <------------- ...
      teardown ------ one request each ---------> close the ends

The passes are pure functions over frozen data (`plan`); only `allocate` has effects. Errors of methods are values that travel along the
edges. Nothing here times out by itself. Caller and actor do not import each other.

    endpoint       the driver, an actor by its id, or a worker of the graph's functions: one side of a channel
    source         something with a value in each execution: the input, or one output of a step
    step           one call of a method or function in each execution
    operation      READ, COMPUTE or WRITE: one thing that an actor does in each execution

Rejected: an endless task per actor as the loop (it would answer nothing else); a thread per graph (methods would leave the main
thread); a channel per edge (see `mray._channel`).
"""
