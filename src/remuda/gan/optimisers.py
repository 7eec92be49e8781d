"""The optimisers, as lists of tensors: what torch's own compute, without the cost of its checks.

A step of these small networks takes the kernel 90 microseconds and `torch.optim` 30 more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from remuda.config import TrainingSettings

STEP = "step"


class Optimiser(ABC):
    """Changes parameters by their gradients, and remembers something of each."""

    name: ClassVar[str]
    moments: ClassVar[tuple[str, ...]]  # what it remembers of a parameter, beside the step count

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._names = list(parameters)
        self.parameters = list(parameters.values())
        self._steps = torch.zeros((), device=self.parameters[0].device)
        self._moments: dict[str, list[Tensor]] = {}  # none before the first step

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], rate: float) -> None:
        """Change the parameters, and what is remembered of them."""
        if not self._moments:
            self._moments = self._zeros()
        self._steps += 1
        self._descend(list(gradients), rate, *self._moments.values())

    def _zeros(self) -> dict[str, list[Tensor]]:
        return {
            name: [torch.zeros_like(parameter) for parameter in self.parameters]
            for name in self.moments
        }

    @abstractmethod
    def _descend(self, gradients: list[Tensor], rate: float, *moments: list[Tensor]) -> None: ...

    def state(self) -> dict[str, Tensor]:
        """All of it, as "moment.parameter"; empty before the first step."""
        if not self._moments:
            return {}
        steps = {f"{STEP}.{name}": self._steps for name in self._names}
        moments = {
            f"{key}.{name}": moment
            for key, moments in self._moments.items()
            for name, moment in zip(self._names, moments, strict=True)
        }
        return {**steps, **moments}

    @torch.no_grad()
    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Become what `state` told; ValueError for what is not the state of these parameters."""
        self._steps = torch.zeros_like(self._steps)  # what it held may be part of `state`
        self._moments = {}
        if not state:
            return
        for name, parameter in zip(self._names, self.parameters, strict=True):
            self._check(name, parameter, state)
        counts = {float(state[f"{STEP}.{name}"]) for name in self._names}
        if len(counts) > 1:
            raise ValueError(f"the {self.name} optimiser's step counts differ: {sorted(counts)}")
        self._steps.fill_(counts.pop())
        # Copied: the kernels also trust that a moment lies in memory as its parameter does.
        self._moments = self._zeros()
        for key, moments in self._moments.items():
            for name, moment in zip(self._names, moments, strict=True):
                moment.copy_(state[f"{key}.{name}"])

    def _check(self, name: str, parameter: Tensor, state: Mapping[str, Tensor]) -> None:
        # A kernel trusts these sizes: it would read a smaller tensor beyond its end.
        likes = {STEP: self._steps, **dict.fromkeys(self.moments, parameter)}
        for key, like in likes.items():
            found = state.get(f"{key}.{name}")
            if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
                raise ValueError(
                    f"the {self.name} optimiser's {key} of {name} does not fit the network"
                )


class Adam(Optimiser):
    """Adam (Kingma and Ba 2015)."""

    name = "adam"
    moments = ("exp_avg", "exp_avg_sq")

    def __init__(self, parameters: Mapping[str, nn.Parameter], betas: tuple[float, float]) -> None:
        super().__init__(parameters)
        self._betas = betas

    def _descend(self, gradients: list[Tensor], rate: float, *moments: list[Tensor]) -> None:
        averages, squares = moments
        torch._fused_adam_(
            [*self.parameters],
            gradients,
            averages,
            squares,
            [],
            [self._steps] * len(self.parameters),
            lr=rate,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


class RmsProp(Optimiser):
    """RMSprop (Hinton 2012), as torch has it."""

    name = "rmsprop"
    moments = ("square_avg",)

    def _descend(self, gradients: list[Tensor], rate: float, *moments: list[Tensor]) -> None:
        (squares,) = moments
        torch._foreach_mul_(squares, 0.99)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - 0.99)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, 1e-8)
        torch._foreach_addcdiv_([*self.parameters], gradients, roots, value=-rate)


OPTIMISERS: dict[str, type[Optimiser]] = {one.name: one for one in (Adam, RmsProp)}


def build_optimiser(settings: TrainingSettings, network: nn.Module) -> Optimiser:
    """The one that the settings ask for."""
    parameters = dict(network.named_parameters())
    if settings.optimiser == RmsProp.name:
        return RmsProp(parameters)
    return Adam(parameters, settings.betas)
