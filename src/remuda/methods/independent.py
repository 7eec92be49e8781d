"""Isolated GANs: one, or N that never meet. The baseline of every other method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.clock import Clock
from remuda.config import IndependentSettings
from remuda.gan.cell import Cell, parcel_assessment
from remuda.gan.parcels import Parcel
from remuda.methods.base import Method, Mixture, RoundReport, report
from remuda.metrics import Scorer


class Independent(Method):
    """Every cell trains its own GAN on its own data view."""

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return ()

    def advance(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> RoundReport:
        offspring = cell.gan.clone()
        with clock.routine("train"):
            losses = cell.train(offspring)
        diverged = not offspring.is_finite()
        if not diverged:
            cell.gan = offspring
        with clock.routine("assess"):
            cell.assess()
        return report(cell, losses, clock, diverged=diverged, details={})

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        settings = self.config.method
        assert isinstance(settings, IndependentSettings)
        return best_or_all(parcels, scorer, settings.ensemble)


def best_or_all(parcels: Mapping[int, Parcel], scorer: Scorer | None, wanted: str) -> Mixture:
    """The best-scoring cell alone, or all with equal weights where so wanted or nothing scores."""
    found = {cell: parcel_assessment(parcel) for cell, parcel in sorted(parcels.items())}
    assessed = {cell: part for cell, part in found.items() if part is not None}
    equal = {cell: 1 / len(parcels) for cell in found}
    if scorer is None or len(assessed) < len(found):
        return Mixture(equal, None, "all cells with equal weights, for nothing scores them")
    if wanted == "uniform":
        score = scorer.mixture(list(assessed.values()), list(equal.values()))
        return Mixture(equal, score, "all cells with equal weights")
    scores = {cell: scorer.mixture([part], [1.0]) for cell, part in assessed.items()}
    best = min(scores, key=lambda cell: scores[cell].loss)
    return Mixture({best: 1.0}, scores[best], f"cell {best} has the best score")
