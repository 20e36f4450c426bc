"""Trying whether processes of a graph can open each other's device memory, before a transport depends on it.

    compiler                                         writers                        readers
    OFFER (indices of devices) --------------------> export something
    TRY (devices, what the writers offer) ---------------------------------------> open it, close it
    WITHDRAW --------------------------------------> free it
    the sites of the readers get the failures: `mray._channel.select` chooses the next transport

A trial creates a context on the device, so a driver that has not used its GPU is left out unless a hint sends tensors there; such
edges try when tensors are sent (`mray._gpu.cuda_ipc`).
"""

from __future__ import annotations

import contextlib
import pickle
import uuid
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mray._channel.select import AUTO, CUDA_IPC, describe, select
from mray._channel.site import Obstacle, Site
from mray._graph.graph_messages import OFFER, TRY, WITHDRAW
from mray._graph.host import GraphHost
from mray._graph.plan import DRIVER, DevicePair
from mray._graph.sites import ask
from mray.exceptions import RayError


def try_pairs(host: GraphHost, pairs: Iterable[DevicePair], sites: Mapping[str, Site], actors: Mapping[str, Any]) -> dict[str, Site]:
    """The sites with the obstacles found; warns of each pair whose tensors therefore take another transport. Raises ActorDiedError."""
    tried = [each for each in pairs if not each.is_late]
    places = {pair: _devices(sites, pair) for pair in tried}
    wanted: dict[str, list[int]] = {}
    for pair, (its, _mine) in places.items():
        if its not in wanted.setdefault(pair.writer, []):
            wanted[pair.writer].append(its)
    asker = uuid.uuid4().hex
    try:
        made = _ask(host, OFFER, {writer: pickle.dumps((asker, indices)) for writer, indices in wanted.items()}, actors)
        offers = {writer: dict(zip(wanted[writer], pickle.loads(each), strict=True)) for writer, each in made.items()}
        trials: dict[str, list[tuple[int, object, bool]]] = {}
        for pair, (its, mine) in places.items():
            trials.setdefault(pair.reader, []).append((mine, offers[pair.writer][its], pair.transport == CUDA_IPC))
        found = _ask(host, TRY, {reader: pickle.dumps((asker, each)) for reader, each in trials.items()}, actors)
        answers = {reader: iter(pickle.loads(each)) for reader, each in found.items()}
    finally:
        for writer in wanted:
            with contextlib.suppress(RayError):  # the next request reports its death
                _ask(host, WITHDRAW, {writer: asker.encode()}, actors)
    obstacles: dict[str, dict[int, Obstacle]] = {}
    for pair in tried:
        obstacle = next(answers[pair.reader])
        if obstacle is not None:
            obstacles.setdefault(pair.reader, {})[sites[pair.writer].pid] = obstacle
    changed = {name: replace(site, obstacles={**site.obstacles, **obstacles.get(name, {})}) for name, site in sites.items()}
    for pair in tried:
        _warn(changed[pair.writer], changed[pair.reader], pair.asked)
    return changed


def _devices(sites: Mapping[str, Site], pair: DevicePair) -> tuple[int, int]:
    writer, reader = sites[pair.writer], sites[pair.reader]
    reached = reader.reach(writer)
    own, its = reached[0] if reached else (reader.gpus[0], writer.gpus[0])
    return its.index, own.index


def _ask(host: GraphHost, verb: str, payloads: Mapping[str, bytes], actors: Mapping[str, Any]) -> dict[str, bytes]:
    answers = ask(host, verb, {endpoint: payload for endpoint, payload in payloads.items() if endpoint != DRIVER}, actors)
    if DRIVER in payloads:
        answers[DRIVER] = host.gpus().answer(verb, payloads[DRIVER])
    return answers


def _warn(writer: Site, reader: Site, asked: str) -> None:
    """Warn, unless the user's demand is refused because of it."""
    obstacle = reader.obstacles.get(writer.pid)
    if obstacle is not None and asked != CUDA_IPC:
        way = describe(select(writer, reader, asked or AUTO, hinted=bool(asked)))
        what = "timelines" if obstacle.of_timelines else "memory"
        warnings.warn(
            f"Tensors go {way} from {writer.name} (pid {writer.pid}) to {reader.name} (pid {reader.pid}), which cannot open {what} of its "
            f"GPU: {obstacle.reason}.",
            RuntimeWarning,
            stacklevel=2,
        )
