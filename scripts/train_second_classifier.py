"""Train the classifier that `benchmarks/second_opinion.py` judges results with.

    python -m scripts.train_second_classifier --data-dir DIR \\
        --out benchmarks/second-classifier.safetensors

DIR holds the four MNIST files. Fixed seed and one thread: a second run on the same machine and
torch gives the same file. It takes a minute and a half on one core.

The weights in the repository (second-lenet-1, inputs in [-1, 1]) recognise 99.39 % of the 10,000
test images. What unseen real digits reach, the test images scored against the 60,000 training
images: FID of logits 0.28, TVD 0.0084.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from benchmarks.second_classifier import SecondNetwork
from scripts.classifiers import Recipe, Task, run

RECIPE = Recipe("second classifier", seed=2, epochs=10, batch=100, learning_rate=2e-3)


def main(words: Sequence[str] | None = None) -> None:
    """Train, test, and write the file only if the classifier is accurate enough to judge with."""
    torch.use_deterministic_algorithms(True)
    run(__doc__, [Task("mnist", "second-lenet-1", 0.99, lambda _: SecondNetwork(), RECIPE)], words)


if __name__ == "__main__":
    main()
