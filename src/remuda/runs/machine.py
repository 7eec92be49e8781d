"""Which machine a process computes on, and a fingerprint of the bits that come out of it.

ATen, oneDNN and MKL choose their kernels by the kind of processor, and every kernel adds in an
order of its own: the same seed gives other last bits, and after some rounds other networks, on
another kind. The fingerprint is a sample of what training and scoring compute, not a proof.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import (
    batch_norm,
    conv2d,
    conv_transpose2d,
    log_softmax,
    logsigmoid,
    softplus,
)

from remuda.runs.records import Machine

_CPUINFO = Path("/proc/cpuinfo")
_LONGEST = 120  # characters of a processor's name
_SEED = 20
_PRODUCTS = ((100, 64, 256), (100, 256, 784), (256, 100, 784), (60, 300, 1))  # rows, inner, columns
_ODD = 1003  # numbers, so that the last ones fill no vector
_MANY = 100_000  # enough for every thread to get a part


def this_machine() -> Machine:
    """This process's machine, and what it computes with its present number of threads."""
    return _machine(torch.get_num_threads())


@cache
def _machine(_threads: int) -> Machine:
    found = hashlib.blake2b(digest_size=8)
    with torch.enable_grad():
        for result in _computed():
            found.update(result.detach().contiguous().numpy().data)
    return Machine(
        processor=processor(),
        capability=torch.backends.cpu.get_cpu_capability(),
        fingerprint=found.hexdigest(),
    )


def processor() -> str:
    """The kind of processor, with family and model: many virtual machines name the make alone."""
    try:
        lines = _CPUINFO.read_text().split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    fields = (line.partition(":") for line in lines)
    found = {name.strip(): value.strip() for name, _, value in fields}
    name = found.get("model name") or platform.processor() or platform.machine() or "unknown"
    if "cpu family" in found:
        name += f" (family {found['cpu family']}, model {found.get('model', '?')})"
    return "".join(one if " " <= one <= "~" else "?" for one in name)[:_LONGEST]


Numbers = Callable[..., Tensor]  # of this shape


def _computed() -> Iterator[Tensor]:
    """Results whose bits depend on the kernels: a little of all that training consists of."""
    rng = torch.Generator().manual_seed(_SEED)

    def numbers(*shape: int) -> Tensor:
        # Multiples of 2^-24, the same on every machine.
        return torch.rand(*shape, generator=rng) * 2 - 1

    for rows, inner, columns in _PRODUCTS:
        x, weight, bias = numbers(rows, inner), numbers(columns, inner), numbers(columns)
        yield torch.addmm(bias, x, weight.t())
        yield torch.mm(numbers(rows, columns).t(), x)
    yield from _convolved(numbers)
    x = 4 * numbers(_ODD)
    yield from (torch.tanh(x), torch.exp(x), torch.sigmoid(x), logsigmoid(x), softplus(x))
    yield from (torch.log(x.abs() + 0.5), torch.sqrt(x.abs() + 0.5), torch.cos(x))
    yield log_softmax(numbers(100, 10).double(), 1)
    yield from (numbers(_MANY).sum(), numbers(100, 256).sum(0), numbers(_ODD).square().mean())
    yield torch.randn(_ODD, generator=rng)
    yield from _stepped(numbers)
    yield from _factorised(numbers)


def _convolved(numbers: Numbers) -> Iterator[Tensor]:
    """Convolutions between layers and next to an image, forth and back."""
    x = numbers(8, 16, 14, 14).contiguous(memory_format=torch.channels_last)
    down, up, norm = numbers(32, 16, 5, 5), numbers(32, 16, 4, 4), numbers(32)
    inputs = [one.requires_grad_() for one in (x, down, up, norm)]
    half = conv2d(x, down, stride=2, padding=2)
    half = batch_norm(half, None, None, norm, training=True).relu()
    whole = conv_transpose2d(half, up, stride=2, padding=1)
    yield from (half, whole)
    yield from torch.autograd.grad(whole.square().mean(), inputs)
    image, first = numbers(8, 1, 28, 28), numbers(16, 1, 3, 3).requires_grad_()
    last = numbers(4, 16, 3, 3).requires_grad_()
    inner = conv2d(image, first, stride=2, padding=1)
    blocks = conv2d(inner.contiguous(memory_format=torch.channels_last), last, padding=1)
    # An image is in torch's ordinary order, and so is the gradient that comes from one.
    yield from (inner, blocks)
    yield from torch.autograd.grad(blocks.contiguous().square().mean(), (first, last))


def _stepped(numbers: Numbers) -> list[Tensor]:
    """A step of Adam."""
    weights, gradients = [numbers(_ODD)], [numbers(_ODD)]
    means, squares = [numbers(_ODD)], [numbers(_ODD).abs()]
    torch._fused_adam_(
        weights,
        gradients,
        means,
        squares,
        [],
        [torch.tensor(3.0)],
        lr=1e-3,
        beta1=0.5,
        beta2=0.999,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    )
    return [*weights, *means, *squares]


def _factorised(numbers: Numbers) -> Iterator[Tensor]:
    """What scores are computed with, in float64."""
    x = numbers(200, 48).double()
    covariance = x.T @ x
    yield covariance
    yield torch.linalg.cholesky(covariance)
    yield torch.linalg.eigvalsh(covariance)
    yield torch.linalg.svdvals(x[:48])
