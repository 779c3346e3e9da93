"""A headless browser that is controlled through its own protocol over pipes. It opens no port."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60.0
"""How many seconds an answer may take on a slow machine."""


def find_browser() -> str | None:
    """Return the command of a browser, or None. On Debian, root installs a browser if there is none."""
    found = next((name for name in NAMES if shutil.which(name)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["update"], ["install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"]):
            with suppress(subprocess.TimeoutExpired):
                subprocess.run(
                    ["apt-get", "-q", *words], env=environment, capture_output=True, check=False, timeout=600
                )
        found = next((name for name in NAMES if shutil.which(name)), None)
    return found


@dataclass
class Page:
    """One page of a browser, and the events of the page."""

    orders: int
    answers: int
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _rest: bytes = b""

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and return the browser's answer. Keep the events that arrive before it."""
        number = next(self._numbers)
        order = {"id": number, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        for said in self._list_messages():
            if said.get("id") == number:
                assert "error" not in said, said
                return said["result"]
            self.events.append(said)
        raise AssertionError("the browser is gone")

    def open(self, place: Path | str, *, width: int = 1_200, dark: bool = False) -> None:
        """Show a file or an address on a screen of this width, and wait until it is loaded."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.events.clear()
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Page.navigate", url=place if isinstance(place, str) else place.as_uri())
        messages = self._list_messages()
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(next(messages))

    def value(self, script: str) -> Any:
        """Return the value of a script."""
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """Return the value of a script once it is true, within some seconds."""
        look = f"""new Promise((found, failed) => {{
            const end = Date.now() + 20000;
            const look = () => {{
                const value = ({script});
                if (value) found(value);
                else if (Date.now() > end) failed(new Error("it is still " + value + ": " + document.body.innerText));
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        said = self.ask("Runtime.evaluate", expression=look, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]["exception"]
        return said["result"].get("value")

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.ask("Input.insertText", text=text)

    def key(self, name: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code, **typed)

    def take_picture(self, place: Path) -> None:
        """Save a picture of the whole page."""
        told = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        place.write_bytes(base64.b64decode(told["data"]))

    def list_requests(self) -> list[str]:
        """List the URLs requested since the page was opened, without the page itself."""
        asked = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in asked if each["type"] != "Document"]

    def list_complaints(self) -> list[Any]:
        """List the errors of scripts, and the browser's complaints about the page."""
        wrong = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self.events if event.get("method") in wrong]

    def _list_messages(self) -> Iterator[dict[str, Any]]:
        """Yield what the browser says within the patience, also if it never stops to say something."""
        until = time.monotonic() + PATIENCE
        while True:
            assert time.monotonic() < until, "no answer"
            said, whole, rest = self._rest.partition(b"\0")
            if whole:
                self._rest = rest
                yield json.loads(said)
                continue
            if not select.select([self.answers], [], [], max(0.0, until - time.monotonic()))[0]:
                continue
            part = os.read(self.answers, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part


@contextmanager
def open_browser() -> Iterator[Page]:
    """Start a browser with one empty page, and end it afterwards. Skip the test if there is no browser."""
    command = find_browser()
    if command is None:
        pytest.skip("there is no browser here, and none can be installed by apt-get")
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
        quiet = "--disable-background-networking --disable-component-update --disable-extensions"
        words = f"exec {command} {options} {quiet} --user-data-dir={home} --remote-debugging-pipe about:blank"
        started = subprocess.Popen(
            ["bash", "-c", f"{words} 3<&{theirs_in} 4>&{theirs_out}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": home},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        page = Page(orders=ours_out, answers=ours_in)
        try:
            target = page.ask("Target.createTarget", url="about:blank")["targetId"]
            page.session = page.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                page.ask(f"{domain}.enable")
            yield page
        finally:
            started.terminate()
            started.wait(30)
            os.close(ours_in)
            os.close(ours_out)
