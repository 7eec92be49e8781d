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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from remuda.clock import Clock
from remuda.config import CellularSettings, Config
from remuda.config.geometry import GridSchedule
from remuda.gan.cell import Cell, Gan, Rivals, parcel_assessment
from remuda.gan.learner import Learner
from remuda.gan.objectives import discriminator_loss, generator_loss, needs_real
from remuda.gan.parcels import Parcel
from remuda.methods.base import Method, Mixture, RoundReport, report
from remuda.metrics import Assessment, Scorer

# A mutated learning rate never falls below this: a network that cannot learn is a dead place.
SMALLEST_LEARNING_RATE = 1e-6

# Fitness over the opponents; a loss, so the worst opponent gives the largest.
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda losses: sum(losses) / len(losses),
    "worst": max,
    "best": min,
}


class Cellular(Method):
    """Neighbours' centres are parents, opponents and fellow members of the mixture."""

    def __init__(self, config: Config, grid: GridSchedule) -> None:
        super().__init__(config, grid)
        assert isinstance(config.method, CellularSettings)
        self.settings = config.method

    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        return self.grid.at(round).neighbours(cell) if self.settings.communication else ()

    def advance(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> RoundReport:
        with clock.routine("gather"):
            population = [cell.gan, *(cell.host(parcel) for parcel in parcels)]
        with clock.routine("update_genomes"):
            fitnesses = FitnessTable(
                cell, population, self.settings, self.config.training.objective
            )
            parents = self._select(cell, fitnesses)
            offspring = Gan(
                cell.index,
                population[parents.generator].generator.clone(),
                population[parents.discriminator].discriminator.clone(),
            )
        with clock.routine("mutate"):
            mutations = self._mutate(cell, offspring)
        with clock.routine("train"):
            rivals = self.settings.opponents == "subpopulation"
            losses = cell.train(offspring, _frozen(population[1:] if rivals else []))
        with clock.routine("update_genomes"):
            fitness = fitnesses.of_offspring(offspring)
            centre = self._replace(cell, population, fitnesses, offspring, fitness)
        with clock.routine("assess"):
            cell.assess()
        with clock.routine("mixture"):
            mixture = self._evolve_mixture(cell, parcels)
        details = {
            "parents": {
                "generator": population[parents.generator].cell,
                "discriminator": population[parents.discriminator].cell,
            },
            "mutations": mutations,
            "fitness": {"generator": fitness.generator, "discriminator": fitness.discriminator},
            "centre": centre,
            "mixture": mixture,
        }
        diverged = not offspring.is_finite()
        return report(cell, losses, clock, diverged=diverged, details=details)

    # -------------------------------------------------------------------------- steps 3 to 7

    def _select(self, cell: Cell, fitnesses: FitnessTable) -> Places:
        """Step 3: the fitter of a few members drawn at random, for either role."""
        if not self.settings.selection:
            return Places(0, 0)
        rng = cell.choices("tournament")
        size = min(self.settings.tournament_size, len(fitnesses.generators))
        picks = [rng.choice(len(fitnesses.generators), size, replace=False) for _ in range(2)]
        return Places(
            int(min(picks[0], key=lambda place: fitnesses.generators[place])),
            int(min(picks[1], key=lambda place: fitnesses.discriminators[place])),
        )

    def _mutate(self, cell: Cell, offspring: Gan) -> dict[str, Any]:
        """Step 4: a Gaussian step of each learning rate, and a fresh draw of the loss."""
        settings = self.settings
        if not settings.mutation:
            return {}
        rng = cell.choices("mutation")
        done: dict[str, Any] = {}
        for role, learner in (
            ("generator", offspring.generator),
            ("discriminator", offspring.discriminator),
        ):
            chance, step = rng.random(), rng.normal(0.0, settings.mutation_rate)
            if chance < settings.mutation_probability:
                before = learner.learning_rate
                learner.learning_rate = max(SMALLEST_LEARNING_RATE, before + step)
                done[f"lr_{role}"] = [before, learner.learning_rate]
        if settings.losses:
            before_loss = offspring.generator.loss
            offspring.generator.loss = str(rng.choice(settings.losses))
            done["loss"] = [before_loss, offspring.generator.loss]
        return done

    def _replace(
        self,
        cell: Cell,
        population: Sequence[Gan],
        fitnesses: FitnessTable,
        offspring: Gan,
        fitness: Fitness,
    ) -> dict[str, Any]:
        """Step 6: for either role, who is the centre now, and was the offspring accepted."""
        # If either clone diverged, what the other learnt against it is worth nothing either.
        usable = offspring.is_finite()
        generator = self._survivor(
            [gan.generator for gan in population],
            fitnesses.generators,
            offspring.generator if usable else None,
            fitness.generator,
        )
        discriminator = self._survivor(
            [gan.discriminator for gan in population],
            fitnesses.discriminators,
            offspring.discriminator if usable else None,
            fitness.discriminator,
        )
        cell.gan = Gan(cell.index, generator.learner, discriminator.learner)
        cell.memory["fitness"] = generator.fitness if math.isfinite(generator.fitness) else None
        return {
            role: {
                "from": "offspring" if winner.place is None else population[winner.place].cell,
                "replaced_worst": winner.replaced_worst,
                "fitness": winner.fitness,
            }
            for role, winner in (("generator", generator), ("discriminator", discriminator))
        }

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

    def _evolve_mixture(self, cell: Cell, parcels: Sequence[Parcel]) -> dict[str, Any]:
        """Step 7: a (1+1)-ES on the weights of the neighbourhood's generators."""
        members = [cell.index, *(parcel.cell for parcel in parcels)]
        weights = carried_weights(cell.memory.get("mixture", {}), members)
        found = [cell.assessment, *(parcel_assessment(parcel) for parcel in parcels)]
        assessed = [part for part in found if part is not None]
        changed = False
        if cell.scorer is not None and len(assessed) == len(members) > 1:
            candidate = mutated_weights(
                weights, self.settings.mixture_scale, cell.choices("mixture")
            )
            before = cell.scorer.mixture(assessed, weights)
            changed = cell.scorer.mixture(assessed, candidate).loss < before.loss
            weights = candidate if changed else weights
        cell.memory["mixture"] = {
            str(member): weight for member, weight in zip(members, weights, strict=True)
        }
        return {"weights": cell.memory["mixture"], "changed": changed}

    # -------------------------------------------------------------------------- the result

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        """The neighbourhood mixture with the best score, made of the cells' latest generators."""
        mixtures = []
        for cell, parcel in sorted(parcels.items()):
            grid = self.grid.at(parcel.round)  # the one its mixture weights were evolved on
            members = grid.subpopulation(cell) if self.settings.communication else (cell,)
            weights = carried_weights(parcel.meta["memory"].get("mixture", {}), members)
            found = [parcel_assessment(parcels[member]) for member in members]
            assessed: list[Assessment] = [part for part in found if part is not None]
            score = None
            if scorer is not None and len(assessed) == len(members):
                score = scorer.mixture(assessed, weights)
                rank, by = score.loss, "score"
            else:
                fitness = parcel.meta["memory"].get("fitness")
                rank, by = (math.inf if fitness is None else fitness), "fitness"
            reason = f"the neighbourhood of cell {cell} has the best {by}"
            mixture = Mixture(dict(zip(members, weights, strict=True)), score, reason)
            mixtures.append((rank, cell, mixture))
        return min(mixtures, key=lambda entry: entry[:2])[2]


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
    """Step 2: every generator against every discriminator, on one batch, under one loss.

    The offspring is judged later against the same opponents on the same batch, so all its
    fitnesses can be compared.
    """

    def __init__(
        self, cell: Cell, population: Sequence[Gan], settings: CellularSettings, objective: str
    ) -> None:
        self._loss = settings.fitness_loss or objective
        self._summary = SUMMARIES[settings.fitness]
        self._real = cell.real_batch("evaluation-batch")
        self._noise = cell.noise_batch("evaluation-noise")
        self._scorers = [gan.discriminator for gan in population]
        self._fakes = [self._sample(gan.generator) for gan in population]
        table = [self._scorer(scorer, self._fakes) for scorer in self._scorers]
        self.discriminators = [self._aggregate([pair[1] for pair in row]) for row in table]
        self.generators = [
            self._aggregate([row[place][0] for row in table]) for place in range(len(population))
        ]

    def of_offspring(self, offspring: Gan) -> Fitness:
        fake = self._sample(offspring.generator)
        against_judges = [self._scorer(scorer, [fake])[0][0] for scorer in self._scorers]
        against_fakes = [pair[1] for pair in self._scorer(offspring.discriminator, self._fakes)]
        return Fitness(self._aggregate(against_judges), self._aggregate(against_fakes))

    def _sample(self, generator: Learner) -> Tensor:
        with torch.no_grad():
            samples: Tensor = generator.network.eval()(self._noise)
        return samples

    def _scorer(self, scorer: Learner, fakes: Sequence[Tensor]) -> list[tuple[float, float]]:
        """(generator's loss, discriminator's loss) for each set of fakes.

        In eval mode: otherwise the batch that is judged would change the score.
        """
        network = scorer.network.eval()
        with torch.no_grad():
            real = network(self._real)
            pairs = []
            for fake in fakes:
                logits = network(fake)
                pairs.append(
                    (
                        float(generator_loss(self._loss, logits, real))
                        if needs_real(self._loss)
                        else float(generator_loss(self._loss, logits)),
                        float(discriminator_loss(self._loss, real, logits)),
                    )
                )
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
