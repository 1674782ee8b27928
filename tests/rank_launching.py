"""Starts programs of several ranks, and sees to it that none of their processes outlives the test."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

TESTS = Path(__file__).parent
PROGRAMS = TESTS / "rank_programs"
TIMEOUT_S = 120.0
"""The longest that a program may take: on an idle machine the slowest takes 20 s, most of it importing."""

_OF_ANOTHER_LAUNCHER = ("LOCAL_RANK", "RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


class Finished(NamedTuple):
    """How a program ended.

    Attributes:
        returncode: As in `subprocess`.
        output: What its processes printed, errors included.
    """

    returncode: int
    output: str


def run_program(name: str, folder: Path, *arguments: str, **environment: str) -> Finished:
    """Runs a program of `rank_programs` in a folder until it and all that it started are through.

    Args:
        name: The file's name, without `.py`.
        folder: The working directory. It stays empty but for what the program writes.
        *arguments: The command line.
        **environment: Variables that it gets beside this process's own.
    """
    (finished,) = run_all([[sys.executable, str(PROGRAMS / f"{name}.py"), *arguments]], folder, **environment)
    return finished


def run_all(commands: Sequence[Sequence[str]], folder: Path, **environment: str) -> list[Finished]:
    """Runs several commands at once, as `run_program` does. When the time is up, all of their processes are killed."""
    folder.mkdir(exist_ok=True)
    # Files, as a process that is left over would hold a pipe open.
    outputs = [folder.with_name(f"{folder.name}-output-{number}.txt") for number in range(len(commands))]
    begin = time.monotonic()
    processes = [_start(*each, folder, environment) for each in zip(commands, outputs, strict=True)]
    try:
        while any(process.poll() is None or _left_of(process) for process in processes):
            if time.monotonic() > begin + TIMEOUT_S:
                raise AssertionError("\n".join(["too slow:", *(output.read_text() for output in outputs)]))
            time.sleep(0.05)
    finally:
        for process in processes:
            _kill_tree(process)
    return [
        Finished(process.returncode, output.read_text(errors="replace"))
        for process, output in zip(processes, outputs, strict=True)
    ]


def _start(command: Sequence[str], output: Path, folder: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_LAUNCHER}
    ours = {
        "PYTHONPATH": os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    with output.open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**inherited, **ours, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _left_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """What still runs in a process's session: Lightning's rank 0 does not wait for the ranks that it started."""
    found = []
    for other in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getsid(other.pid) == process.pid and other.status() != psutil.STATUS_ZOMBIE:
                found.append(other)
    return found


def _kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and what it started, torchrun's workers included, which are in sessions of their own."""
    left = _left_of(process)
    with suppress(psutil.NoSuchProcess):
        left += psutil.Process(process.pid).children(recursive=True)
    for each in left:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    process.wait()
