"""The state of a session: actors, tasks, objects, workers, the node, compiled graphs and their channels. Ray's `ray.util.state`.

::

    list_actors(filters=[("state", "=", "ALIVE")], detail=True)

    api ──SessionView──▶ _gather ──▶ mray._observe.observer ──▶ node, driver, workers      raw rows, at this moment
     └─ records (common) ──▶ _select (filters) ──▶ what users see

Processes record nothing in advance, so ended work is soon forgotten. Rejected: a collector of events, as Ray has, which would cost
each call more than the call itself.
"""

from __future__ import annotations

from mray.util.state.api import *  # noqa: F403
