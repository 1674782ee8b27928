"""How the ranks of a run compare: per phase the median rank and the slowest, and the rank that holds the others up.

Ranks that train together end every iteration together: what one of them loses by itself, the others spend waiting for
it, mostly in the all-reduce inside their `backward`. So the culprit is looked for only in phases in which a rank works
by itself, and named where all of these hold:

- it takes longer in those phases than the median of the other ranks, by `CULPRIT_SHARE` of their iteration or more;
- not only for a moment or by chance: each figure is the median over the quarters of the run, and with half of these
  limits the same rank is found in `QUARTERS_SHARE` of the quarters by themselves;
- its other phases, taken together, are shorter than the others' by `WAIT_SHARE` of that excess or more: the wait.

It is looked for without `forward` first, because sharded models wait for each other in `forward` as well. Last comes
`checkpoint`, which few iterations have: by the median over those.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from lightning_timing.clocks import NS_IN_S
from lightning_timing.names import listed
from lightning_timing.phases import BATCH_TRANSFER, CALLBACKS, CHECKPOINT, DATA_WAIT, FORWARD, ITERATION, PHASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lightning_timing.record_series import StageSeries

LOCAL_PHASES: Final = (DATA_WAIT, BATCH_TRANSFER, CALLBACKS)
"""Where a rank works by itself, whatever the strategy."""
CULPRIT_SHARE: Final = 0.1
WAIT_SHARE: Final = 0.5
QUARTERS_SHARE: Final = 0.75
NAMED_SHARE: Final = 0.25
"""A phase is named if it makes up this much of the culprit's excess."""

_ALIKE: Final = 0.5
_RANKS_NAMED: Final = 4
_QUARTERS: Final = 4
_SHORTEST_S: Final = 1e-6


@dataclass(frozen=True)
class RankFigures:
    """The phases of one rank in one stage.

    Attributes:
        rank: The rank.
        iterations: Iterations measured.
        mean_s: Mean time an iteration of `iteration` and of each phase, in seconds.
        quarters_s: The same over each quarter of the run.
        saving_s: What iterations that save a checkpoint add to the mean: the median over them, times their share of all
            iterations; of `iteration` the mean itself. Empty where none is saved.
    """

    rank: int
    iterations: int
    mean_s: Mapping[str, float]
    quarters_s: tuple[Mapping[str, float], ...]
    saving_s: Mapping[str, float]

    @property
    def typical_s(self) -> Mapping[str, float]:
        """The median over the quarters of the run of each mean time, in seconds."""
        return {name: median(times_s[name] for times_s in self.quarters_s) for name in self.mean_s}


@dataclass(frozen=True)
class PhaseAcrossRanks:
    """A phase over all ranks, in seconds an iteration.

    Attributes:
        median_s: The median rank's mean.
        fastest_s: The fastest rank's mean.
        slowest_s: The slowest rank's mean.
        slowest_rank: The number of that rank.
    """

    median_s: float
    fastest_s: float
    slowest_s: float
    slowest_rank: int


@dataclass(frozen=True)
class Culprit:
    """The rank that the others wait for.

    Attributes:
        rank: Its number.
        excess_s: How much longer it works by itself than the median of the others, in seconds an iteration.
        phases: The largest parts of that excess by phase, largest first, in seconds an iteration.
        waiting_phase: The phase in which the others wait most.
        wait_s: How much longer that phase takes the median of the others, in seconds an iteration.
        alike: Other ranks that work by themselves for nearly as long, as those of a slow node: which of them is the
            slowest is chance.
    """

    rank: int
    excess_s: float
    phases: Mapping[str, float]
    waiting_phase: str
    wait_s: float
    alike: tuple[int, ...] = ()

    @property
    def in_words(self) -> str:
        """The rank, and those that are alike, as the subject of a sentence whose verb is `holds`."""
        if not self.alike:
            return f"rank {self.rank}"
        named = listed([str(rank) for rank in self.alike[:_RANKS_NAMED]], len(self.alike))
        return f"rank {self.rank}, like rank{'s' if len(self.alike) > 1 else ''} {named},"


@dataclass(frozen=True)
class RankComparison:
    """The ranks of a run in one stage.

    Attributes:
        ranks: How many have a record.
        iterations: The fewest and the most iterations that a rank measured.
        phases: `iteration` and each phase over all ranks.
        culprit: The rank that the others wait for; None where no rank stands out.
    """

    ranks: int
    iterations: tuple[int, int]
    phases: Mapping[str, PhaseAcrossRanks]
    culprit: Culprit | None


