"""A network that learns: its weights, its optimiser, and the genes that evolution works on."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from remuda.config import TrainingSettings

# What an optimiser remembers of every parameter, beside how often it has stepped.
MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",)}


class Learner:
    """A network with its optimiser and its genes (learning rate, loss): what evolution works on."""

    def __init__(self, network: nn.Module, settings: TrainingSettings):
        self.network = network
        self.settings = settings
        self.loss: str = settings.objective
        self.optimizer = _optimizer(network, settings)

    @property
    def learning_rate(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        self.optimizer.param_groups[0]["lr"] = value

    def clone(self) -> Learner:
        """An independent copy: weights, buffers, optimiser state and genes."""
        twin = Learner(copy.deepcopy(self.network), self.settings)
        twin.learning_rate, twin.loss = self.learning_rate, self.loss
        twin.restore(self.tensors())
        return twin

    def step(self, loss: Tensor) -> None:
        """One descent step on `loss`; gradients reach this network and no other."""
        parameters = self.optimizer.param_groups[0]["params"]
        gradients = torch.autograd.grad(loss, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.settings.gradient_clip is not None:
            nn.utils.clip_grad_norm_(parameters, self.settings.gradient_clip)
        self.optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Weights, buffers and moments by name. Live references: copy before publishing."""
        weights = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return {**weights, **self.moments()}

    def moments(self) -> dict[str, Tensor]:
        """What the optimiser remembers, by name; nothing before its first step."""
        return {
            f"{self.settings.optimiser}.{key}.{name}": value
            for name, parameter in self.network.named_parameters()
            for key, value in self.optimizer.state.get(parameter, {}).items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over weights, buffers and moments; the learning rate stays what it is."""
        self.network.load_state_dict(strip_prefix("network.", tensors))
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
        """Whether it can train on: weights, buffers and moments overflow each on their own."""
        return all(bool(value.isfinite().all()) for value in self.tensors().values())


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those tensors whose names start so, named by the rest."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def _optimizer(network: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    parameters, rate = network.parameters(), settings.learning_rate
    if settings.optimiser == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=rate, foreach=True)
    # Fused Adam: a step of these small networks costs half of the plain one on a CPU.
    return torch.optim.Adam(parameters, lr=rate, betas=settings.betas, fused=True)


def _check_moments(kind: str, name: str, parameter: Tensor, state: Mapping[str, Tensor]) -> None:
    # Adam's fused step trusts these sizes: a smaller tensor would be read beyond its end.
    count = torch.zeros((), dtype=torch.float32)
    likes = {"step": count, **dict.fromkeys(MOMENTS[kind], parameter)}
    for key, like in likes.items():
        found = state.get(key)
        if found is None or (found.shape, found.dtype) != (like.shape, like.dtype):
            raise ValueError(f"the {kind} optimiser's {key} of {name} does not fit the network")
