from __future__ import annotations

import lzma
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from remuda.data.formats.digits import EMBEDDED
from tests.data.samples import load

SCRIPT = Path(__file__).parents[3] / "scripts" / "make_embedded_digits.py"


def test_the_embedded_file_is_small() -> None:
    assert len(files("remuda.data").joinpath(EMBEDDED).read_bytes()) < 2_000_000


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
def test_the_script_makes_the_embedded_file_anew(real_data: Path, tmp_path: Path) -> None:
    made = tmp_path / "digits.idx.xz"
    command = [sys.executable, str(SCRIPT), "--mnist", str(real_data / "mnist"), "--out", str(made)]
    subprocess.run(command, check=True)
    embedded = files("remuda.data").joinpath(EMBEDDED).read_bytes()
    # The contents, since another liblzma may compress the same bytes differently.
    assert lzma.decompress(made.read_bytes()) == lzma.decompress(embedded)
