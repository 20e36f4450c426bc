"""Looking on from outside.

`observer` asks the processes of a session, `process_snapshot` is what one of them answers. `stack_signal` gets the stacks of a process that
cannot answer.
"""
