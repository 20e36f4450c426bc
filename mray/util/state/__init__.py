"""The state of a session: actors, tasks, objects, workers, the node, compiled graphs and their channels. Ray's `ray.util.state`.

::

    list_actors(filters=[("state", "=", "ALIVE")], detail=True)

    api ──SessionView──▶ _gather ──▶ mray._observe.observer ──▶ node, driver, workers      raw rows, at this moment
     └─ records (common) ──▶ _select (filters) ──▶ what users see

Built on looking, not on recording: no process notes down what it does, so the engine is as fast with this as without, and what is over is
soon forgotten. Rejected: a collector of events, as Ray has, which would cost each call more than the call.
"""

from __future__ import annotations

from mray.util.state.api import *  # noqa: F403
