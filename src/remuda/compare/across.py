"""Ranks arms over data sets: several comparisons of the same arms, one per data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from remuda.analysis.extras import is_installed
from remuda.compare.drawing import FORMS
from remuda.compare.figures import critical_difference as diagram
from remuda.compare.folder import Comparison
from remuda.compare.statistics.ranking import (
    LEAST_DATA_SETS,
    CriticalDifference,
    critical_difference,
)
from remuda.compare.words import number, probability_text
from remuda.errors import ConfigError
from remuda.files import write_atomically, write_json


@dataclass(frozen=True)
class Ranking:
    """Arms by their mean rank over data sets."""

    score: str
    medians: Mapping[str, Mapping[str, float]]  # by comparison, then by arm
    found: CriticalDifference
    cautions: Sequence[str] = ()

    def lines(self) -> list[str]:
        ranks = sorted(self.found.mean_ranks.items(), key=lambda item: item[1])
        return [
            f"ranks by median {self.score} over {len(self.medians)} data sets; Friedman p "
            f"{probability_text(self.found.friedman_p)}, critical difference "
            f"{number(self.found.distance)}",
            *(f"{rank:6.2f}  {name}" for name, rank in ranks),
            *(f"do not differ: {', '.join(group)}" for group in self.found.groups),
            *(f"caution: {caution}" for caution in self.cautions),
        ]


def rank(folders: Sequence[Path]) -> Ranking:
    """Rank the arms that all comparisons share, by the medians of the score that decides them."""
    medians: dict[str, dict[str, float]] = {}
    data: dict[str, Path] = {}
    scores: dict[str, Path] = {}
    cautions: list[str] = []
    for folder in folders:
        comparison = Comparison.open(folder)
        comparison.measure_all()
        result = comparison.result(comparison.states())
        scored = comparison.scored_by()
        if scored is None:
            raise ConfigError(f"{folder}: no run is finished yet")
        if scored["data"] in data:
            raise ConfigError(
                f"{data[scored['data']]} and {folder} are on the same data; allowed: one "
                "comparison per data set"
            )
        data[scored["data"]] = folder
        scores[comparison.plan.score] = folder
        medians[str(folder)] = {
            arm.name: _median(arm.scores[comparison.plan.score].median) for arm in result.arms
        }
        lower = not result.scores[0].higher_is_better
        cautions += [f"{folder}: {caution}" for caution in result.warnings]
    if len(scores) > 1:
        raise ConfigError(f"the comparisons are decided by different scores: {', '.join(scores)}")
    if len(folders) < LEAST_DATA_SETS:
        raise ConfigError(
            f"{len(folders)} data sets; ranks over data sets need at least {LEAST_DATA_SETS} "
            "comparisons"
        )
    names = list(next(iter(medians.values())))
    for place, own in medians.items():
        if set(own) != set(names):
            raise ConfigError(
                f"{place} compares {', '.join(own)}, the first {', '.join(names)}; allowed: the "
                "same arms in all"
            )
    table = {name: [one[name] for one in medians.values()] for name in names}
    found = critical_difference(table, lower_is_better=lower)
    return Ranking(next(iter(scores)), medians, found, cautions)


def write_ranking(ranking: Ranking, folder: Path) -> list[Path]:
    """Write the ranking and, where there is matplotlib, the diagram; the PNG."""
    found = ranking.found
    names = sorted(found.mean_ranks, key=lambda name: found.mean_ranks[name])
    write_json(
        folder / "ranking.json",
        {"score": ranking.score, "medians": ranking.medians, **vars(found)},
    )
    if not is_installed("matplotlib"):
        return []
    for form in FORMS:
        picture = diagram(
            names,
            [found.mean_ranks[name] for name in names],
            found.distance,
            found.groups,
            len(ranking.medians),
            form=form,
        )
        write_atomically(folder / f"critical-difference.{form}", picture)
    return [folder / "critical-difference.png"]


def _median(value: float | None) -> float:
    return float("nan") if value is None else value
