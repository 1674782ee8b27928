"""The tables of an Nsight Systems export (SQLite) that matter here, by their columns' names: from 2022.4 to 2026.

Identifiers: a `globalTid` holds the thread in its low 24 bits and the process above them; the process alone, with zeros
below, is a `globalPid`. Domains and categories are numbered anew in every process. Times are in nanoseconds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from lightning_timing.errors import BadInputError

_NVTX: Final = "NVTX_EVENTS"
_RUNTIME: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
_GPU_TABLES: Final = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))

_CATEGORY, _PUSH_POP, _START_END, _DOMAIN_CREATE = 33, 59, 60, 75
"""Values of the column `eventType`."""

_OPTIONAL: Final = ("category", "int64Value", "text", "textId")
"""Columns of the NVTX events that an export may lack."""

_THREAD_BITS: Final = 24
_MAX_NAME: Final = 1000
"""Characters of a name that are read."""
_MAX_TIME_NS: Final = 2**61
"""73 years, so that sums of a file's own times stay within 64 bits."""


class RangeRow(NamedTuple):
    """A range.

    Attributes:
        start_ns: When it opened.
        end_ns: When it closed; None if it did not while the profile was taken.
        thread: The globalTid of the thread that opened it.
        nests: Whether it was pushed, and so belongs to its thread; otherwise it was started, and belongs to none.
        name: Its name.
        category: Its category; None if it has none.
        payload: Its payload, a whole number; None if it has none.
    """

    start_ns: int
    end_ns: int | None
    thread: int
    nests: bool
    name: str
    category: str | None
    payload: int | None


class DeviceWork(NamedTuple):
    """A kernel, a copy or a memset, and the call that launched it.

    Attributes:
        call_start_ns: When the call began, on the host.
        call_end_ns: When it returned.
        start_ns: When the work began, on the device.
        end_ns: When it was done.
    """

    call_start_ns: int
    call_end_ns: int
    start_ns: int
    end_ns: int


def process_of(thread: int) -> int:
    """The globalPid of a globalTid."""
    return thread >> _THREAD_BITS << _THREAD_BITS


def pid_of(process: int) -> int:
    """The operating system's number of a process, of which the export keeps the low 24 bits."""
    return process >> _THREAD_BITS & 0xFFFFFF