def rank_figures(rank: int, series: StageSeries) -> RankFigures:
    """Reduces a rank's rows to a few figures, however many they are. The series has at least one iteration."""
    edges = np.linspace(0, len(series), min(_QUARTERS, len(series)) + 1).astype(np.int64)
    saves = ~np.isnan(series.ns[CHECKPOINT]) if CHECKPOINT in series.ns else np.zeros(len(series), bool)
    mean_s: dict[str, float] = {}
    quarters_s: list[dict[str, float]] = [{} for _ in edges[1:]]
    saving_s: dict[str, float] = {}
    for name in (ITERATION, *PHASES):
        if name in series.ns:
            column = np.nan_to_num(series.ns[name])
            mean_s[name] = float(column.mean()) / NS_IN_S
            quarters_ns = np.add.reduceat(column, edges[:-1]) / np.diff(edges)
            for times_s, ns in zip(quarters_s, quarters_ns.tolist(), strict=True):
                times_s[name] = ns / NS_IN_S
            if saves.any():
                saving_s[name] = float(np.median(column[saves]) * saves.mean()) / NS_IN_S
    if saving_s:
        saving_s[ITERATION] = mean_s[ITERATION]
    return RankFigures(rank, len(series), mean_s, tuple(quarters_s), saving_s)


def compare_ranks(figures: Iterable[RankFigures]) -> RankComparison | None:
    """Compares the ranks in one stage; None for fewer than two."""
    ranks = list(figures)
    if len(ranks) < 2:
        return None
    iterations = [figures.iterations for figures in ranks]
    present = [name for name in (ITERATION, *PHASES) if any(name in figures.mean_s for figures in ranks)]
    return RankComparison(
        ranks=len(ranks),
        iterations=(min(iterations), max(iterations)),
        phases={name: _across(name, ranks) for name in present},
        culprit=_culprit(ranks),
    )


def _across(name: str, ranks: list[RankFigures]) -> PhaseAcrossRanks:
    times = [figures.mean_s.get(name, 0.0) for figures in ranks]
    slowest = max(range(len(ranks)), key=times.__getitem__)
    return PhaseAcrossRanks(median(times), min(times), times[slowest], ranks[slowest].rank)


def _culprit(ranks: list[RankFigures]) -> Culprit | None:
    saving_s = {figures.rank: figures.saving_s for figures in ranks}
    return (
        _steady_culprit_in(LOCAL_PHASES, ranks)
        or _steady_culprit_in((*LOCAL_PHASES, FORWARD), ranks)
        or _culprit_in((CHECKPOINT,), saving_s)
    )


def _steady_culprit_in(own_phases: tuple[str, ...], ranks: list[RankFigures]) -> Culprit | None:
    culprit = _culprit_in(own_phases, {figures.rank: figures.typical_s for figures in ranks})
    if culprit is None:
        return None
    quarters = min(len(figures.quarters_s) for figures in ranks)
    found = (
        _culprit_in(own_phases, {figures.rank: figures.quarters_s[quarter] for figures in ranks}, of_limits=0.5)
        for quarter in range(quarters)
    )
    times_found = sum(other is not None and other.rank == culprit.rank for other in found)
    return culprit if times_found >= QUARTERS_SHARE * quarters else None


def _culprit_in(
    own_phases: tuple[str, ...], time_s: Mapping[int, Mapping[str, float]], of_limits: float = 1.0
) -> Culprit | None:
    slowest = max(time_s, key=lambda rank: sum(time_s[rank].get(name, 0.0) for name in own_phases))
    others = [times for rank, times in time_s.items() if rank != slowest]
    median_s = {name: median(times.get(name, 0.0) for times in others) for name in (ITERATION, *PHASES)}
    excess_s = {name: time_s[slowest].get(name, 0.0) - median_s[name] for name in PHASES}
    own_excess_s = sum(excess_s[name] for name in own_phases)
    wait_s = {name: -excess for name, excess in excess_s.items() if name not in own_phases}
    if own_excess_s < max(of_limits * CULPRIT_SHARE * median_s[ITERATION], _SHORTEST_S):
        return None
    if sum(wait_s.values()) < of_limits * WAIT_SHARE * own_excess_s:
        return None
    waiting_phase = max(wait_s, key=wait_s.__getitem__)
    named = sorted(own_phases, key=excess_s.__getitem__, reverse=True)
    return Culprit(
        rank=slowest,
        excess_s=own_excess_s,
        phases={name: excess_s[name] for name in named if excess_s[name] >= NAMED_SHARE * own_excess_s},
        waiting_phase=waiting_phase,
        wait_s=wait_s[waiting_phase],
        alike=tuple(
            rank
            for rank, times in time_s.items()
            if rank != slowest
            and sum(times.get(name, 0.0) - median_s[name] for name in own_phases) >= _ALIKE * own_excess_s
        ),
    )
