"""Exports of Nsight Systems, written by the tests: what its SQLite files hold, GPU rows included, with no GPU."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

US = 1_000
"""Nanoseconds in a microsecond."""

_VM = 0x1000000000000
"""What nsys puts above the process in its identifiers: the machine."""

NVTX_2022 = (
    "start", "end", "eventType", "rangeId", "category", "color", "text", "globalTid", "endGlobalTid", "textId",
    "domainId", "uint64Value", "int64Value", "jsonTextId", "jsonText",
)  # fmt: skip
NVTX_2026 = (
    "domainId",
    "textId",
    "globalTid",
    "text",
    "category",
    "int64Value",
    "eventType",
    "start",
    "end",
    "binaryData",
)
"""Newer ones add columns, drop others, and need not keep their order."""

GPU_COLUMNS = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
RUNTIME_COLUMNS = ("start", "end", "eventClass", "globalTid", "correlationId", "nameId")


def thread_id(pid: int, tid: int) -> int:
    return _VM | pid << 24 | tid


class ExportBuilder:
    """Writes an export. Times are in microseconds.

    Args:
        path: The file to write.
        nvtx_columns: The columns of NVTX_EVENTS.
    """

    def __init__(self, path: Path, nvtx_columns: tuple[str, ...] = NVTX_2022) -> None:
        self.path = path
        self.nvtx_columns = nvtx_columns
        self._connection = sqlite3.connect(path)
        self._strings: dict[str, int] = {}
        self._domains: set[tuple[int, int]] = set()
        self._categories: dict[tuple[int, int, str], int] = {}
        self._correlation = 0
        self._create("StringIds", ("id", "value"))
        self._create("NVTX_EVENTS", nvtx_columns)

    def __enter__(self) -> ExportBuilder:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()

    def range(
        self,
        name: str,
        start: float,
        end: float | None,
        stage: str | None = "train",
        *,
        pid: int = 100,
        tid: int = 100,
        domain: str = "lightning_timing",
        domain_id: int = 1,
        event_type: int = 59,
        registered: bool = True,
        batch_idx: int | None = None,
    ) -> None:
        """Adds a range, and on the way its domain and category."""
        thread = thread_id(pid, tid)
        if (pid, domain_id) not in self._domains:
            self._domains.add((pid, domain_id))
            self._nvtx(start=0, eventType=75, text=domain, globalTid=thread, domainId=domain_id)
        self._nvtx(
            start=_ns(start),
            end=None if end is None else _ns(end),
            eventType=event_type,
            globalTid=thread,
            domainId=domain_id,
            category=None if stage is None else self._category(pid, domain_id, thread, stage),
            int64Value=batch_idx,
            **({"textId": self.string(name)} if registered else {"text": name}),
        )

    def kernel(
        self,
        call: tuple[float, float],
        ran: tuple[float, float],
        *,
        pid: int = 100,
        tid: int = 100,
        kind: str = "KERNEL",
        correlation: int | None = None,
    ) -> int:
        """Adds work of a GPU and the call that launched it, or to the call of another; returns the correlation."""
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        self._create(table, GPU_COLUMNS)
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
            self._create("CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME_COLUMNS)
            self._insert(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=_ns(call[0]),
                end=_ns(call[1]),
                globalTid=thread_id(pid, tid),
                correlationId=correlation,
            )
        self._insert(
            table,
            start=_ns(ran[0]),
            end=_ns(ran[1]),
            deviceId=0,
            streamId=7,
            correlationId=correlation,
            globalPid=thread_id(pid, 0),
        )
        return correlation

    def restart_correlations(self) -> None:
        """Begins anew, as another process does."""
        self._correlation = 0

    def name_thread(self, pid: int, tid: int, name: str) -> None:
        """Adds the name of a thread."""
        self._create("ThreadNames", ("nameId", "priority", "globalTid"))
        self._insert("ThreadNames", nameId=self.string(name), priority=20, globalTid=thread_id(pid, tid))

    def string(self, text: str) -> int:
        """The number of a registered string."""
        if text not in self._strings:
            self._strings[text] = len(self._strings) + 1
            self._insert("StringIds", id=self._strings[text], value=text)
        return self._strings[text]

    def execute(self, statement: str) -> None:
        """Runs any SQL, to damage the export."""
        self._connection.execute(statement)

    def _category(self, pid: int, domain_id: int, thread: int, name: str) -> int:
        key = (pid, domain_id, name)
        number = self._categories.get(key)
        if number is None:
            number = self._categories[key] = 1 + sum(other[:2] == key[:2] for other in self._categories)
            self._nvtx(start=0, eventType=33, text=name, category=number, globalTid=thread, domainId=domain_id)
        return number

    def _nvtx(self, **values: Any) -> None:
        if "text" in values and "text" not in self.nvtx_columns:
            values["textId"] = self.string(values.pop("text"))
        self._insert("NVTX_EVENTS", **values)

    def _create(self, table: str, columns: tuple[str, ...]) -> None:
        names = ", ".join(f'"{column}"' for column in columns)
        self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({names})")

    def _insert(self, table: str, **values: Any) -> None:
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" for _ in values)
        self._connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))


def _ns(microseconds: float) -> int:
    return round(microseconds * US)
