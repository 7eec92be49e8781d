"""Trains the extractor `labels`: a small classifier of the data's own labels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from remuda.metrics.extractors import CHUNK
from remuda.metrics.items import RealItems
from remuda.metrics.own_extractor import OwnCard, OwnExtractor
from remuda.metrics.own_networks import FEATURES, LabelClassifier
from remuda.streams import choice_stream, tensor_stream

# Of how it is trained: what was made by another one is not taken from the cache.
RECIPE = 1
LEAST_ITEMS = 200  # fewer say nothing about the items that were held out
MOST_ITEMS = 20_000  # that are looked at: time has a bound
HELD_OUT = 10  # one in ten, but at least LEAST_HELD_OUT
LEAST_HELD_OUT = 100
MOST_SCALED = 2000  # items behind the unit of the features
BATCH = 100
EPOCHS = 30  # over few items; over many, MOST_STEPS comes first
MOST_STEPS = 300
LEARNING_RATE = 4e-3
SMOOTHING = 0.1  # of the labels: keeps logits, and so IS, from saturating
SAY_EVERY = 2.0  # seconds

Say = Callable[[str], None]


def trainable(items: int, labels: Tensor | None) -> str:
    """Why no classifier can be trained on these labels; empty if one can."""
    if labels is None:
        return "the data have no labels"
    if items < LEAST_ITEMS:
        return f"{items} items are too few to train a classifier on their labels"
    if int((labels.bincount() > 0).sum()) < 2:
        return "all items have the same label"
    return ""


def train_on_labels(
    items: RealItems, labels: Tensor, classes: int, say: Say | None = None
) -> OwnExtractor:
    """A classifier of some items, the same for the same items and number of threads.

    It does not depend on the run or its seed, so that runs on the same data share it.
    """
    order = torch.from_numpy(choice_stream(0, 0, 0, "extractor-items").permutation(len(items)))
    order = order[:MOST_ITEMS]
    count = max(len(order) // HELD_OUT, min(LEAST_HELD_OUT, len(order) // 3))
    held_out, used = order[:count], order[count:]
    network = LabelClassifier(tuple(items.shape[1:]), classes)
    _start(network)
    _train(network, items, labels, used, say)
    with torch.no_grad():
        network.eval().requires_grad_(False)
        parts = [network(items[part].float()) for part in torch.split(used[:MOST_SCALED], CHUNK)]
        variance = torch.cat([features for features, _ in parts]).double().var(0).sum()
        network.scale.copy_((FEATURES / variance.clamp_min(1e-12)).sqrt())
        parts = [network(items[part].float()) for part in torch.split(held_out, CHUNK)]
        guesses = torch.cat([logits for _, logits in parts]).argmax(1)
    truth = labels[held_out]
    card = OwnCard(
        kind="labels",
        shape=tuple(items.shape[1:]),
        classes=classes,
        accuracy=float((guesses == truth).double().mean()),
        held_out=count,
        largest=float(truth.bincount(minlength=classes).max()) / count,
    )
    return OwnExtractor(network, card)


@torch.no_grad()
def _start(network: nn.Module) -> None:
    rng = tensor_stream(0, 0, 0, "extractor-weights")
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            bound = math.sqrt(6 / layer.weight[0].numel())
            layer.weight.uniform_(-bound, bound, generator=rng)
            if layer.bias is not None:
                layer.bias.zero_()


def _train(
    network: LabelClassifier, items: RealItems, labels: Tensor, used: Tensor, say: Say | None
) -> None:
    steps = min(MOST_STEPS, EPOCHS * len(used) // BATCH)
    optimiser = torch.optim.Adam(network.parameters(), LEARNING_RATE, fused=True)
    network.train()
    started = last = time.monotonic()
    for step, batch in enumerate(_batches(used, steps)):
        # A rise over the first fifth, then down to nothing: a good classifier in a few epochs.
        factor = min((step + 1) / (0.2 * steps), (steps - step) / (0.8 * steps), 1.0)
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * factor
        _, logits = network(items[batch].float())
        loss = functional.cross_entropy(logits, labels[batch], label_smoothing=SMOOTHING)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        now = time.monotonic()
        if say is not None and now - last > SAY_EVERY:
            last = now
            left = (now - started) / (step + 1) * (steps - step - 1)
            say(f"extractor: {(step + 1) / steps:.0%} trained, {left:.0f}s left")


def _batches(used: Tensor, steps: int) -> Iterator[Tensor]:
    """Epochs of the items, each in an order of its own."""
    epoch, waiting = 0, used[:0]
    for _ in range(steps):
        if len(waiting) < BATCH:
            epoch += 1
            order = choice_stream(0, 0, epoch, "extractor-order").permutation(len(used))
            waiting = torch.cat([waiting, used[torch.from_numpy(order)]])
        yield waiting[:BATCH]
        waiting = waiting[BATCH:]
