"""Spans: operations with their times, and the files that show them.

  process A: Buffer of spans ──┐ sheet                              ┌─▶ chrome: events of one Chrome or Perfetto file
  process B: Buffer of spans ──┼────────▶ the collector of a trace ─┼─▶ digest: percentiles for each step and edge, the bottleneck
  driver:    Buffer of spans ──┘                                    └─▶ `mray._picture.timeline_page`: a page

A span is a flat tuple, appended to a list of its process: no lock, no system call, no formatting; names and flows are computed when the
trace is read. Times are of CLOCK_MONOTONIC, which all processes of a Linux machine share.

Nothing is recorded by default: profiling wraps each operation (`mray._graph.watch.probes`).

Rejected: a ring in shared memory for each process. It survives its writer, but packing a span costs several times as much.
"""
