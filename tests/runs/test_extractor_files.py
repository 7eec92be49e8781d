"""Runs that are scored by a classifier in a file: what is refused, and what goes along."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import remuda
from remuda.config import Config, validate
from remuda.data import Dataset, dataset_from_array
from remuda.errors import ConfigError, StoreError
from remuda.metrics import load_extractor, read_extractor
from remuda.metrics.classifier import (
    Card,
    CifarNetwork,
    DigitsNetwork,
    tensors_digest,
    write_classifier,
)
from remuda.runs.extractors import attachments, find_extractor, is_for_these_labels
from remuda.runs.identity import EXTRACTOR

CARD = Card("three-cnn-1", "[-1, 1]", 0.5, 3, (1, 28, 28), tested=1234)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A classifier of three classes; what it sees matters to nobody here."""
    torch.manual_seed(0)
    write_classifier(tmp_path / "three.safetensors", DigitsNetwork(3), CARD)
    return tmp_path / "three.safetensors"


def arrays() -> tuple[Any, Any]:
    images = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    return images, np.arange(60) % 3


def labelled() -> Dataset:
    return dataset_from_array(*arrays())


def config(path: Path | str) -> Config:
    return validate({"data": {"source": "own.npz"}, "score": {"extractor": str(path)}})


# ---------------------------------------------------------------------------- what is read


def test_a_classifier_is_named_with_its_accuracy_and_weights(file: Path) -> None:
    found = find_extractor(config(file), labelled())
    assert found is not None
    assert found.name == (
        f"three-cnn-1 (50.0 % of 1,234 test images, weights {found.identity[:8]})"
    )
    assert found.classes == 3
    assert is_for_these_labels(found)
    assert attachments(found) == {EXTRACTOR: file.read_bytes()}
    assert not attachments(load_extractor("digits"))
    torch.manual_seed(1)
    write_classifier(file, DigitsNetwork(3), CARD)
    other = find_extractor(config(file), labelled())
    assert other is not None
    assert other.identity != found.identity


def test_another_number_of_classes_is_refused(file: Path) -> None:
    images, labels = arrays()
    four = dataset_from_array(images, labels + (labels == 2) * (np.arange(60) % 2))
    with pytest.raises(
        ConfigError,
        match=r"^score\.extractor=.*three\.safetensors: knows 3 classes of 1x28x28 .* 4",
    ):
        find_extractor(config(file), four)
    bare = replace(labelled(), labels=None, label_names=())
    with pytest.raises(ConfigError, match=r"knows 3 classes .* has 0 of 1x28x28; allowed: auto"):
        find_extractor(config(file), bare)


def test_images_of_another_shape_are_refused(tmp_path: Path) -> None:
    card = replace(CARD, shape=(3, 32, 32))
    write_classifier(tmp_path / "c.safetensors", CifarNetwork(3), card)
    with pytest.raises(ConfigError, match=r"classes of 3x32x32 images, and .* has 3 of 1x28x28"):
        find_extractor(config(tmp_path / "c.safetensors"), labelled())


def test_a_file_that_is_not_there_is_told_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.safetensors: no such file; allowed: auto, "):
        find_extractor(config(tmp_path / "nowhere.safetensors"), labelled())
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ConfigError, match=r"^score\.extractor=.*folder\.safetensors: no such file"):
        find_extractor(config(tmp_path / "folder.safetensors"), labelled())


def test_the_home_of_nobody_is_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"~nobody-here/x\.safetensors: no such file"):
        find_extractor(config("~nobody-here/x.safetensors"), labelled())


def described(tensors: dict[str, torch.Tensor], **card: object) -> bytes:
    about = {"format": 1, "card": asdict(CARD) | card, "sha256": tensors_digest(tensors)}
    return save(tensors, {"remuda": json.dumps(about)})


def changed(tensors: dict[str, torch.Tensor], value: float) -> dict[str, torch.Tensor]:
    return {**tensors, "head.bias": torch.full((3,), value)}


