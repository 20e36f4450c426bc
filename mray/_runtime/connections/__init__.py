"""Who talks with whom: one process's connections to the node and to its peers, and how each ends.

`endpoint` joins a session and hears all messages; `dispatch` says what is done with each; `requests` are numbered and answered. When a
process ends `deaths` says who died and how, for the errors of those who waited for it.
"""
