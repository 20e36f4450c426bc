"""A headless Chromium that loads a page, plays a screen, and answers JavaScript: over the pipe of its debugging protocol.

Messages are JSON, each ended by a zero byte; the browser reads them from descriptor 3 and answers on descriptor 4. Needs the program alone.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: No shared memory in /dev/shm, where others look for what has been left.
_OPTIONS = ("--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")


class Chromium:
    """A browser with one tab; leave the context to end it and all its processes."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)]

        def connect() -> None:
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        words = [PROGRAM, *_OPTIONS, "--disable-breakpad", f"--user-data-dir={folder}", "about:blank"]
        self._log = (folder / "chromium.log").open("wb")
        environ = {**os.environ, "HOME": str(folder)}
        self._process = subprocess.Popen(
            words, preexec_fn=connect, close_fds=False, start_new_session=True, stdout=self._log, stderr=self._log, env=environ
        )
        for end in (commands, answers, *ends):
            os.close(end)
        self._buffer = b""
        self._complaints: list[str] = []
        self._number = 0
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()
        for end in (self._to, self._from):
            os.close(end)

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer; of events that come before, complaints are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            self._note(answer)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _note(self, event: Any) -> None:
        told = event.get("params", {})
        if event.get("method") == "Log.entryAdded" and told["entry"]["level"] in ("warning", "error"):
            self._complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif event.get("method") == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self._complaints.append(f"{details['text']} {details.get('exception', {}).get('description', '')}")

    def complaints(self) -> list[str]:
        """Warnings and errors in the browser's console so far, and errors that no script caught; each once."""
        self.call("Runtime.evaluate", expression="0")  # whatever it tells before has come
        told, self._complaints = self._complaints, []
        return told

    def _receive(self) -> Any:
        while b"\0" not in self._buffer:
            piece = os.read(self._from, 1 << 16)
            assert piece, f"the browser has ended: {Path(self._log.name).read_text()}"
            self._buffer += piece
        message, _zero, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def screen(self, width: int, height: int, scheme: str) -> None:
        """Be a screen of so many pixels whose user prefers the scheme ``light`` or ``dark``."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def load(self, address: str) -> None:
        """Go to an address and wait until the page is complete."""
        self.call("Page.navigate", url=address)
        self.value("new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Write what is on the screen as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
