"""Which extractor scores a run: made once, kept, and the same wherever the run goes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import remuda
from remuda.config import Config, validate
from remuda.data import Dataset, dataset_from_array, load_dataset
from remuda.errors import ConfigError, StoreError
from remuda.metrics import load_extractor
from remuda.parallel.observer import Observer
from remuda.runs.extractors import attachments, find_extractor
from remuda.runs.identity import EXTRACTOR
from remuda.runs.portable import VARIABLES
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests.tiny_runs import tree

SMALL = [
    "rounds=2",
    "method=independent",
    "method.ensemble=best",
    "grid=1x2",
    "network={family: mlp, latent: 4, hidden: [8]}",
    "training.batch_size=20",
    "training.batches_per_round=2",
    "score={samples: 20, final_samples: 60}",
    "run.sheet_every=0",
]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "remuda" / "extractors"


@pytest.fixture
def untrainable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, whoever trains an extractor fails."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("trained again")

    return lambda: monkeypatch.setattr("remuda.runs.extractors.train_on_labels", refuse)


def arrays() -> tuple[Any, Any]:
    """Small images, darker or brighter by label."""
    labels = np.arange(240) % 2
    grain = np.random.default_rng(0).integers(0, 100, (240, 6, 6))
    return (grain + 150 * labels[:, None, None]).astype(np.uint8), labels


def labelled() -> Dataset:
    return dataset_from_array(*arrays())


def config(source: str = "own.npz", **score: object) -> Config:
    return validate({"data": {"source": source}, "score": score})


def chosen(dataset: Dataset, source: str = "own.npz", **score: object) -> str:
    found = find_extractor(config(source, **score), dataset)
    return "" if found is None else found.name.split()[0]


def test_a_portable_process_keeps_its_own_classifier(
    cache: Path, untrainable: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained with this machine's kernels, it has other weights."""
    chosen(labelled())
    (plain,) = cache.iterdir()
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    chosen(labelled())
    assert (cache / "portable" / plain.name).is_file()
    untrainable()
    assert chosen(labelled()) == "labels"


# ---------------------------------------------------------------------------- which one


def test_auto_goes_from_what_knows_most_to_what_knows_least() -> None:
    digits = load_dataset(validate({"data": {"source": "digits", "limit": 300}}).data)
    points = load_dataset(validate({"data": {"source": "ring8"}}).data)
    images = labelled()
    assert find_extractor(config("digits"), digits) is load_extractor("digits")
    assert chosen(points, "ring8") == ""  # scored by its modes
    assert chosen(replace(points, modes=None), "points.csv") == "labels"
    assert chosen(images) == "labels"
    assert chosen(replace(images, labels=None, label_names=())) == "random"


def test_an_extractor_is_taken_by_name() -> None:
    points = load_dataset(validate({"data": {"source": "ring8"}}).data)
    assert chosen(points, "ring8", extractor="random") == "random"
    assert chosen(points, "ring8", extractor="labels") == "labels"
    assert chosen(labelled(), extractor="none") == ""
    bare = replace(labelled(), labels=None, label_names=())
    with pytest.raises(ConfigError, match=r"^score.extractor=labels: .* has no labels; allowed: "):
        find_extractor(config(extractor="labels"), bare)


def test_labels_that_cannot_be_learnt_are_said_not_to_be(cache: Path) -> None:
    mixed = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    images = labelled()
    assert images.labels is not None
    said: list[str] = []
    dataset = replace(images, labels=images.labels[mixed])
    found = find_extractor(config(), dataset, said.append)
    assert found is not None
    assert found.name == "random (an untrained network)"
    assert said[0].endswith(f"(once; kept in {cache})")
    assert "scored by random features: a classifier of its labels is right in" in said[-1]


def test_a_metric_of_classes_needs_an_extractor_that_knows_some() -> None:
    bare = replace(labelled(), labels=None, label_names=())
    small = {"network": {"family": "mlp"}, "training": {"batch_size": 20}, "grid": "1x2"}
    wanted = validate({**small, "score": {"metric": "tvd"}})
    with pytest.raises(ConfigError, match=r"^score.metric=tvd: needs classes, and random .*: fid"):
        Run.prepare(wanted, bare)
    assert Run.prepare(wanted, labelled()).scorer is not None


# ---------------------------------------------------------------------------- trained once


def test_a_classifier_is_trained_once(cache: Path, untrainable: Callable[[], None]) -> None:
    first = find_extractor(config(), labelled())
    assert [path.suffix for path in cache.iterdir()] == [".safetensors"]
    untrainable()
    again = find_extractor(config(), labelled())
    assert first is not None
    assert again is not None
    assert (first.identity, first.name) == (again.identity, again.name)


def test_a_damaged_classifier_in_the_cache_is_trained_again(cache: Path) -> None:
    first = find_extractor(config(), labelled())
    (path,) = cache.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    again = find_extractor(config(), labelled())
    assert first is not None
    assert again is not None
    assert first.identity == again.identity
    assert path.read_bytes() == content


def test_an_interrupt_while_training_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.optim.Adam, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        find_extractor(config(), labelled())
    assert not cache.exists()


# ---------------------------------------------------------------------------- in a run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    images, labels = arrays()
    np.savez(tmp_path / "own.npz", x=images, y=labels)
    return tmp_path / "own.npz"


