"""A network that learns: its weights, its optimiser, and the genes that evolution works on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from remuda.config import TrainingSettings
from remuda.gan.average import Average
from remuda.gan.objectives import find_objective
from remuda.gan.optimisers import build_optimiser
from remuda.gan.parcels import strip_prefix

# What is done to a network after every step of its optimiser.
AfterStep = Callable[[nn.Module], None]


class Learner:
    """A network with its optimiser and its genes, which are its own from the first settings on.

    One that `averages` also keeps the average of its weights, if the settings ask for one.
    """

    def __init__(
        self,
        network: nn.Module,
        settings: TrainingSettings,
        after_step: Sequence[AfterStep] = (),
        *,
        averages: bool = False,
    ) -> None:
        self.network = network
        self.settings = settings
        self.after_step = tuple(after_step)
        self.objective = find_objective(settings.objective)
        self.optimiser = build_optimiser(settings, network)
        self.learning_rate = settings.learning_rate  # a gene: what a schedule starts from
        self.pace = 1.0  # the factor of the learning rate that a schedule has reached
        self.average = (
            Average(network, settings.average, settings.average_ramp)
            if averages and settings.average is not None
            else None
        )

    @property
    def judged(self) -> nn.Module:
        """What samples are drawn from to be scored, shown and kept, in eval mode."""
        return self.network.eval() if self.average is None else self.average.network

    @property
    def r1(self) -> float:
        """The weight of R1, where this is a discriminator."""
        return self.settings.r1

    @r1.setter
    def r1(self, value: float) -> None:
        self.settings = self.settings.model_copy(update={"r1": value})

    @property
    def half_life(self) -> float | None:
        """That of the average, where there is one."""
        return None if self.average is None else self.average.half_life

    @half_life.setter
    def half_life(self, value: float) -> None:
        assert self.average is not None
        self.average.half_life = value
        self.settings = self.settings.model_copy(update={"average": value})

    def genes(self) -> dict[str, Any]:
        """All that evolution may have changed, as parcels hold it."""
        own = {"learning_rate": self.learning_rate, "loss": self.objective.name, "r1": self.r1}
        return own if self.average is None else {**own, "average": self.half_life}

    def take_genes(self, genes: Mapping[str, Any]) -> None:
        """Take over the genes of a parcel; those of earlier versions had only two."""
        self.learning_rate = _checked("learning_rate", genes["learning_rate"])
        self.objective = find_objective(str(genes["loss"]))
        if "r1" in genes:
            self.r1 = _checked("R1 weight", genes["r1"], least=0.0)
        if self.average is not None and "average" in genes:
            self.half_life = _checked("half-life", genes["average"])

    def clone(self) -> Learner:
        """An independent copy: weights, buffers, optimiser state, average and genes."""
        network, averages = copy.deepcopy(self.network), self.average is not None
        twin = Learner(network, self.settings, self.after_step, averages=averages)
        twin.learning_rate, twin.objective = self.learning_rate, self.objective
        twin.restore(self.tensors())
        return twin

    def descend(self, gradients: Sequence[Tensor]) -> None:
        """One step, given the gradients of a loss by all parameters, in their order."""
        parameters = self.optimiser.parameters
        # Fused Adam walks through raw memory, and a convolution's gradient is channels-last.
        gradients = [gradient.contiguous() for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.settings.gradient_clip)
        self.optimiser.step(gradients, self.learning_rate * self.pace)
        for change in self.after_step:
            change(self.network)
        if self.average is not None:
            self.average.update()

    def tensors(self) -> dict[str, Tensor]:
        """Weights, buffers, moments and the average. Live references: copy before publishing."""
        weights = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        average = {} if self.average is None else self.average.tensors()
        return {**weights, **self.moments(), **average}

    def moments(self) -> dict[str, Tensor]:
        """The optimiser's state, by name; empty before its first step."""
        prefix = self.optimiser.name
        return {f"{prefix}.{name}": value for name, value in self.optimiser.state().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights, buffers, moments and the average; the learning rate stays."""
        self.network.load_state_dict(strip_prefix("network.", tensors))
        if self.average is not None:
            self.average.restore(tensors)
        self.optimiser.restore(strip_prefix(f"{self.optimiser.name}.", tensors))

    def is_finite(self) -> bool:
        """Whether it can go on: weights, buffers and moments can each overflow alone."""
        return all(bool(value.isfinite().all()) for value in self.tensors().values())


@dataclass
class Gan:
    """A generator and a discriminator with the cell they come from."""

    cell: int
    generator: Learner
    discriminator: Learner

    def clone(self) -> Gan:
        return Gan(self.cell, self.generator.clone(), self.discriminator.clone())

    def is_finite(self) -> bool:
        return self.generator.is_finite() and self.discriminator.is_finite()

    @property
    def roles(self) -> tuple[tuple[str, Learner], tuple[str, Learner]]:
        """Both learners with the names that parcels and events know them by."""
        return ("generator", self.generator), ("discriminator", self.discriminator)


def _checked(what: str, value: Any, least: float | None = None) -> float:
    number = float(value)
    if not (0 < number < math.inf or number == least):
        raise ValueError(f"a {what.replace('_', ' ')} of {number}")
    return number
