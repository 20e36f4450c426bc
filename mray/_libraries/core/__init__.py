"""Private modules of Ray that clients reach into: what they use of them, made of mray's public API.

Nothing here has a state of its own: answers come from the session's verbs, listings and key-value table, in Ray's forms. Questions that
Ray answers on one node without a dashboard are answered here; the rest raises.
"""
