"""Averaging among neighbours: a cell goes on with the mean of its neighbourhood's weights."""

from __future__ import annotations

from collections.abc import Sequence

from remuda.clock import Clock
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel
from remuda.methods.averaging import averaged, relatives
from remuda.methods.base import Match
from remuda.methods.cellular.breeding import Breeding
from remuda.methods.cellular.genes import mutate


class ByAverage(Breeding):
    """All cells have a common start, and stay relatives."""

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        with clock.routine("update_genomes"):
            related = relatives(cell, parcels) if self.selects(cell.round) else []
            gan = averaged(cell, related, moments=True)
        with clock.routine("mutate"):
            mutations = mutate(gan, self.settings, cell.streams)
        return Match(
            gan,
            details={
                "averaged_with": [parcel.cell for parcel in related],
                "mutations": mutations,
            },
        )
