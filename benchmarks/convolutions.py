"""What convolutional training costs: with torch's own layers, and in channels-last.

    python -m benchmarks.convolutions [--quick]

Whole training of each network of the presets, CPU milliseconds per batch on one thread, three ways
in processes of their own that take turns: as it was (torch's own layers in the ordinary order, the
memory of a batch given back to the system), with the layers of `gan/networks/convolutions.py`, and
with these layers and the memory kept, as workers train. Then the convolutions of one such batch
alone, before and now, as a share of the rate of a large matrix product. What counts as work is that
of torch's own layers, so computing more than they need helps no rate. Images are noise.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv_transpose2d, pad

from benchmarks.measuring import Times, interleave, print_table, publish
from remuda.config import load_config
from remuda.data import Dataset
from remuda.data.items import StoredItems
from remuda.data.scaling import PIXELS
from remuda.gan.cell import Cell
from remuda.gan.game import Game, Rivals
from remuda.gan.networks import convolutions
from remuda.methods import build_method
from remuda.parallel.allocation import keep_memory

ALONE = ["method=independent", "grid=1x1", "members=[]"]
CLIPPED = ["training.objective=wasserstein", "training.lipschitz=clip", "training.n_critic=5"]
Case = tuple[str, list[str], int]  # preset, changes, batches to a round
CASES: dict[str, Case] = {
    "gap-mnist": ("gap-mnist", ["data.validation=0"], 2),
    "gap-cifar10": ("gap-cifar10", ["data.validation=0", "training.batch_size=64"], 2),
    "gap-mnist-gran": ("gap-mnist-gran", ["data.validation=0", "training.batch_size=32"], 1),
    "averaging-mnist": (
        "averaging-mnist",
        ["network.condition=projection", "network.classes=10"],
        20,
    ),
    "averaging-cifar10": ("averaging-cifar10", ["network.classes=10"], 8),
    "class-parallel-mnist": ("dcgan-mnist", [], 2),
    "class-parallel-cifar10": ("dcgan-cifar10", [], 2),
    "wclass-mnist": ("dcgan-mnist", [*CLIPPED, "training.optimiser=rmsprop"], 5),
    "resnet, 32 wide": ("averaging-cifar10", ["network={family: resnet, width: 32}"], 2),
}
QUICK = ["averaging-mnist", "averaging-cifar10"]
BEFORE, LAYERS, NOW = "before", "layers", "now"
SIDE = 1536  # of the matrices whose product is the machine's rate


# ---------------------------------------------------------------------------------- before


def _enlarge(layer: nn.Conv2d, x: Tensor) -> Tensor:
    padded = pad(layer.weight, (1, 1, 1, 1))
    rows = padded[:, :, 1:] + padded[:, :, :-1]
    kernel = (rows[..., 1:] + rows[..., :-1]).flip(2, 3).transpose(0, 1)
    return conv_transpose2d(x, kernel, layer.bias, stride=2, padding=1)


PLAIN: dict[type[nn.Module], Callable[..., Tensor]] = {
    convolutions.Conv: nn.Conv2d.forward,
    convolutions.FromImage: nn.Conv2d.forward,
    convolutions.ToImage: nn.Conv2d.forward,
    convolutions.Doubling: nn.ConvTranspose2d.forward,
    convolutions.DoublingToImage: nn.ConvTranspose2d.forward,
    convolutions.EnlargingConv: _enlarge,
    convolutions.ToPlaces: nn.Unflatten.forward,
    convolutions.ToFeatures: nn.Flatten.forward,
}


@contextmanager
def plain_layers() -> Iterator[None]:
    """All networks compute as torch's own layers do."""
    ours = {layer: layer.forward for layer in PLAIN}
    for layer, forward in PLAIN.items():
        setattr(layer, "forward", forward)  # noqa: B010 - for the types
    try:
        yield
    finally:
        for layer, forward in ours.items():
            setattr(layer, "forward", forward)  # noqa: B010


# ---------------------------------------------------------------------------------- training


def cell_of(case: Case) -> Cell:
    preset, changes, batches = case
    words = [*ALONE, *changes, f"training.batches_per_round={batches}"]
    config = load_config(preset, words)
    shape = (3, 32, 32) if "cifar" in preset else (1, 28, 28)
    items = torch.rand(1000, *shape, generator=torch.Generator().manual_seed(1)) * 2 - 1
    names = tuple("0123456789")
    labels = torch.arange(len(items)) % len(names)
    dataset = Dataset(StoredItems(items), labels, names, "noise", PIXELS)
    return build_method(config).cell(0, dataset, torch.arange(len(dataset)), None)


def train_on_demand(line: Connection, mode: str) -> None:
    """A process that trains a round of a network whenever it is asked to, and says what it cost."""
    torch.set_num_threads(1)
    if mode == NOW:
        keep_memory()
    with plain_layers() if mode == BEFORE else nullcontext():
        cell, name = None, ""
        while wanted := line.recv():
            if cell is None or wanted != name:
                cell, name = cell_of(CASES[wanted]), wanted
            cell.round += 1
            begun = time.process_time()
            cell.train(cell.gan)
            line.send(time.process_time() - begun)


