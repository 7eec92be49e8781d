"""Isolated GANs: one, or N that never meet. The baseline of every other method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.cell import Cell, Parcel, parcel_assessment
from remuda.clock import Clock
from remuda.config import IndependentSettings
from remuda.methods.base import Method, Recipe, RoundReport, report
from remuda.metrics import Judge


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

    def ensemble(self, parcels: Mapping[int, Parcel], judge: Judge | None) -> Recipe:
        settings = self.config.method
        assert isinstance(settings, IndependentSettings)
        found = {cell: parcel_assessment(parcel) for cell, parcel in parcels.items()}
        assessed = {cell: part for cell, part in found.items() if part is not None}
        if settings.ensemble == "uniform" or judge is None or not assessed:
            weights = {cell: 1 / len(parcels) for cell in sorted(parcels)}
            score = (
                judge.mixture_score(list(assessed.values()), list(weights.values()))
                if (judge and assessed)
                else None
            )
            return Recipe(weights, score, "all cells with equal weights")
        best = min(assessed, key=lambda cell: judge.mixture_loss([assessed[cell]], [1.0]))
        return Recipe({best: 1.0}, assessed[best].score, f"cell {best} has the best score")
