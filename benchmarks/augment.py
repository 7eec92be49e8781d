"""Does DiffAugment help a GAN that sees few images of one label?

    python benchmarks/augment.py --updates 1200 --seeds 0 1 2
    python benchmarks/augment.py --updates 6000 --seeds 0

Trains a small DC-GAN on so many images of one digit of MNIST, with and without augmentation, and
prints the FID of its samples to images of that digit that it has not seen.
"""

from __future__ import annotations

import argparse

import torch

from remuda.config import load_config
from remuda.data import Dataset, load_dataset
from remuda.methods import build_method
from remuda.metrics import Scorer, load_extractor

UNSEEN = slice(1000, 5000)  # of the digit's images, in the order of the file


def distance(dataset: Dataset, rows: torch.Tensor, seed: int, augment: str, updates: int) -> float:
    settings = [f"seed={seed}", f"training.augment={augment}", "training.batch_size=25"]
    settings += ["network.width=32", "network.epsilon=0.00001", "score.samples=2000"]
    config = load_config("dcgan-mnist", [*settings, f"training.batches_per_round={updates}"])
    cell = build_method(config).cell(0, dataset, rows, None)
    cell.round = 1
    cell.train(cell.gan)
    own = dataset.labels == dataset.labels[rows[0]] if dataset.labels is not None else rows
    unseen = dataset.items[torch.nonzero(own).flatten()[UNSEEN]]
    cell.scorer = Scorer(load_extractor("digits"), unseen, "fid")
    found = cell.assess()
    assert found is not None
    return found.score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--digit", type=int, default=3)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--updates", type=int, default=1200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments = parser.parse_args()
    dataset = load_dataset(load_config("dcgan-mnist").data)
    assert dataset.labels is not None
    rows = torch.nonzero(dataset.labels == arguments.digit).flatten()[: arguments.images]
    for seed in arguments.seeds:
        for augment in ("[]", "[translation, cutout]"):
            found = distance(dataset, rows, seed, augment, arguments.updates)
            print(f"seed {seed}, augment {augment:24} FID {found:7.1f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
