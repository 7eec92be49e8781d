from __future__ import annotations

import lzma
import runpy
from importlib.resources import files
from pathlib import Path

import pytest

from remuda.data.formats.digits import EMBEDDED
from tests.data.samples import load

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_embedded_digits.py"


def test_the_embedded_file_is_small() -> None:
    assert len(files("remuda.data").joinpath(EMBEDDED).read_bytes()) < 2_000_000


@pytest.mark.slow
@pytest.mark.real_data
def test_every_embedded_digit_is_a_training_image_with_its_label(real_data: Path) -> None:
    train, digits = load("mnist", dir=str(real_data)), load("digits")
    assert train.labels is not None
    assert digits.labels is not None
    known = {
        (image.numpy().tobytes(), label)
        for image, label in zip(train.items, train.labels.tolist(), strict=True)
    }
    chosen = {
        (image.numpy().tobytes(), label)
        for image, label in zip(digits.items, digits.labels.tolist(), strict=True)
    }
    assert chosen <= known
    assert len(chosen) == 10_000


@pytest.mark.slow
@pytest.mark.real_data
def test_the_script_makes_the_embedded_file_anew(real_data: Path) -> None:
    made = runpy.run_path(str(SCRIPT))["embedded"](real_data / "mnist")
    # The content only: compressing it takes a minute, and another liblzma may do it differently.
    assert made == lzma.decompress(files("remuda.data").joinpath(EMBEDDED).read_bytes())
