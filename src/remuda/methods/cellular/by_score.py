"""Selection by evidence: whole GANs, by the score of many samples, and only beyond its noise.

The loss on one batch hardly tells who is better, and a generator whose discriminator is exchanged
for another plays one it has never met. Here a cell keeps its GAN unless a neighbour's scores better
by more than their standard errors; then it takes over all of it: both networks, optimiser state,
average and genes, which mutate. This is population-based training (Jaderberg et al. 2017) on a
grid.

Cells with a common ancestor and equal genes, where a take-over changed no gene, are one recipe on
several cells. They may average their weights (`relatives: average`), which makes them better than
one of them alone: families compete, and their members work together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from remuda.clock import Clock
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.averaging import averaged, relatives
from remuda.methods.base import Details, Match
from remuda.methods.cellular.breeding import Breeding, cellular_state, origins
from remuda.methods.cellular.genes import mutate
from remuda.methods.lineage import Origin
from remuda.metrics import Assessment, Scorer


@dataclass(frozen=True)
class Heir(Match):
    """The GAN that trains, and where it comes from."""

    origin: Origin | None = None
    assessment: Assessment | None = None  # the last one of that GAN


class ByScore(Breeding):
    """A cell that is clearly worse than a neighbour continues as a mutant of it."""

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Heir:
        with clock.routine("update_genomes"):
            found = origins(cell, parcels)
            family = _family(cell, parcels) if self.settings.relatives == "average" else []
            place = self._place(cell, parcels, family) if self.selects(cell.round) else 0
            gan = cell.host(parcels[place - 1]) if place else averaged(cell, family, moments=True)
            gan.cell = cell.index
        with clock.routine("mutate"):
            mutations = mutate(gan, self.settings, cell.streams) if place else {}
        taken = parcels[place - 1].cell if place else cell.index
        details: Details = {
            "parents": {"generator": taken, "discriminator": taken},
            "mutations": mutations,
        }
        if self.settings.relatives == "average":
            details["averaged_with"] = [] if place else [parcel.cell for parcel in family]
        assessment = parcel_assessment(parcels[place - 1]) if place else cell.assessment
        return Heir(gan, details=details, origin=found[place], assessment=assessment)

    def selects(self, round: int) -> bool:
        """Not by the scores of first weights, which say nothing about their genes."""
        return round > self.score.every and super().selects(round)

    def _place(self, cell: Cell, parcels: Sequence[Parcel], family: Sequence[Parcel]) -> int:
        """Whose GAN the cell goes on with: 0 is its own, k the k-th neighbour's."""
        if cell.scorer is None or cell.assessment is None:
            return 0
        own, found = _Rank.of(cell.scorer, cell.assessment), origins(cell, parcels)
        kin = {parcel.cell for parcel in family}
        ranks = {
            place: _Rank.of(cell.scorer, assessment)
            for place, parcel in enumerate(parcels, 1)
            if parcel.cell not in kin and (assessment := parcel_assessment(parcel)) is not None
        }
        for place in sorted(ranks, key=lambda place: (ranks[place].loss, place)):
            beaten = own.is_beaten_by(ranks[place], self.settings.margin)
            if beaten and self._has_room(found[place], found):
                return place
        return 0

    def _has_room(self, wanted: Origin, found: Sequence[Origin]) -> bool:
        """Whether one more descendant of that founder is allowed in this neighbourhood."""
        most = self.settings.most_relatives
        if most is None or wanted.ancestor == found[0].ancestor:
            return True
        return sum(one.ancestor == wanted.ancestor for one in found) < most

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        assert isinstance(match, Heir)
        super().settle(cell, match, diverged=diverged, clock=clock)
        if match.origin is not None and not diverged:
            state = cellular_state(cell)
            state.ancestor, state.lineage = match.origin.ancestor, match.origin.lineage
            # Until it is scored again, it is as good as the one taken over, which it is a copy of.
            cell.assessment = match.assessment
        return {}


def _family(cell: Cell, parcels: Sequence[Parcel]) -> list[Parcel]:
    """Neighbours with the cell's ancestor and genes: the same recipe, on other cells."""
    genes = {role: learner.genes() for role, learner in cell.gan.roles}
    return [parcel for parcel in relatives(cell, parcels) if parcel.meta["genes"] == genes]


@dataclass(frozen=True)
class _Rank:
    """A score as a loss, with its standard error."""

    loss: float
    error: float

    @classmethod
    def of(cls, scorer: Scorer, assessment: Assessment) -> _Rank:
        score = scorer.mixture([assessment], [1.0])
        return cls(
            score.loss if math.isfinite(score.loss) else math.inf,
            scorer.standard_error(assessment),
        )

    def is_beaten_by(self, other: _Rank, margin: float) -> bool:
        if not math.isfinite(self.loss):
            return math.isfinite(other.loss)
        return self.loss - other.loss > margin * math.hypot(self.error, other.error)
