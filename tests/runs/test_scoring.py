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
from remuda.errors import ConfigError, DataError, RemudaError, StoreError
from remuda.metrics import SampleStatistics, fid, load_extractor, some_of
from remuda.runs import scoring
from remuda.runs.environment import check_environment
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests import tiny_runs
from tests.tiny import tiny_config

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
    remuda.train("cellular-digits", *SMALL, f"run.dir={path}", *words)
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


# ---------------------------------------------------------------------------- unseen items


def test_a_result_may_be_compared_with_the_test_split(tmp_path: Path, digits: Path) -> None:
    words = ("data=digits", "data.limit=300", "method=independent", "grid=1x2")
    run = trained(tmp_path / "run", *words, "data.reference=test")
    assert kept(run)["real"] == "2,000 test images"
    # Both runs trained the same networks.
    for path, reference, same in ((digits, "test", run), (run, "train", digits)):
        scores = remuda.score(path, reference=reference)
        assert json.loads(json.dumps(scores.to_json())) == kept(same)
    items = load_dataset(DataSettings(source="digits", split="test")).items[:]
    extractor = load_extractor("digits")
    sides = (items, remuda.load(run).draw(60, 7))
    values = kept(run)["values"]
    assert isinstance(values, dict)
    assert values["fid"] == fid(*(SampleStatistics.of(extractor(side)) for side in sides))
    some = remuda.score(digits, ["fid"], reference="test", real=500)
    assert some.header.endswith("60 samples against 500 of 2,000 test images")


def test_a_resumed_run_may_be_compared_with_other_items(digits: Path) -> None:
    folder = RunFolder.open(digits)
    config = folder.config()
    data = config.data.model_copy(update={"reference": "test"})
    assert check_environment(folder, Run.prepare(config.model_copy(update={"data": data}))) == []
    other = config.model_copy(update={"data": data.model_copy(update={"limit": 200})})
    with pytest.raises(StoreError, match=r"data\.limit was 300"):
        check_environment(folder, Run.prepare(other))


def test_held_out_items_come_before_a_test_split() -> None:
    run = prepared({"source": "digits", "validation": 1000, "reference": "test"})
    assert run.dataset.validation is not None
    found = scoring._unseen(run)
    assert found.about == "1,000 held-out images"
    assert torch.equal(found.items[:], run.dataset.validation[:])
    whole = load_dataset(DataSettings(source="digits"))
    assert whole.labels is not None
    assert found.labels is not None
    place = (whole.items[:] == found.items[:1]).flatten(1).all(1).nonzero().item()
    assert whole.labels[int(place)] == found.labels[0]


def test_only_labels_that_cells_see_are_compared_with() -> None:
    run = prepared({"source": "digits", "view": "label", "label": 3, "reference": "test"})
    found = scoring._unseen(run)
    assert found.about == "200 test images of the labels that the cells see"
    assert found.labels is not None
    assert torch.unique(found.labels).tolist() == [3]
    assert scoring._training(run).about == "1,000 training images that the cells see"
    one_per_label = prepared({"source": "digits", "reference": "test"}, method="class_parallel")
    assert scoring._unseen(one_per_label).about == "2,000 test images"


