"""The zygote's conversation with the node, with a test in the node's place."""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from typing import Any

import pytest

from mray._common.messages import MESSAGES, REAPED, SPAWN, ZYGOTE_TO_NODE
from mray._common.protocol import misfit
from mray._ipc.frames import decode_message
from mray._runtime.processes import zygote as module
from mray._runtime.processes.launch import PACKET, new_channel
from mray._runtime.processes.zygote import Zygote


class Scene:
    """A zygote that is neither started nor forked, and the node's end of its channel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module.os, "register_at_fork", lambda **_functions: None)
        self.node, theirs = new_channel()
        self.zygote = Zygote(theirs, -1, -1, "", {"preload": ["no_such_module_here"]})
        self.theirs = theirs


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    scene = Scene(monkeypatch)
    yield scene
    scene.node.close()
    scene.theirs.close()


def test_a_module_that_cannot_be_imported_is_reported_in_a_message_of_the_table(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.zygote._preload({})
    message = decode_message(scene.node.recv(PACKET))
    assert misfit(message) == ""
    assert MESSAGES[message[0]].ways == ZYGOTE_TO_NODE
    assert message[1] == "no_such_module_here" and "ModuleNotFoundError" in message[2]
    assert "ModuleNotFoundError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (("spawn",), "'spawn' is no message"),
        ((999,), "999 is no message"),
        ((SPAWN, 1, {}), "'process'"),
        ((REAPED, 1, 0), "must not send REAPED"),
    ],
)
def test_a_node_that_sends_what_it_must_not_ends_the_zygote(scene: Scene, message: tuple[Any, ...], reason: str) -> None:
    scene.node.send(marshal.dumps(message))
    with pytest.raises(ValueError, match=f"^the node sent the zygote an invalid message: .*{reason}"):
        scene.zygote._serve()
