"""The parts of a page about the whole run: what it was, what its figures say, and what it ran on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from lightning_timing.advice import SEE_PAGE
from lightning_timing.conditions import flat
from lightning_timing.phases import ITERATION
from lightning_timing.record import NOT_ENDED
from lightning_timing.reporting.markup import Markup, tag
from lightning_timing.reporting.page_parts import card, meter, values_table
from lightning_timing.reporting.run_blocks import LONGEST_PATH, notes_on
from lightning_timing.reporting.summary_blocks import LONGEST_SENTENCE, rank_of, where_time_went
from lightning_timing.reporting.units import UNKNOWN, percent, plural, printable, rate, seconds
from lightning_timing.verdict import why_no_verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lightning_timing.figures import CpuUsage, StageSummary
    from lightning_timing.run_report import RunReport

_FIRST_FACTS: Final = ("device_name", "device", "processor", "torch", "lightning", "pytorch-lightning")
_MAX_NESTING: Final = 3
_MAX_LIST: Final = 20
_ACCENT: Final = "var(--accent)"


def heading(report: RunReport) -> Markup:
    """Which run it is, and how it ended."""
    status = report.status or NOT_ENDED
    rank = rank_of(report.rank, report.world_size)
    lines = (f"figures of {rank}" if rank else "", _ran_on(report.environment))
    return tag(
        "header",
        tag(
            "div",
            tag("h1", "Where the time goes"),
            tag("p", tag("bdi", printable(str(report.path), LONGEST_PATH)), class_="path"),
            *(tag("p", tag("bdi", line), class_="path") for line in lines if line),
        ),
        tag("span", status, class_=f"status {report.status or 'killed'}"),
        class_="top",
    )


def _ran_on(environment: Mapping[str, Any]) -> str:
    """The facts about where a run ran that are asked for first; all others are at the page's end."""
    found = ((name, environment.get(name)) for name in _FIRST_FACTS)
    return ", ".join(f"{name} {printable(str(value))}" for name, value in found if value)


def notes(report: RunReport) -> list[Markup]:
    """What the reader must know of gaps in the record."""
    lines = list(notes_on(report))
    return [tag("section", *(tag("p", line) for line in lines), class_="card warning")] if lines else []


def verdict_card(report: RunReport) -> Markup:
    """What limits the run, why that is said, what to try, and where the time went."""
    verdict, went = report.verdict, where_time_went(report.stages)
    lines = [tag("p", f"{_capital(went)}.")] if went else []
    if verdict is None:
        reason = why_no_verdict(report.stages) or "no iteration was measured"
        return tag("section", tag("p", f"{_capital(reason)}."), *lines, class_="card verdict")
    advice = verdict.advice.replace(SEE_PAGE, "(below)")
    return tag(
        "section",
        tag("strong", verdict.name.capitalize()),
        tag("p", f"{printable(verdict.evidence, LONGEST_SENTENCE)}."),
        tag("p", tag("b", "Next: "), f"{printable(advice, LONGEST_SENTENCE)}."),
        *lines,
        class_="card verdict",
    )


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def tiles(stage: StageSummary) -> list[Markup]:
    """The figures of a stage that are asked for first; none where no iteration was measured."""
    iteration = stage.measurements.get(ITERATION)
    if iteration is None or not stage.iterations:
        return [tag("p", f"Only warm-up: {plural(stage.warmup_iterations, 'iteration')}.")]
    found = {"median iteration": seconds(iteration.p50_s), "95th percentile": seconds(iteration.p95_s)}
    for count, things in ((stage.iterations, "iterations"), (stage.samples, "samples")):
        if count is not None:
            value, _, unit = rate(count, stage.paced_s, things).partition(" ")
            found[unit] = value
    if stage.device_busy_share is not None:
        found["of the time the device has work, at least"] = percent(stage.device_busy_share)
    found[f"iterations (warm-up: {stage.warmup_iterations:,})"] = f"{stage.iterations:,}"
    if stage.skipped_batches:
        found["batches skipped"] = f"{stage.skipped_batches:,}"
    tiles = (tag("div", tag("b", value), tag("span", what), class_="tile") for what, value in found.items())
    return [tag("div", *tiles, class_="tiles")]


def run_cards(report: RunReport) -> Markup:
    """One-time measurements, and what the run ran on."""
    cards = []
    if report.one_time:
        times = {name: "running" if time_s is None else seconds(time_s) for name, time_s in report.one_time.items()}
        cards.append(card("One-time measurements", "", values_table(times)))
    settings = _facts(report.settings)
    if report.timing_overhead is not None:
        cost = report.timing_overhead
        settings["cost of the timing itself"] = f"{seconds(cost.seconds)} ({percent(cost.share)})"
    cards.append(card("Environment", "", values_table(_facts(report.environment))))
    cards.append(card("Settings", "", values_table(settings)))
    return tag("div", *cards, class_="pair")


def cpu_card(usage: CpuUsage) -> Markup:
    """The CPU usage during a measurement."""
    cores = UNKNOWN if usage.process_tree_cores is None else f"{usage.process_tree_cores:.2f}"
    machine_share = None if usage.machine_percent is None else usage.machine_percent / 100
    shares = {"of the cores that it may use": usage.share_of_allowed, "of the machine, by everyone": machine_share}
    return card(
        "CPU usage",
        f"During {printable(usage.measurement)}.",
        tag("p", tag("b", f"{cores} cores"), " by this process and its children, such as DataLoader workers"),
        *(
            tag("div", tag("p", tag("b", percent(share)), f" {what}"), meter(share or 0.0, _ACCENT))
            for what, share in shares.items()
        ),
    )


def _facts(values: Mapping[str, Any]) -> dict[str, str]:
    """Nested values as text, by dotted names."""
    return {
        name: ", ".join(map(_shown, value[:_MAX_LIST])) if isinstance(value, list) else _shown(value)
        for name, value in flat(values, _MAX_NESTING)
    }


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "..."
    return UNKNOWN if value is None else str(value)
