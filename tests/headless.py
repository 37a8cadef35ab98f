"""A headless Chromium, spoken to over a pipe in the DevTools protocol; standard library only."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from select import select
from time import monotonic
from typing import Any


def find_chromium() -> str | None:
    """Path of a Chromium or Chrome on this machine, if there is one; `VSR_CHROMIUM` names another."""
    names = (os.environ.get("VSR_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((path for name in names if name and (path := shutil.which(name))), None)


# DevTools reads commands from descriptor 3 and answers on 4; copies above 9 keep either move from closing the other.
_LAUNCH = """
import fcntl, os, sys
commands, answers = (fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(commands, 3)
os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Tab:
    """One page. `requests` are the addresses it asked for, `errors` its exceptions and console errors."""

    def __init__(self, write: int, read: int):
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.requests: list[str] = []
        self.errors: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")

    def open(self, address: str) -> None:
        self._call("Page.navigate", url=address)
        self._read_until(lambda message: message.get("method") == "Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """A real mouse click in the middle of the element."""
        quoted = json.dumps(selector)
        place = self.evaluate(
            f"(() => {{ const e = document.querySelector({quoted}); if (!e) return null;"
            " e.scrollIntoView({block: 'center', behavior: 'instant'}); const r = e.getBoundingClientRect();"
            " return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        assert place, f"no element {selector}"
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._call(method, **parameters)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._read_until(lambda message: message.get("id") == number)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _read_until(self, wanted) -> dict[str, Any]:
        end = monotonic() + 60
        while True:
            while b"\0" not in self._buffer:
                ready, _, _ = select([self._read], [], [], max(0.0, end - monotonic()))
                assert ready, "Chromium did not answer in time"
                piece = os.read(self._read, 1 << 16)
                assert piece, "Chromium went away"
                self._buffer += piece
            raw, self._buffer = self._buffer.split(b"\0", 1)
            message = json.loads(raw)
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: dict[str, Any]) -> None:
        details = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(details))
        elif message.get("method") == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])


@contextmanager
def open_tab(chromium: str) -> Iterator[Tab]:
    """Starts Chromium with an empty profile and yields a tab; ends it on the way out."""
    commands, write = os.pipe()
    read, answers = os.pipe()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        launch = [sys.executable, "-c", _LAUNCH, str(commands), str(answers)]
        process = subprocess.Popen(
            [*launch, chromium, *options, "--remote-debugging-pipe", f"--user-data-dir={profile}"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        try:
            yield Tab(write, read)
        finally:
            os.close(write)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(read)
