"""One GAN per label as whole runs: unequal labels, every engine, killed and resumed. Same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from remuda import load
from remuda.config import load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from remuda.runs.store import RunFolder
from tests.tiny_runs import happenings, killed_and_resumed, tiny, tree

pytestmark = pytest.mark.slow

COUNTS = (4, 11, 30)  # of the labels 1, 2 and 3; a batch is 6


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "unequal.npz"
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(COUNTS)) + 1, COUNTS))
    np.savez(path, x=rng.integers(0, 256, (len(labels), 28, 28), dtype=np.uint8), y=labels)
    return path


def words(data: Path, run: Path) -> list[str]:
    """Two W-CGANs per label that swap critics, with all the randomness there is."""
    kept = [
        word
        for word in tiny(data, run)
        if not word.startswith(("method.", "network.", "training.", "grid"))
    ]
    return [
        *kept,
        "rounds=4",
        "method={name: class_parallel, replicas: 2, within: {name: gap}}",
        "network={family: class_dcgan, latent: 4, width: 8}",
        "training.batch_size=6",
        "training.batches_per_round=4",
        "training.objective=wasserstein",
        "training.optimiser=rmsprop",
        "training.n_critic=2",
        "training.augment=[translation, cutout, colour]",
        "run.sheet_every=4",
    ]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    source, *overrides = words(data, run)
    training.train(load_config(source, overrides), engine=Engine("local"))
    return run


def test_two_processes_give_the_weights_of_one(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    source, *overrides = words(data, tmp_path / "run")
    training.train(load_config(source, overrides), engine=Engine("process", 2))
    assert tree(tmp_path / "run") == tree(undisturbed)


def test_killed_in_the_middle_and_resumed_it_ends_in_the_same_bits(
    data: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    killed_and_resumed(tmp_path, words(data, run), "training a batch", "local")
    assert tree(run) == tree(undisturbed)


def test_the_grid_in_the_run_folder_is_that_of_the_labels(undisturbed: Path) -> None:
    assert RunFolder(undisturbed).config().grid.shape == (2, len(COUNTS))
    rounds = [event for event in happenings(undisturbed) if event["event"] == "round"]
    assert {event["images"] for event in rounds if event["cell"] in (0, 3)} == {4 * COUNTS[0]}
    assert {event["images"] for event in rounds if event["cell"] in (2, 5)} == {4 * 6}


def test_every_label_has_a_sheet(undisturbed: Path) -> None:
    found = {path.name for path in (undisturbed / "samples" / "round-000004").iterdir()}
    sheets = {f"label-{place:04d}-{place + 1}.png" for place in range(len(COUNTS))}
    assert found == {"mixture.png", *sheets}


def test_small_labels_are_in_the_events(undisturbed: Path) -> None:
    (started,) = (e for e in RunFolder(undisturbed).iter_events() if e["event"] == "started")
    assert [text.split(":")[0] for text in started["warnings"]] == [
        f"cell {cell} sees 4 items, fewer than training.batch_size=6 (label 1)" for cell in (0, 3)
    ]


def test_the_picture_has_a_row_of_each_label(undisturbed: Path) -> None:
    with Image.open(undisturbed / "ensemble" / "samples.png") as picture:
        assert picture.height == len(COUNTS) * 58 + 2
        assert picture.width > 10 * 58 + 2


def test_labels_are_drawn_in_the_shares_of_the_data(undisturbed: Path) -> None:
    _, labels = load(undisturbed).draw_labelled(900, 0)
    assert labels is not None
    shares = np.bincount(labels.numpy(), minlength=len(COUNTS)) / 900
    assert shares == pytest.approx(np.array(COUNTS) / sum(COUNTS), abs=0.05)
