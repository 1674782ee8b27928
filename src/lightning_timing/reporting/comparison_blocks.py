"""A comparison as blocks, for text and Markdown."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from lightning_timing.conditions import OVERRIDES
from lightning_timing.median_change import CONFIDENCE, FASTER, SLOWER, TOO_FEW
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.summary_blocks import UNMEASURED
from lightning_timing.reporting.tree import tree
from lightning_timing.reporting.units import UNKNOWN, plural, printable, rate, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lightning_timing.comparison import (
        Absence,
        AbsenceKind,
        BatchSizes,
        Change,
        ChangeT,
        Comparison,
        MeanIteration,
        MeasurementChange,
        PartOfChange,
        Side,
        Throughput,
    )
    from lightning_timing.conditions import Difference
    from lightning_timing.gate import Gate, Held

_LONGEST_TEXT: Final = 400
_LARGEST_SHOWN: Final = 10.0
"""The largest end of an interval, as a share, that is shown in full: beyond it a figure says only that it is large."""
_NOT_RECORDED: Final = "not recorded"
_NOT_GIVEN: Final = "not given"

_CONDITION_COLUMNS: Final = (
    Column("condition", is_number=False, importance=9),
    Column("before", is_number=False, importance=8),
    Column("after", is_number=False, importance=8),
)
_CHANGE_COLUMNS: Final = (
    Column("measurement", is_number=False, importance=9),
    Column("before", importance=5),
    Column("after", importance=4),
    Column("change", importance=6),
    Column("95 % interval", importance=7),
    Column("verdict", is_number=False, importance=8),
    Column("counts", importance=1),
)
_ABSENT: Final[Mapping[AbsenceKind, str]] = {
    "missing": "only before",
    "new": "only after",
    "unmeasured": UNMEASURED,
}


def comparison_blocks(comparison: Comparison, gate: Gate | None) -> list[Block]:
    """A comparison as a report.

    Args:
        comparison: What was found.
        gate: The changes held against a threshold, or None.
    """
    sides = (f"before: {_paths(comparison.before)}", f"after: {_paths(comparison.after)}")
    unreliable, notes = (
        tuple(f"note: {printable(note, _LONGEST_TEXT)}" for note in kind)
        for kind in (comparison.contention, (*map(_batch_sizes_in_words, comparison.batch_sizes), *comparison.notes))
    )
    lines = (*unreliable, *_mean_lines(comparison), *sides, *notes)
    blocks: list[Block] = [Heading("Before and after"), Lines(lines)]
    blocks += _condition_blocks(comparison.differences)
    for stage in dict.fromkeys(item.stage for item in comparison.items):
        blocks += _stage_blocks(
            stage,
            [change for change in comparison.changes if change.stage == stage],
            [absence for absence in comparison.absences if absence.stage == stage],
            [throughput for throughput in comparison.throughputs if throughput.stage == stage],
        )
    return blocks if gate is None else [*blocks, Lines(("", _gate_line(gate)))]


def _condition_blocks(differences: Iterable[Difference]) -> list[Block]:
    rows = tuple(map(_condition_row, differences))
    if not rows:
        return [Lines(("conditions: no difference is recorded",))]
    return [Heading("Differing conditions"), Table(_CONDITION_COLUMNS, rows)]


def _condition_row(difference: Difference) -> tuple[str, ...]:
    absent = _NOT_GIVEN if difference.condition.startswith(OVERRIDES) else _NOT_RECORDED
    sides = (
        ", ".join(absent if v is None else printable(v, _LONGEST_TEXT) for v in d)
        for d in (difference.before, difference.after)
    )
    return (printable(difference.condition), *sides)


def _stage_blocks(
    stage: str, changes: list[MeasurementChange], absences: list[Absence], throughputs: list[Throughput]
) -> Iterator[Block]:
    yield Heading(f"{stage}: medians")
    if changes:
        yield Table(_CHANGE_COLUMNS, tuple(_change_rows(changes)))
    lines = [*_differing_line(changes), *map(_throughput_line, throughputs)]
    for verdict, reason in dict.fromkeys((change.verdict, change.reason) for change in changes if change.reason):
        names = [_label(change) for change in changes if change.reason == reason]
        lines.append(f"{verdict}: {', '.join(names)} ({reason})")
    for kind, words in _ABSENT.items():
        if names := [_label(absence) for absence in absences if absence.kind == kind]:
            lines.append(f"{words}: {', '.join(names)}")
    if lines:
        yield Lines(tuple(lines))


def _differing_line(changes: list[MeasurementChange]) -> Iterator[str]:
    """Says of how many rows some differ, since each may do so by chance: how many is known from several runs a side."""
    judged = [change for change in changes if change.has_interval]
    differing = sum(change.verdict in (FASTER, SLOWER) for change in judged)
    if not differing or len(judged) < 2:
        return
    if all(change.is_of_single_runs for change in judged):
        yield f"{differing} of {len(judged)} rows differ between these two runs, as they may where nothing changed"
    else:
        expected = (1 - CONFIDENCE) * len(judged)
        by_chance = f"{expected:.1g}" if expected < 1 else f"{expected:.0f}"
        yield f"{differing} of {len(judged)} rows differ; had nothing changed, about {by_chance} would by chance"


def _mean_lines(comparison: Comparison) -> Iterator[str]:
    for mean in comparison.means:
        samples = next((sizes.samples for sizes in comparison.batch_sizes if sizes.stage == mean.stage), None)
        take = "an iteration takes" if samples is None else f"{samples:,} samples take"
        yield f"{mean.stage}: {take} {_times_of(mean)} on average ({_changed(mean)}): {_outcome(mean)}"
        yield from _part_line(mean)
        for whole in comparison.wholes:
            if whole.stage == mean.stage:
                its, takes = ("its", "it takes") if samples is None else ("their", "they take")
                line = f"{whole.stage}: with {its} part of what lies between iterations {takes} {_times_of(whole)}"
                outcome = "" if whole.verdict == TOO_FEW else f": {_outcome(whole)}"
                yield f"{line} ({_changed(whole)}){outcome}"
                yield from _part_line(whole)


def _part_line(mean: MeanIteration) -> Iterator[str]:
    if mean.parts:
        parts = "; ".join(map(_part_in_words, mean.parts))
        yield f"{mean.stage}: of these {_signed_seconds(mean.after.time_s - mean.before.time_s)}, {parts}"


def _batch_sizes_in_words(sizes: BatchSizes) -> str:
    before, after = (", ".join(f"{size:,}" for size in of_side) for of_side in (sizes.before, sizes.after))
    return (
        f"{sizes.stage} has batches of {before} samples before, {after} after: so that they compare, its times are "
        f"those of {sizes.samples:,} samples"
    )


def _part_in_words(part: PartOfChange) -> str:
    mostly = "" if part.mostly_in is None else f", most of it in {printable(part.mostly_in)}"
    return f"{printable(part.phase)} has {_signed_seconds(part.change_s)}{mostly}"


def _signed_seconds(change_s: float) -> str:
    return f"{'-' if change_s < 0 else '+'}{seconds(abs(change_s))}"


def _times_of(mean: MeanIteration) -> str:
    return f"{seconds(mean.before.time_s)} before, {seconds(mean.after.time_s)} after"


def _changed(mean: MeanIteration) -> str:
    interval = _interval(mean)
    return f"{_signed_percent(mean.change)}, {interval}" if interval != UNKNOWN else _signed_percent(mean.change)


def _outcome(mean: MeanIteration) -> str:
    return f"{_verdict(mean)} ({printable(mean.reason, _LONGEST_TEXT)})" if mean.reason else _verdict(mean)


def _throughput_line(throughput: Throughput) -> str:
    before, after = (rate(value, 1.0, "samples") for value in (throughput.before, throughput.after))
    change = throughput.after / throughput.before - 1
    whose = " of one rank" if throughput.of_one_rank else ""
    return f"throughput{whose} over all iterations: {before} before, {after} after ({_signed_percent(change)})"


def _change_rows(changes: list[MeasurementChange]) -> Iterator[tuple[str, ...]]:
    """The rows of a stage as a tree, a measurement's device time below its host time."""
    by_name: dict[str, list[MeasurementChange]] = {}
    for change in changes:
        by_name.setdefault(change.measurement, []).append(change)
    for node in tree({name: of_name[0] for name, of_name in by_name.items()}):
        for change in by_name[node.name]:
            yield _change_row(node.indented, change)


