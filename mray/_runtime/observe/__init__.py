"""Looking on from outside.

`observer` asks the processes of a session, `process_snapshot` is what one of them answers, `object_counts` the smaller answer that tests of
growth compare. `stack_signal` gets the stacks of a process that cannot answer; `line_coverage` has workers measured.
"""
