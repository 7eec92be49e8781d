"""Generative adversarial parallelization: GANs that swap discriminators.

GAP (Im, Ma, Kim and Taylor 2016). N GANs train side by side. Every K updates the members are
matched at random, two and two, and each pair swaps its discriminators (or its generators), so that
no generator can settle on the blind spots of one discriminator. In a round a member

1. finds its partner in a perfect matching drawn from (seed, round); one sits out where N is odd;
2. adopts the partner's discriminator as it was published after the round before: parameters and
   buffers, and the optimiser's moments too where they move with the network;
3. trains for a round, which is as long as the time between two swaps.

Both of a pair read parcels of the same round, so they end up with each other's network. Nobody
swaps before the first round. A discriminator has a lineage that goes with it, and a generator
remembers the lineages it trained against: a scorer it has met is no scorer (see `metrics/gam.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from torch import nn

from remuda.clock import Clock
from remuda.config import AnyNetwork, Config, GapSettings
from remuda.config.geometry import GridSchedule
from remuda.errors import ConfigError
from remuda.gan.cell import Cell, Gan, lineage, lineages_met, role_tensors
from remuda.gan.learner import Learner
from remuda.gan.networks import discriminator_skeleton
from remuda.gan.parcels import Parcel
from remuda.methods.base import Method, Mixture, RoundReport, report
from remuda.methods.independent import best_or_all
from remuda.metrics import Scorer
from remuda.streams import choice_stream


class Gap(Method):
    """Every member trains its own GAN, with another's discriminator each time."""

    remembers_met = True
    exact_peers = True

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        super().__init__(config, grid)
        assert isinstance(config.method, GapSettings)
        self.settings = config.method

    def check(self, shape: tuple[int, ...]) -> None:
        super().check(shape)
        if self.settings.swap == "none":
            return
        own = self.config.network_of(0)
        for cell in range(1, min(self.config.cells, len(self.config.members))):
            other = self.config.network_of(cell)
            difference = self._difference(own, other, shape)
            if difference:
                raise ConfigError(
                    f"members[0] ({own.family}) and members[{cell}] ({other.family}) cannot swap "
                    f"{self.settings.swap}: {difference}; allowed: networks of one shape, or "
                    "method.swap=none"
                )

    def _difference(self, own: AnyNetwork, other: AnyNetwork, shape: tuple[int, ...]) -> str | None:
        if self.settings.swap == "generators":
            return _first_difference(_generator_plan(own), _generator_plan(other))
        return _first_difference(_discriminator_plan(own, shape), _discriminator_plan(other, shape))

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        if self.settings.swap == "none" or round == 1:
            return ()
        partner = matching(self.config.seed, round, self.config.cells)[cell]
        return () if partner is None else (partner,)

    def advance(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> RoundReport:
        with clock.routine("swap"):
            swap = self._swap(cell, parcels)
        offspring = cell.gan.clone()
        with clock.routine("train"):
            losses = cell.train(offspring)
        diverged = not offspring.is_finite()
        if not diverged:
            cell.gan = offspring
        own = cell.memory.setdefault("lineage", str(cell.index))
        cell.memory["met"] = sorted({*cell.memory.get("met", ()), own})
        with clock.routine("assess"):
            cell.assess()
        details = {"swap": swap, "lineage": own, "met": len(cell.memory["met"])}
        return report(cell, losses, clock, diverged=diverged, details=details)

    def _swap(self, cell: Cell, parcels: Sequence[Parcel]) -> dict[str, Any] | None:
        """Adopt the partner's network; without one there, the member keeps its own and says so."""
        wanted = self.peers(cell.index, cell.round)
        if not wanted:
            return None
        partner = wanted[0]
        parcel = next((found for found in parcels if found.cell == partner), None)
        # Of another round it might be the network that this member gave away.
        if parcel is None or parcel.round != cell.round - 1:
            there = "missing" if parcel is None else f"of round {parcel.round}"
            return {"partner": partner, "kept": True, "why": f"its parcel is {there}"}
        moves = self.settings.optimiser == "moves"
        gan = cell.gan
        if self.settings.swap == "generators":
            generator = adopted(gan.generator, role_tensors(parcel, "generator"), moves=moves)
            cell.gan = Gan(cell.index, generator, gan.discriminator)
            cell.memory["met"] = sorted(lineages_met(parcel))
        else:
            theirs = adopted(gan.discriminator, role_tensors(parcel, "discriminator"), moves=moves)
            cell.gan = Gan(cell.index, gan.generator, theirs)
            cell.memory["lineage"] = lineage(parcel)
        return {"partner": partner, "kept": False}

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        return best_or_all(parcels, scorer, self.settings.ensemble)


@lru_cache(maxsize=8)
def matching(seed: int, round: int, members: int) -> tuple[int | None, ...]:
    """Each member's partner in a round: a random perfect matching, one left over if odd."""
    order = choice_stream(seed, 0, round, "matching").permutation(members).tolist()
    partners: list[int | None] = [None] * members
    for first, second in zip(order[::2], order[1::2], strict=False):
        partners[first], partners[second] = second, first
    return tuple(partners)


def adopted(own: Learner, tensors: Mapping[str, Any], *, moves: bool) -> Learner:
    """A copy of `own` with the weights and buffers of another, and its moments if they move."""
    newcomer = own.clone()
    if not moves:
        tensors = {
            **{name: value for name, value in tensors.items() if name.startswith("network.")},
            **own.moments(),
        }
    newcomer.restore(tensors)
    return newcomer


Plan = dict[str, Any]


def _discriminator_plan(network: AnyNetwork, shape: tuple[int, ...]) -> Plan:
    """All that makes two discriminators exchangeable: their layers, and the tensors in them."""
    skeleton: nn.Module = discriminator_skeleton(network, shape)
    layers = {
        f"layer {name}": str(layer)
        for name, layer in skeleton.named_modules()
        if not list(layer.children())
    }
    return {"spectral_norm": network.spectral_norm, **layers}


def _generator_plan(network: AnyNetwork) -> Plan:
    """For generators their settings, the prior of their noise included, and not only shapes."""
    plan = network.model_dump()
    for name in ("spectral_norm", "discriminator_width"):
        plan.pop(name, None)
    return plan


def _first_difference(own: Plan, other: Plan) -> str | None:
    for name in {**own, **other}:
        mine, theirs = own.get(name, "nothing"), other.get(name, "nothing")
        if mine != theirs:
            return f"{name} is {mine} in one and {theirs} in the other"
    return None
