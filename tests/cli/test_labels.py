"""Labels on the command line: training one GAN per label, and asking for samples by label."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.cli.in_process import remuda
from tests.tiny_runs import last_weights, tiny, write_data

pytestmark = pytest.mark.slow


def by_label(data: Path, run: Path) -> list[str]:
    """Arguments of a tiny run with one GAN per label."""
    settings = [one for one in tiny(data, run) if not one.startswith("method.")]
    return [*settings, "method=class_parallel"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    data = write_data(folder / "images.npz")
    code, output, errors = remuda(folder, "train", *by_label(data, folder / "run"), "grid=5x5")
    assert (code, errors) == (0, "")
    assert "class_parallel on a 1x3 grid" in output
    return folder / "run"


def test_samples_by_label_come_from_that_labels_generator(trained: Path, tmp_path: Path) -> None:
    for label in ("0", "2"):
        out = tmp_path / f"{label}.npy"
        code, _, errors = remuda(tmp_path, "sample", str(trained), "--label", label, "-o", str(out))
        assert (code, errors) == (0, "")
    assert not np.allclose(np.load(tmp_path / "0.npy"), np.load(tmp_path / "2.npy"))


def test_an_unknown_label_is_an_error_that_lists_them(trained: Path, tmp_path: Path) -> None:
    code, _, errors = remuda(tmp_path, "sample", str(trained), "--label", "cat")
    assert code == 2
    assert "label=cat is not a label of this ensemble; allowed: 0, 1, 2" in errors


def test_a_resumed_run_ends_with_the_same_weights(trained: Path, tmp_path: Path) -> None:
    arguments = by_label(trained.parent / "images.npz", tmp_path / "run")
    short = [one for one in arguments if not one.startswith("rounds=")]
    assert remuda(tmp_path, "train", *short, "rounds=1")[0] == 0
    # As if it had been stopped after the first of three rounds.
    (tmp_path / "run" / "result.json").unlink()
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 1 ", "rounds: 3 "))
    code, _, errors = remuda(tmp_path, "resume", str(tmp_path / "run"))
    assert (code, errors) == (0, "")
    assert last_weights(tmp_path / "run") == last_weights(trained)


def test_unavailable_extractors_are_named(trained: Path, tmp_path: Path) -> None:
    score = ("score", str(trained), "fid", "--extractor")
    nowhere = str(tmp_path / "nowhere.npz")
    code, _, errors = remuda(tmp_path, *score, "inception", "--weights", nowhere)
    assert code == 3
    assert "nowhere.npz: no such file" in errors
    code, _, errors = remuda(tmp_path, *score, "inceptoin")
    assert code == 2
    assert "--extractor=inceptoin: unknown; did you mean inception?" in errors
    code, _, errors = remuda(tmp_path, *score, "digits", "--weights", nowhere)
    assert "only for --extractor=inception" in errors
