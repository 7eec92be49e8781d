"""What goes into a run: presets, config, anova."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from remuda.config import load_config, preset_names
from tests.cli.in_process import remuda


def test_presets_are_listed_one_line_each(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "presets")
    assert code == 0
    lines = output.splitlines()
    assert [line.split()[0] for line in lines] == preset_names()
    assert all(len(line.split()) > 5 for line in lines)
    measured = next(line for line in lines if line.startswith("quickstart "))
    assert "FID" in measured


def test_a_printed_configuration_can_be_saved_and_used(tmp_path: Path) -> None:
    code, output, _ = remuda(tmp_path, "config", "cellular-mnist", "rounds=7", "grid=3x3")
    assert code == 0
    assert "# " in output
    (tmp_path / "my.yaml").write_text(output)
    wanted = load_config("cellular-mnist", ["rounds=7", "grid=3x3"])
    assert load_config(str(tmp_path / "my.yaml")) == wanted


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
