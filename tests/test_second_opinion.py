"""The judge that takes part in no choice: what it is, what it says, and that nothing uses it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch

from benchmarks import second_opinion
from benchmarks.second_classifier import WEIGHTS, SecondNetwork, load_second_classifier
from benchmarks.second_opinion import FLOOR, figures, main, statistics
from remuda.config import DataSettings, MlpSettings
from remuda.data import Dataset, load_dataset
from remuda.errors import StoreError
from remuda.gan.networks import build_generator
from remuda.metrics import SampleStatistics, load_extractor
from remuda.runs.ensemble import Ensemble, Member
from tests.data.samples import idx_bytes

ROOT = Path(__file__).parents[1]
NETWORK = MlpSettings(latent=3, hidden=(4,))


def dataset(source: str, split: str) -> Dataset:
    return load_dataset(DataSettings.model_validate({"source": source, "split": split}))


def ensemble(folder: Path, shape: tuple[int, ...] = (1, 28, 28)) -> Path:
    """A folder with an untrained generator."""
    state = build_generator(NETWORK, shape, torch.Generator().manual_seed(0)).state_dict()
    Ensemble(NETWORK, shape, (Member(0, 1.0, state),)).save(folder)
    return folder


@pytest.fixture
def small_mnist(tmp_path: Path) -> Path:
    """A folder with embedded digits under the names of MNIST's files."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for split, part in (("train", "train"), ("test", "t10k")):
        data = dataset("digits", split)
        assert data.labels is not None
        pixels = ((data.items[:][:300, 0] + 1) * 127.5).round().to(torch.uint8).numpy()
        labels = data.labels[:300].to(torch.uint8).numpy()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(pixels))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return folder.parent


# ---------------------------------------------------------------------------- the classifier


def test_the_file_is_small_described_and_intact() -> None:
    classifier = load_second_classifier()
    assert WEIGHTS.stat().st_size < 700_000
    assert (classifier.name, classifier.shape) == ("second-lenet-1", (1, 28, 28))
    seen = classifier(torch.zeros(3, 1, 28, 28))
    assert (seen.features.shape, seen.logits.shape) == ((3, 256), (3, 10))
    assert torch.equal(seen.logits[0], seen.logits[1])  # no dropout


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    content = bytearray(WEIGHTS.read_bytes())
    content[-5] ^= 1
    (tmp_path / "c.safetensors").write_bytes(content)
    with pytest.raises(StoreError, match="checksum"):
        load_second_classifier(tmp_path / "c.safetensors")


def test_its_architecture_is_not_that_of_the_classifier_that_scores() -> None:
    ours = {type(layer).__name__ for layer in SecondNetwork().modules()}
    theirs = {type(layer).__name__ for layer in load_extractor("digits")._network.modules()}
    assert ours & theirs == {"Sequential", "Conv2d", "Flatten", "Linear"}


def test_nothing_in_the_package_mentions_it() -> None:
    words = re.compile(rb"second[-_ ]?(classifier|network|opinion|lenet)|lenet", re.IGNORECASE)
    files = [path for path in (ROOT / "src" / "remuda").rglob("*") if path.is_file()]
    assert len(files) > 100
    kept = [path for path in files if "__pycache__" not in path.parts]
    assert [path for path in kept if words.search(path.read_bytes())] == []
    assert words.search(Path(second_opinion.__file__).read_bytes())


@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_accuracy_on_the_official_test_images() -> None:
    data = dataset("mnist", "test")
    assert len(data) == 10_000
    assert data.labels is not None
    guesses = load_second_classifier()(data.items[:]).logits.argmax(1)
    assert (guesses == data.labels).double().mean().item() >= 0.99


# ---------------------------------------------------------------------------- the figures


def test_real_images_are_near_the_floor_and_planted_bad_ones_far_from_it() -> None:
    classifier = load_second_classifier()
    train, test = dataset("digits", "train"), dataset("digits", "test")
    noise = torch.randn(test.items.shape, generator=torch.Generator().manual_seed(1))
    made = {
        "real": test.items[:],
        "noisy": (test.items[:] + noise).clamp(-1, 1),
        "one class": train.items[train.labels == 3],
        "noise": noise.clamp(-1, 1),
    }
    real = {"train": statistics(classifier, torch.split(train.items[:], 1000))}
    found = {
        name: figures(real, SampleStatistics.of(classifier(images)))["train"]
        for name, images in made.items()
    }
    assert found["real"]["fid_logits"] < 3
    assert found["real"]["tvd"] < 0.02
    for bad in ("noisy", "one class", "noise"):
        assert found[bad]["fid_logits"] > 10 * found["real"]["fid_logits"], bad
    assert found["one class"]["tvd"] > 0.85


@pytest.mark.real_data
@pytest.mark.usefixtures("real_data")
def test_figures_of_real_train_against_test_images() -> None:
    classifier = load_second_classifier()
    train, test = (
        statistics(classifier, torch.split(dataset("mnist", split).items[:], 1000))
        for split in ("train", "test")
    )
    # The figures in benchmarks/second_opinion.py; CPUs differ in the last digits.
    found = figures({"train": train}, test)["train"]
    assert found["fid_logits"] == pytest.approx(0.28, abs=0.05)
    assert found["tvd"] == pytest.approx(0.0084, abs=0.001)


# ---------------------------------------------------------------------------- the command


def test_the_command_prints_a_row_per_run_and_writes_them(
    tmp_path: Path, small_mnist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = ensemble(tmp_path / "run"), tmp_path / "out.json"
    words = [str(run), "-n", "1500", "--data-dir", str(small_mnist), "--json", str(file)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "1,500 samples each, seen by second-lenet-1" in out
    first, second = out.splitlines()[-2:]
    assert first.startswith(FLOOR)
    assert second.startswith(str(run))
    rows = json.loads(file.read_text())["rows"]
    assert list(rows) == [FLOOR, str(run)]
    assert rows[FLOOR]["train"] == pytest.approx(rows[FLOOR]["test"])
    assert rows[run.as_posix()]["test"]["fid_logits"] > 10 * rows[FLOOR]["test"]["fid_logits"]
    assert f"{rows[str(run)]['test']['fid_logits']:.3f}" in second
    assert main(words) == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "nowhere"),
        (["colour"], "colour: makes items of shape 3x32x32; allowed: runs of 28x28 grey images"),
        (["points"], "points: makes items of shape 2; allowed: runs of 28x28 grey images"),
        (["grey", "-n", "1"], "-n 1: not allowed; allowed: a whole number at least 2"),
        (["grey"], "MNIST not found; put its four files into the folder given by --data-dir"),
        (["grey", "--data-dir", "nowhere"], "nowhere: no such folder"),
        (["unfinished"], "unfinished"),
    ],
)
def test_mistakes_are_told_in_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REMUDA_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ensemble(tmp_path / "grey")
    ensemble(tmp_path / "colour", (3, 32, 32))
    ensemble(tmp_path / "points", (2,))
    (tmp_path / "unfinished").mkdir()
    assert main(words) in (2, 3)
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("second_opinion: ")
    assert said in line
