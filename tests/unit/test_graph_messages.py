"""Requests about graphs: a verb is declared once, and answered in the thread that the table says."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mray._backends import graph_host
from mray._graph import graph_messages
from mray._graph.graph_messages import MAIN, OWN, READING, VERBS


class Scene(SimpleNamespace):
    """A host, and the threads in which it has answered."""

    def answers(self, thread: str) -> bytes:
        self.threads.append(thread)
        return b""


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene(threads=[], thread=READING)
    service = SimpleNamespace(
        handle=lambda *_request: scene.answers(scene.thread),
        state=lambda _graph_id: scene.answers(scene.thread),
        attaching=lambda _payload: lambda: scene.answers(scene.thread),
    )

    class Hosted(graph_host.Host):
        def __init__(self) -> None:
            """With as much as requests need."""
            self.service: Any = service
            self.reactor: Any = SimpleNamespace(defer=lambda callback: callback())
            self._client: Any = SimpleNamespace(ends=SimpleNamespace(then=lambda _process, _callback: None))
            self._enqueue: Any = lambda *_request: scene.answers(MAIN)

        def in_a_thread(self, callback: Any) -> None:
            scene.thread = OWN
            callback()

    for name in ("note_copier", "end_copy"):
        monkeypatch.setattr(graph_host, name, lambda *_fields: scene.answers(scene.thread))
    scene.host = Hosted()
    return scene


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_answered_in_the_thread_that_the_table_says(scene: Scene, verb: str) -> None:
    peer: Any = SimpleNamespace(process="peer", send=lambda _message: None)
    scene.host._on_request(peer, 1, verb, b"")
    assert scene.threads == [VERBS[verb]]


def test_a_verb_is_declared_once_behind_a_sentence() -> None:
    lines = Path(graph_messages.__file__).read_text().splitlines()
    declared = []
    for before, line in itertools.pairwise(lines):
        if found := re.match(r"([A-Z_]+) = _verb\(", line):
            assert re.match(r"#: .*\.$", before) and "#" not in line, line
            declared.append(getattr(graph_messages, found[1]))
    assert declared == [*VERBS]
    with pytest.raises(AssertionError, match="the verb 'stop' is declared already"):
        graph_messages._verb("stop", MAIN)
