"""Averaging among neighbours: a cell goes on with the mean of its neighbourhood's weights.

With `parents` below 1 only the better-scoring part of the neighbourhood is averaged, and a cell
outside of it takes over the genes of one inside, which mutate: an evolution strategy whose weights
recombine by their mean while genes are inherited from one parent. As all that differ between cells
after an averaging are their genes and batches, a score says more about genes than it does among
GANs that grew up apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from remuda.clock import Clock
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.averaging import averaged, mean_into, relatives
from remuda.methods.base import Match
from remuda.methods.cellular.breeding import Breeding, loss_of
from remuda.methods.cellular.genes import mutate


class ByAverage(Breeding):
    """All cells have a common start, and stay relatives."""

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        related = relatives(cell, parcels) if self.selects(cell.round) else []
        with clock.routine("update_genomes"):
            parents = self._parents(cell, related)
            chosen = [parcel for parcel in related if parcel.cell in parents]
            keeps_genes = cell.index in parents
            if keeps_genes:
                gan, heir_of = averaged(cell, chosen, moments=True), cell.index
            else:
                gan, heir_of = _heir(cell, chosen)
        with clock.routine("mutate"):
            mutations: dict[str, Any] = {}
            if self.settings.parents == 1 or not keeps_genes:
                mutations = mutate(gan, self.settings, cell.streams)
        details = {
            "averaged_with": [parcel.cell for parcel in chosen],
            "genes_of": heir_of,
            "mutations": mutations,
        }
        return Match(gan, details=details)

    def _parents(self, cell: Cell, related: Sequence[Parcel]) -> set[int]:
        """The cells whose weights are averaged: all, or the better-scoring part."""
        places = [cell.index, *(parcel.cell for parcel in related)]
        if self.settings.parents == 1 or len(places) == 1 or cell.scorer is None:
            return set(places)
        assessed = [cell.assessment, *(parcel_assessment(parcel) for parcel in related)]
        losses = {
            place: loss_of(cell.scorer, assessment)
            for place, assessment in zip(places, assessed, strict=True)
        }
        if not any(map(math.isfinite, losses.values())):  # nobody has a score yet
            return set(places)
        wanted = max(1, round(self.settings.parents * len(places)))
        ranked = sorted(losses, key=lambda place: (losses[place], place))
        return {place for place in ranked[:wanted] if math.isfinite(losses[place])}


def _heir(cell: Cell, parents: Sequence[Parcel]) -> tuple[Gan, int]:
    """A GAN with the mean weights of the parents, and the genes of one of them."""
    rng = cell.streams.choices("genes-of")
    parent = parents[int(rng.integers(len(parents)))]
    gan = cell.host(parent)
    gan.cell = cell.index
    mean_into(gan, parents)
    return gan, parent.cell
