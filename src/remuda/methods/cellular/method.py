"""Cellular coevolution on a toroidal grid of GANs.

Lipizzaner (Al-Dujaili et al. 2018) with Mustangs' loss gene (Toutouh et al. 2019), as in the
parallel implementation of Perez et al. (2020). In a round a cell

1. gathers the centres its neighbours published in the round before: its sub-population;
2. evaluates every generator against every discriminator of it, on one batch, under one loss;
3. picks parents by tournament and clones them, optimiser state included;
4. mutates the clones' learning rates, and the generator's loss;
5. trains the clones, each batch against an opponent drawn from the sub-population, in which the
   clones themselves stand in the cell's own place;
6. lets the fittest of sub-population and offspring be its new centre (or, `comma`, the offspring);
7. mutates the weights of its neighbourhood mixture and keeps them if the mixture scores better.

Steps 2 to 6 are `by_loss.py`. Instead of them, a cell may take over a neighbour's whole GAN where
that is better beyond doubt (`by_score.py`), or average its weights with its neighbours'
(`by_average.py`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from remuda.clock import Clock
from remuda.config import CellularSettings, Config
from remuda.config.geometry import GridSchedule
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import Details, Match, Method, Mixture
from remuda.methods.cellular.breeding import Breeding, CellularState, cellular_state
from remuda.methods.cellular.by_average import ByAverage
from remuda.methods.cellular.by_loss import ByLoss
from remuda.methods.cellular.by_score import ByScore
from remuda.methods.cellular.genes import draw_genes
from remuda.methods.cellular.mixtures import carried_weights, mutated_weights
from remuda.methods.independent import best_or_all
from remuda.methods.lineage import ancestor, check_common_origin
from remuda.methods.state import read_state
from remuda.metrics import Assessment, Scorer

EXCHANGES: dict[str, type[Breeding]] = {"loss": ByLoss, "score": ByScore, "average": ByAverage}


class Cellular(Method):
    """Neighbours' centres are parents, opponents and fellow members of the mixture."""

    settings: CellularSettings

    state = CellularState

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        super().__init__(config, grid)
        self._breeding = EXCHANGES[self.settings.exchange](self.settings, config.score)
        self.evolves_genes = self.settings.genes.drawn
        if self.settings.exchange == "score" and self.settings.selection:
            self.needs_scores = "method.exchange"

    def founder(self, index: int) -> int:
        return 0 if self.settings.exchange == "average" else index

    def check_start(self, parcels: Mapping[int, Parcel]) -> None:
        if self.settings.exchange == "average":
            check_common_origin(parcels, "method.exchange=average")

    def equip(self, cell: Cell) -> None:
        draw_genes(cell.gan, self.settings, cell.streams)

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return self.grid.at(round).neighbours(cell) if self.settings.communication else ()

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        return self._breeding.adapt(cell, parcels, clock)

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        return self._breeding.settle(cell, match, diverged=diverged, clock=clock)

    def weigh(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Details:
        """Step 7: a (1+1)-ES on the weights of the neighbourhood's generators."""
        with clock.routine("mixture"):
            members = [cell.index, *(parcel.cell for parcel in parcels)]
            weights = carried_weights(cellular_state(cell).mixture, members)
            found = [cell.assessment, *(parcel_assessment(parcel) for parcel in parcels)]
            assessed = [part for part in found if part is not None]
            changed = False
            if cell.scorer is not None and len(assessed) == len(members) > 1:
                rng = cell.streams.choices("mixture")
                candidate = mutated_weights(weights, self.settings.mixture_scale, rng)
                before = cell.scorer.mixture(assessed, weights)
                changed = cell.scorer.mixture(assessed, candidate).loss < before.loss
                weights = candidate if changed else weights
            mixture = {str(one): weight for one, weight in zip(members, weights, strict=True)}
            cellular_state(cell).mixture = mixture
        return {"mixture": {"weights": mixture, "changed": changed}}

    # -------------------------------------------------------------------------- the result

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        wanted = self.settings.ensemble
        if wanted == "neighbourhood":
            return self._neighbourhood(parcels, scorer)
        if wanted == "average":
            return _family_average(parcels, best_or_all(parcels, scorer, "best"))
        return best_or_all(parcels, scorer, wanted)

    def _neighbourhood(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """The neighbourhood mixture with the best score, made of the cells' latest generators."""
        mixtures = []
        for cell, parcel in sorted(parcels.items()):
            state = read_state(parcel, CellularState)
            grid = self.grid.at(parcel.round)  # the one its mixture weights were evolved on
            members = grid.subpopulation(cell) if self.settings.communication else (cell,)
            weights = carried_weights(state.mixture, members)
            found = [parcel_assessment(parcels[member]) for member in members]
            assessed: list[Assessment] = [part for part in found if part is not None]
            score = None
            if scorer is not None and len(assessed) == len(members):
                score = scorer.mixture(assessed, weights)
                rank, by = score.loss, "score"
            else:
                rank, by = (math.inf if state.fitness is None else state.fitness), "fitness"
            reason = f"the neighbourhood of cell {cell} has the best {by}"
            mixture = Mixture(dict(zip(members, weights, strict=True)), score, reason)
            mixtures.append((rank, cell, mixture))
        return min(mixtures, key=lambda entry: entry[:2])[2]


def _family_average(parcels: Mapping[int, Parcel], best: Mixture) -> Mixture:
    """The average of generators of one ancestor: the best one's family, or else the largest."""
    ancestors = {cell: ancestor(parcel) for cell, parcel in sorted(parcels.items())}
    leader = next(iter(best.weights)) if best.score is not None else None
    ((largest, _),) = Counter(ancestors.values()).most_common(1)
    wanted = largest if leader is None else ancestors[leader]
    cells = [cell for cell, found in ancestors.items() if found == wanted]
    who = f"{len(cells)} relatives" if len(cells) > 1 else f"cell {cells[0]} alone"
    reason = f"the average of the weights of {who} among {len(parcels)} cells"
    if leader is not None:
        reason += f"; cell {leader} has the best score"
    return Mixture(dict.fromkeys(cells, 1 / len(cells)), None, reason, merged=True, leader=leader)
