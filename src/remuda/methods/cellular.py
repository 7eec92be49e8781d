"""Cellular coevolution on a toroidal grid of GANs.

Lipizzaner (Al-Dujaili et al. 2018) with Mustangs' loss gene (Toutouh et al. 2019), as in the
parallel implementation of Perez et al. (2020). In a round a cell

1. gathers the centres its neighbours published in the round before: its sub-population;
2. evaluates every generator against every discriminator of it, on one batch, under one loss;
3. picks parents by tournament and clones them, optimiser state included;
4. mutates the clones' learning rates, and the generator's loss;
5. trains the clones, each batch against an opponent drawn from the sub-population, in which the
   clones themselves stand in the cell's own place;
6. lets the fittest of sub-population and offspring be its new centre (or, `comma`, the offspring);
7. mutates the weights of its neighbourhood mixture and keeps them if the mixture scores better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.config import CellularSettings
from remuda.gan.cell import Cell
from remuda.gan.game import Rivals
from remuda.gan.learner import Gan, Learner
from remuda.gan.objectives import Objective, find_objective
from remuda.gan.parcels import Parcel, parcel_assessment
from remuda.methods.base import Details, Match, Method, Mixture
from remuda.methods.state import CellState, read_state
from remuda.metrics import Assessment, Scorer

# A mutated learning rate never falls below this: a network that cannot learn is a dead place.
SMALLEST_LEARNING_RATE = 1e-6

# Fitness over the opponents; a loss, so the worst opponent gives the largest.
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda losses: sum(losses) / len(losses),
    "worst": max,
    "best": min,
}


@dataclass
class CellularState(CellState):
    """A cell's mixture weights, by member, and the fitness of its generator."""

    mixture: dict[str, float] = field(default_factory=dict)
    fitness: float | None = None  # None before the first round, or where it is not finite


@dataclass(frozen=True)
class Offspring(Match):
    """The clones that train, with the sub-population they come from."""

    population: Sequence[Gan] = ()
    fitnesses: FitnessTable | None = None


