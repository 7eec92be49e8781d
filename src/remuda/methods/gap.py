"""Generative adversarial parallelization: GANs that swap discriminators.

GAP (Im, Ma, Kim and Taylor 2016). N GANs train side by side. Every K updates the members are
matched at random, two and two, and each pair swaps its discriminators (or its generators), so that
no generator can settle on the blind spots of one discriminator. In a round a member

1. finds its partner in a perfect matching drawn from (seed, round); one sits out where N is odd;
2. adopts the partner's discriminator as it was published after the round before: parameters and
   buffers, and the optimiser's moments too where they move with the network (a generator's prior
   always does: it has learnt to read no other noise);
3. trains for a round, which is as long as the time between two swaps.

Both members of a pair read parcels of the same round, so they end up with each other's network.
Nobody swaps before the first round. A discriminator's lineage goes with it, and a generator
remembers the lineages it trained against: GAM does not let a discriminator judge a generator it has
met (see `metrics/gam.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from remuda.clock import Clock
from remuda.config import Config, GapSettings
from remuda.config.geometry import GridSchedule
from remuda.config.networks import NetworkSettings
from remuda.errors import ConfigError
from remuda.gan.cell import Cell, parcel_network
from remuda.gan.learner import Gan, Learner
from remuda.gan.networks import discriminator_skeleton
from remuda.gan.parcels import Parcel, Part, role_tensors
from remuda.methods.base import Details, Match, Method, Mixture
from remuda.methods.independent import best_or_all
from remuda.methods.lineage import ancestor, lineage, lineages_met
from remuda.methods.matching import matching
from remuda.methods.state import CellState
from remuda.metrics import Scorer
from remuda.streams import stream_key


class Gap(Method):
    """Every member trains its own GAN, with another's discriminator each time."""

    settings: GapSettings

    remembers_met = True
    exact_peers = True

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        super().__init__(config, grid)
        self.reads = _swapped(self.settings)
        self.moves_priors = self.settings.swap == "generators"

    @classmethod
    def among_replicas(cls, config: Config, grid: GridSchedule, labels: int) -> GapAmongReplicas:
        return GapAmongReplicas(config, grid, labels)

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

    def _difference(
        self, own: NetworkSettings, other: NetworkSettings, shape: tuple[int, ...]
    ) -> str | None:
        if self.settings.swap == "generators":
            return _first_difference(_generator_plan(own), _generator_plan(other))
        return _first_difference(_discriminator_plan(own, shape), _discriminator_plan(other, shape))

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        if self.settings.swap == "none" or round == 1:
            return ()
        partner = matching(self.config.seed, round, self.config.cells)[cell]
        return () if partner is None else (partner,)

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        """Steps 1 and 2."""
        with clock.routine("swap"):
            swap = self._swap(cell, parcels)
        return Match(cell.gan.clone(), details={"swap": swap})

    def _swap(self, cell: Cell, parcels: Sequence[Parcel]) -> dict[str, Any] | None:
        """Adopt the partner's network; a member that cannot keeps its own, and says so."""
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
        gan, state = cell.gan, _state(cell)
        if self.settings.swap == "generators":
            generator = adopted(gan.generator, role_tensors(parcel, "generator"), moves=moves)
            cell.gan = Gan(cell.index, generator, gan.discriminator)
            cell.network = cell.network.with_prior(parcel_network(self.config, parcel).prior)
            state.met, state.ancestor = sorted(lineages_met(parcel)), ancestor(parcel)
        else:
            theirs = adopted(gan.discriminator, role_tensors(parcel, "discriminator"), moves=moves)
            cell.gan = Gan(cell.index, gan.generator, theirs)
            state.lineage = lineage(parcel)
        return {"partner": partner, "kept": False}

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        super().settle(cell, match, diverged=diverged, clock=clock)
        state = _state(cell)
        state.lineage = own = state.lineage or str(cell.index)
        state.met = sorted({*(state.met or ()), own})
        return {"lineage": own, "met": len(state.met)}

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        return best_or_all(parcels, scorer, self.settings.ensemble)


def _swapped(settings: GapSettings) -> Part:
    """What of a partner's parcel a member takes: see `adopted`."""
    role = "generator" if settings.swap == "generators" else "discriminator"
    if settings.optimiser == "moves":
        return f"{role}."
    return (f"{role}.network.", f"{role}.average")  # the latter also in how many steps


class GapAmongReplicas(Gap):
    """GAP among the replicas of each label."""

    def __init__(self, config: Config, grid: GridSchedule, labels: int) -> None:
        super().__init__(config, grid)
        self._labels = labels

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        replica, label = divmod(cell, self._labels)
        if self.settings.swap == "none" or round == 1:
            return ()
        seed = stream_key(self.config.seed, label, 0, "matching-of-a-label")
        partner = matching(seed, round, self.config.cells // self._labels)[replica]
        return () if partner is None else (partner * self._labels + label,)


def adopted(own: Learner, tensors: Mapping[str, Any], *, moves: bool) -> Learner:
    """A copy of `own` with what another is: weights, buffers, average, and moments if they move."""
    newcomer = own.clone()
    if not moves:
        optimiser = f"{own.settings.optimiser}."
        theirs = {name: value for name, value in tensors.items() if not name.startswith(optimiser)}
        tensors = {**theirs, **own.moments()}
    newcomer.restore(tensors)
    return newcomer


def _state(cell: Cell) -> CellState:
    assert isinstance(cell.state, CellState)
    return cell.state


Plan = dict[str, Any]


def _discriminator_plan(network: NetworkSettings, shape: tuple[int, ...]) -> Plan:
    """All that makes two discriminators exchangeable: their layers, and the tensors in them."""
    skeleton: nn.Module = discriminator_skeleton(network, shape)
    layers = {
        f"layer {name}": str(layer)
        for name, layer in skeleton.named_modules()
        if not list(layer.children())
    }
    return {"spectral_norm": network.spectral_norm, **layers}


def _generator_plan(network: NetworkSettings) -> Plan:
    """For generators their settings, but for the prior of their noise, which moves with them."""
    plan = network.model_dump()
    for name in ("prior", "spectral_norm", "minibatch_stddev", "discriminator_width"):
        plan.pop(name, None)
    return plan


def _first_difference(own: Plan, other: Plan) -> str | None:
    for name in {**own, **other}:
        mine, theirs = own.get(name, "nothing"), other.get(name, "nothing")
        if mine != theirs:
            return f"{name} is {mine} in one and {theirs} in the other"
    return None
