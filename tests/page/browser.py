"""A headless Chromium, driven through its own protocol over a pair of pipes: no driver and no package is needed."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

FOUND = next((path for name in NAMES if (path := shutil.which(name))), None)
"""The browser of this machine, None if there is none."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars", "--mute-audio",
    "--remote-debugging-pipe",
)  # fmt: skip

START = """\
import os, sys
a, b = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
os.dup2(a, 3), os.dup2(b, 4), os.set_inheritable(3, True), os.set_inheritable(4, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads from descriptor 3 and writes to descriptor 4, which may be one of the pipes' by chance."""


PATIENCE = 120.0
"""Seconds after which a browser that says nothing hangs."""


@dataclass
class Page:
    """An open page. `said` are errors, warnings and messages of the console, `asked` the addresses that it requested."""

    send: int
    receive: int
    session: str = ""
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    _number: int = 0
    _left: bytes = b""

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; events in between are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.send, json.dumps(message).encode() + b"\0")
        while True:
            told = self._next()
            if told.get("id") == self._number:
                assert "error" not in told, told
                return told["result"]

    def open(self, path: Path) -> None:
        """The file is shown, and its scripts have run."""
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        """As `open`, for an address."""
        self.call("Page.navigate", url=address)
        self.wait("Page.loadEventFired")

    def wait(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def evaluate(self, code: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def look(self, width: int, height: int = 900, dark: bool = False) -> None:
        """The window is of that size, and the system's colours are light or dark."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            assert select.select([self.receive], [], [], PATIENCE)[0], "the browser says nothing"
            more = os.read(self.receive, 1 << 16)
            assert more, "the browser has ended"
            self._left += more
        message, _, self._left = self._left.partition(b"\0")
        told = json.loads(message)
        match told.get("method"):
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.said.append(json.dumps(told["params"]))
            case "Network.requestWillBeSent":
                self.asked.append(told["params"]["request"]["url"])
            case _:
                pass
        return told


@contextmanager
def browser(folder: Path) -> Generator[Page]:
    """A page of a browser of its own, whose profile is in the folder; both are gone afterwards."""
    assert FOUND is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()

    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            START,
            str(theirs_in),
            str(theirs_out),
            FOUND,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(theirs_in, theirs_out),
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_out, ours_in)
        targets = page.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        page.session = page.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        yield page
    finally:
        os.close(ours_out)
        os.close(ours_in)
        process.terminate()
        process.wait(60)
