"""Chromium without a window, driven by the DevTools protocol over two pipes: no driver, no port, no further package."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

TIMEOUT_S: Final = 120.0
_FIRST_FREE_DESCRIPTOR: Final = 10
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,1000",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """The path of Chromium; None where there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Chromium:
    """One page in a fresh browser.

    Args:
        program: The path of Chromium.
        profile: An empty folder for its profile.

    Attributes:
        events: What the browser has told of the page so far, as (event, parameters).
    """

    def __init__(self, program: str, profile: Path) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._results: dict[int, dict[str, Any]] = {}
        self._rest = b""
        self._session: dict[str, str] = {}
        from_us, self._commands = os.pipe()
        self._answers, to_us = os.pipe()
        # The browser reads commands from descriptor 3 and writes to 4, so ours must be out of the way of these.
        ends = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_FREE_DESCRIPTOR) for descriptor in (from_us, to_us)]
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "-", program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=ends,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for descriptor in (from_us, to_us, *ends):
            os.close(descriptor)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._commands)
        os.close(self._answers)

    def open(self, page: Path) -> None:
        """Opens a file and waits until it is loaded and its scripts have run."""
        if not self._session:
            self._attach()
        self.events.clear()
        self.send("Page.navigate", url=page.as_uri())
        self._read_until(lambda: any(event == "Page.loadEventFired" for event, _ in self.events))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def told(self, event: str) -> list[dict[str, Any]]:
        """The parameters of each event of a kind since the page was opened."""
        return [parameters for found, parameters in self.events if found == event]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command. Returns its result."""
        number = len(self._results) + 1
        command = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        self._read_until(lambda: number in self._results)
        assert "error" not in self._results[number], self._results[number]
        result: dict[str, Any] = self._results[number]["result"]
        return result

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def _read_until(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_done():
            ready, _, _ = select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._answers, 2**16) if ready else b""
            assert data, "the browser ended" if ready else "the browser did not answer in time"
            *messages, self._rest = (self._rest + data).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self._results[message["id"]] = message
                else:
                    self.events.append((message["method"], message["params"]))