class Cellular(Method):
    """Neighbours' centres are parents, opponents and fellow members of the mixture."""

    settings: CellularSettings

    state = CellularState

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return self.grid.at(round).neighbours(cell) if self.settings.communication else ()

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Offspring:
        """Steps 1 to 4."""
        with clock.routine("gather"):
            population = [cell.gan, *(cell.host(parcel) for parcel in parcels)]
        with clock.routine("update_genomes"):
            objective = find_objective(self.settings.fitness_loss or cell.training.objective)
            fitnesses = FitnessTable(cell, population, objective, self.settings.fitness)
            parents = self._select(cell, fitnesses)
            generator = population[parents.generator].generator.clone()
            discriminator = population[parents.discriminator].discriminator.clone()
            offspring = Gan(cell.index, generator, discriminator)
        with clock.routine("mutate"):
            mutations = self._mutate(cell, offspring)
        rivals = population[1:] if self.settings.opponents == "subpopulation" else []
        details = {
            "parents": {
                "generator": population[parents.generator].cell,
                "discriminator": population[parents.discriminator].cell,
            },
            "mutations": mutations,
        }
        return Offspring(offspring, _frozen(rivals), details, population, fitnesses)

    def _select(self, cell: Cell, fitnesses: FitnessTable) -> Places:
        """Step 3: the fitter of a few members drawn at random, for either role."""
        if not self.settings.selection:
            return Places(0, 0)
        rng = cell.streams.choices("tournament")
        size = min(self.settings.tournament_size, len(fitnesses.generators))
        picks = [rng.choice(len(fitnesses.generators), size, replace=False) for _ in range(2)]
        return Places(
            int(min(picks[0], key=lambda place: fitnesses.generators[place])),
            int(min(picks[1], key=lambda place: fitnesses.discriminators[place])),
        )

    def _mutate(self, cell: Cell, offspring: Gan) -> dict[str, Any]:
        """Step 4: a Gaussian step of each learning rate, and a fresh draw of the objective."""
        settings = self.settings
        if not settings.mutation:
            return {}
        rng = cell.streams.choices("mutation")
        done: dict[str, Any] = {}
        for role, learner in offspring.roles:
            chance, step = rng.random(), rng.normal(0.0, settings.mutation_rate)
            if chance < settings.mutation_probability:
                before = learner.learning_rate
                learner.learning_rate = max(SMALLEST_LEARNING_RATE, before + step)
                done[f"lr_{role}"] = [before, learner.learning_rate]
        if settings.losses:
            old = offspring.generator.objective
            offspring.generator.objective = find_objective(str(rng.choice(settings.losses)))
            done["loss"] = [old.name, offspring.generator.objective.name]
        return done

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        """Step 6: for either role, who is the centre now, and was the offspring accepted."""
        assert isinstance(match, Offspring)
        assert match.fitnesses is not None
        population, fitnesses = match.population, match.fitnesses
        with clock.routine("update_genomes"):
            fitness = fitnesses.of_offspring(match.gan)
            # If either clone diverged, what the other learnt against it is worthless too.
            generator = self._survivor(
                [gan.generator for gan in population],
                fitnesses.generators,
                None if diverged else match.gan.generator,
                fitness.generator,
            )
            discriminator = self._survivor(
                [gan.discriminator for gan in population],
                fitnesses.discriminators,
                None if diverged else match.gan.discriminator,
                fitness.discriminator,
            )
            cell.gan = Gan(cell.index, generator.learner, discriminator.learner)
        _state(cell).fitness = generator.fitness if math.isfinite(generator.fitness) else None
        centre = {
            role: {
                "from": "offspring" if winner.place is None else population[winner.place].cell,
                "replaced_worst": winner.replaced_worst,
                "fitness": winner.fitness,
            }
            for role, winner in (("generator", generator), ("discriminator", discriminator))
        }
        reached = {"generator": fitness.generator, "discriminator": fitness.discriminator}
        return {"fitness": reached, "centre": centre}

    def _survivor(
        self,
        members: Sequence[Learner],
        fitnesses: Sequence[float],
        offspring: Learner | None,
        fitness: float,
    ) -> Survivor:
        replaced_worst = offspring is not None and fitness < max(fitnesses)
        best = int(np.argmin(fitnesses))
        comma = self.settings.replacement == "comma" or not self.settings.selection
        if offspring is not None and (comma or fitness < fitnesses[best]):
            return Survivor(offspring, fitness, None, replaced_worst)
        # Without a usable offspring the cell falls back to its own last good network.
        place = 0 if comma else best
        return Survivor(members[place], fitnesses[place], place, replaced_worst)

    def weigh(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Details:
        """Step 7: a (1+1)-ES on the weights of the neighbourhood's generators."""
        with clock.routine("mixture"):
            members = [cell.index, *(parcel.cell for parcel in parcels)]
            weights = carried_weights(_state(cell).mixture, members)
            found = [cell.assessment, *(parcel_assessment(parcel) for parcel in parcels)]
            assessed = [part for part in found if part is not None]
            changed = False
            if cell.scorer is not None and len(assessed) == len(members) > 1:
                rng = cell.streams.choices("mixture")
                candidate = mutated_weights(weights, self.settings.mixture_scale, rng)
                before = cell.scorer.mixture(assessed, weights)
                changed = cell.scorer.mixture(assessed, candidate).loss < before.loss
                weights = candidate if changed else weights
            mixture = {str(one): weight for one, weight in zip(members, weights, strict=True)}
            _state(cell).mixture = mixture
        return {"mixture": {"weights": mixture, "changed": changed}}

    # -------------------------------------------------------------------------- the result

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """The neighbourhood mixture with the best score, made of the cells' latest generators."""
        mixtures = []
        for cell, parcel in sorted(parcels.items()):
            state = read_state(parcel, CellularState)
            grid = self.grid.at(parcel.round)  # the one its mixture weights were evolved on
            members = grid.subpopulation(cell) if self.settings.communication else (cell,)
            weights = carried_weights(state.mixture, members)
            found = [parcel_assessment(parcels[member]) for member in members]
            assessed: list[Assessment] = [part for part in found if part is not None]
            score = None
            if scorer is not None and len(assessed) == len(members):
                score = scorer.mixture(assessed, weights)
                rank, by = score.loss, "score"
            else:
                rank, by = (math.inf if state.fitness is None else state.fitness), "fitness"
            reason = f"the neighbourhood of cell {cell} has the best {by}"
            mixture = Mixture(dict(zip(members, weights, strict=True)), score, reason)
            mixtures.append((rank, cell, mixture))
        return min(mixtures, key=lambda entry: entry[:2])[2]


def _state(cell: Cell) -> CellularState:
    assert isinstance(cell.state, CellularState)
    return cell.state


@dataclass(frozen=True)
class Places:
    """Which member of the sub-population is the parent in either role."""

    generator: int
    discriminator: int


@dataclass(frozen=True)
class Fitness:
    """Losses against the opposite sub-population; lower is fitter."""

    generator: float
    discriminator: float


@dataclass(frozen=True)
class Survivor:
    """The new centre in one role; `place` is None where it is the offspring."""

    learner: Learner
    fitness: float
    place: int | None
    replaced_worst: bool


class FitnessTable:
    """Step 2: every generator against every discriminator, on one batch, under one objective.

    The offspring is evaluated later against the same opponents on the same batch, so that all
    fitnesses can be compared.
    """

    def __init__(
        self, cell: Cell, population: Sequence[Gan], objective: Objective, summary: str
    ) -> None:
        self._objective = objective
        self._summary = SUMMARIES[summary]
        self._devices = cell.devices
        self._real, self._labels = cell.real_batch("evaluation-batch")
        self._noise = cell.noise_batch("evaluation-noise")
        self._discriminators = [gan.discriminator for gan in population]
        self._fakes = [self._sample(gan.generator) for gan in population]
        table = [self._losses(one, self._fakes) for one in self._discriminators]
        self.discriminators = [self._aggregate([pair[1] for pair in row]) for row in table]
        self.generators = [
            self._aggregate([row[place][0] for row in table]) for place in range(len(population))
        ]

    def of_offspring(self, offspring: Gan) -> Fitness:
        fake = self._sample(offspring.generator)
        of_generator = [self._losses(one, [fake])[0][0] for one in self._discriminators]
        of_discriminator = [pair[1] for pair in self._losses(offspring.discriminator, self._fakes)]
        return Fitness(self._aggregate(of_generator), self._aggregate(of_discriminator))

    def _sample(self, generator: Learner) -> Tensor:
        """Fakes with the labels of the real batch, where the networks use labels."""
        with torch.no_grad():
            return self._devices.generate(generator.network.eval(), self._noise, self._labels)

    def _losses(self, learner: Learner, fakes: Sequence[Tensor]) -> list[tuple[float, float]]:
        """(generator's loss, discriminator's loss) for each set of fakes.

        In eval mode: otherwise a logit would depend on the rest of the batch.
        """
        network, objective = learner.network.eval(), self._objective
        with torch.no_grad():
            real, real_classes = self._devices.discriminate(network, self._real, self._labels)
            pairs = []
            for fake in fakes:
                logits, classes = self._devices.discriminate(network, fake, self._labels)
                generator_loss = objective.generator_loss(logits, real)
                discriminator_loss = objective.discriminator_loss(real, logits)
                if classes is not None and real_classes is not None:  # as in training (AC-GAN)
                    generator_loss = generator_loss + classes.mean()
                    both = torch.cat((real_classes, classes))
                    discriminator_loss = discriminator_loss + both.mean()
                pairs.append((float(generator_loss), float(discriminator_loss)))
        return pairs

    def _aggregate(self, losses: Sequence[float]) -> float:
        return self._summary(losses) if all(map(math.isfinite, losses)) else math.inf


def carried_weights(old: Mapping[str, float], members: Sequence[int]) -> list[float]:
    """Mixture weights for these members: the old ones where known, an equal share for the new."""
    share = 1 / len(members)
    weights = [max(0.0, old.get(str(member), share)) for member in members]
    total = sum(weights)
    return [weight / total for weight in weights] if total > 0 else [share] * len(members)


def mutated_weights(
    weights: Sequence[float], scale: float, rng: np.random.Generator
) -> list[float]:
    """Gaussian noise, clipped at zero, back on the simplex."""
    noisy = np.clip(np.asarray(weights) + rng.normal(0.0, scale, len(weights)), 0.0, None)
    total = float(noisy.sum())
    return [float(weight) / total for weight in noisy] if total > 0 else list(weights)


def _frozen(population: Sequence[Gan]) -> Rivals:
    """The neighbours as opponents: in eval mode, so that playing does not change them."""
    return Rivals(
        [gan.generator.network.eval() for gan in population],
        [gan.discriminator.network.eval() for gan in population],
    )
