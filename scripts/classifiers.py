"""What the scripts that train classifiers share: the loop, the test, the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import nn

from remuda.config import CLASSIFIER_FILE, DataSettings
from remuda.data import Dataset, load_dataset
from remuda.errors import RemudaError
from remuda.metrics.classifier import Card, write_classifier
from remuda.runs.threads import threads
from remuda.streams import tensor_stream

Network = TypeVar("Network", bound=nn.Module)


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained; `name` is also that of its stream of random numbers."""

    name: str
    seed: int
    epochs: int
    batch: int
    learning_rate: float
    weight_decay: float = 0.01
    label_smoothing: float = 0.0
    fused: bool = False
    vary: Callable[[torch.Tensor, torch.Generator], torch.Tensor] = lambda images, _: images


@dataclass(frozen=True)
class Task(Generic[Network]):
    """A classifier to be trained: of which data, how, and from what accuracy on it is written."""

    data: str
    name: str
    least: float
    build: Callable[[int], Network]  # by the number of classes
    recipe: Recipe
    finish: Callable[[Network], nn.Module] = lambda network: network


def run(about: str | None, tasks: Sequence[Task[Network]], words: Sequence[str] | None) -> None:
    """The command line of a script that trains one of these classifiers, the first by default."""
    names = [task.data for task in tasks]
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument("--data", choices=names, default=names[0], help="[default: %(default)s]")
    parser.add_argument("--data-dir", help="folder with its files  [default: REMUDA_DATA]")
    parser.add_argument("--out", required=True, type=Path, help="safetensors file to write")
    parser.add_argument("--epochs", type=int, help="[default: those of the recipe]")
    given = parser.parse_args(words)
    task = tasks[names.index(given.data)]
    recipe = task.recipe
    if given.epochs is not None:
        if given.epochs < 1:
            parser.error(f"--epochs={given.epochs}: not allowed; allowed: 1 or more")
        recipe = replace(recipe, epochs=given.epochs)
    if given.out.suffix != CLASSIFIER_FILE or not given.out.absolute().parent.is_dir():
        parser.error(
            f"--out={given.out}: allowed: a {CLASSIFIER_FILE} file in a folder that exists"
        )
    try:
        train, test = (labelled(task.data, given.data_dir, split) for split in ("train", "test"))
    except RemudaError as error:
        sys.exit(str(error))
    with threads(1):
        network = fit(lambda: task.build(len(train.label_names)), recipe, train)
        write_if_good(task.finish(network), task, test, given.out)


def fit(build: Callable[[], Network], recipe: Recipe, data: Dataset) -> Network:
    """Cross-entropy on varied images, the learning rate rising and falling once."""
    images, labels = data.items[:], labels_of(data)
    torch.manual_seed(recipe.seed)  # the first weights, and what dropout drops
    network = build()
    optimiser = torch.optim.AdamW(
        network.parameters(),
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=recipe.fused,
    )
    size = min(recipe.batch, len(images))
    batches = len(images) // size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, recipe.epochs * batches
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)
    for epoch in range(recipe.epochs):
        started, total = time.perf_counter(), 0.0
        stream = tensor_stream(recipe.seed, 0, epoch, recipe.name)
        order = torch.randperm(len(images), generator=stream)
        for chosen in torch.split(order[: batches * size], size):
            _, logits = network(recipe.vary(images[chosen], stream))
            loss = loss_of(logits, labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        seconds = time.perf_counter() - started
        print(
            f"epoch {epoch + 1}/{recipe.epochs}: loss {total / batches:.4f}, {seconds:.0f} s",
            flush=True,
        )
    return network.eval()


def write_if_good(network: nn.Module, task: Task[Network], test: Dataset, out: Path) -> None:
    """Write the file, only if the classifier is accurate enough to score with."""
    accuracy = accuracy_of(network, test.items[:], labels_of(test))
    print(f"accuracy on the {len(test):,} test images: {accuracy:.4f}")
    if accuracy < task.least:
        sys.exit(f"below {task.least}: not written")
    classes = len(test.label_names)
    card = Card(task.name, "[-1, 1]", accuracy, classes, test.shape, tested=len(test))
    write_classifier(out, network, card)


@torch.no_grad()
def accuracy_of(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of images whose largest logit is the label's."""
    guesses = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return (guesses == labels).double().mean().item()


def labelled(source: str, folder: str | None, split: str) -> Dataset:
    """A split of a named data set."""
    settings = {"source": source, "dir": folder, "split": split}
    return load_dataset(DataSettings.model_validate(settings))


def labels_of(data: Dataset) -> torch.Tensor:
    """Its labels; all named data sets of images have them."""
    assert data.labels is not None
    return data.labels