def prepared(data: dict[str, object], method: str = "independent") -> Run:
    values = {"data": data, "method": {"name": method}, "score": {"extractor": "none"}}
    return Run.prepare(tiny_config(**values))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data=ring8"], r"data.reference=test: there are no items of ring8 with data.split=train"),
        (["data=digits", "data.split=test"], r"digits with data.split=test .*; allowed: train"),
        (["data=mnist"], "mnist: .*t10k-images"),
    ],
)
def test_a_run_that_could_not_be_compared_does_not_start(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(*_: object) -> Path:
        raise DataError("no network")

    # The training files are there, the test files are not.
    monkeypatch.setenv("REMUDA_DATA", str(write_mnist(tmp_path / "mnist")))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("remuda.data.formats.mnist.fetch", nothing)
    with pytest.raises(RemudaError, match=says):
        trained(tmp_path / "run", "data.reference=test", "method=independent", "grid=1x1", *words)
    assert not (tmp_path / "run").exists()


def write_mnist(folder: Path) -> Path:
    """Training files of 40 images."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 28), dtype=np.uint8)
    folder.mkdir()
    head = np.array([0x803, 40, 28, 28], ">u4").tobytes()
    (folder / "train-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    labels = np.array([0x801, 40], ">u4").tobytes() + bytes(n % 10 for n in range(40))
    (folder / "train-labels-idx1-ubyte").write_bytes(labels)
    return folder


def test_metrics_of_single_items_go_with_all_others(digits: Path) -> None:
    scores = remuda.score(digits, ["memorisation", "fid"])
    assert scores.real == "300 of 300 training images"
    assert scores.values["fid"] == kept(digits)["values"]["fid"]  # type: ignore[index]
    assert scores.values["memorisation_expected"] == pytest.approx(300 / 2300)
    alone = remuda.score(digits, ["memorisation"])
    assert alone.real == "300 training images and 2,000 test images"
    assert alone.values.items() <= scores.values.items()
    assert scores.pairs is not None
    assert scores.pairs.samples.shape == scores.pairs.training.shape


def test_samples_are_labelled_by_a_classifier_that_knows_the_labels(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.metrics.synthetic.STEPS", 20)
    scores = remuda.score(digits, ["tstr"])
    assert "labelled by digits-cnn-1" in scores.lines()[1]
    assert scores.values["trtr_items"] == 300
    assert scores == remuda.score(digits, ["tstr"])


def test_points_without_modes_or_extractor_are_looked_at_one_by_one(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(60, 2))
    np.savez(tmp_path / "points.npz", x=points, y=np.arange(60) % 3)
    words = [f"data={tmp_path / 'points.npz'}", "data.validation=20", "training.batch_size=10"]
    words.append("score.extractor=none")
    run = trained(tmp_path / "run", "grid=1x1", "method=independent", *words)
    scores = remuda.score(run, ["memorisation"])
    assert scores.header == (
        "scores of 60 samples against 40 training points and 20 held-out points"
    )
    with pytest.raises(ConfigError, match=r"^tstr: needs data with labels, .*: memorisation$"):
        remuda.score(run, ["tstr"])


def test_labels_that_samples_were_generated_for_are_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remuda.metrics.synthetic.STEPS", 20)
    words = ("data=digits", "data.limit=300", "method={name: class_parallel}")
    run = trained(tmp_path / "run", *words, "training.batch_size=10", "score.extractor=none")
    scores = remuda.score(run, ["tstr"])
    assert "with the labels they were generated for" in scores.lines()[1]
    assert scores.values["tstr_samples"] == scores.values["trtr_items"] == 300


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"metrics": ["fidd"]}, "fidd: unknown metric; did you mean fid?"),
        ({"metrics": ["accuracy"]}, "accuracy: needs samples with labels"),
        ({"metrics": ["modes"]}, "modes: needs points with known modes"),
        ({"reference": "tset"}, "--reference=tset: unknown; did you mean test? allowed: train"),
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


def test_data_that_no_classifier_fits_are_scored_by_random_features(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(60, 2)))
    run = trained(tmp_path / "run", f"data={tmp_path / 'points.npy'}", "grid=1x2")
    scores = remuda.score(run)
    assert json.loads(json.dumps(scores.to_json())) == kept(run)
    assert scores.header == (
        "scores by random (coordinates and random waves), inputs in [-1, 1], 60 samples against "
        "60 of 60 training points"
    )
    assert scores.values.keys() == {"fid", "kid", "kid_std"}
    assert torch.isfinite(torch.from_numpy(remuda.load(run).sample(3))).all()


def test_a_run_without_an_extractor_is_scored_when_one_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "points.npy", np.random.default_rng(0).normal(size=(60, 2)))
    words = (f"data={tmp_path / 'points.npy'}", "grid=1x2", "score.extractor=none")
    run = trained(tmp_path / "run", *words)
    with pytest.raises(ConfigError, match=r"^score.extractor=none: the run is unscored; allowed: "):
        remuda.score(run)
    assert set(remuda.score(run, ["pr", "dc"], extractor="random").values) == {
        *("precision", "recall", "density", "coverage")
    }
