"""Ways through fully connected networks, forth and back, without autograd and with its bits.

In a small network the matrix products take two thirds of a training step; graphs, allocations and
bookkeeping take the rest. A `DensePass` calls the kernels that autograd would call, in the same
order and on the same numbers, but into memory that it keeps: every result is overwritten by the
next pass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from remuda.gan.networks.layers import LEAST_VARIANCE, MinibatchDeviation

_aten = torch.ops.aten


class Memory:
    """Tensors by purpose and size. Passes that never overlap can share them."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, int, int, int], Tensor] = {}

    def take(self, purpose: str, place: int, rows: int, columns: int) -> Tensor:
        key = (purpose, place, rows, columns)
        if key not in self._tensors:
            self._tensors[key] = torch.empty(rows, columns)
        return self._tensors[key]


class DensePass:
    """A run of layers, for batches of one size.

    One that `learns` finds the gradients by its weights on the way back, any other the gradient by
    its input.
    """

    def __init__(
        self, layers: Sequence[nn.Module], rows: int, memory: Memory, *, learns: bool
    ) -> None:
        self._steps: list[_Step] = []
        for place, layer in enumerate(layers):
            if isinstance(layer, nn.Linear):
                passes_on = bool(self._steps) or not learns
                activation = _activation(layers[place + 1]) if place + 1 < len(layers) else None
                sizes = memory, place, rows
                step = _Linear(layer, activation, sizes, learns=learns, passes_on=passes_on)
                self._steps.append(step)
            elif isinstance(layer, MinibatchDeviation):
                width = self._steps[-1].width
                self._steps.append(_Deviation(layer.group, width, (memory, place, rows)))

    def forward(self, x: Tensor) -> Tensor:
        """What comes out of the last layer."""
        for step in self._steps:
            x = step.forward(x)
        return x

    def backward(self, gradient: Tensor) -> Tensor:
        """Given the gradient by what came out, which is overwritten: that by what went in.

        Of a pass that learns, no more than the gradients by its weights is to be used.
        """
        for step in reversed(self._steps):
            gradient = step.backward(gradient)
        return gradient

    @property
    def gradients(self) -> dict[nn.Parameter, Tensor]:
        """Those by the weights of a pass that learns, after the way back."""
        return {weight: by for step in self._steps for weight, by in step.gradients.items()}


def dense_layers(network: nn.Module) -> list[nn.Module] | None:
    """The layers of a sequence in which a `DensePass` knows its way; None in all others.

    A first layer that flattens items and a last one that shapes them are left out. Networks that
    somebody listens to are not passed by: their hooks would not be called.
    """
    if type(network) is not nn.Sequential or any(map(_has_hooks, network.modules())):
        return None
    layers = [*network]
    if type(layers[0]) is nn.Flatten:
        layers.pop(0)
    if type(layers[-1]) in (nn.Flatten, nn.Unflatten):
        layers.pop()
    for place, layer in enumerate(layers):
        before = layers[place - 1] if place else None
        behind_linear = type(before) is nn.Linear
        known = (
            _is_plain(layer)
            if type(layer) is nn.Linear
            else place > 0
            if type(layer) is MinibatchDeviation
            else behind_linear and _activation(layer) is not None
        )
        if not known:
            return None
    return layers


def _has_hooks(layer: nn.Module) -> bool:
    hooks = layer._forward_hooks, layer._forward_pre_hooks
    return any((*hooks, layer._backward_hooks, layer._backward_pre_hooks))


def _is_plain(layer: nn.Linear) -> bool:
    return layer.weight.dtype == torch.float32 and layer.weight.device.type == "cpu"


# ------------------------------------------------------------------------------ activations


class _Activation(ABC):
    """A function of single numbers whose slope follows from its result."""

    @abstractmethod
    def forward(self, x: Tensor) -> None:
        """In place."""

    @abstractmethod
    def backward(self, gradient: Tensor, result: Tensor) -> None:
        """In place: the gradient by the input in place of that by the result."""


class _Tanh(_Activation):
    def forward(self, x: Tensor) -> None:
        x.tanh_()

    def backward(self, gradient: Tensor, result: Tensor) -> None:
        _aten.tanh_backward.grad_input(gradient, result, grad_input=gradient)


