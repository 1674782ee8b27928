"""Files that mean harm cost a command one line and exit code 2, in bounded time and memory; nothing in them is run."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from programs import output_of, run_program
from records import MS, end, header, phases, rows, write_lines

import lightning_timing

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = """
import contextlib, io, json, pathlib, sys, time
from lightning_timing.cli.main import main

told = {}
for arguments in json.loads(sys.argv[1]):
    errors, began = io.StringIO(), time.perf_counter()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(arguments)
    told[json.dumps(arguments)] = [code, errors.getvalue(), time.perf_counter() - began]
# getrusage would count the memory of the process that started this one as well.
(most,) = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
print("TOLD", json.dumps([told, int(most.split()[1])]))
"""

TWO_GIB = 2 * 2**30
MOST_SECONDS = 20.0
MOST_KIB = 300 * 2**10


def two_gib(path: Path) -> None:
    """A file of one endless line, which takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(TWO_GIB)


def deep(levels: int = 2 * 10**6) -> bytes:
    return b'{"kind":' + b"[" * levels


def hostile_runs(folder: Path) -> Iterator[Path]:
    """Runs whose records are not what they should be."""
    good = [header(), *rows([phases(forward=MS)] * 20), end()]
    yield write_lines(folder / "an endless line", good)
    two_gib(folder / "an endless line" / "timing" / "rank0.jsonl")
    yield write_lines(folder / "an endless summary", good)
    two_gib(folder / "an endless summary" / "timing" / "summary.json")
    yield write_lines(folder / "nesting without end", [])
    (folder / "nesting without end" / "timing" / "rank0.jsonl").write_bytes(deep() + b"\n")
    yield write_lines(folder / "a pickle", [])
    (folder / "a pickle" / "timing" / "rank0.jsonl").write_bytes(PICKLE)
    yield write_lines(folder / "a pickled summary", good)
    (folder / "a pickled summary" / "timing" / "summary.json").write_bytes(PICKLE)
    yield write_lines(folder / "a link out of it", [])
    (folder / "a link out of it" / "timing" / "rank0.jsonl").unlink()
    (folder / "a link out of it" / "timing" / "rank0.jsonl").symlink_to("/etc/passwd")
    yield write_lines(folder / "a device", [])
    (folder / "a device" / "timing" / "rank0.jsonl").unlink()
    (folder / "a device" / "timing" / "rank0.jsonl").symlink_to("/dev/zero")
    endless = msgspec.to_builtins(rows([phases(forward=MS)])[0]) | {"ns": {f"{i}": i for i in range(200_000)}}
    yield write_lines(folder / "names without end", [header()])
    with (folder / "names without end" / "timing" / "rank0.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(endless) + b"\n")


PICKLE = b"cos\nsystem\n(S'touch was-run'\ntR."
"""What makes a file as soon as it is loaded as a pickle."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int, Path]:
    """What each command said to each file, and the most memory that all of it took, in KiB."""
    folder = tmp_path_factory.mktemp("hostile")
    good = write_lines(folder / "good", [header(), *rows([phases(forward=MS)] * 20), end()])
    commands = []
    for run in hostile_runs(folder):
        commands += [["report", str(run)], ["report", str(run), "--html", str(folder / "page.html")]]
        commands += [["compare", str(good), str(run)]]
        commands += [] if "summary" in run.name else [["trace", str(run)]]
    two_gib(folder / "zeros.sqlite")
    (folder / "pickle.sqlite").write_bytes(PICKLE)
    (folder / "deep.sqlite").write_bytes(deep())
    commands += [["nsys", str(folder / f"{name}.sqlite")] for name in ("zeros", "pickle", "deep")]
    output = output_of(run_program(PROGRAM, folder, json.dumps(commands)))
    (line,) = [line for line in output.splitlines() if line.startswith("TOLD ")]
    found, most_kib = json.loads(line.removeprefix("TOLD "))
    return found, most_kib, folder


def test_each_command_says_so_in_one_line_and_exits_with_2(told: tuple[dict[str, Any], int, Path]) -> None:
    found, _, _ = told

    assert len(found) == 8 * 3 + 6 + 3
    for arguments, (code, errors, _) in found.items():
        assert code == 2, (arguments, errors)
        assert errors.count("\n") == 1, (arguments, errors)
        assert len(errors) < 1000, arguments


def test_it_takes_bounded_time_and_memory(told: tuple[dict[str, Any], int, Path]) -> None:
    found, most_kib, _ = told

    assert {arguments: seconds for arguments, (_, _, seconds) in found.items() if seconds > MOST_SECONDS} == {}
    assert most_kib < MOST_KIB


def test_nothing_was_run_and_nothing_written(told: tuple[dict[str, Any], int, Path]) -> None:
    _, _, folder = told

    assert not list(folder.rglob("was-run"))
    assert not list(folder.rglob("*.html"))
    assert not list(folder.rglob("trace.json"))


def test_no_module_can_load_a_pickle_or_run_text_as_code() -> None:
    forbidden_modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    forbidden_calls = {"eval", "exec", "load_pickle"}
    root = Path(lightning_timing.__file__).parent
    found = []
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.partition(".")[0] for name in names} & forbidden_modules:
                found.append((file.name, node.lineno))
            if isinstance(node, ast.Call) and ast.unparse(node.func) in forbidden_calls | {"torch.load", "np.load"}:
                found.append((file.name, node.lineno))
    assert found == []
