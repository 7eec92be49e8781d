"""Isolated GANs: one, or N that never meet. The baseline of every other method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remuda.clock import Clock
from remuda.config import IndependentSettings
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import Match, Method, Mixture
from remuda.metrics import Scorer


class Independent(Method):
    """Every cell trains its own GAN on its own data view."""

    settings: IndependentSettings

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return ()

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        return Match(cell.gan.clone())

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        return best_or_all(parcels, scorer, self.settings.ensemble)


def best_or_all(parcels: Mapping[int, Parcel], scorer: Scorer | None, wanted: str) -> Mixture:
    """The best-scoring cell alone, or all with equal weights if asked for or if nothing scores."""
    found = {cell: parcel_assessment(parcel) for cell, parcel in sorted(parcels.items())}
    assessed = {cell: part for cell, part in found.items() if part is not None}
    equal = {cell: 1 / len(parcels) for cell in found}
    if scorer is None or len(assessed) < len(found):
        return Mixture(equal, None, "all cells with equal weights, since nothing scores them")
    if wanted == "uniform":
        score = scorer.mixture(list(assessed.values()), list(equal.values()))
        return Mixture(equal, score, "all cells with equal weights")
    scores = {cell: scorer.mixture([part], [1.0]) for cell, part in assessed.items()}
    best = min(scores, key=lambda cell: scores[cell].loss)
    return Mixture({best: 1.0}, scores[best], f"cell {best} has the best score")
