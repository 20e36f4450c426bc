"""Spans: operations with their times, and the files that show them.

For `mray._graph.watch.profile` (graphs), `mray._backends.session_trace` (calls) and ``mray timeline``.

    process A: Buffer of spans ──┐ sheet                              ┌─▶ chrome: events of one Chrome or Perfetto file
    process B: Buffer of spans ──┼────────▶ whoever asks for a trace ─┼─▶ digest: percentiles for each step and edge, the bottleneck
    driver:    Buffer of spans ──┘                                    └─▶ `mray._picture.timeline_page`: a page

A span is a flat tuple, appended to a list of its process: no lock, no system call, no formatting; names and flows are made when somebody
looks. Times are those of CLOCK_MONOTONIC, which is one clock for all processes of a Linux machine: nothing has to be aligned.

====================  ====================================================================================================
span                  one operation with its times: a flat tuple
buffer                the spans of one graph or of calls, in one process
sheet                 the contents of a buffer, as builtin values on their way to the collector
digest                percentiles for each step and edge, made of spans
====================  ====================================================================================================

Only what is switched on records. Switched off there is nothing to switch: whoever wants spans of something puts a wrapper around it that
makes them (`mray._graph.watch.probes`), and takes it away again.

`nvtx` and `torch_profiler` tell other profilers of the same operations.

Rejected: a ring in shared memory for each process, which a collector drains while the program runs. It survives the death of its writer,
but packing a span costs several times the appending of a tuple.
"""
