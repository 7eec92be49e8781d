"""The extractor: what it accepts, and that its weights are the ones we made."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load, save

from remuda.config import ScoreSettings
from remuda.errors import ConfigError, StoreError
from remuda.metrics import extractor_for, load_extractor
from remuda.metrics.classifier import (
    Card,
    DigitsNetwork,
    read_classifier,
    tensors_digest,
    write_classifier,
)
from remuda.metrics.extractors import WEIGHTS

DIGITS = WEIGHTS / "digits.safetensors"


def settings(extractor: str) -> ScoreSettings:
    return ScoreSettings.model_validate({"extractor": extractor})


def test_features_have_their_sizes_and_need_no_gradient() -> None:
    extractor = load_extractor("digits")
    images = torch.zeros(203, 1, 28, 28, requires_grad=True)
    seen = extractor(images)
    assert seen.features.shape == (203, 64)
    assert seen.logits.shape == (203, extractor.classes)
    assert not seen.features.requires_grad
    assert seen.logits.dtype == torch.float32


def test_an_image_is_seen_alike_in_any_company() -> None:
    images = torch.rand(150, 1, 28, 28, generator=torch.Generator().manual_seed(0)) * 2 - 1
    extractor = load_extractor("digits")
    alone = extractor(images[130:131])
    torch.testing.assert_close(extractor(images).logits[130:131], alone.logits)


@pytest.mark.parametrize("shape", [(4, 3, 32, 32), (4, 28, 28), (4, 784), (0, 1, 28, 28), (28, 28)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="Nx1x28x28"):
        load_extractor("digits")(torch.zeros(shape))


def test_extractors_are_loaded_once() -> None:
    assert load_extractor("digits") is load_extractor("digits")
    with pytest.raises(ConfigError, match="allowed: digits"):
        load_extractor("inception")


def test_auto_takes_the_extractor_that_fits() -> None:
    auto = settings("auto")
    assert extractor_for(auto, "mnist", (1, 28, 28)) is load_extractor("digits")
    assert extractor_for(auto, "my/clothes.npz", (1, 28, 28)) is None
    assert extractor_for(auto, "cifar10", (3, 32, 32)) is load_extractor("cifar")
    assert extractor_for(auto, "cifar100", (3, 32, 32)) is None
    assert extractor_for(auto, "r15.txt", (2,)) is None
    assert extractor_for(settings("none"), "mnist", (1, 28, 28)) is None


def test_an_extractor_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(
        ConfigError, match=r"score.extractor=digits.*3x32x32; allowed: auto, labels"
    ):
        extractor_for(settings("digits"), "cifar10", (3, 32, 32))


def test_the_shipped_file_is_small_and_described() -> None:
    _, card = read_classifier(DIGITS)
    assert DIGITS.stat().st_size < 1_000_000
    assert (card.name, card.scaling, card.shape) == ("digits-cnn-1", "[-1, 1]", (1, 28, 28))
    assert card.accuracy >= 0.99


def test_the_shipped_cifar_classifier_is_small_and_described() -> None:
    path = WEIGHTS / "cifar.safetensors"
    _, card = read_classifier(path)
    assert path.stat().st_size < 1_000_000
    assert (card.name, card.scaling, card.shape) == ("cifar-cnn-1", "[-1, 1]", (3, 32, 32))
    seen = load_extractor("cifar")(torch.zeros(3, 3, 32, 32))
    assert (seen.features.shape, seen.logits.shape) == ((3, 64), (3, 10))


def test_a_classifier_survives_its_file(tmp_path: Path) -> None:
    card = Card("tiny", "[-1, 1]", 0.5, 10, (1, 28, 28))
    network = DigitsNetwork()
    write_classifier(tmp_path / "c.safetensors", network, card)
    written = (tmp_path / "c.safetensors").read_bytes()
    write_classifier(tmp_path / "c.safetensors", network, card)
    assert (tmp_path / "c.safetensors").read_bytes() == written
    again, read = read_classifier(tmp_path / "c.safetensors")
    assert read == card
    torch.testing.assert_close(dict(again.state_dict()), dict(network.state_dict()))
    assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]


def about(**entries: object) -> dict[str, str]:
    return {"remuda": json.dumps(entries)}


def other_network() -> bytes:
    """A well-formed file whose tensors are not those of our network."""
    tensors = {"body.0.weight": torch.zeros(2)}
    card = asdict(read_classifier(DIGITS)[1])
    return save(tensors, about(format=1, card=card, sha256=tensors_digest(tensors)))


def damaged() -> dict[str, tuple[bytes, str]]:
    """Each kind of damage, with the word its message must hold."""
    good = DIGITS.read_bytes()
    flipped = bytearray(good)
    flipped[-5] ^= 1
    tensors = load(good)
    return {
        "empty": (b"", "safetensors"),
        "truncated": (good[: len(good) // 2], "safetensors"),
        "foreign": (b"PK\x03\x04" * 100, "safetensors"),
        "tampered": (bytes(flipped), "checksum"),
        "newer": (save(tensors, about(format=2)), "format 2"),
        "undescribed": (save(tensors), "no format version"),
        "other network": (other_network(), "not the weights"),
        "bad card": (save(tensors, about(format=1, card={})), "description"),
    }


@pytest.mark.parametrize("damage", damaged())
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    content, word = damaged()[damage]
    path = tmp_path / "digits.safetensors"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=word) as error:
        read_classifier(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere\.safetensors.*missing"):
        read_classifier(tmp_path / "nowhere.safetensors")
