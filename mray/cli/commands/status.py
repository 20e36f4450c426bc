"""``mray status``: the sessions of this user, their resources and their work."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from datetime import datetime
from typing import Any

from mray._common.amounts import readable, readable_bytes
from mray._inside.sessions import EndedSession, address_of, sessions
from mray.cli.columns import counted
from mray.cli.samples import resources
from mray.cli.terminal import DONE, NO_SESSION, add_format, add_session, parser, run_command, show
from mray.util.state.api import SessionView, look, session_directory
from mray.util.state.common import ActorState, JobState, NodeState
from mray.util.state.exception import ServerUnavailable

SUMMARY = "show the running sessions: resources, actors, workers, what waits"


def main(words: list[str]) -> int:
    arguments = parser("status", SUMMARY)
    add_session(arguments)
    add_format(arguments)
    return run_command(arguments, words, _status)


def _status(given: argparse.Namespace) -> int:
    directories = sessions() if given.session is None else [session_directory(given.session)]
    found = []
    for directory in directories:
        try:
            found.append(status_of(look(directory, given.timeout)))
        except ServerUnavailable as error:  # it is ending
            print(f"mray: {error}", file=sys.stderr)
    if not found:
        print("mray: No session of this user is running.", file=sys.stderr)
    elif given.format == "table":
        print("\n\n".join(map(_in_words, found)))
    else:
        show(found, given.format)
    if given.format == "table" and given.session is None:
        ended = EndedSession.all()
        if found and ended:
            print()
        for each in ended:
            end = datetime.fromtimestamp(os.stat(each.directory).st_mtime)
            programs = "; ".join(job["entrypoint"] for job in each.node.get("jobs", ()))
            print(f"ended {end:%Y-%m-%d %H:%M:%S}  {each.name}  {programs[:100]}".rstrip())
    return DONE if found else NO_SESSION


def status_of(view: SessionView) -> dict[str, Any]:
    node = view.node
    (record,) = view.records(NodeState)
    return {
        "session": os.path.basename(view.directory),
        "session_dir": view.directory,
        "address": address_of(view.directory),
        "driver_pid": node["driver_pid"],
        "persistent": node["info"]["persistent"],
        "node_pid": node["node_pid"],
        "drivers": [
            {**{name: job[name] for name in ("job_id", "entrypoint", "start_time", "namespace")}, "pid": int(job["driver_info"]["pid"])}
            for job in view.records(JobState)
            if job.status == "RUNNING"
        ],
        "resources": {name: {"total": amount, "used": round(used, 4)} for name, (used, amount) in resources(record).items()},
        "object_store_bytes": record.object_store_bytes,
        "pooled_bytes": sum(row["pooled_bytes"] for row in view.processes.values()),
        "spilled_bytes": node["spilled_bytes"],
        "spilled_objects": node["spilled_objects"],
        "actors": dict(Counter(row.state for row in view.records(ActorState))),
        "workers": dict(Counter(worker["state"] for worker in node["workers"])),
        "dead_workers": len(node["dead_workers"]),
        "placement_groups": dict(Counter(group["state"] for group in node["placement_groups"] if group["state"] != "REMOVED")),
        "demands": node["demands"],
    }


def _in_words(status: dict[str, Any]) -> str:
    lines = [f"session {status['session']} at {status['address']}"]
    if status["persistent"]:
        lines.append(f"  persistent node pid {status['node_pid']}; to end it: mray stop")
    for driver in status["drivers"]:
        since = datetime.fromtimestamp(driver["start_time"] / 1000).isoformat(" ", "seconds") if driver["start_time"] else "?"
        lines.append(f"  driver     pid {driver['pid']}, since {since}: {driver['entrypoint'][:100]}")
    for name, amounts in status["resources"].items():
        if "memory" in name:
            pooled = f" ({readable_bytes(status['pooled_bytes'])} of it kept for reuse)" if name == "object_store_memory" else ""
            lines.append(f"  {name}: {readable_bytes(amounts['used'])} of {readable_bytes(amounts['total'])} used{pooled}")
        else:
            lines.append(f"  {name}: {amounts['used']:g} of {amounts['total']:g} used")
    if status["spilled_objects"]:
        lines.append(
            f"  spilled    {readable_bytes(status['spilled_bytes'])} of objects so far ({counted(status['spilled_objects'], 'object')})"
        )
    lines.append(f"  actors     {_counts(status['actors'])}")
    ended = f", {status['dead_workers']} have ended" if status["dead_workers"] else ""
    lines.append(f"  workers    {_counts(status['workers'])}{ended}")
    if status["placement_groups"]:
        lines.append(f"  groups     {_counts(status['placement_groups'])} (placement groups)")
    waiting = Counter(map(_wish, status["demands"]))
    lines += [f"  waiting    {count} x {wish}" for wish, count in waiting.items()]
    return "\n".join(lines)


def _wish(demand: dict[str, Any]) -> str:
    kind, _space, name = demand["label"].partition(" ")
    resources = ", ".join(f"{key} {readable(key, amount)}" for key, amount in demand["resources"].items())
    return f"{f'{name}()' if kind == 'task' else demand['label']} for {resources or 'a worker'}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"
