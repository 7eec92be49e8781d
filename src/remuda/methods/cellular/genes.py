"""The genes of a GAN: learning rates, the generator's loss, R1's weight, the average's half-life.

Where a gene has a range, cells draw their first value from it, evenly in the logarithm, and
mutations are factors; where no gene has one, learning rates mutate as in the articles, by adding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from remuda.config import CellularSettings
from remuda.gan.learner import Gan
from remuda.gan.objectives import find_objective
from remuda.streams import Streams

# A mutated learning rate never falls below this: a network that cannot learn is a dead place.
SMALLEST_LEARNING_RATE = 1e-6

Range = tuple[float, float]


def draw_genes(gan: Gan, settings: CellularSettings, streams: Streams) -> None:
    """The genes that a cell starts with; where nothing is drawn, those of the configuration."""
    ranges, rng = settings.genes, streams.choices("genes")
    if ranges.learning_rate is not None:
        # One draw for both: networks that learn at the same rate are the better first guess.
        rate = _drawn(ranges.learning_rate, rng)
        gan.generator.learning_rate = gan.discriminator.learning_rate = rate
    if ranges.r1 is not None:
        gan.discriminator.r1 = _drawn(ranges.r1, rng)
    if ranges.average is not None:
        gan.generator.half_life = _drawn(ranges.average, rng)
    # By score, nobody mutates who is not taken over: without a first draw all would be alike.
    if settings.losses and (ranges.drawn or settings.exchange == "score"):
        gan.generator.objective = find_objective(str(rng.choice(settings.losses)))


def mutate(gan: Gan, settings: CellularSettings, streams: Streams) -> dict[str, Any]:
    """Step 4: change the genes of a clone; what changed, from what to what."""
    if not settings.mutation:
        return {}
    rng = streams.choices("mutation")
    if settings.genes.drawn:
        return _mutate_within(gan, settings, rng)
    done: dict[str, Any] = {}
    for role, learner in gan.roles:
        chance, step = rng.random(), rng.normal(0.0, settings.mutation_rate)
        if chance < settings.mutation_probability:
            before = learner.learning_rate
            learner.learning_rate = max(SMALLEST_LEARNING_RATE, before + step)
            done[f"lr_{role}"] = [before, learner.learning_rate]
    if settings.losses:
        done["loss"] = _new_loss(gan, settings, rng)
    return done


def _mutate_within(
    gan: Gan, settings: CellularSettings, rng: np.random.Generator
) -> dict[str, Any]:
    """Every gene with a range, and the loss, each with the same probability."""
    ranges, done = settings.genes, dict[str, Any]()

    def changed(name: str, value: float | None, limits: Range | None) -> float | None:
        chance, step = rng.random(), rng.normal(0.0, ranges.step)
        if limits is None or value is None or chance >= settings.mutation_probability:
            return None
        mutant = _within(limits, value * math.exp(step))
        done[name] = [value, mutant]
        return mutant

    for role, learner in gan.roles:
        rate = changed(f"lr_{role}", learner.learning_rate, ranges.learning_rate)
        learner.learning_rate = learner.learning_rate if rate is None else rate
    weight = changed("r1", gan.discriminator.r1, ranges.r1)
    gan.discriminator.r1 = gan.discriminator.r1 if weight is None else weight
    half_life = changed("average", gan.generator.half_life, ranges.average)
    if half_life is not None:
        gan.generator.half_life = half_life
    if settings.losses and rng.random() < settings.mutation_probability:
        done["loss"] = _new_loss(gan, settings, rng)
    return done


def _new_loss(gan: Gan, settings: CellularSettings, rng: np.random.Generator) -> list[str]:
    old = gan.generator.objective
    gan.generator.objective = find_objective(str(rng.choice(settings.losses)))
    return [old.name, gan.generator.objective.name]


def _drawn(limits: Range, rng: np.random.Generator) -> float:
    low, high = map(math.log, limits)
    return _within(limits, math.exp(rng.uniform(low, high)))


def _within(limits: Range, value: float) -> float:
    return min(max(value, limits[0]), limits[1])