class _Relu(_Activation):
    def forward(self, x: Tensor) -> None:
        x.relu_()

    def backward(self, gradient: Tensor, result: Tensor) -> None:
        _aten.threshold_backward.grad_input(gradient, result, 0, grad_input=gradient)


class _LeakyRelu(_Activation):
    def __init__(self, slope: float) -> None:
        self._slope = slope

    def forward(self, x: Tensor) -> None:
        _aten.leaky_relu_(x, self._slope)

    def backward(self, gradient: Tensor, result: Tensor) -> None:
        of_result = True
        _aten.leaky_relu_backward.grad_input(
            gradient, result, self._slope, of_result, grad_input=gradient
        )


def _activation(layer: nn.Module) -> _Activation | None:
    if type(layer) is nn.LeakyReLU:
        return _LeakyRelu(layer.negative_slope)
    return _Tanh() if type(layer) is nn.Tanh else _Relu() if type(layer) is nn.ReLU else None


# ------------------------------------------------------------------------------ steps

_Sizes = tuple[Memory, int, int]  # its place there, and the rows of a batch


class _Step(ABC):
    """A layer, with its activation."""

    width: int  # numbers per item that it gives
    gradients: dict[nn.Parameter, Tensor]

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abstractmethod
    def backward(self, gradient: Tensor) -> Tensor:
        """The gradient by what went in; the one given is overwritten."""


class _Linear(_Step):
    def __init__(
        self,
        layer: nn.Linear,
        activation: _Activation | None,
        sizes: _Sizes,
        *,
        learns: bool,
        passes_on: bool,
    ) -> None:
        memory, place, rows = sizes
        self.width = layer.out_features
        self._weight = layer.weight.detach()
        self._across = self._weight.t()
        self._bias = None if layer.bias is None else layer.bias.detach()
        self._activation = activation
        self._out = memory.take("out", place, rows, layer.out_features)
        self._by_input = memory.take("by", place, rows, layer.in_features) if passes_on else None
        weights = [*layer.parameters()] if learns else []
        self.gradients = {weight: torch.empty_like(weight) for weight in weights}
        self._by_weights = [*self.gradients.values()]
        self._x = self._out  # what went in last

    def forward(self, x: Tensor) -> Tensor:
        self._x, out = x, self._out
        if self._bias is None:
            torch.mm(x, self._across, out=out)
        else:
            torch.addmm(self._bias, x, self._across, out=out)
        if self._activation is not None:
            self._activation.forward(out)
        return out

    def backward(self, gradient: Tensor) -> Tensor:
        if self._activation is not None:
            gradient = gradient.contiguous()  # not one number that stands for many
            self._activation.backward(gradient, self._out)
        if self._by_weights:
            torch.mm(gradient.t(), self._x, out=self._by_weights[0])
            if self._bias is not None:
                torch.sum(gradient, 0, out=self._by_weights[1])
        if self._by_input is None:
            return gradient
        return torch.mm(gradient, self._weight, out=self._by_input)


class _Deviation(_Step):
    """A minibatch deviation whose groups are all of one size."""

    def __init__(self, group: int, width: int, sizes: _Sizes) -> None:
        memory, place, rows = sizes
        self._grouped = (rows // group, group, width)
        self.width = width + 1
        self.gradients = {}
        self._out = memory.take("out", place, rows, width + 1)
        self._by_input = memory.take("by", place, rows, width)
        self._centred = self._deviation = self._out

    def forward(self, x: Tensor) -> Tensor:
        groups, size, _ = self._grouped
        grouped = x.view(self._grouped)
        self._centred = grouped - grouped.mean(1, keepdim=True)
        self._deviation = (self._centred.square().mean(1) + LEAST_VARIANCE).sqrt()
        found = self._deviation.mean(1)[:, None].expand(groups, size).reshape(-1, 1)
        return torch.cat((x, found), 1, out=self._out)

    def backward(self, gradient: Tensor) -> Tensor:
        groups, size, width = self._grouped
        by_mean = gradient[:, width].reshape(groups, size).sum(1, keepdim=True)
        by_variance = by_mean / width / (2 * self._deviation)
        by_centred = (by_variance[:, None] / size) * (2 * self._centred)
        by_grouped = by_centred - by_centred.sum(1, keepdim=True) / size
        return torch.add(gradient[:, :width], by_grouped.view(-1, width), out=self._by_input)
