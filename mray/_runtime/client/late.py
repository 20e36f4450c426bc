"""The reason why values are pending, for the text of a GetTimeoutError."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from threading import get_ident

from mray._common import messages as m
from mray._objects.ownership import Entry
from mray._runtime.client.calls import Call
from mray._runtime.connections.endpoint import Endpoint
from mray.exceptions import RayError

#: Seconds below which no reason is given; seconds to wait for the node's answer.
LEAST, PATIENCE = 0.1, 1.0
_MOST_NAMED = 5
_QUEUED = "is queued"


def why_late(client: Endpoint, entries: Iterable[Entry], timeout: float) -> str:
    """Sentences for the end of the error's text; empty if the reason is unknown. The client's lock must not be held."""
    if timeout < LEAST:
        return ""
    late = [entry.task for entry in entries if entry.form is None and entry.task is not None]
    with client.lock:
        found = Counter(f"{call.names()[0]} {_state(client, call)}" for call in late)
    told = [f"{f'{count} x ' if count > 1 else ''}{text}" for text, count in found.most_common(_MOST_NAMED)]
    sentences = [f"{', '.join(told)}."] if told else []
    if any(text.endswith(_QUEUED) for text in found):
        with contextlib.suppress(RayError):
            sentences += client.ask(m.QUERY, "waits", [], timeout=PATIENCE)
    return "".join(f" {sentence}" for sentence in sentences)


def _state(client: Endpoint, call: Call) -> str:
    if call.waiting:
        return "waits for its arguments"
    if call.source is not None and call.source.rests(call):
        return "has failed, and is retried soon"
    actor = getattr(call.source, "actor", None)
    if actor is not None and actor.process == client.process and client.process_host.held_by(call.task_id, {}, {get_ident(): 1}):
        return "is queued behind the call that waits for it"
    is_queued = call.lease is None if actor is None else call in actor.queue or actor.link is None
    return _QUEUED if is_queued else "runs, or is about to"
