from __future__ import annotations

import hashlib
import lzma
import runpy
from importlib.resources import files
from pathlib import Path

import pytest

from remuda.data.formats.digits import EMBEDDED
from tests.data.samples import load

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_embedded_digits.py"


COUNTS = {"train": 10_000, "test": 2_000}
SHA256 = "f37302b47bf898e1bc0b82374cac1ed460c227db13b23a1d3888b4ee53d20e00"


@pytest.mark.parametrize("split", COUNTS)
def test_every_digit_is_there_equally_often(split: str) -> None:
    digits = load("digits", split=split)
    assert len(digits) == COUNTS[split]
    assert digits.labels is not None
    assert digits.labels.bincount().tolist() == [COUNTS[split] // 10] * 10


def test_the_embedded_files_are_small_and_the_training_images_never_change() -> None:
    content = {
        split: files("remuda.data").joinpath(name).read_bytes() for split, name in EMBEDDED.items()
    }
    assert len(content["train"]) < 1_400_000
    assert len(content["test"]) < 300_000
    assert hashlib.sha256(content["train"]).hexdigest() == SHA256


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize("split", COUNTS)
def test_every_embedded_digit_is_one_of_mnist_of_the_same_split_and_label(
    split: str, real_data: Path
) -> None:
    whole, digits = load("mnist", dir=str(real_data), split=split), load("digits", split=split)
    assert whole.labels is not None
    assert digits.labels is not None
    known = {
        (image.numpy().tobytes(), label)
        for image, label in zip(whole.items[:], whole.labels.tolist(), strict=True)
    }
    chosen = {
        (image.numpy().tobytes(), label)
        for image, label in zip(digits.items[:], digits.labels.tolist(), strict=True)
    }
    assert chosen <= known
    assert len(chosen) == COUNTS[split]


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(("split", "called"), [("train", "train"), ("test", "t10k")])
def test_the_script_makes_the_embedded_files_anew(split: str, called: str, real_data: Path) -> None:
    made = runpy.run_path(str(SCRIPT))["embedded"](real_data / "mnist", called)
    # The content only: compressing it takes a minute, and another liblzma may do it differently.
    assert made == lzma.decompress(files("remuda.data").joinpath(EMBEDDED[split]).read_bytes())