def _change_row(indented: str, change: MeasurementChange) -> tuple[str, ...]:
    return (
        _with_clock(indented, change),
        seconds(change.before.time_s),
        seconds(change.after.time_s),
        _signed_percent(change.change),
        _interval(change),
        _verdict(change),
        _counts(change),
    )


def _verdict(change: MeasurementChange | MeanIteration) -> str:
    is_of_runs = change.is_of_single_runs and change.verdict in (FASTER, SLOWER)
    return f"{change.verdict} in these runs" if is_of_runs else change.verdict


def _label(item: MeasurementChange | Absence) -> str:
    return _with_clock("all of it" if item.measurement is None else printable(item.measurement), item)


def _with_clock(name: str, item: MeasurementChange | Absence) -> str:
    return f"{name} (device)" if item.clock == "device" else name


def _counts(change: MeasurementChange) -> str:
    """Times measured before and after; once where both are the same, which leaves room for the other columns."""
    before, after = _times(change.before), _times(change.after)
    return before if before == after else f"{before} / {after}"


def _times(side: Side) -> str:
    return f"{side.count:,}" if side.runs == 1 else f"{side.count:,} in {plural(side.runs, 'run')}"


def _interval(change: Change) -> str:
    if change.low is None or change.high is None or not change.has_interval:
        return UNKNOWN
    if change.low > _LARGEST_SHOWN:
        return _bound(change.low)
    return f"{_signed_percent(change.low)} to {_bound(change.high)}"


