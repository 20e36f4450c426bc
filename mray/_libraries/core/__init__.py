"""Private modules of Ray that clients reach into: what they use of them, made of mray's public API.

Nothing here has a state of its own: answers come from the session's verbs, listings and key-value table, by Ray's names and in Ray's
forms. Questions that Ray answers on one node without a dashboard are answered here; the rest raises.

====================  ====================================================================================================
core                  the compiled part of Ray, and the modules around it that its libraries use (`raylet`, `worker`)
core worker           the calling process as an object (`core_worker`)
control store, GCS    the table of small values of all processes and its nodes: here the session's, and its one node (`gcs_client`)
client mode           calls by way of Ray's client: there are none (`client_mode_hook`, `client`)
series                a step function of time, which autoscalers of replicas add up (`time_series`)
====================  ====================================================================================================
"""
