"""Compiled graphs: a fixed pattern of actor calls, turned into loops over channels.

For `mray._backends`, which offers a process to it (`host.GraphHost`), and through it for `DAGNode.experimental_compile`. The driver
compiles and executes, actors run programs; no control plane is on the path:

    driver: CompiledGraph                         actor: GraphService, between ordinary calls
      validate -> resolve -> schedule -> deadlock
      allocate ------ one request each ---------> open the ends, compile a Program
      execute ------> input ring ---------------> READ, COMPUTE, WRITE ---> other actors' rings
      get <---------- output rings <------------- ...
      teardown ------ one request each ---------> close the ends

Decide first, then act: the passes are pure functions over frozen data (`plan`), and only `allocate` makes something. Errors of
methods are values that travel along the edges. Death comes from the runtime as an event, for whoever waits; nothing here times
out by itself.

Rejected: an endless task per actor that is the loop (the actor would answer nothing else, and two graphs could not share it); a thread per
graph (methods would leave the main thread, and a hand-over between threads costs more than the whole round trip); a channel per
edge (see `mray._channel`).
"""
