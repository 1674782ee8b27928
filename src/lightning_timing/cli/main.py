"""The entry point of `lightning-timing`: runs the chosen subcommand; errors become one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from lightning_timing.cli.stdout import abandon_stdout
from lightning_timing.errors import TimingError
from lightning_timing.reporting.units import printable

DESCRIPTION: Final = "Where a training iteration's time goes, and whether a change made it faster."

COMMANDS: Final[Mapping[str, str]] = {
    "report": "where the time of a run's iterations goes",
    "compare": "whether one run, or one set of runs, is faster than another",
    "trace": "a run as a trace file for Perfetto or chrome://tracing",
    "nsys": "the phases in an export of Nsight Systems",
    "check": "whether NVTX ranges would arrive in a profile, and the commands that take one",
}
"""The subcommands and what each shows. Their modules are imported only when chosen, so that `--help` stays quick."""

EXIT_BAD_INPUT: Final = 2
_EXIT_READER_WENT_AWAY: Final = 141
"""What a shell reports for any program whose reader went away: 128 and the number of SIGPIPE, which Windows lacks."""
_MAX_ERROR_LENGTH: Final = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 1 where a threshold was crossed, 2 for bad input or a mistake of ours.
    """
    if sys.stdout is None:  # closed, as in `>&-`: the exit code counts all the same
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for the rest of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may have characters that the terminal has not
    arguments = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(arguments)
    except BrokenPipeError:
        abandon_stdout()
        return _EXIT_READER_WENT_AWAY
    except (TimingError, OSError) as error:
        print(f"lightning-timing: {printable(str(error), _MAX_ERROR_LENGTH)}", file=sys.stderr)
        _flush_or_abandon_stdout()
        return EXIT_BAD_INPUT
    except Exception:  # noqa: BLE001  # Python would exit with 1, as where a threshold was crossed
        import traceback

        traceback.print_exc()
        _flush_or_abandon_stdout()
        return EXIT_BAD_INPUT


def _run(arguments: list[str]) -> int:
    args = _parser(arguments).parse_args(arguments)
    code: int = importlib.import_module(f"lightning_timing.cli.{args.command}").run(args)
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had enough, which does not change the outcome
        abandon_stdout()
    return code


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """The parser, with the arguments of the chosen subcommand only."""
    parser = argparse.ArgumentParser(
        prog="lightning-timing",
        description=DESCRIPTION,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(dest="command", required=True)  # whose usage names them all
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name in arguments[:1]:
            module = importlib.import_module(f"lightning_timing.cli.{name}")
            subparser.description = module.__doc__
            module.add_arguments(subparser)
    return parser


class _ShowVersion(argparse.Action):
    """Looks the version up only where it is asked for, so that other commands stay quick."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{parser.prog} {version('lightning-timing')}")
        parser.exit()


def _flush_or_abandon_stdout() -> None:
    """Flushes what was printed before an error. Gives stdout up if it cannot be written."""
    try:
        sys.stdout.flush()
    except OSError:
        abandon_stdout()
