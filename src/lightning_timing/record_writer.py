"""Writes the record while the run goes on: rows by a thread of their own, so that storage never holds up training."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightning_timing.record import IterationRow, OutsideRow, RunSummary, SegmentEnd, SegmentHeader, Status
from lightning_timing.regular_file import open_to_append
from lightning_timing.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lightning_timing.clocks import Clock

FLUSH_INTERVAL_S: Final = 2.0
"""The longest that a row waits in memory for the next write."""
FLUSH_LINES: Final = 500
"""When this many rows wait, they are written at once."""
MAX_PENDING_BYTES: Final = 64 * 2**20
"""If more than this waits, the storage hangs: the record is given up, to spare the training's memory."""
CLOSE_TIMEOUT_S: Final = 10.0
"""The longest that the end of a run waits for the storage."""


class RecordWriter:
    """Appends one segment to a rank's file.

    No method raises: the first failure is reported once, and nothing is written from then on. What was written
    before stays, in whole lines. In a forked child (a DataLoader worker) every method does nothing.

    Args:
        path: The rank's file. Its folder is made if need be, and made again if it is deleted in mid-run.
        header: The segment's first line.
        on_failure: Called at most once, with the reason in words, on the thread that calls `append` or `close`,
            which is the writing thread where `when_idle` appends.
        when_idle: Called on the writing thread before a write for which it was not woken. It may append lines.
        flush_interval_s: Seconds between writes.
        close_timeout_s: Seconds that `close` waits for the storage.
        wall_clock: Nanoseconds since 1970-01-01 UTC.
    """

    def __init__(
        self,
        path: Path,
        header: SegmentHeader,
        on_failure: Callable[[str], None],
        *,
        when_idle: Callable[[], None] | None = None,
        flush_interval_s: float = FLUSH_INTERVAL_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        wall_clock: Clock = time.time_ns,
    ) -> None:
        self._path = path
        self._segment = header.segment
        self._on_failure = on_failure
        self._when_idle = when_idle
        self._flush_interval_s = flush_interval_s
        self._close_timeout_s = close_timeout_s
        self._wall_clock = wall_clock
        self._pid = os.getpid()
        self._encode = msgspec.json.Encoder().encode
        self._header = b""
        self._pending: deque[bytes] = deque()
        # Each of the two is counted up by one thread only, or nearly so, and need not be exact.
        self._bytes_appended = 0
        self._bytes_taken = 0
        self._is_open = True
        self._failure: str | None = None
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lightning-timing-record", daemon=True)
        self._start(header)

    def append(self, line: SegmentHeader | IterationRow | OutsideRow | Mapping[str, Any]) -> None:
        """Hands over a line to be written within `FLUSH_INTERVAL_S`: one of the record's, or a mapping like it."""
        if not self._is_open or os.getpid() != self._pid:
            return
        if self._failure is not None:
            self._give_up(self._failure)
            return
        try:
            data = self._encode(line)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._fail(f"a line cannot be written as JSON: {error}")
            return
        self._pending.append(data)
        self._bytes_appended += len(data)
        if len(self._pending) == FLUSH_LINES:
            self._wake.set()
        if self._bytes_appended - self._bytes_taken > MAX_PENDING_BYTES:
            self._fail(f"{self._path}: the storage does not answer")

    def replace_header(self, header: SegmentHeader) -> None:
        """Hands over the header once more, with what is known by now; readers take a segment's last one."""
        self.append(header)
        if self._is_open:
            self._header = self._encode(header)

    def close(self, status: Status) -> None:
        """Writes what is left and the segment's end, and waits for it, for `CLOSE_TIMEOUT_S` at most."""
        if not self._is_open or os.getpid() != self._pid:
            return
        end = SegmentEnd(segment=self._segment, status=status, unix_ns=self._wall_clock())
        self._pending.append(self._encode(end))
        self._is_open = False
        self._wake.set()
        self._thread.join(self._close_timeout_s)
        if self._thread.is_alive():
            self._fail(f"{self._path}: the storage did not answer within {self._close_timeout_s:g} s")
        elif self._failure is not None:
            self._give_up(self._failure)

    def _start(self, header: SegmentHeader) -> None:
        try:
            self._header = self._encode(header)
            self._thread.start()
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            self._fail(f"the header cannot be written as JSON: {error}")
        except RuntimeError as error:  # the system has no thread left
            self._fail(str(error))

    def _fail(self, reason: str) -> None:
        self._failure = reason
        self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        self._is_open = False
        self._pending.clear()
        self._wake.set()
        self._on_failure(reason)

    def _run(self) -> None:
        """The writing thread: the header at once, then what came in, until the segment is closed."""
        try:
            self._write(is_first=True)
            while self._is_open:
                if not self._wake.wait(self._flush_interval_s) and self._when_idle is not None:
                    self._when_idle()
                self._wake.clear()
                self._write()
            self._write()  # what was handed over while the last write was going on
        except (OSError, ValueError) as error:  # ValueError: a path that no file can have
            self._failure = f"{self._path}: {getattr(error, 'strerror', None) or error}"
        except Exception as error:  # noqa: BLE001  # there is nobody on this thread to catch it; the next call tells of it
            self._failure = f"{self._path}: {error!r}"

    def _write(self, *, is_first: bool = False) -> None:
        lines = [self._pending.popleft() for _ in range(len(self._pending))]
        if not lines and not is_first:
            return
        self._bytes_taken += sum(map(len, lines))
        # Opened for each write: a deleted file is made anew, where one held open would swallow the rows.
        try:
            descriptor = self._open()
        except FileNotFoundError:  # the folder was deleted once more, just now
            descriptor = self._open()
        try:
            size = os.fstat(descriptor).st_size
            if is_first or size == 0:
                lines.insert(0, self._header)
            if is_first and size > 0 and _last_byte(descriptor) != b"\n":
                lines.insert(0, b"")  # ends the half line of a run that was killed
            _write_all(descriptor, b"\n".join(lines) + b"\n")
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        """Opens the file, and makes it and its folder if need be."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return open_to_append(self._path)


def _last_byte(descriptor: int) -> bytes:
    os.lseek(descriptor, -1, os.SEEK_END)  # what is written goes to the end in any case
    return os.read(descriptor, 1)


def _write_all(descriptor: int, data: bytes) -> None:
    """Writes in one call, so that no other process writes in between; in several only if the system stops short."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_summary(path: Path, summary: RunSummary) -> None:
    """Writes `summary.json`, whole, and makes its folder if need be.

    Raises:
        OSError: It cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    data = msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n"  # NaN and infinity become null
    write_whole(path, [data])
