"""Reports as JSON, for other programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from lightning_timing.comparison import Comparison
    from lightning_timing.gate import Gate
    from lightning_timing.multirun import Job, Multirun
    from lightning_timing.run_report import RunReport


def run_json(report: RunReport) -> str:
    """A run's report as JSON: the keys of `summary.json` as far as they are known, the verdict in full, the ranks."""
    return _json(_run(report))


def multirun_json(multirun: Multirun) -> str:
    """The report of a multirun as JSON: the jobs, best first."""
    return _json(
        {
            "path": str(multirun.path),
            "stage": multirun.stage,
            "best_by": "samples_per_second" if multirun.by_samples else "iterations_per_second",
            "common_overrides": multirun.common_overrides,
            "jobs": [_job(job) for job in multirun.jobs],
        }
    )


def comparison_json(comparison: Comparison, gate: Gate | None) -> str:
    """A comparison as JSON, for other programs: times in seconds, changes as shares, null for what is not known.

    Times are an iteration's, but in the stages of `batch_sizes`, where they are those of so many samples.
    """
    return _json(
        {
            "before": comparison.before,
            "after": comparison.after,
            "one_run_a_side": comparison.one_run_a_side,
            "differences": comparison.differences,
            "changes": comparison.changes,
            "mean_iterations": comparison.means,
            "whole_iterations": comparison.wholes,
            "absences": comparison.absences,
            "samples_per_second": comparison.throughputs,
            "batch_sizes": comparison.batch_sizes,
            "notes": (*comparison.contention, *comparison.notes),
            "fail_above": None if gate is None else _gate(gate),
        }
    )


def _gate(gate: Gate) -> dict[str, Any]:
    return {
        "threshold": gate.threshold,
        "judged": gate.medians.judged,
        "not_judged": gate.medians.not_judged,
        "means_judged": gate.means.judged,
        "means_not_judged": gate.means.not_judged,
        "wholes_judged": gate.wholes.judged,
        "wholes_not_judged": gate.wholes.not_judged,
        "absences": gate.absences,
        "crossed": gate.medians.crossed,
        "means_crossed": gate.means.crossed,
        "wholes_crossed": gate.wholes.crossed,
        "undecided": gate.medians.undecided,
        "means_undecided": gate.means.undecided,
        "wholes_undecided": gate.wholes.undecided,
    }


def _run(report: RunReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "status": report.status,
        "source": report.source,
        "problems": report.problems,
        "environment": report.environment,
        "settings": report.settings,
        "rank": report.rank,
        "world_size": report.world_size,
        "stages": report.stages,
        "cpu_usage": report.cpu_usage,
        "one_time": report.one_time,
        "verdict": report.verdict,
        "timing_overhead": report.timing_overhead,
        "ranks": report.ranks,
    }


def _job(job: Job) -> dict[str, Any]:
    return {
        "job": job.name,
        "overrides": job.overrides,
        "problem": job.problem,
        "report": None if job.report is None else _run(job.report),
    }


def _json(content: dict[str, Any]) -> str:
    # In ASCII, whatever the terminal's encoding; and a path may have bytes that are no text, which msgspec refuses.
    return json.dumps(msgspec.to_builtins(content), indent=2) + "\n"
