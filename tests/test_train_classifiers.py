"""The scripts that train classifiers: they learn, write only what is good, and runs can use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import remuda
from remuda.metrics import read_extractor
from remuda.metrics.classifier import read_classifier
from scripts import train_digits_classifier, train_second_classifier
from scripts.train_cifar_classifier import TrainedNetwork, folded, main
from tests.data.samples import write_cifar100, write_mnist

# One GAN per label, as the preset has it, but as small as can be.
TINY = [
    "rounds=1",
    "network={family: mlp, latent: 2, hidden: [4]}",
    "training.batch_size=2",
    "training.batches_per_round=1",
    "score={samples: 20, final_samples: 200}",
    "run.sheet_every=0",
]


def words(folder: Path, out: Path, epochs: int) -> list[str]:
    given = ["--data", "cifar100", "--data-dir", str(folder), "--out", str(out)]
    return [*given, "--epochs", str(epochs)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cifar100(tmp_path_factory.mktemp("cifar100"), train=5)


@pytest.fixture(scope="module")
def classifier(data: Path) -> Path:
    """Trained by the script on 500 images of 100 colours."""
    main(words(data, data / "classifier.safetensors", epochs=12))
    return data / "classifier.safetensors"


@pytest.mark.slow
def test_the_script_learns_a_hundred_colours(classifier: Path) -> None:
    _, card = read_classifier(classifier)
    assert card.accuracy > 0.5  # chance is 0.01
    assert (card.name, card.classes, card.tested) == ("cifar100-cnn-1", 100, 200)
    assert (card.shape, card.scaling) == ((3, 32, 32), "[-1, 1]")


@pytest.mark.slow
def test_a_class_parallel_run_is_scored_by_what_the_script_wrote(
    classifier: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(classifier.read_bytes())
    run = tmp_path / "run"
    where = [f"data.dir={data}", f"run.dir={run}", f"score.extractor={copy}"]
    remuda.train("class-parallel-cifar100", *TINY, *where)
    kept = json.loads((run / "result.json").read_text())["scores"]
    trained = read_extractor(classifier)
    assert (kept["extractor"], kept["extractor_id"]) == (trained.name, trained.identity)
    # It knows the labels that samples were generated for.
    assert {"fid", "is", "tvd", "accuracy"} <= kept["values"].keys()
    assert (run / "extractor.safetensors").read_bytes() == classifier.read_bytes()
    copy.unlink()
    assert json.loads(json.dumps(remuda.score(run).to_json())) == kept


def test_what_has_not_learnt_is_not_written(tmp_path: Path) -> None:
    data = write_cifar100(tmp_path, train=1, test=1)
    with pytest.raises(SystemExit, match=r"^below 0\.2: not written$"):
        main(words(data, tmp_path / "c.safetensors", epochs=1))
    assert not list(tmp_path.glob("*.safetensors*"))


def test_batch_norms_are_folded_into_a_network_of_any_number_of_classes() -> None:
    rng = torch.Generator().manual_seed(0)
    network = TrainedNetwork(100).eval()
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_(generator=rng)
            layer.running_var.uniform_(0.5, 2, generator=rng)
    images = torch.rand(4, 3, 32, 32, generator=rng) * 2 - 1
    with torch.no_grad():
        (features, logits), (wanted, others) = folded(network)(images), network(images)
    assert logits.shape == (4, 100)
    torch.testing.assert_close(features, wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits, others, rtol=1e-4, atol=1e-4)


def test_mistakes_on_the_command_line_are_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=r"^cifar100: not found\. Put cifar-100-python/ .*$"):
        main(words(tmp_path, tmp_path / "c.safetensors", epochs=1))
    with pytest.raises(SystemExit):
        main(words(tmp_path, tmp_path / "c.safetensors", epochs=0))
    assert "--epochs=0: not allowed; allowed: 1 or more" in capsys.readouterr().err
    for out in (tmp_path / "nowhere" / "c.safetensors", tmp_path / "c.npz"):
        with pytest.raises(SystemExit):
            main(words(tmp_path, out, epochs=1))
        says = f"--out={out}: allowed: a .safetensors file in a folder that exists"
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("script", [train_digits_classifier, train_second_classifier])
def test_the_scripts_of_digits_share_the_command_line(
    script: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda _: None)
    for part in ("train", "t10k"):
        write_mnist(tmp_path, part)
    given = ["--data-dir", str(tmp_path), "--epochs", "1", "--out", str(tmp_path / "c.safetensors")]
    with pytest.raises(SystemExit, match=r"^below 0\.99: not written$"):
        script.main(given)  # type: ignore[attr-defined]


def test_cifar_10_is_what_the_script_trains_on_by_default(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^cifar10: not found"):
        main(["--data-dir", str(tmp_path), "--out", str(tmp_path / "c.safetensors")])
