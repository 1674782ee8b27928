"""The phases in an Nsight Systems export, as blocks: a table a stage, with the Stopwatch's figures beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightning_timing.clocks import NS_IN_S
from lightning_timing.nsys_agreement import TOLERANCE_S, TOLERANCE_SHARE
from lightning_timing.phases import ITERATION, place_in_loop, place_of_stage
from lightning_timing.reporting.blocks import Block, Column, Heading, Lines, Table
from lightning_timing.reporting.units import UNKNOWN, percent, plural, printable, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightning_timing.nsys_agreement import Agreement
    from lightning_timing.nsys_export import ExportedProcess, RangeSeries

_COLUMNS: Final = (
    Column("range", is_number=False, importance=9),
    Column("count", importance=8),
    Column("host total", importance=6),
    Column("host p50", importance=7),
    Column("GPU projected", importance=5),
    Column("GPU busy", importance=5),
    Column("GPU idle", importance=5),
)
_AGREEMENT_COLUMNS: Final = (
    Column("nsys p50", importance=8),
    Column("Stopwatch p50", importance=8),
    Column("difference", importance=8),
    Column("", is_number=False, importance=9),
)
_GPU_NOTE: Final = (
    "GPU projected: from the first to the last GPU work that a range launched, summed over its ranges; busy: how much "
    "of that time any of it ran; idle: the rest."
)
_OTHER_PROCESS: Final = (
    "the export is of process {} and the run of process {}: they are two trainings, unless it ran in a container, "
    "which has numbers of its own"
)
_DISAGREES: Final = "DISAGREES"


def nsys_blocks(
    processes: Sequence[ExportedProcess],
    compared: ExportedProcess | None,
    agreements: Mapping[tuple[str, str], Agreement],
    recorded_by: int | None = None,
) -> list[Block]:
    """The report of an export.

    Args:
        processes: The processes that have ranges.
        compared: The one that the Stopwatch's figures belong to; None where there are none.
        agreements: How it compares, by stage and name.
        recorded_by: The number of the process that recorded those figures, as it knew it.
    """
    blocks: list[Block] = []
    for process in processes:
        if len(processes) > 1:
            blocks.append(Heading(f"process {process.pid}"))
        for stage in _in_order(process.stages):
            beside = agreements if process is compared else {}
            blocks += [Heading(_title(stage, process)), _table(stage, process.stages[stage], beside)]
        if process.left_open:
            blocks.append(Lines((f"left out because they had not closed: {plural(process.left_open, 'range')}",)))
    notes = [_GPU_NOTE] if any(_has_gpu(ranges) for process in processes for ranges in process.stages.values()) else []
    if agreements:
        notes += [_agreement_note(agreements), _verdict(agreements)]
    agrees = all(agreement.agrees for agreement in agreements.values())
    if not agrees and compared is not None and recorded_by not in (None, compared.pid):
        notes.append(_OTHER_PROCESS.format(compared.pid, recorded_by))
    return [*blocks, Lines(tuple(notes))] if notes else blocks


def _in_order(stages: Mapping[str | None, object]) -> list[str | None]:
    return sorted(stages, key=lambda stage: (stage is None, place_of_stage(stage or ""), stage or ""))


def _title(stage: str | None, process: ExportedProcess) -> str:
    if stage is None:
        return "outside of iterations"
    return f"{printable(stage)}: {plural(process.iteration_count(stage), 'iteration')}"


def _table(
    stage: str | None, ranges: Mapping[str, RangeSeries], agreements: Mapping[tuple[str, str], Agreement]
) -> Table:
    with_agreement = any(of == stage for of, _ in agreements)
    rows = []
    for name in sorted(ranges, key=_place):
        row = _row(name, ranges[name])
        if with_agreement:
            row += _agreement_cells(agreements.get((stage or "", name)))
        rows.append(row)
    return Table(_COLUMNS + _AGREEMENT_COLUMNS if with_agreement else _COLUMNS, tuple(rows))


def _place(name: str) -> tuple[int, str]:
    return place_in_loop(name), name


def _row(name: str, series: RangeSeries) -> tuple[str, ...]:
    on_gpu = (series.gpu_ns, series.gpu_busy_ns) if series.gpu_count else (None, None)
    return (
        printable(name),
        f"{len(series):,}",
        _ns(series.host_total_ns),
        _ns(series.host_median_ns),
        *map(_ns, on_gpu),
        percent(series.gpu_idle_share),
    )


def _agreement_cells(agreement: Agreement | None) -> tuple[str, ...]:
    if agreement is None:
        return (UNKNOWN, UNKNOWN, UNKNOWN, "")
    difference = agreement.difference_s
    sign = "+" if difference > 0 else ""
    verdict = "" if agreement.agrees else _DISAGREES
    return (seconds(agreement.nsys_s), seconds(agreement.stopwatch_s), f"{sign}{seconds(difference)}", verdict)


def _agreement_note(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    compared = [
        f"{plural(agreement.samples, 'iteration')} of {printable(stage)}"
        for (stage, name), agreement in agreements.items()
        if name == ITERATION
    ]
    return (
        f"nsys p50 and Stopwatch p50: both over the same iterations, those that both have: {', '.join(compared)}. Per "
        "iteration, and a phase without the phases inside it, as the Stopwatch counts."
    )


def _verdict(agreements: Mapping[tuple[str, str], Agreement]) -> str:
    apart = [f"{stage}/{name}" for (stage, name), agreement in agreements.items() if not agreement.agrees]
    us, percents = f"{TOLERANCE_S * 1e6:g}", f"{TOLERANCE_SHARE * 100:g}"
    if not apart:
        measurements = plural(len(agreements), "measurement")
        return f"nsys and the Stopwatch agree on all {measurements}, within {us} us or {percents} %"
    return (
        f"nsys and the Stopwatch disagree by more than {us} us and {percents} % on: {', '.join(map(printable, apart))}"
    )


def _has_gpu(ranges: Mapping[str, RangeSeries]) -> bool:
    return any(series.gpu_count for series in ranges.values())


def _ns(value: float | None) -> str:
    return seconds(None if value is None else value / NS_IN_S)
