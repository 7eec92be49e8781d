"""Fitness by loss: every generator of a sub-population against every discriminator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from remuda.gan.cell import Cell
from remuda.gan.guests import Guest, Player
from remuda.gan.learner import Gan
from remuda.gan.objectives import Objective

# Fitness over the opponents; a loss, so the worst opponent gives the largest.
SUMMARIES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda losses: sum(losses) / len(losses),
    "worst": max,
    "best": min,
}


@dataclass(frozen=True)
class Fitness:
    """Losses against the opposite sub-population; lower is fitter."""

    generator: float
    discriminator: float


class FitnessTable:
    """Step 2: every generator against every discriminator, under one objective.

    The offspring is evaluated later against the same opponents on the same items, so that all
    fitnesses can be compared.
    """

    def __init__(
        self,
        cell: Cell,
        population: Sequence[Gan | Guest],
        objective: Objective,
        summary: str,
        batches: int = 1,
    ) -> None:
        self._objective = objective
        self._summary = SUMMARIES[summary]
        self._devices = cell.devices
        self._real, self._labels = cell.real_batch("evaluation-batch", batches)
        self._noise = cell.noise_batch("evaluation-noise", len(self._real))
        self._discriminators: list[Player] = [gan.discriminator for gan in population]
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

    def _sample(self, generator: Player) -> Tensor:
        """Fakes with the labels of the real batch, where the networks use labels."""
        with torch.no_grad():
            return self._devices.generate(generator.network.eval(), self._noise, self._labels)

    def _losses(self, learner: Player, fakes: Sequence[Tensor]) -> list[tuple[float, float]]:
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
