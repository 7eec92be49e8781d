"""GANs of one origin that train apart for a round and then average their weights.

Local SGD (Stich 2019), federated averaging (McMahan et al. 2017) and gossip (Boyd et al. 2006), for
both networks of a GAN. All cells start from the same weights. In a round a cell

1. gathers what its peers published in the round before: all cells, its neighbours, or a partner;
2. becomes the average of itself and them: both networks, the generator's moving average and, unless
   they are kept, the optimiser's moments;
3. trains on its own batches.

At the end the cells are averaged once more, into a single generator. Only relatives are averaged:
networks that grew from different first weights have nothing in common, place by place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.config import AveragingSettings
from remuda.gan.cell import Cell
from remuda.gan.learner import Gan, Learner
from remuda.gan.optimisers import OPTIMISERS, STEP
from remuda.gan.parcels import Parcel, role_tensors
from remuda.methods.base import Match, Method, Mixture
from remuda.methods.lineage import cell_origin, check_common_origin, origin
from remuda.methods.matching import matching
from remuda.metrics import Scorer

# Counts that are not integers.
STEP_COUNTS = tuple(f"{name}.{STEP}." for name in OPTIMISERS)


class Averaging(Method):
    """Several workers train what is in the end one GAN."""

    settings: AveragingSettings

    reads = ("generator.", "discriminator.")

    def founder(self, index: int) -> int:
        return 0

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        # Before the first round all are alike.
        if round == 1 or (round - 1) % self.settings.every:
            return ()
        if self.settings.peers == "neighbours":
            return self.grid.at(round).neighbours(cell)
        if self.settings.peers == "partner":
            partner = matching(self.config.seed, round, self.config.cells)[cell]
            return () if partner is None else (partner,)
        return tuple(other for other in range(self.config.cells) if other != cell)

    def check_start(self, parcels: Mapping[int, Parcel]) -> None:
        check_common_origin(parcels, "method=averaging")

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        """Steps 1 and 2."""
        with clock.routine("average"):
            gan = averaged(cell, parcels, moments=self.settings.moments == "averaged")
            related = [parcel.cell for parcel in relatives(cell, parcels)]
        return Match(gan, details={"averaged_with": related})

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        cells = sorted(parcels)
        equal = dict.fromkeys(cells, 1 / len(cells))
        return Mixture(equal, None, "the average of all cells' weights", merged=True)


def relatives(cell: Cell, parcels: Sequence[Parcel]) -> list[Parcel]:
    """Those of the parcels whose networks come from the same first weights as the cell's."""
    return [parcel for parcel in parcels if origin(parcel) == cell_origin(cell)]


def averaged(cell: Cell, parcels: Sequence[Parcel], *, moments: bool) -> Gan:
    """The average of a cell's GAN and those in the parcels, with the cell's own genes.

    Sums run in the order of the cells, so that cells with the same peers get the same bits.
    """
    gan = cell.gan.clone()
    related = relatives(cell, parcels)
    if not related:
        return gan
    for role, learner in gan.roles:
        own = learner.tensors()
        found = {parcel.cell: role_tensors(parcel, role) for parcel in related}
        order = sorted([cell.index, *found])
        parts = [own if one == cell.index else found[one] for one in order]
        learner.restore(_mean(learner, parts, moments=moments))
    return gan


def _mean(
    learner: Learner, parts: Sequence[Mapping[str, Tensor]], *, moments: bool
) -> dict[str, Tensor]:
    """The mean of all parts, but with its own moments unless all parts have some to average."""
    found, own = mean_tensors(parts), learner.moments()
    kept = {name: value.clone() for name, value in own.items() if not moments or name not in found}
    return {**found, **kept}


@torch.no_grad()
def mean_tensors(
    parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float] | None = None
) -> dict[str, Tensor]:
    """The mean of tensors of the same names; of counts, the largest."""
    shares = [1 / len(parts)] * len(parts) if weights is None else weights
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: _mean_of(name, [part[name] for part in parts], shares) for name in names}


def _mean_of(name: str, values: Sequence[Tensor], shares: Sequence[float]) -> Tensor:
    if not values[0].is_floating_point() or name.startswith(STEP_COUNTS):
        return torch.stack([value.cpu() for value in values]).amax(0)
    total = torch.zeros_like(values[0])
    for value, share in zip(values, shares, strict=True):
        total.add_(value.to(total.device), alpha=share)
    return total