DAMAGES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], bytes], str]] = {
    "truncated": (lambda tensors: described(tensors)[:-9], "not a readable safetensors file"),
    "a pickle": (lambda tensors: b"\x80\x02}q\x00." * 20, "not a readable safetensors file"),
    "not ours": (save, "not a remuda classifier"),
    "changed": (lambda tensors: described(tensors)[:-1] + b"\x01", "do not match their checksum"),
    "other tensors": (
        lambda tensors: described({"body.0.weight": torch.zeros(2)}),
        "not the weights of this classifier",
    ),
    "more classes than weights": (
        lambda tensors: described(tensors, classes=4),
        "not the weights of this classifier",
    ),
    "half precision": (
        lambda tensors: save(
            {name: tensor.bfloat16() for name, tensor in tensors.items()},
            {"remuda": json.dumps({"format": 1, "card": asdict(CARD), "sha256": ""})},
        ),
        "not all float32",
    ),
    "not finite": (
        lambda tensors: described(changed(tensors, float("nan"))),
        "the weights are not finite",
    ),
    "unknown images": (lambda tensors: described(tensors, shape=[2, 2, 2]), "of 2x2x2 images"),
    "a name that is a path": (lambda tensors: described(tensors, name="../../x"), "card.name"),
    "too many classes": (lambda tensors: described(tensors, classes=10**9), "card.classes"),
    "another scaling": (lambda tensors: described(tensors, scaling="[0, 1]"), "card.scaling"),
    "no accuracy": (lambda tensors: described(tensors, accuracy=7), "card.accuracy"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_in_one_line(damage: str, file: Path) -> None:
    write, says = DAMAGES[damage]
    file.write_bytes(write(load(file.read_bytes())))
    with pytest.raises(StoreError, match=says) as caught:
        find_extractor(config(file), labelled())
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------- in a run


def trained(run: Path, *more: str, engine: remuda.Engine = remuda.Engine()) -> Path:  # noqa: B008
    images, labels = arrays()
    np.savez(run.parent / "own.npz", x=images, y=labels)
    remuda.train(
        "cellular-digits",
        "rounds=2",
        "method=independent",
        "grid=1x2",
        "network={family: mlp, latent: 4, hidden: [8]}",
        "training.batch_size=20",
        "training.batches_per_round=2",
        "score={samples: 20, final_samples: 60}",
        "run.sheet_every=0",
        f"data={run.parent / 'own.npz'}",
        f"run.dir={run}",
        *more,
        engine=engine,
    )
    return run


def scores_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())["scores"]
    return found


@pytest.mark.slow
def test_a_run_goes_on_and_is_scored_again_without_the_file_it_was_given(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = trained(tmp_path / "whole", f"score.extractor={file.name}")
    run = trained(tmp_path / "run", f"score.extractor={file.name}", "rounds=1")
    assert f"extractor: {file}" in (run / "config.yaml").read_text()  # also from other folders
    content = file.read_bytes()
    file.unlink()
    monkeypatch.chdir("/")
    (run / "result.json").unlink()
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("rounds: 1 ", "rounds: 2 ", 1))
    result = remuda.resume(run)
    assert result is not None
    assert scores_of(run) == scores_of(whole)
    assert (run / EXTRACTOR).read_bytes() == content
    assert json.loads(json.dumps(remuda.score(run).to_json())) == scores_of(run)
    (run / EXTRACTOR).write_bytes(content[:-1])
    with pytest.raises(StoreError, match=rf"{EXTRACTOR}: missing, or not the file that the run"):
        remuda.score(run)


@pytest.mark.slow
def test_worker_processes_use_the_file_in_the_run_folder(file: Path, tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", f"score.extractor={file}")
    engine = remuda.Engine("process", 2)
    shared = trained(tmp_path / "shared", f"score.extractor={file}", engine=engine)
    assert scores_of(shared) == scores_of(alone)


@pytest.mark.slow
def test_a_finished_run_is_scored_by_a_file(file: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "score.extractor=random", "rounds=1")
    scores = remuda.score(run, extractor=str(file))
    assert scores.extractor_id == read_extractor(file).identity != scores_of(run)["extractor_id"]
    assert {"fid", "is", "tvd"} <= scores.values.keys()
    with pytest.raises(
        ConfigError, match=r"^--extractor=three: unknown; .*or a \.safetensors file"
    ):
        remuda.score(run, extractor="three")
