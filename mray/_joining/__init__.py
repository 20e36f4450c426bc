"""Sessions that drivers join: `persistent`, which one command starts and another ends, found by its `address`.

A private session does not load it.
"""
