"""Modules that Ray calls private and that clients reach into all the same: what they use of them, made of mray's public API.

Nothing here has a state of its own: a question is answered from the session's verbs, listings and key-value table, by Ray's names and in
Ray's forms. An answer that Ray gives on one node without a dashboard is given here; what cannot be raises in words.

====================  ====================================================================================================
core                  the compiled part of Ray, and the modules around it that its libraries ask (`raylet`, `worker`)
core worker           the calling process as an object (`core_worker`)
control store, GCS    the table of small values of all processes and its nodes: here the session's, and its one node (`gcs_client`)
client mode           calls by way of Ray's client: there are none (`client_mode_hook`, `client`)
series                a step function of time, which autoscalers of replicas add up (`time_series`)
====================  ====================================================================================================
"""
