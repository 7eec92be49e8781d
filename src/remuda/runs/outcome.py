"""What a run produces: the mixture after a round, its pictures, and at the end the result."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from remuda.files import VERSION, write_atomically
from remuda.gan.cell import parcel_network
from remuda.gan.parcels import ASSESSMENT, AVERAGE, GENERATOR, Parcel, strip_prefix
from remuda.methods import (
    CellState,
    Mixture,
    diversity,
    lineages_met,
    linked_cells,
    mean_tensors,
    read_state,
)
from remuda.metrics import MixtureScore
from remuda.runs.costs import Costs, acceptance_rate, genes_of, sum_costs
from remuda.runs.ensemble import Ensemble, Member
from remuda.runs.pictures import sheet
from remuda.runs.prepare import Run
from remuda.runs.scoring import Scores, score_ensemble
from remuda.runs.store import RunFolder
from remuda.streams import stream_key

SHEET_SAMPLES = 64
ROW_SAMPLES = 10  # of a label
MOST_SHEETS = 100  # of single cells (some stand for all), or of labels


@dataclass(frozen=True)
class Result:
    """What a finished run leaves."""

    path: Path
    picture: Path
    ensemble: Ensemble
    scores: Scores | None
    acceptance: Mapping[str, float]  # share of offspring that became their cell's centre
    seconds: float
    costs: Costs
    genes: Mapping[str, Any]  # of the cell with the largest share, as settings
    evolved_genes: Mapping[str, Any]  # the same, where cells had different ones
    seed: int


class Parcels(Protocol):
    """Gives the parcels of a round: of all cells or of `cells`, whole or only a named part."""

    def __call__(
        self, round: int, part: str = "", cells: Collection[int] | None = None
    ) -> Mapping[int, Parcel]: ...


class Outcome:
    """Makes mixtures, pictures and the result from what the cells have published."""

    def __init__(self, run: Run, folder: RunFolder, parcels: Parcels) -> None:
        self._run = run
        self._config = run.config
        self._folder = folder
        self._parcels = parcels

    @cached_property
    def _id(self) -> str:
        return self._folder.id()

    @cached_property
    def _linked(self) -> Mapping[int, frozenset[int]]:
        return linked_cells(self._run.method, self._config.cells, self._config.rounds)

    def reduce(self, round: int) -> Mixture:
        """The best mixture after a round; mostly it needs only the assessments of the cells."""
        parcels = self._parcels(round, ASSESSMENT)
        mixture = self._run.method.ensemble(parcels, self._run.scorer)
        score = self._live_score(mixture, round)
        scored = self._config.score.due(round, self._config.rounds)
        return replace(mixture, score=score, diversity=diversity(parcels, scored=scored))

    def _live_score(self, mixture: Mixture, round: int) -> MixtureScore | None:
        """None between two scores; that of averaged weights, no cell's own, is of their samples."""
        scorer = self._run.scorer
        if not self._config.score.due(round, self._config.rounds):
            return None
        if not mixture.merged or scorer is None:
            return mixture.score
        seed = stream_key(self._config.seed, 0, round, "merged")
        samples = self._ensemble(mixture, round).draw(self._config.score.samples, seed)
        return scorer.mixture([scorer.assess(samples)], [1.0])

    def coverage(self, round: int, mixture: Mixture) -> dict[str, float] | None:
        """How the mixture covers known modes, where there are any: the live score of points."""
        if self._run.scorer is not None or self._run.dataset.modes is None:
            return None
        if not self._config.score.due(round, self._config.rounds):
            return None
        samples = self._config.score.samples
        scores = score_ensemble(self._run, self._ensemble(mixture, round), samples=samples)
        return None if scores is None else scores.to_json()["values"]

    def draw_sheets(self, round: int, mixture: Mixture) -> None:
        """Pictures of the mixture and of every cell, or, where there are labels, of every label."""
        whole = self._ensemble(mixture, round)
        self._folder.write_sheet(round, "mixture", self._sheet(whole))
        labels = [*whole.known_labels.items()][:MOST_SHEETS]
        for label, name in labels:
            samples = whole.sample(SHEET_SAMPLES, self._config.seed, name)
            readable = re.sub(r"[^\w.-]+", "_", name)[:40]
            self._folder.write_sheet(round, f"label-{label:04d}-{readable}", sheet(samples))
        cells = 0 if labels else self._config.cells
        for cell in range(0, cells, max(1, -(-cells // MOST_SHEETS))):
            alone = self._ensemble(Mixture({cell: 1.0}, None, "one cell"), round)
            self._folder.write_sheet(round, f"cell-{cell:04d}", self._sheet(alone))

    def _sheet(self, ensemble: Ensemble) -> bytes:
        """Samples as a picture; where there are labels to choose from, a row of each."""
        seed, names = self._config.seed, [*ensemble.known_labels.values()][:MOST_SHEETS]
        if len(names) < 2 or not self._run.dataset.is_images:
            return sheet(ensemble.sample(SHEET_SAMPLES, seed))
        rows = [ensemble.sample(ROW_SAMPLES, seed, name) for name in names]
        return sheet(np.concatenate(rows), ROW_SAMPLES, names)

    def _ensemble(self, mixture: Mixture, round: int) -> Ensemble:
        members, dataset = sorted(mixture.weights), self._run.dataset
        average = self._config.training.average
        part = GENERATOR if average is None else AVERAGE
        found = tuple(
            Member(
                parcel.cell,
                mixture.weights[parcel.cell],
                strip_prefix(part, parcel.tensors),
                parcel_network(self._config, parcel),
                _label(parcel),
                self._met(parcel),
            )
            for parcel in self._parcels(round, part, members).values()
        )
        return Ensemble(
            self._config.network,
            dataset.shape,
            _merged(found) if mixture.merged else found,
            dataset.scaling,
            {
                "run": self._config.name,
                "id": self._id,
                "method": self._config.method.name,
                "data": dataset.name,
                "rounds": round,
                "seed": self._config.seed,
                "chosen": mixture.reason,
                **({} if average is None else {"average": average}),
                "remuda": VERSION,
            },
            self._run.labels,
        )

    def _met(self, parcel: Parcel) -> tuple[str, ...]:
        own, method = lineages_met(parcel), self._run.method
        if not method.remembers_met:
            own |= set(map(str, self._linked[parcel.cell]))
        return tuple(sorted(own))

    def _modes_by_cell(self, last: int) -> dict[int, Any] | None:
        """Every cell's own coverage where modes are known: what the mixture is compared with."""
        if self._run.scorer is not None or self._run.dataset.modes is None:
            return None
        alone = (Mixture({cell: 1.0}, None, "one cell") for cell in range(self._config.cells))
        found = (score_ensemble(self._run, self._ensemble(mixture, last)) for mixture in alone)
        return {cell: scores.to_json() for cell, scores in enumerate(found) if scores}

    def finish(self, last: int) -> Result:
        """Reduce to the ensemble, score it and write the result of the run."""
        mixture = self.reduce(last)
        ensemble = self._ensemble(mixture, last)
        scores = score_ensemble(self._run, ensemble)
        acceptance = acceptance_rate(self._folder.iter_events())
        costs = sum_costs(self._folder.iter_events())
        # Over every start of the run: each round was completed once.
        seconds = sum(
            event.get("seconds", 0.0)
            for event in self._folder.iter_events()
            if event["event"] == "population"
        )
        winner = mixture.leader
        if winner is None:
            winner = max(mixture.weights, key=lambda cell: (mixture.weights[cell], -cell))
        objective = self._config.training.objective
        genes = genes_of(winner, self._folder.iter_events(), objective)
        evolved = genes if self._run.method.evolves_genes else {}
        target = self._folder.ensemble_path
        ensemble.save(target)
        picture = target / "samples.png"
        write_atomically(picture, self._sheet(ensemble), root=self._folder.path)
        # Before the result, which says that there is nothing left to do.
        self._folder.append_event({"event": "finished", "seconds": seconds})
        self._folder.write_result(
            {
                "rounds": last,
                "seconds": round(seconds, 3),
                "mixture": dict(mixture.weights),
                "chosen": mixture.reason,
                "merged": mixture.merged,
                "genes": {"cell": winner, **genes},
                "acceptance": acceptance,
                "scores": scores.to_json() if scores else None,
                **costs.to_json(),
                "modes_by_cell": self._modes_by_cell(last),
            }
        )
        return Result(
            self._folder.path,
            picture,
            ensemble,
            scores,
            acceptance,
            seconds,
            costs,
            genes,
            evolved,
            self._config.seed,
        )


def _merged(members: Sequence[Member]) -> tuple[Member]:
    """One generator with the weighted mean of the members' weights."""
    state = mean_tensors([one.state for one in members], [one.weight for one in members])
    met = sorted({name for one in members for name in one.met})
    return (replace(members[0], weight=1.0, state=state, met=tuple(met)),)


def _label(parcel: Parcel) -> int | None:
    label = read_state(parcel, CellState).label
    return None if label is None else label.index