def trained(run: Path, data: Path, *more: str, observer: Observer | None = None) -> Path:
    remuda.train(
        "cellular-digits", *SMALL, f"data={data}", f"run.dir={run}", *more, observer=observer
    )
    return run


def scores_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "result.json").read_text())["scores"]
    return found


class Listener(Observer):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def prepared(self, message: str) -> None:
        self.heard.append(message)


@pytest.mark.slow
def test_a_run_folder_takes_its_extractor_along(
    tmp_path: Path, data: Path, cache: Path, untrainable: Callable[[], None]
) -> None:
    listener = Listener()
    run = trained(tmp_path / "run", data, observer=listener)
    (heard,) = listener.heard
    assert heard == f"training an extractor on the labels of own.npz (once; kept in {cache})"
    kept = scores_of(run)
    assert kept["extractor"].startswith("labels (a classifier of these data, ")
    assert {"fid", "is", "tvd"} <= kept["values"].keys()
    untrainable()
    shutil.rmtree(cache)
    again = remuda.score(run)
    assert json.loads(json.dumps(again.to_json())) == kept
    by_name = remuda.score(run, ["pr", "dc"], extractor="labels")
    assert by_name.extractor_id == kept["extractor_id"]
    assert remuda.score(run, ["fid"], extractor="random").extractor_id != kept["extractor_id"]
    result = RunFolder.open(run).result()
    assert result is not None
    assert result.scores is not None
    assert result.scores.extractor_id == kept["extractor_id"]


@pytest.mark.slow
def test_a_run_is_not_scored_by_another_extractor_than_its_own(tmp_path: Path, data: Path) -> None:
    run = trained(tmp_path / "run", data, "rounds=1")
    content = (run / EXTRACTOR).read_bytes()
    for damage in (lambda: (run / EXTRACTOR).write_bytes(content[:-1]), (run / EXTRACTOR).unlink):
        damage()
        with pytest.raises(
            StoreError, match=rf"{EXTRACTOR}: missing, or not the file that the run"
        ):
            remuda.score(run)


@pytest.mark.slow
def test_workers_use_the_extractor_of_the_master(tmp_path: Path, data: Path, cache: Path) -> None:
    """Those of other processes and hosts see the run folder, and need nothing else."""
    alone = trained(tmp_path / "alone", data)
    engine = remuda.Engine("process", 2)
    words = (*SMALL, f"data={data}", f"run.dir={tmp_path / 'processes'}")
    before = [path.stat().st_mtime_ns for path in cache.iterdir()]
    remuda.train("cellular-digits", *words, engine=engine)
    assert [path.stat().st_mtime_ns for path in cache.iterdir()] == before
    weights = {
        name: content
        for name, content in tree(alone).items()
        if name.startswith("checkpoints") and "cell" in name
    }
    assert weights.items() <= tree(tmp_path / "processes").items()
    assert scores_of(alone) == scores_of(tmp_path / "processes")


def test_a_worker_reads_the_run_folder(
    tmp_path: Path, untrainable: Callable[[], None], cache: Path
) -> None:
    settings = validate(
        {"network": {"family": "mlp"}, "training": {"batch_size": 20}, "grid": "1x2"}
    )
    master = Run.prepare(settings, labelled())
    env = {"config": settings.model_dump(mode="json")}
    there = settings.model_copy(
        update={"run": settings.run.model_copy(update={"dir": str(tmp_path / "run")})}
    )
    with RunFolder.create(there, env, attachments(master.extractor)) as folder:
        pass
    untrainable()
    shutil.rmtree(cache)
    worker = Run.prepare(settings, labelled(), folder=folder)
    assert worker.scorer is not None
    assert master.scorer is not None
    assert worker.scorer.extractor.identity == master.scorer.extractor.identity
    images = labelled().items[:30]
    assert worker.scorer.assess(images).score == master.scorer.assess(images).score


@pytest.mark.slow
def test_an_unscored_run_of_an_earlier_version_ends_as_it_would_have_and_is_scored(
    tmp_path: Path, data: Path
) -> None:
    """Then, auto found no extractor for such data, and parcels held no assessments."""
    whole = trained(tmp_path / "whole", data, "score.extractor=none", "rounds=3")
    run = trained(tmp_path / "run", data, "score.extractor=none", "rounds=2")
    as_before(run)
    result = remuda.resume(run)
    assert result is not None
    assert result.scores is not None
    assert result.scores.extractor.startswith("labels ")
    ends = [load_file(one / "ensemble" / "model.safetensors") for one in (whole, run)]
    assert ends[0].keys() == ends[1].keys()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert remuda.score(run).extractor_id == result.scores.extractor_id


def as_before(run: Path) -> None:
    """Make a finished unscored run one of an earlier version that was interrupted."""
    (run / "result.json").unlink()
    shutil.rmtree(run / "ensemble")
    text = (run / "config.yaml").read_text()
    assert text.count("extractor: none") == 1
    text = text.replace("extractor: none", "extractor: auto").replace("rounds: 2", "rounds: 3", 1)
    (run / "config.yaml").write_text(text)
    env = json.loads((run / "env.json").read_text())
    assert "attachments" not in env
    env["config"]["score"]["extractor"] = "auto"
    (run / "env.json").write_text(json.dumps(env))
