"""A headless Chromium, driven over the pipe of its DevTools protocol: nothing to install beside it."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 60.0
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"),
)
Message = dict[str, Any]


def chromium() -> str | None:
    """The path of a browser that is installed."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """One page. ``events`` are all messages that the browser sent on its own. A context manager."""

    def __init__(self, executable: str, profile: Path) -> None:
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def connect() -> None:  # the protocol speaks on 3 and 4
            here, there = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(here, 3)
            os.dup2(there, 4)

        self._process = subprocess.Popen(
            [executable, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._read, self._write = ours_in, ours_out
        os.set_blocking(self._read, False)
        self._buffer = b""
        self._last = 0
        self._session = ""
        self.events: list[Message] = []

    def __enter__(self) -> Browser:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *raised: object) -> None:
        self._session = ""
        try:
            self.send("Browser.close")
            self._process.wait(timeout=10)
        finally:
            self._process.kill()
            self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def send(self, method: str, **parameters: object) -> Message:
        """Call a method of the protocol and wait for its answer."""
        self._last += 1
        message: Message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._until(lambda one: one.get("id") == self._last)
        assert "error" not in answer, answer
        result: Message = answer["result"]
        return result

    def _until(self, wanted: Callable[[Message], bool]) -> Message:
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            while b"\0" in self._buffer:
                line, _, self._buffer = self._buffer.partition(b"\0")
                message: Message = json.loads(line)
                if "method" in message:
                    self.events.append(message)
                if wanted(message):
                    return message
            try:
                data = os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
                continue
            if not data:
                raise EOFError(f"the browser ended with code {self._process.wait()}")
            self._buffer += data
        raise TimeoutError(f"the browser did not answer in {SECONDS:.0f} s")

    def media(self, *, width: int, height: int = 900, scheme: str = "light", scale: float = 1) -> None:
        """How wide the window is, in CSS pixels, and which colours are preferred."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def open(self, file: Path) -> None:
        self.send("Page.navigate", url=file.as_uri())
        self._until(lambda one: one.get("method") == "Page.loadEventFired")

    def value(self, script: str) -> Any:
        """What an expression is worth, promises awaited; as JSON."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        ends = time.monotonic() + SECONDS
        while not self.value(f"Boolean({condition})"):
            assert time.monotonic() < ends, condition
            time.sleep(0.02)

    def point(self, x: float, y: float, kind: str = "mouseMoved") -> None:
        """Move the pointer, or press or release its button there."""
        button = "none" if kind == "mouseMoved" else "left"
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.point(x, y, kind)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def pdf(self, file: Path) -> None:
        data = self.send("Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69)["data"]
        file.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[Message]:
        """Errors and warnings of the console, and exceptions."""
        return [
            one
            for one in self.events
            if one["method"] == "Runtime.exceptionThrown"
            or (one["method"] == "Log.entryAdded" and one["params"]["entry"]["level"] in ("error", "warning"))
            or (
                one["method"] == "Runtime.consoleAPICalled"
                and one["params"]["type"] in ("error", "warning", "assert")
            )
        ]

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        return [
            one["params"]["request"]["url"]
            for one in self.events
            if one["method"] == "Network.requestWillBeSent"
        ]
