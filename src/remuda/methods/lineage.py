"""Who had to do with whom in a population: what decides which discriminator may scorer."""

from __future__ import annotations

from collections.abc import Mapping

from remuda.gan.cell import lineage, lineages_met
from remuda.gan.parcels import Parcel
from remuda.methods.base import Method

# Peers come from the grid, which changes at known rounds, or from random matchings, which have
# connected all that they can by then.
MOST_ROUNDS = 50


def all_met(parcels: Mapping[int, Parcel], method: Method) -> dict[int, frozenset[str]]:
    """The lineages of the discriminators that each cell's generator met, or may have met."""
    own = {cell: lineages_met(parcel) for cell, parcel in parcels.items()}
    if method.remembers_met:
        return own
    known = {cell: own[cell] | {lineage(parcel)} for cell, parcel in parcels.items()}
    rounds = max(parcel.round for parcel in parcels.values())
    groups = linked_cells(method, method.config.cells, rounds)
    return {cell: frozenset().union(*(known[other] for other in groups[cell])) for cell in parcels}


def linked_cells(method: Method, cells: int, rounds: int) -> Mapping[int, frozenset[int]]:
    """For every cell, those it may have had to do with, directly or through others.

    Where cells read each other's parcels, networks wander: a discriminator may be the copy of one
    that a generator met at a third cell. So whoever is connected at all counts as met.
    """
    groups = {cell: {cell} for cell in range(cells)}
    changes = {start for start, _ in method.grid.changes if start <= rounds}
    for round in sorted({*range(1, min(rounds, MOST_ROUNDS) + 1), *changes}):
        for cell in range(cells):
            for peer in method.peers(cell, round):
                if groups[peer] is not groups[cell]:
                    groups[cell] |= groups[peer]
                    for other in groups[cell]:
                        groups[other] = groups[cell]
        if len(groups[0]) == cells:
            break
    return {cell: frozenset(group) for cell, group in groups.items()}
