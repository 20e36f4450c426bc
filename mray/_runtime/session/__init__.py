"""The driver's side of a session: begun, found, joined, ended.

`session` is a driver's own; `persistent` one that any number of drivers join, found by its `address`. `output` shows what workers print
among `progress_bars` and `breakpoints`, whose debugger is `remote_pdb`.
"""
