"""A real Chromium without a window, asked by its own protocol (DevTools) over a websocket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-port=0"),
)
SECONDS_MAX = 60.0


def found() -> str | None:
    """Return where the browser is, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Tab:
    """One tab. `events` are what the browser told of it besides answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: Any) -> None:
        self._loop, self._socket = loop, socket
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.folder = Path()
        self.events: list[tuple[str, dict[str, Any]]] = []

    def open(self) -> None:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Return the answer to a command of the protocol."""
        return self._loop.run_until_complete(asyncio.wait_for(self._ask(method, parameters), 60))

    async def _ask(self, method: str, parameters: dict[str, Any]) -> Any:
        number = next(self._numbers)
        request: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            request["sessionId"] = self._session
        await self._socket.send_json(request)
        while True:
            told = json.loads((await self._socket.receive()).data)
            if told.get("id") == number:
                assert "error" not in told, (method, told["error"])
                return told["result"]
            if "method" in told:
                self.events.append((told["method"], told["params"]))

    def run(self, script: str) -> Any:
        """Return the value of an expression, in the page."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def show(self, file: Path) -> None:
        """Load a file, and wait until it is laid out."""
        self.events.clear()
        self.ask("Page.navigate", url=file.as_uri())
        ends = time.monotonic() + SECONDS_MAX
        while self.run("document.readyState") != "complete":
            assert time.monotonic() < ends, "the page is not loaded"
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def look(self, width: int, scheme: str = "light", media: str = "screen") -> None:
        """Set the width of the window, the scheme that the user prefers, and the medium."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)

    def press_tab(self) -> None:
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9
            )

    def pdf(self) -> bytes:
        return base64.b64decode(self.ask("Page.printToPDF", printBackground=True)["data"])

    @property
    def complaints(self) -> list[str]:
        """What the console has, and requests for anything but the page and what is in it."""
        told = []
        for method, event in self.events:
            if method == "Network.requestWillBeSent":
                address = event["request"]["url"]
                if not address.startswith(("data:", "file:")):
                    told.append(address)
            elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                told.append(json.dumps(event))
            elif method == "Log.entryAdded":
                told.append(event["entry"]["text"])
        return told


@contextmanager
def opened(folder: Path) -> Iterator[Tab]:
    """Start a browser with a new profile in `folder`; yield a tab of it."""
    program = found()
    assert program is not None, "no Chromium is installed"
    environment = {**os.environ, "HOME": str(folder)}
    browser = subprocess.Popen(
        [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    loop = asyncio.new_event_loop()

    def wait(work: Coroutine[Any, Any, Any]) -> Any:
        return loop.run_until_complete(work)

    session = None
    try:
        port_file = folder / "profile" / "DevToolsActivePort"
        ends = time.monotonic() + SECONDS_MAX
        while not (port_file.exists() and len(port_file.read_text().splitlines()) == 2):
            assert browser.poll() is None and time.monotonic() < ends, "Chromium does not start"
            time.sleep(0.05)
        port, path = port_file.read_text().splitlines()

        async def connect() -> tuple[aiohttp.ClientSession, Any]:
            client = aiohttp.ClientSession()
            url = f"ws://127.0.0.1:{port}{path}"
            return client, await client.ws_connect(url, max_msg_size=0)

        session, socket = wait(connect())
        tab = Tab(loop, socket)
        tab.open()
        yield tab
    finally:
        if session is not None:
            wait(session.close())
        loop.close()
        browser.terminate()
        try:
            browser.wait(20)
        except subprocess.TimeoutExpired:
            browser.kill()
            browser.wait()
