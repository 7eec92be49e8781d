from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.tiny_runs import remuda


def test_anova_prints_a_row_per_channel_and_a_sentence(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = (
        rng.integers(0, 100, (40, 8, 8, 3), dtype=np.uint8) + (labels * 50)[:, None, None, None]
    )
    np.savez(tmp_path / "two.npz", x=images.astype(np.uint8), y=labels)
    code, output, errors = remuda(tmp_path, "anova", str(tmp_path / "two.npz"))
    assert (code, errors) == (0, "")
    assert [line.split()[0] for line in output.splitlines()[2:5]] == ["red", "green", "blue"]
    assert "simpler distribution" in output


def test_anova_of_data_without_labels_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bare.npz", x=np.zeros((4, 8, 8), np.uint8))
    code, _, errors = remuda(tmp_path, "anova", str(tmp_path / "bare.npz"))
    assert code == 2
    assert "has no labels" in errors
