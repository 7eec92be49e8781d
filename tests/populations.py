"""Small finished runs on eight points in a ring, to ask questions of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from remuda.config import load_config
from remuda.parallel import training
from tests.tiny_runs import write_data


def points_run(path: Path, *overrides: str) -> Path:
    """A run of two tiny GANs on ring8 with held-out points."""
    settings = [
        "data=ring8",
        "data.validation=100",
        f"run.dir={path}",
        "network={family: mlp, latent: 2, hidden: [8], batch_norm: true}",
        "training.batch_size=20",
        "training.batches_per_round=5",
        "score={extractor: none, final_samples: 200}",
        "rounds=2",
        "grid=1x2",
        "run.sheet_every=0",
    ]
    training.train(load_config("cellular-digits", ["score.every=1", *settings, *overrides]))
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def alone(runs: Path) -> Path:
    """Two GANs that never met."""
    return points_run(runs / "alone", "method=independent")


@pytest.fixture(scope="session")
def swapped(runs: Path) -> Path:
    """Two GANs that swapped discriminators before the second round."""
    return points_run(runs / "swapped", "method=gap", "seed=1")


@pytest.fixture(scope="session")
def images(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two GANs on 28x28 images, scored by the digits' classifier."""
    data = write_data(tmp_path_factory.mktemp("data") / "images.npz")
    return points_run(
        *(runs / "images", f"data={data}", "data.validation=0", "method=independent"),
        "score={extractor: digits, samples: 20, final_samples: 20}",
        "training.batch_size=10",
    )


@pytest.fixture(autouse=True)
def one_torch_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
