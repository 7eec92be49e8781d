"""Who trained against whom in a population: this decides which discriminators may judge in GAM.

A discriminator has a lineage that goes with it from cell to cell, and a generator remembers the
lineages it trained against.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

from remuda.errors import ConfigError
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import Diversity, Method
from remuda.methods.state import CellState, read_state
from remuda.metrics import spread

# Peers come from the grid, which changes at known rounds, or from random matchings, which have
# connected everything they can by then.
MOST_ROUNDS = 50
# Where nobody meets anybody, that many rounds are looked at from the start and from every change of
# the grid on, fewer of very many cells: a run folder of others may say that it had a billion.
_SEARCHED, _SEARCHED_CELLS = 10_000, 10**8


def lineage(parcel: Parcel) -> str:
    """The id of a parcel's discriminator, which goes with it from member to member.

    The number of the cell that it began in; if that was in an earlier run, ID/NUMBER
    with the id of that run. (Earlier versions wrote the name of its folder instead of its id.)
    """
    return origin(parcel).lineage


def ancestor(parcel: Parcel) -> str:
    """The cell that began a parcel's generator: as `lineage` is of its discriminator."""
    return origin(parcel).ancestor


def qualified(run: str, name: str) -> str:
    """A lineage as other runs know it; one that already came from elsewhere keeps its name."""
    return name if "/" in name else f"{run}/{name}"


class Origin(NamedTuple):
    """The cells whose first weights a GAN's generator and discriminator come from."""

    ancestor: str
    lineage: str


def origin(parcel: Parcel) -> Origin:
    # Only these two of its state: the list of whom it met grows as long as the population.
    known = {name: parcel.meta["memory"].get(name) for name in Origin._fields}
    state, own = CellState.from_json(known), str(parcel.cell)
    return Origin(
        own if state.ancestor is None else state.ancestor,
        own if state.lineage is None else state.lineage,
    )


def cell_origin(cell: Cell) -> Origin:
    """Where the GAN of a cell comes from, which its next parcel will say."""
    assert isinstance(cell.state, CellState)
    own = str(cell.index)
    return Origin(cell.state.ancestor or own, cell.state.lineage or own)


def check_common_origin(parcels: Mapping[int, Parcel], why: str) -> None:
    """Refuse cells that start from GANs of different origins where their weights are averaged."""
    origins = {cell: origin(parcel) for cell, parcel in parcels.items()}
    first = min(origins)
    for cell, found in origins.items():
        if found != origins[first]:
            raise ConfigError(
                f"init_from: cells {first} and {cell} start from GANs without a common origin, and "
                f"{why} would destroy both; allowed: GANs of one run with averaging, or "
                "one GAN for all cells"
            )


def diversity(parcels: Mapping[int, Parcel], *, scored: bool = True) -> Diversity:
    """Founders left in either role and, if just scored, how far the cells' samples are apart."""
    found = [origin(parcel) for parcel in parcels.values()]
    assessed = [parcel_assessment(parcel) for parcel in parcels.values()]
    parts = [part.statistics for part in assessed if part is not None]
    return Diversity(
        len({one.ancestor for one in found}),
        len({one.lineage for one in found}),
        spread(parts) if scored and len(parts) == len(found) > 1 else None,
    )


def lineages_met(parcel: Parcel) -> frozenset[str]:
    """The discriminators that a parcel's generator has trained against, by their lineages."""
    met = read_state(parcel, CellState).met
    return frozenset([str(parcel.cell)] if met is None else met)


def all_met(parcels: Mapping[int, Parcel], method: Method) -> dict[int, frozenset[str]]:
    """The lineages of the discriminators that each cell's generator met, or may have met."""
    own = {cell: lineages_met(parcel) for cell, parcel in parcels.items()}
    if method.remembers_met:
        return own
    known = {cell: own[cell] | {lineage(parcel)} for cell, parcel in parcels.items()}
    rounds = max(parcel.round for parcel in parcels.values())
    groups = linked_cells(method, method.config.cells, rounds)
    met = {
        group: frozenset().union(*(known[other] for other in group))
        for group in set(groups.values())
    }
    return {cell: met[groups[cell]] for cell in parcels}


def linked_cells(method: Method, cells: int, rounds: int) -> Mapping[int, frozenset[int]]:
    """For every cell, the cells it may have exchanged networks with, directly or through others.

    Where cells read each other's parcels, networks wander: a discriminator may be the copy of one
    that a generator met at a third cell. So any connection counts as having met.
    """
    groups = {cell: {cell} for cell in range(cells)}
    changes = {start for start, _ in method.grid.changes if start <= rounds}
    span = max(1, min(_SEARCHED, _SEARCHED_CELLS // cells) // (1 + len(changes)))
    looked_at = {
        round for start in (1, *changes) for round in range(start, min(start + span, rounds + 1))
    }
    meetings = (
        round
        for round in sorted(looked_at)
        if any(method.peers(cell, round) for cell in range(cells))
    )
    for round in sorted({*islice(meetings, MOST_ROUNDS), *changes}):
        for cell in range(cells):
            for peer in method.peers(cell, round):
                if groups[peer] is not groups[cell]:
                    small, large = sorted((groups[peer], groups[cell]), key=len)
                    large |= small
                    for other in small:
                        groups[other] = large
        if len(groups[0]) == cells:
            break
    # One set for all cells of a group: a set each would grow with the square of the cells.
    frozen = {id(group): frozenset(group) for group in groups.values()}
    return {cell: frozen[id(group)] for cell, group in groups.items()}
