"""What the scripts that train classifiers share: the loop, the test, the command line."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from remuda.config import DataSettings
from remuda.data import load_dataset
from remuda.metrics.classifier import Card, write_classifier
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


def fit(
    build: Callable[[], Network], recipe: Recipe, images: torch.Tensor, labels: torch.Tensor
) -> Network:
    """Cross-entropy on varied images, the learning rate rising and falling once."""
    torch.manual_seed(recipe.seed)  # the first weights, and what dropout drops
    network = build()
    optimiser = torch.optim.AdamW(
        network.parameters(),
        lr=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        fused=recipe.fused,
    )
    batches = len(images) // recipe.batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.learning_rate, recipe.epochs * batches
    )
    loss_of = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)
    for epoch in range(recipe.epochs):
        started, total = time.perf_counter(), 0.0
        stream = tensor_stream(recipe.seed, 0, epoch, recipe.name)
        order = torch.randperm(len(images), generator=stream)
        for chosen in torch.split(order[: batches * recipe.batch], recipe.batch):
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


def write_if_good(
    network: nn.Module,
    name: str,
    test: tuple[torch.Tensor, torch.Tensor],
    out: Path,
    least: float,
) -> None:
    """Write the file, only if the classifier is accurate enough to score with."""
    images, labels = test
    accuracy = accuracy_of(network, images, labels)
    print(f"accuracy on the {len(images)} test images: {accuracy:.4f}")
    if accuracy < least:
        raise SystemExit(f"below {least}: not written")
    shape = tuple(images.shape[1:])
    write_classifier(out, network, Card(name, "[-1, 1]", accuracy, classes=10, shape=shape))


@torch.no_grad()
def accuracy_of(network: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    """Share of images whose largest logit is the label's."""
    guesses = torch.cat([network(part)[1].argmax(1) for part in torch.split(images, 500)])
    return (guesses == labels).double().mean().item()


def labelled(source: str, folder: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The images and labels of a named data set."""
    settings = DataSettings.model_validate({"source": source, "dir": folder, "split": split})
    data = load_dataset(settings)
    assert data.labels is not None
    return data.items[:], data.labels


def arguments(about: str | None, option: str, files: str) -> tuple[str, Path]:
    """The folder given by `option`, and the file to write."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0] if about else None)
    parser.add_argument(option, dest="folder", required=True, help=f"folder with {files}")
    parser.add_argument("--out", required=True, type=Path, help="safetensors file to write")
    given = parser.parse_args()
    return given.folder, given.out
