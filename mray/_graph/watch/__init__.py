"""Looking at a graph while it runs: reports of where each actor stands, profiles, and the profilers of others.

    caller                                                actor
    report, statistics, Profile ---- a request each ----> its reading thread answers: state, counters, spans
"""
