"""Compiled graphs: a fixed pattern of actor calls, turned into loops over channels.

For `mray._backends`, which offers a process to it (`host.GraphHost`), and through it for `DAGNode.experimental_compile`. The driver
compiles and executes, actors run programs; no control plane is on the path:

    driver: CompiledGraph                         actor: GraphService, between ordinary calls
      validate -> resolve -> schedule -> deadlock
      allocate ------ one request each ---------> open the ends, compile a Program
      execute ------> input ring ---------------> READ, COMPUTE, WRITE ---> other actors' rings
      get <---------- output rings <------------- ...
      teardown ------ one request each ---------> close the ends

Decide first, then act: the passes are pure functions over frozen data (`plan`), and only `allocate` has effects. Errors of methods are
values that travel along the edges. The runtime reports a death as an event, to all waiting threads; nothing here times out by itself.

    plan  inputs  holes        the frozen data that rooms pass to each other     compiler/   DAG nodes -> plan -> channels and programs
    structure  depicted        the user's DAG nodes again, for pictures
    host  graph_messages       services of a process; the table of requests      caller/     execute, get, await, from any process
    participants  sites        the actors of a graph, and their devices          actor/      the programs of one actor
    gpu_edges                  the GPUs of a process: a contract                 watch/      reports, counters, profiles
    trials                     whether processes can open each other's memory
    channel_ends  communicators  the channels and groups of one process

The compiler imports the caller's room, since it creates a `CompiledGraph`; caller and actor import `watch`, and neither imports the
other: they meet in `graph_messages` and `plan`.

    graph          a fixed pattern of calls, and its compiled form; its parts are always "DAG nodes" in prose
    endpoint       the driver, an actor by its id, or a worker of the graph's functions: one side of a channel
    source         something with a value in each execution: the input, or one output of a step
    step           one call of a method or function in each execution
    operation      READ, COMPUTE or WRITE: one thing that an actor does in each execution
    plan           all decisions about a graph, made before any channel or program exists
    site           the devices that a process offers to edges
    trial          the opening of a little memory of another process, before a transport depends on it
    ends           the readers and writers of one endpoint

Rejected: an endless task per actor that is the loop (the actor would answer nothing else, and two graphs could not share it); a thread
per graph (methods would leave the main thread, and a hand-over between threads costs more than the whole round trip); a channel per edge
(see `mray._channel`).
"""
