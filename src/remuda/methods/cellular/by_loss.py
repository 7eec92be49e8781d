"""Selection by loss, as the articles do it: either network for itself, in tournaments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from remuda.clock import Clock
from remuda.gan.cell import Cell
from remuda.gan.game import Rivals
from remuda.gan.guests import Guest, Player
from remuda.gan.learner import Gan, Learner
from remuda.gan.objectives import find_objective
from remuda.gan.parcels import Parcel
from remuda.methods.base import Details, Match
from remuda.methods.cellular.breeding import Breeding, cellular_state, origins
from remuda.methods.cellular.fitness import FitnessTable
from remuda.methods.cellular.genes import mutate
from remuda.methods.lineage import Origin


@dataclass(frozen=True)
class Offspring(Match):
    """The clones that train, with the sub-population they come from."""

    population: Sequence[Gan | Guest] = ()
    origins: Sequence[Origin] = ()
    parents: Places | None = None
    fitnesses: FitnessTable | None = None


class ByLoss(Breeding):
    """Steps 1 to 6 of the articles' round."""

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Offspring:
        """Steps 1 to 4."""
        with clock.routine("gather"):
            guests = [Guest.of(cell, parcel) for parcel in parcels]
            population: list[Gan | Guest] = [cell.gan, *guests]
        with clock.routine("update_genomes"):
            objective = find_objective(self.settings.fitness_loss or cell.training.objective)
            fitnesses = FitnessTable(
                cell, population, objective, self.settings.fitness, self.settings.fitness_batches
            )
            parents = self._select(cell, fitnesses)
            generator = population[parents.generator].generator.clone()
            discriminator = population[parents.discriminator].discriminator.clone()
            offspring = Gan(cell.index, generator, discriminator)
        with clock.routine("mutate"):
            mutations = mutate(offspring, self.settings, cell.streams)
        rivals = guests if self.settings.opponents == "subpopulation" else []
        details = {
            "parents": {
                "generator": population[parents.generator].cell,
                "discriminator": population[parents.discriminator].cell,
            },
            "mutations": mutations,
        }
        found = origins(cell, parcels)
        return Offspring(offspring, _frozen(rivals), details, population, found, parents, fitnesses)

    def _select(self, cell: Cell, fitnesses: FitnessTable) -> Places:
        """Step 3: the fitter of a few members drawn at random, for either role."""
        if not self.selects(cell.round):
            return Places(0, 0)
        rng = cell.streams.choices("tournament")
        size = min(self.settings.tournament_size, len(fitnesses.generators))
        picks = [rng.choice(len(fitnesses.generators), size, replace=False) for _ in range(2)]
        return Places(
            int(min(picks[0], key=lambda place: fitnesses.generators[place])),
            int(min(picks[1], key=lambda place: fitnesses.discriminators[place])),
        )

    def settle(self, cell: Cell, match: Match, *, diverged: bool, clock: Clock) -> Details:
        """Step 6: for either role, who is the centre now, and was the offspring accepted."""
        assert isinstance(match, Offspring)
        assert match.fitnesses is not None
        assert match.parents is not None
        population, fitnesses = match.population, match.fitnesses
        with clock.routine("update_genomes"):
            fitness = fitnesses.of_offspring(match.gan)
            # If either clone diverged, what the other learnt against it is worthless too.
            survivor = partial(self._survivor, selects=self.selects(cell.round))
            generator = survivor(
                [gan.generator for gan in population],
                fitnesses.generators,
                None if diverged else match.gan.generator,
                fitness.generator,
            )
            discriminator = survivor(
                [gan.discriminator for gan in population],
                fitnesses.discriminators,
                None if diverged else match.gan.discriminator,
                fitness.discriminator,
            )
            cell.gan = Gan(cell.index, generator.learner, discriminator.learner)
        state = cellular_state(cell)
        state.fitness = generator.fitness if math.isfinite(generator.fitness) else None
        places = [
            match.parents.generator if generator.place is None else generator.place,
            match.parents.discriminator if discriminator.place is None else discriminator.place,
        ]
        state.ancestor = match.origins[places[0]].ancestor
        state.lineage = match.origins[places[1]].lineage
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
        members: Sequence[Player],
        fitnesses: Sequence[float],
        offspring: Learner | None,
        fitness: float,
        *,
        selects: bool,
    ) -> Survivor:
        replaced_worst = offspring is not None and fitness < max(fitnesses)
        best = int(np.argmin(fitnesses))
        comma = self.settings.replacement == "comma" or not selects
        if offspring is not None and (comma or fitness < fitnesses[best]):
            return Survivor(offspring, fitness, None, replaced_worst)
        # Without a usable offspring the cell falls back to its own last good network.
        place = 0 if comma else best
        kept = members[place]
        learner = kept if isinstance(kept, Learner) else kept.clone()
        return Survivor(learner, fitnesses[place], place, replaced_worst)


@dataclass(frozen=True)
class Places:
    """Which member of the sub-population is the parent in either role."""

    generator: int
    discriminator: int


@dataclass(frozen=True)
class Survivor:
    """The new centre in one role; `place` is None where it is the offspring."""

    learner: Learner
    fitness: float
    place: int | None
    replaced_worst: bool


def _frozen(guests: Sequence[Guest]) -> Rivals:
    """The neighbours as opponents: in eval mode, so that playing does not change them."""
    return Rivals(
        [guest.generator.network for guest in guests],
        [guest.discriminator.network for guest in guests],
    )