def _bound(share: float) -> str:
    return f"> {_signed_percent(_LARGEST_SHOWN)}" if share > _LARGEST_SHOWN else _signed_percent(share)


def _signed_percent(share: float | None) -> str:
    if share is None:
        return UNKNOWN
    decimals = 2 if abs(share) < 0.1 else 1 if abs(share) < 10 else 0
    return f"{100 * share:+,.{decimals}f} %"


def _gate_line(gate: Gate) -> str:
    limit = f"{100 * gate.threshold:g} %"
    kinds = (
        _held_in_words(gate.medians, lambda c: f"{c.stage} {_label(c)}", lambda c: c.verdict),
        _held_in_words(
            gate.means, lambda m: f"{m.stage} mean iteration", lambda m: f"{_signed_percent(m.change)}, {m.verdict}"
        ),
        _held_in_words(
            gate.wholes,
            lambda w: f"{w.stage} with what lies between iterations",
            lambda w: f"{_signed_percent(w.change)}, {w.reason}",
        ),
    )
    crossed, judged, undecided, not_judged = (
        ", ".join(chain.from_iterable(names)) for names in zip(*kinds, strict=True)
    )
    if gate.is_crossed:
        return f"above {limit}: {crossed}"
    absent = ", ".join(f"{a.stage} {_label(a)} ({_ABSENT[a.kind]})" for a in gate.absences)
    but = f"; it may be more in {undecided}" if undecided else ""
    but += f"; not judged: {', '.join(filter(None, (not_judged, absent)))}" if not_judged or absent else ""
    return f"no whole interval above {limit} in {judged}{but}" if judged else f"nothing to hold against {limit}{but}"


def _held_in_words(
    held: Held[ChangeT], name: Callable[[ChangeT], str], why_not: Callable[[ChangeT], str]
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Names the changes of one kind: those above the threshold, those judged, those undecided, and those not judged."""
    return (
        [f"{name(change)} ({_interval(change)})" for change in held.crossed],
        [name(change) for change in held.judged],
        [f"{name(change)} ({_interval(change)})" for change in held.undecided],
        [f"{name(change)} ({why_not(change)})" for change in held.not_judged],
    )


def _paths(paths: tuple[str, ...]) -> str:
    return ", ".join(printable(path, _LONGEST_TEXT) for path in paths)
