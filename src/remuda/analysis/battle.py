"""A battle of runs: every discriminator judges every generator it may judge (GAM, GAM-II)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from remuda.analysis.naming import short_names
from remuda.errors import ConfigError, shape_text
from remuda.metrics.gam import (
    TOLERANCE,
    Contender,
    Duel,
    Exclusion,
    Gam2Score,
    best,
    duel,
    gam2,
    helps,
    may_judge,
    share_called_real,
)
from remuda.runs.population import (
    Member,
    Population,
    held_out,
    judging_objectives,
    load_population,
)
from remuda.runs.store import RunFolder

MOST_REAL = 10_000
_LONGEST = 8  # letters of a run's name that fit over the columns of a matrix
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Side:
    """One run in a battle: its members' places in the matrix and their GAM-II scores."""

    name: str
    label: str  # what the matrix calls it: its name, or a letter where names are long
    places: range
    scores: tuple[Gam2Score, ...]
    is_isolated: bool

    @property
    def averages(self) -> list[float]:
        return [one.average for one in self.scores]

    @property
    def best(self) -> int | None:
        """The place of its best generator; None where none was judged."""
        found = best(self.scores)
        return None if found is None else self.places[found]


@dataclass(frozen=True)
class Comparison:
    """A population beside single GANs."""

    group: str
    singles: str
    outcome: str  # strongly helps, helps, or does not help
    judges: int  # that may judge both
    prefer: int  # of which call more of the population's samples real


@dataclass(frozen=True)
class Battle:
    """The battle matrix and everything that follows from it."""

    names: tuple[str, ...]  # of the generators, as columns are called
    judges: tuple[str, ...]  # of the discriminators, as rows are called
    shares: Tensor  # [i, j]: share of generator j's samples that discriminator i calls real
    allowed: Tensor  # [i, j]: whether discriminator i may judge generator j
    real_errors: tuple[float, ...]  # share of real items that each discriminator calls generated
    real: str  # what those items are
    samples: int
    exclusion: Exclusion
    sides: tuple[Side, ...]
    judging: tuple[str, ...] = ()  # runs that only judge; without any, all judge each other
    tolerance: float = TOLERANCE

    def helped(self) -> list[Comparison]:
        """Each run whose GANs met, beside all runs whose GANs did not."""
        alone = [side for side in self.sides if side.is_isolated]
        singles = [value for side in alone for value in side.averages]
        places = [place for side in alone for place in side.places]
        names = ", ".join(side.name for side in alone)
        found = []
        for group in self.sides:
            if alone and not group.is_isolated:
                common, prefer = self._preferences(places, list(group.places))
                outcome = helps(singles, group.averages)
                found.append(Comparison(group.name, names, outcome, common, prefer))
        return found

    def _preferences(self, singles: list[int], group: list[int]) -> tuple[int, int]:
        """How many may judge generators of both, and how many of them call more of the group real.

        GAM-II's averages are over different judges for either, and judges differ in strictness.
        """
        common = prefer = 0
        for shares, allowed in zip(self.shares, self.allowed, strict=True):
            parts = [shares[places][allowed[places]] for places in (singles, group)]
            if all(len(part) for part in parts):
                common += 1
                prefer += int(parts[1].mean() > parts[0].mean())
        return common, prefer

    def duels(self) -> list[tuple[str, str, Duel]]:
        """GAM between the best members of every two runs that have one.

        None where other runs judge: a duel is between the two members' own discriminators.
        """
        found: list[tuple[str, str, Duel]] = []
        if self.judging:
            return found
        for one, other in combinations(self.sides, 2):
            first, second = one.best, other.best
            if first is not None and second is not None:
                errors = (self.real_errors[first], self.real_errors[second])
                fooled = (self.shares[first, second].item(), self.shares[second, first].item())
                result = duel(errors, fooled, self.tolerance)
                found.append((self.names[first], self.names[second], result))
        return found


