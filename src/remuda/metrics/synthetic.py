"""Train on synthetic, test on real: what a classifier learns from samples alone (TSTR).

Esteban et al. 2017. Beside it the same classifier after training on as many real items (TRTR).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from remuda.config import MetricFacts
from remuda.metrics.metric import Findings, Material, Metric, Need
from remuda.metrics.reference import some_of
from remuda.streams import tensor_stream

MOST_ITEMS = 10_000  # that a classifier is trained on, of all classes together
MOST_DRAWN = 3  # times as many samples are drawn at most, to find enough of rare classes
STEPS = 500
BATCH = 100
RATE = 4e-3
MOST_PIXELS = 32  # a side; larger images are shrunk
_CHUNK = 1_000
_TIMED = 10  # steps


class Classifier:
    """A small network for images or points of any shape, the same one for the same seed."""

    def __init__(self, shape: Sequence[int], classes: int, seed: int) -> None:
        self._rng = tensor_stream(seed, 0, 0, "tstr")
        # Nowhere at first: modules would draw their weights from the global generator.
        with torch.device("meta"):
            network = _network(shape, classes)
        self._network = network.to_empty(device="cpu")
        with torch.no_grad():
            for layer in self._network:
                if isinstance(layer, nn.Linear | nn.Conv2d):
                    bound = 1 / math.sqrt(layer.weight[0].numel())
                    for weights in layer.parameters():
                        weights.uniform_(-bound, bound, generator=self._rng)

    def train(
        self, items: Tensor, labels: Tensor, *, steps: int, after: Callable[[], None]
    ) -> None:
        """A fixed number of steps of Adam, however many items there are; `after` each of them."""
        optimiser = torch.optim.Adam(self._network.parameters(), RATE, fused=True)
        decay = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, steps)
        order = torch.empty(0, dtype=torch.int64)
        for _ in range(steps):
            while len(order) < BATCH:
                order = torch.cat((order, torch.randperm(len(items), generator=self._rng)))
            batch, order = order[:BATCH], order[BATCH:]
            with torch.enable_grad():
                logits = self._network(_shrunk(items[batch]))
                loss = functional.cross_entropy(logits, labels[batch])
                optimiser.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            decay.step()
            after()

    def parameters(self) -> list[Tensor]:
        return [weights.detach() for weights in self._network.parameters()]

    @torch.no_grad()
    def accuracy(self, items: Tensor, labels: Tensor) -> float:
        parts = [self._network(_shrunk(part)).argmax(1) for part in torch.split(items, _CHUNK)]
        return float((torch.cat(parts) == labels).double().mean())


def _network(shape: Sequence[int], classes: int) -> nn.Sequential:
    """Two convolutions for images, two hidden layers for points; weights are not yet drawn."""
    if len(shape) == 1:
        return nn.Sequential(
            *(nn.Linear(shape[0], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
            nn.Linear(64, classes),
        )
    height, width = (-(-min(side, MOST_PIXELS) // 6) for side in shape[1:])
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 16, 5, stride=3, padding=2), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * height * width, 64), nn.ReLU(), nn.Linear(64, classes)),
    )


def _shrunk(items: Tensor) -> Tensor:
    """Images of at most 32 pixels a side; points and smaller images as they are."""
    if items.ndim < 4 or max(items.shape[2:]) <= MOST_PIXELS:
        return items
    height, width = (min(side, MOST_PIXELS) for side in items.shape[2:])
    return functional.adaptive_avg_pool2d(items, (height, width))


def tstr(material: Material) -> Findings:
    """The accuracy on real items that no cell saw, after training on samples and on real items."""
    training, test = material.training(), material.unseen_items()
    assert training.labels is not None
    assert test.labels is not None
    counts = training.labels.bincount(minlength=len(material.label_names))
    most = max(1, MOST_ITEMS // int((counts > 0).sum()))
    wanted = counts.clamp(max=most)
    real = torch.cat(
        [
            own[some_of(len(own), most)]
            for own in (
                (training.labels == label).nonzero().flatten() for label in range(len(counts))
            )
            if len(own)
        ]
    )
    samples, labels, drawn = _samples(material, wanted)
    found = labels.bincount(minlength=len(counts))
    sets = ((samples, labels), (training.items[real], training.labels[real]))
    accuracies = _accuracies(material, sets, (test.items[:], test.labels))
    return Findings(
        {
            "tstr": accuracies[0],
            "trtr": accuracies[1],
            "tstr_samples": float(len(samples)),
            "trtr_items": float(len(real)),
            "tstr_per_class": float(wanted.max()),
        },
        {
            "tstr_test": test.about,
            "tstr_training": training.what,
            "tstr_labelled": material.how_labelled,
            "tstr_found": _found(material.label_names, wanted, found, drawn),
        },
    )


def _samples(material: Material, wanted: Tensor) -> tuple[Tensor, Tensor, int]:
    """The first few samples of each class, and how many were drawn to find them."""
    assert material.labelled is not None
    needed, drawn = int(wanted.sum()), 0
    items, labels = material.samples[:0], torch.empty(0, dtype=torch.int64)
    for number in range(1 + MOST_DRAWN):  # the samples that there are, and then others
        missing = wanted - labels.bincount(minlength=len(wanted))
        if drawn >= MOST_DRAWN * needed or not bool(missing.any()):
            break
        more, classes = material.labelled(number, needed)
        drawn += len(more)
        kept = torch.cat(
            [
                (classes == label).nonzero().flatten()[: int(missing[label])]
                for label in range(len(wanted))
            ]
        )
        items, labels = torch.cat((items, more[kept])), torch.cat((labels, classes[kept]))
    return items, labels, drawn


def _accuracies(
    material: Material,
    sets: Sequence[tuple[Tensor, Tensor]],
    test: tuple[Tensor, Tensor],
) -> list[float]:
    """The accuracy on the test items after training on each of the sets."""
    progress, classes = material.progress, len(material.label_names)
    shape = test[0].shape[1:]
    if progress is not None:
        trial = Classifier(shape, classes, material.seed)
        trial.train(*sets[-1], steps=1, after=lambda: None)  # torch loads parts at their first use
        started = time.perf_counter()
        trial.train(*sets[-1], steps=_TIMED, after=lambda: None)
        seconds = (time.perf_counter() - started) * len(sets) * STEPS / _TIMED
        progress.started(len(sets) * STEPS * BATCH, seconds, "training classifiers on")

    def after() -> None:
        if progress is not None:
            progress.advanced(BATCH)

    found = []
    for items, labels in sets:
        classifier = Classifier(shape, classes, material.seed)
        if len(items):
            classifier.train(items, labels, steps=STEPS, after=after)
        found.append(classifier.accuracy(*test))
    return found


def _found(names: Sequence[str], wanted: Tensor, found: Tensor, drawn: int) -> str:
    """How many samples of each class the classifier saw."""
    each = f"{int(wanted.max()):,} of each class"
    if int(wanted[wanted > 0].min()) < int(wanted.max()):
        each = f"up to {each}"
    short = [
        f"{int(found[label]):,} of {names[label]}"
        for label in (found < wanted).nonzero().flatten().tolist()
    ]
    if not short:
        return each
    rest = f" and fewer of {len(short) - 3} more" if len(short) > 3 else ""
    return f"{each}, but only {', '.join(short[:3])}{rest} in {drawn:,} drawn"


TSTR = Metric(
    name="tstr",
    facts=MetricFacts("TSTR", higher_is_better=True),
    rows=(
        (
            "TSTR",
            "{tstr:.1%} of {tstr_test} are recognised after training on {tstr_samples:,.0f} "
            "samples, {tstr_labelled}",
        ),
        ("", "({tstr_found})"),
        ("TRTR", "{trtr:.1%} after training on {trtr_items:,.0f} {tstr_training}"),
    ),
    needs=frozenset({Need.UNSEEN, Need.CLASSES}),
    values=("tstr", "trtr", "tstr_samples", "trtr_items", "tstr_per_class"),
    directions={"tstr": True},
    from_items=tstr,
)
