"""Isolated GANs: one, or N that never meet. The baseline of every other method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.cell import Cell, parcel_assessment
from remuda.clock import Clock
from remuda.config import IndependentSettings
from remuda.methods.base import Method, Recipe, RoundReport, report
from remuda.metrics import Judge
from remuda.parcels import Parcel


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
        return best_or_all(parcels, judge, settings.ensemble)


def best_or_all(parcels: Mapping[int, Parcel], judge: Judge | None, wanted: str) -> Recipe:
    """The best-scoring cell alone, or all with equal weights where so wanted or nothing scores."""
    found = {cell: parcel_assessment(parcel) for cell, parcel in sorted(parcels.items())}
    assessed = {cell: part for cell, part in found.items() if part is not None}
    equal = {cell: 1 / len(parcels) for cell in found}
    if judge is None or len(assessed) < len(found):
        return Recipe(equal, None, "all cells with equal weights, for nothing scores them")
    if wanted == "uniform":
        verdict = judge.mixture(list(assessed.values()), list(equal.values()))
        return Recipe(equal, verdict, "all cells with equal weights")
    verdicts = {cell: judge.mixture([part], [1.0]) for cell, part in assessed.items()}
    best = min(verdicts, key=lambda cell: verdicts[cell].loss)
    return Recipe({best: 1.0}, verdicts[best], f"cell {best} has the best score")