class NsysTables:
    """An open export. Make it with `open_export`.

    Args:
        path: The file.
        connection: Its database.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self._columns = {name: self._columns_of(name) for (name,) in tables if isinstance(name, str)}
        if "StringIds" not in self._columns:
            raise BadInputError(f"{path}: no export of Nsight Systems: it has no table StringIds")
        if _NVTX not in self._columns:
            raise BadInputError(f"{path}: no table {_NVTX}: profile with nsys profile --trace=nvtx,cuda")

    def ranges(self, domain: str) -> Iterator[RangeRow]:
        """The ranges of a domain, thread by thread, in the order in which they opened, outer ones first."""
        domains = {(process, number) for process, number, name in self._named(_DOMAIN_CREATE) if name == domain}
        categories = {
            (process, number, category): name for process, number, name, category in self._named(_CATEGORY, "category")
        }
        rows = self._nvtx(
            f"eventType IN ({_PUSH_POP}, {_START_END}) ORDER BY globalTid, start, end IS NOT NULL, end DESC",
            ("globalTid", "domainId", "eventType", "start", "end", "category", "int64Value"),
        )
        for name, thread, number, event_type, start, end, category, value in rows:
            key = process_of(thread), number
            if key in domains:
                start_ns, end_ns = self._interval(start, start if end is None else end)
                stage = categories.get((*key, category))
                closed_ns = None if end is None else end_ns
                payload = value if isinstance(value, int) else None
                yield RangeRow(start_ns, closed_ns, thread, event_type == _PUSH_POP, name, stage, payload)

    def device_work(self) -> dict[int, list[DeviceWork]]:
        """What ran on devices, by the globalTid of the thread that launched it, in the order of the calls."""
        sources = [table for table in _GPU_TABLES if table in self._columns]
        if not sources or _RUNTIME not in self._columns:
            return {}
        for table in sources:
            self._require(table, ("start", "end", "correlationId", "globalPid"))
        calls = self._calls(sources)
        work: dict[int, list[DeviceWork]] = {}
        for table in sources:
            query = f"SELECT globalPid, correlationId, start, end FROM {table}"
            for process, correlation, start, end in self._connection.execute(query):
                call = calls.get((process, correlation))
                if call is not None:
                    thread, call_start_ns, call_end_ns = call
                    launched = DeviceWork(call_start_ns, call_end_ns, *self._interval(start, end))
                    work.setdefault(thread, []).append(launched)
        for launched_by_thread in work.values():
            launched_by_thread.sort()
        return work

    def _calls(self, tables: Sequence[str]) -> dict[tuple[int, object], tuple[int, int, int]]:
        """Thread, start and end of the calls that launched what is in the tables, by process and correlation."""
        self._require(_RUNTIME, ("start", "end", "correlationId", "globalTid"))
        wanted = " UNION ".join(f"SELECT correlationId FROM {table}" for table in tables)
        query = f"SELECT globalTid, correlationId, start, end FROM {_RUNTIME} WHERE correlationId IN ({wanted})"
        calls = {}
        for thread, correlation, start, end in self._connection.execute(query):
            calls[process_of(self._integer(thread)), correlation] = (thread, *self._interval(start, end))
        return calls

    def threads_named(self, prefix: str) -> set[int]:
        """The globalTids of the threads whose name begins with `prefix`."""
        if not {"globalTid", "nameId"} <= self._columns.get("ThreadNames", set()):
            return set()
        strings = "SELECT id FROM StringIds WHERE substr(value, 1, ?) = ?"
        query = f"SELECT globalTid FROM ThreadNames WHERE nameId IN ({strings})"
        return {thread for (thread,) in self._connection.execute(query, (len(prefix), prefix))}

    def has_other_nvtx_events(self) -> bool:
        """Whether any NVTX event was recorded, in whatever domain."""
        return self._connection.execute(f"SELECT 1 FROM {_NVTX} LIMIT 1").fetchone() is not None

    def _named(self, event_type: int, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Yields of each event of a type its process, its domain's number, the name it registers and other columns."""
        rows = self._nvtx(f"eventType = {event_type}", ("globalTid", "domainId", *columns))
        for name, thread, number, *rest in rows:
            yield (process_of(thread), number, name, *rest)

    def _nvtx(self, condition: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yields the NVTX events that meet a condition: name, then columns, of which the first must be `globalTid`."""
        present = self._columns[_NVTX]
        self._require(_NVTX, [column for column in ("eventType", *columns) if column not in _OPTIONAL])
        sources = [column if column in present else "NULL" for column in ("textId", *columns)]
        own_text = f"substr(text, 1, {_MAX_NAME})" if "text" in present else "NULL"
        query = f"SELECT {own_text}, {', '.join(sources)} FROM {_NVTX} WHERE {condition}"
        strings = self._registered_strings() if "textId" in present else {}
        for text, text_id, thread, *rest in self._connection.execute(query):
            name = text if text is not None else strings.get(text_id, "")
            yield (str(name), self._integer(thread), *rest)

    def _registered_strings(self) -> dict[object, object]:
        """Returns the names that events refer to, each read only once: many events may refer to one long name."""
        query = f"SELECT id, substr(value, 1, {_MAX_NAME}) FROM StringIds WHERE id IN (SELECT textId FROM {_NVTX})"
        return dict(self._connection.execute(query).fetchall())

    def _require(self, table: str, columns: Sequence[str]) -> None:
        for column in columns:
            if column not in self._columns[table]:
                raise BadInputError(f"{self.path}: table {table} has no column {column}")

    def _columns_of(self, table: str) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}

    def _interval(self, start: object, end: object) -> tuple[int, int]:
        start_ns, end_ns = self._integer(start), self._integer(end)
        if not -_MAX_TIME_NS < start_ns <= end_ns < _MAX_TIME_NS:
            raise BadInputError(f"{self.path}: something from {start_ns} to {end_ns} ns, which is no time")
        return start_ns, end_ns

    def _integer(self, value: object) -> int:
        if not isinstance(value, int):
            raise BadInputError(f"{self.path}: {value!r:.60} where a whole number belongs")
        return value


@contextmanager
def open_export(path: Path) -> Iterator[NsysTables]:
    """Opens an export for reading.

    Args:
        path: The file that `nsys export --type=sqlite` or `nsys profile --export=sqlite` wrote.

    Raises:
        BadInputError: There is no such file, it is no export, or it is damaged.
    """
    if not path.is_file():
        what = "not a file; give an export of nsys profile --export=sqlite" if path.exists() else "no such file"
        raise BadInputError(f"{path}: {what}")
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise BadInputError(f"{path}: a report, not an export of one: nsys export --type=sqlite {path}")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.execute("PRAGMA trusted_schema = OFF")
            yield NsysTables(path, connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite's own message quotes damaged bytes
        raise BadInputError(f"{path}: cannot be read as an SQLite export: {error}") from error
