"""One way to score a run: its result, `remuda score` and the API say the same of the same."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import remuda
from remuda.config import DataSettings
from remuda.data import load_dataset
from remuda.errors import ConfigError
from remuda.metrics import SampleStatistics, fid, load_extractor, some_of
from remuda.runs.prepare import Run
from tests import tiny_runs

SMALL = [
    "rounds=1",
    "network={family: mlp, latent: 4, hidden: [8]}",
    "training.batch_size=20",
    "training.batches_per_round=2",
    "score.samples=20",
    "score.final_samples=60",
    "run.sheet_every=0",
    "seed=7",
]


def trained(path: Path, *words: str) -> Path:
    remuda.train("quickstart", *SMALL, f"run.dir={path}", *words)
    return path


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "digits"
    return trained(path, "data=digits", "data.limit=300", "method=independent", "grid=1x2")


def kept(run: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((run / "result.json").read_text())["scores"]
    return found


def test_a_run_scored_again_gives_the_figures_it_ended_with(digits: Path) -> None:
    scores = remuda.score(digits)
    assert json.loads(json.dumps(scores.to_json())) == kept(digits)
    assert scores.header == (
        "scores by digits-cnn-1, inputs in [-1, 1], 60 samples against 300 of 300 training images"
    )


def test_the_command_prints_what_the_run_printed(tmp_path: Path) -> None:
    data = tiny_runs.write_data(tmp_path / "images.npz")
    words = tiny_runs.tiny(data, tmp_path / "run", "seed=5")
    code, trained, errors = tiny_runs.remuda(tmp_path, "train", *words)
    assert code == 0, errors
    code, scored, errors = tiny_runs.remuda(tmp_path, "score", str(tmp_path / "run"))
    assert code == 0, errors
    lines = scored.splitlines()
    assert lines[0].startswith("scores by digits-cnn-1")
    assert len(lines) == 7
    assert set(lines) <= set(trained.splitlines())


def test_points_scored_again_give_the_figures_they_ended_with(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "data=ring8", "method=independent", "grid=1x1")
    assert json.loads(json.dumps(remuda.score(run).to_json())) == kept(run)
    assert kept(run)["real"] == "8 known modes, within 3 standard deviations"


def test_other_samples_and_real_images_are_counted(digits: Path) -> None:
    scores = remuda.score(digits, ["fid"], samples=40, seed=1, real=100)
    assert (scores.samples, scores.real_samples) == (40, 100)
    assert scores.real == "100 of 300 training images"
    items = load_dataset(DataSettings(source="digits", limit=300)).items
    extractor = load_extractor("digits")
    real, fake = (
        SampleStatistics.of(extractor(side))
        for side in (items[some_of(300, 100)], remuda.load(digits).draw(40, 1))
    )
    assert scores.values == {"fid": fid(real, fake)}


def test_whole_feature_sets_change_no_other_figure(digits: Path) -> None:
    scores = remuda.score(digits, ["fid", "kid", "pr", "tvd"])
    values = kept(digits)["values"]
    assert isinstance(values, dict)
    assert scores.values["fid"] == values["fid"]
    assert scores.values["tvd"] == values["tvd"]
    assert 0 <= scores.values["precision"] <= 1


def test_only_what_the_cells_see_is_real(tmp_path: Path) -> None:
    labels = np.arange(60) % 3
    pixels = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=pixels, y=labels)
    run = trained(
        tmp_path / "run",
        *(f"data={tmp_path / 'x.npz'}", "data={view: label, label: 1}", "score.extractor=digits"),
        *("method=independent", "grid=1x2", "training.batch_size=10"),
    )
    assert kept(run)["real"] == "20 of 20 training images that the cells see"
    assert json.loads(json.dumps(remuda.score(run).to_json())) == kept(run)


def test_a_result_compares_with_more_images_than_the_live_score_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("remuda.runs.scoring.LIVE_REAL_IMAGES", 100)
    prepare = partial(Run.prepare, real_samples=100)
    monkeypatch.setattr("remuda.parallel.training.Run.prepare", prepare)
    words = ("data=digits", "data.limit=300", "method=independent", "grid=1x1")
    run = trained(tmp_path / "run", *words)
    assert kept(run)["real"] == "300 of 300 training images"
    (features,) = (tmp_path / "cache" / "remuda" / "features").iterdir()
    before = features.stat().st_mtime_ns
    assert json.loads(json.dumps(remuda.score(run).to_json())) == kept(run)
    assert features.stat().st_mtime_ns == before  # read, not made again


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"metrics": ["fidd"]}, "fidd: unknown metric; did you mean fid?"),
        ({"metrics": ["accuracy"]}, "accuracy: needs samples with labels"),
        ({"metrics": ["modes"]}, "modes: needs points with known modes"),
        ({"extractor": "digit"}, "--extractor=digit: unknown; did you mean digits?"),
        ({"extractor": "cifar"}, "score.extractor=cifar looks at 3x32x32 images"),
        ({"weights": Path("w.npz")}, "--weights=w.npz: only for --extractor=inception"),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    asked: dict[str, object], says: str, digits: Path
) -> None:
    with pytest.raises(ConfigError) as error:
        remuda.score(digits, **asked)  # type: ignore[arg-type]
    assert str(error.value).startswith(says)


def test_data_that_no_extractor_fits_say_so(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(60, 2)))
    run = trained(tmp_path / "run", f"data={tmp_path / 'points.npy'}", "grid=1x2")
    with pytest.raises(ConfigError, match=r"^score.extractor=auto: no extractor fits .*points.npy"):
        remuda.score(run)
    assert torch.isfinite(torch.from_numpy(remuda.load(run).sample(3))).all()