class Trainers:
    """One such process for each mode."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._lines: dict[str, Connection] = {}
        self._spent = 0.0
        for mode in (BEFORE, LAYERS, NOW):
            self._lines[mode], theirs = context.Pipe()
            context.Process(target=train_on_demand, args=(theirs, mode), daemon=True).start()

    def whole_training(self, name: str, repeat: int) -> dict[str, Times]:
        """CPU seconds of a round in each mode, by turns."""
        works = {mode: partial(self._train, line, name) for mode, line in self._lines.items()}
        return interleave(works, repeat, clock=lambda: self._spent)

    def _train(self, line: Connection, name: str) -> None:
        line.send(name)
        self._spent += line.recv()

    def close(self) -> None:
        for line in self._lines.values():
            line.send("")


# ---------------------------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class Call:
    """One convolution of a batch: its input, and which gradients training takes of it."""

    layer: nn.Module
    x: Tensor
    places: int  # of its output
    wants_input: bool
    wants_weight: bool

    @property
    def work(self) -> int:
        """Operations that torch's own layer needs for all that training takes of it."""
        layer = self.layer
        assert isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        kernel, places = layer.kernel_size[0] * layer.kernel_size[1], self.places
        if isinstance(layer, convolutions.EnlargingConv):
            kernel, places = 16, self.x.shape[2] * self.x.shape[3]
        elif isinstance(layer, nn.ConvTranspose2d):
            places = self.x.shape[2] * self.x.shape[3]
        once = 2 * len(self.x) * layer.in_channels * layer.out_channels * kernel * places
        return once * (1 + self.wants_input + self.wants_weight)

    def __call__(self) -> None:
        if not (self.wants_input or self.wants_weight):
            with torch.no_grad():
                self.layer(self.x)
            return
        x = self.x.detach().requires_grad_(self.wants_input)
        y = self.layer(x)
        wanted = [*self.layer.parameters()] if self.wants_weight else []
        torch.autograd.grad(y, [*wanted, x] if self.wants_input else wanted, torch.ones_like(y))


def calls_of_a_batch(cell: Cell) -> list[Call]:
    """Every convolution that both turns of one batch do."""
    cell.round += 1
    found: list[Call] = []
    learning = cell.gan.discriminator.network

    def record(layer: nn.Module, taken: tuple[Tensor, ...], given: Tensor) -> None:
        (x,), places = taken, given.shape[2] * given.shape[3]
        learns = given.requires_grad and any(layer is part for part in learning.modules())
        wants_input = given.requires_grad and x.requires_grad
        found.append(Call(layer, x.detach(), places, wants_input, learns))

    networks = [learner.network for _, learner in cell.gan.roles]
    layers = [layer for network in networks for layer in network.modules()]
    kinds = (nn.Conv2d, nn.ConvTranspose2d)
    hooks = [layer.register_forward_hook(record) for layer in layers if isinstance(layer, kinds)]
    with Game(cell.gan, Rivals(), cell._plan()) as game:
        for batch in game:
            learning = cell.gan.discriminator.network
            game.discriminator_loss(batch)
            if game.generator_plays(batch):
                learning = cell.gan.generator.network
                game.generator_loss(batch)
                break
    for hook in hooks:
        hook.remove()
    return found


def convolutions_alone(case: Case, repeat: int) -> dict[str, Any]:
    """The rate of a batch's convolutions, in billions of operations a second, and of a product."""
    with plain_layers():
        before = calls_of_a_batch(cell_of(case))
    now = calls_of_a_batch(cell_of(case))
    matrix = torch.randn(SIDE, SIDE)

    def run_before() -> None:
        with plain_layers():
            for call in before:
                call()

    def run_now() -> None:
        for call in now:
            call()

    works = {BEFORE: run_before, NOW: run_now, "product": lambda: torch.mm(matrix, matrix)}
    times = interleave(works, repeat)
    work = {BEFORE: sum(call.work for call in before), NOW: sum(call.work for call in now)}
    work["product"] = 2 * SIDE**3
    rates = {name: work[name] / times[name].least / 1e9 for name in times}
    return {
        "gflop": work[NOW] / 1e9,
        "gflops_per_second": rates,
        "share_before": rates[BEFORE] / rates["product"],
        "share_now": rates[NOW] / rates["product"],
    }


# ---------------------------------------------------------------------------------- report


def measure(names: list[str], repeat: int) -> dict[str, dict[str, Any]]:
    found, trainers = {}, Trainers()
    for name in names:
        case = CASES[name]
        times = trainers.whole_training(name, repeat)
        found[name] = {
            **{mode: times[mode].to_json(case[2]) for mode in times},
            "before_over_layers": times[BEFORE].over(times[LAYERS]),
            "before_over_now": times[BEFORE].over(times[NOW]),
            "convolutions": convolutions_alone(case, repeat),
        }
    trainers.close()
    return found


def show(found: Mapping[str, Mapping[str, Any]]) -> None:
    rows = [
        [
            name,
            *(values[mode]["least_ms"] for mode in (BEFORE, LAYERS, NOW)),
            values["before_over_now"]["least"],
            values["before_over_now"]["median"],
        ]
        for name, values in found.items()
    ]
    head = ["network", "before ms", "layers ms", "now ms", "ratio, least", "ratio, median"]
    print_table("Training, CPU per batch, one thread (least of all rounds)", head, rows)
    rows = [
        [
            name,
            values["convolutions"]["gflop"],
            *(values["convolutions"]["gflops_per_second"][mode] for mode in (BEFORE, NOW)),
            values["convolutions"]["gflops_per_second"]["product"],
            values["convolutions"]["share_before"],
            values["convolutions"]["share_now"],
        ]
        for name, values in found.items()
    ]
    head = ["network", "GFLOP", "before GF/s", "now GF/s", "product GF/s", "before", "now"]
    print_table("Its convolutions alone, and their share of a product's rate", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="two small networks, few rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_memory()
    found = measure(QUICK if options.quick else [*CASES], 3 if options.quick else 5)
    show(found)
    publish("convolutions", {"networks": found}, quick=options.quick)


if __name__ == "__main__":
    main()
