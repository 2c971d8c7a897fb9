"""A headless Chromium for tests of pages, driven through its debugging pipe: no driver, no port."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
# Only what a test asks for may be fetched.
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --disable-extensions "
    "--disable-background-networking --disable-component-update --disable-default-apps "
    "--hide-scrollbars --mute-audio --remote-debugging-pipe"
)


def rgb(colour: str) -> str:
    """A colour such as #14181c as browsers give it back.

    >>> rgb("#14181c")
    'rgb(20, 24, 28)'
    """
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


class Browser:
    """One browser with one tab. `errors` are messages of the console and uncaught exceptions,
    `requests` the addresses that were asked for."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp()
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        pipes = f"3<&{theirs_in} 4>&{theirs_out}"
        command = f"exec {CHROMIUM} {FLAGS} --user-data-dir={self._profile} {pipes}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._in, self._out = ours_in, ours_out
        self._rest, self._numbers, self._session = b"", itertools.count(1), ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        self.resize(1200, 900)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._in, 1 << 20)
            assert piece, "Chromium ended."
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        event: dict[str, Any] = json.loads(text)
        params = event.get("params", {})
        match event.get("method"):
            case "Runtime.exceptionThrown":
                self.errors.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning"):
                self.errors.append(str(params["args"]))
            case "Log.entryAdded":
                self.errors.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                # A blob is made by the page itself.
                self.requests += [u for u in [params["request"]["url"]] if u[:5] != "blob:"]
        return event

    def open(
        self,
        page: Path | str,
        fragment: str = "",
        ready: str = "pageReady",
        whole: bool = True,
    ) -> float:
        """Open a file or an address and wait until its script is done; seconds until then, as the
        page says. Then draw figures that are not in view, too, if `whole`."""
        url = page if isinstance(page, str) else page.resolve().as_uri()
        # A new fragment alone would not load the file again.
        self.send("Page.navigate", url="about:blank")
        self.run("1")  # what the last page still had to say has come
        self.errors, self.requests = [], []
        self.send("Page.navigate", url=url + fragment)
        self.wait(f"document.readyState === 'complete' && window.{ready} === true")
        seconds = float(self.run("performance.now()")) / 1000
        if whole:
            self.run("window.drawEverything && drawEverything()")
        return seconds

    def run(self, script: str) -> Any:
        """The value of an expression; promises are awaited."""
        found = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not self.run(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def resize(self, width: int, height: int) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def theme(self, scheme: str, medium: str = "") -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.send("Emulation.setEmulatedMedia", media=medium, features=features)

    def press(self, key: str, **more: Any) -> None:
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, **more)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])
