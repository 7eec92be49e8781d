"""A network that learns: its weights, its optimiser, and the genes that evolution works on."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from remuda.config import TrainingSettings
from remuda.gan.average import Average
from remuda.gan.objectives import find_objective
from remuda.gan.parcels import strip_prefix

# What an optimiser remembers of every parameter, beside its step count.
MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",)}
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
        self.optimizer = _optimizer(network, settings)
        self.learning_rate = settings.learning_rate
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
    def learning_rate(self) -> float:
        """The gene: what a schedule starts from, not how far it is."""
        return self._learning_rate

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self._learning_rate = float(value)
        self.optimizer.param_groups[0]["lr"] = value

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

    def step(self, loss: Tensor) -> None:
        """One descent step on `loss`; gradients reach this network and no other."""
        group = self.optimizer.param_groups[0]
        group["lr"] = self.learning_rate * self.pace
        parameters = group["params"]
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            # Fused Adam walks through raw memory, and a convolution's gradient is channels-last.
            parameter.grad = gradient.contiguous()
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.settings.gradient_clip)
        self.optimizer.step()
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
        return {
            f"{self.settings.optimiser}.{key}.{name}": value
            for name, parameter in self.network.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights, buffers, moments and the average; the learning rate stays."""
        self.network.load_state_dict(strip_prefix("network.", tensors))
        if self.average is not None:
            self.average.restore(tensors)
        self.optimizer.state.clear()
        kind = self.settings.optimiser
        for name, parameter in self.network.named_parameters():
            state = {
                key: tensors[f"{kind}.{key}.{name}"].clone().to(parameter.device)
                for key in ("step", *MOMENTS[kind])
                if f"{kind}.{key}.{name}" in tensors
            }
            if state:
                _check_moments(kind, name, parameter, state)
                self.optimizer.state[parameter] = state

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


def _optimizer(network: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    parameters, rate = network.parameters(), settings.learning_rate
    if settings.optimiser == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=rate, foreach=True)
    # Fused Adam: a step of these small networks costs half of the plain one on a CPU.
    return torch.optim.Adam(parameters, lr=rate, betas=settings.betas, fused=True)


def _checked(what: str, value: Any, least: float | None = None) -> float:
    number = float(value)
    if not (0 < number < math.inf or number == least):
        raise ValueError(f"a {what.replace('_', ' ')} of {number}")
    return number


def _check_moments(kind: str, name: str, parameter: Tensor, state: Mapping[str, Tensor]) -> None:
    # Adam's fused step trusts these sizes: a smaller tensor would be read beyond its end.
    count = torch.zeros((), dtype=torch.float32)
    likes = {"step": count, **dict.fromkeys(MOMENTS[kind], parameter)}
    for key, like in likes.items():
        found = state.get(key)
        if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
            raise ValueError(f"the {kind} optimiser's {key} of {name} does not fit the network")