def fight(
    paths: Sequence[Path],
    *,
    judges: Sequence[Path] = (),
    exclusion: Exclusion = "seen",
    tolerance: float = TOLERANCE,
    samples: int = 2000,
    seed: int = 0,
    data_dir: Path | None = None,
    progress: Progress = lambda _: None,
) -> Battle:
    """Let the last checkpoints of two or more runs judge each other's samples.

    With `judges`, only the discriminators of those runs judge, so that all generators are judged by
    the same ones (but for those that a generator met), and their own generators stay outside.
    """
    populations = _load([*paths, *judges], data_dir, progress)
    names = short_names([population.path.resolve() for population in populations])
    labels = _labels(names)
    everyone = [(place, one) for place, found in enumerate(populations) for one in found.members]
    makers = [(place, one) for place, one in everyone if place < len(paths)]
    bench = [(place, one) for place, one in everyone if not judges or place >= len(paths)]
    shares = torch.zeros(len(bench), len(makers), dtype=torch.float64)
    for column, (maker_run, maker) in enumerate(makers):
        progress(f"{names[maker_run]}: samples of generator {maker.cell}")
        made = populations[maker_run].draw(maker, samples, seed, "gam-noise")
        for row, (judge_run, judge) in enumerate(bench):
            seen = rescaled(made, populations[maker_run], populations[judge_run])
            shares[row, column] = share_called_real(judge.discriminator, seen)
    progress("real items")
    items, what = held_out(populations[0].dataset, populations[0].config.data)
    real = items[:MOST_REAL]
    errors = tuple(
        1
        - share_called_real(
            judge.discriminator,
            rescaled(real, populations[0], populations[place]),
        )
        for place, judge in bench
    )
    rows, columns = ([_contender(one, populations) for one in side] for side in (bench, makers))
    allowed = may_judge(rows, columns, exclusion)
    return Battle(
        names=tuple(f"{labels[place]}:{one.cell}" for place, one in makers),
        judges=tuple(f"{labels[place]}:{one.cell}" for place, one in bench),
        shares=shares,
        allowed=allowed,
        real_errors=errors,
        real=f"{len(real):,} {what}",
        samples=samples,
        exclusion=exclusion,
        sides=_sides(populations[: len(paths)], names, labels, gam2(shares, allowed)),
        judging=tuple(names[len(paths) :]),
        tolerance=tolerance,
    )


def _contender(member: tuple[int, Member], runs: Sequence[Population]) -> Contender:
    place, one = member
    return Contender(place, one.lineage, _with_old_names(one.met, runs))


def _with_old_names(met: frozenset[str], runs: Sequence[Population]) -> frozenset[str]:
    """Lineages with both of their names: earlier versions wrote a run's folder for its id."""
    found = set(met)
    for run in runs:
        folder = run.path.resolve().name
        for one in met:
            origin, _, number = one.rpartition("/")
            if origin == run.id:
                found.add(f"{folder}/{number}")
            elif origin == folder:
                found.add(f"{run.id}/{number}")
    return frozenset(found)


def _labels(names: Sequence[str]) -> list[str]:
    if max(map(len, names)) <= _LONGEST:
        return list(names)
    return [chr(ord("A") + place) if place < 26 else str(place) for place in range(len(names))]


def _sides(
    populations: Sequence[Population],
    names: Sequence[str],
    labels: Sequence[str],
    scores: Sequence[Gam2Score],
) -> tuple[Side, ...]:
    sides, start = [], 0
    for population, name, label in zip(populations, names, labels, strict=False):  # judges are last
        places = range(start, start + len(population.members))
        of_run = tuple(scores[places.start : places.stop])
        sides.append(Side(name, label, places, of_run, population.is_isolated))
        start = places.stop
    return tuple(sides)


def _load(paths: Sequence[Path], data_dir: Path | None, progress: Progress) -> list[Population]:
    if len(paths) < 2:
        raise ConfigError(
            f"{len(paths)} run: a battle needs judges from elsewhere; allowed: two runs or more"
        )
    _check_different(paths)
    populations: list[Population] = []
    for path in paths:
        progress(f"loading {path}")
        found = load_population(path, data_dir)
        objective = found.config.training.objective
        if objective not in judging_objectives():
            raise ConfigError(
                f"{path}: training.objective={objective}: its discriminators do not say whether "
                f"an item is real; allowed: {', '.join(judging_objectives())}"
            )
        first = populations[0] if populations else found
        if found.dataset.shape != first.dataset.shape:
            raise ConfigError(
                f"{path}: its items are {shape_text(found.dataset.shape)} and those of "
                f"{first.path} {shape_text(first.dataset.shape)}; "
                "allowed: runs on items of one shape"
            )
        if found.dataset.name != first.dataset.name:
            raise ConfigError(
                f"{path}: trained on {found.dataset.name}, and {first.path} on "
                f"{first.dataset.name}; allowed: runs on the same data"
            )
        populations.append(found)
    return populations


def _check_different(paths: Sequence[Path]) -> None:
    """Refuse a run beside itself, its copy or its repetition: it would be its own judge."""
    known: dict[str, Path] = {}
    for path in paths:
        own = RunFolder.open(path).id()
        if own in known:
            raise ConfigError(
                f"{path}: the same run as {known[own]} (id {own}: equal settings, seed and data, "
                "whatever its name and rounds); allowed: every run once"
            )
        known[own] = path


def rescaled(items: Tensor, source: Population, target: Population) -> Tensor:
    """Items scaled as one run's data are, scaled as another run's networks expect them.

    Points are scaled by their range, which differs between subsets of the same data.
    """
    if source.dataset.scaling == target.dataset.scaling:
        return items
    return target.dataset.scaling.to_scaled(source.dataset.scaling.to_raw(items))
