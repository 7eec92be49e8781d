"""What the benchmark of presets says of runs: raw generators beside averaged ones, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.presets import _page, _raw_scores
from remuda.config import load_config
from remuda.parallel import training
from remuda.parallel.engines import Engine
from tests.tiny_runs import tiny, write_data

METHODS = {
    "merged": ["method=averaging"],
    "best": ["method=independent"],
    "labels": ["method=class_parallel"],
}


def trained(folder: Path, half_life: str, method: str) -> Path:
    run = folder / "run"
    data = write_data(folder / "images.npz")
    plain = [word for word in tiny(data, run) if not word.startswith("method.")]
    source, *words = [*plain, *METHODS[method], f"training.average={half_life}"]
    training.train(load_config(source, words), engine=Engine("local"))
    return run


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_raw_scores_are_those_of_an_average_that_follows_at_once(
    method: str, tmp_path: Path
) -> None:
    run = trained(tmp_path, "1e-6", method)
    found = json.loads((run / "result.json").read_text())["scores"]["values"]
    assert _raw_scores(run) == pytest.approx(found)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_raw_scores_differ_from_those_of_an_average_over_the_training(
    method: str, tmp_path: Path
) -> None:
    run = trained(tmp_path, "1000", method)
    found = json.loads((run / "result.json").read_text())["scores"]["values"]
    raw = _raw_scores(run)
    assert raw is not None
    assert raw.keys() == found.keys()
    assert raw["fid"] != pytest.approx(found["fid"], rel=1e-5)


@pytest.mark.slow
def test_without_an_average_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert _raw_scores(trained(tmp_path, "null", "best")) is None


def summary(changes: list[str], **more: Any) -> dict[str, Any]:
    runs = [
        {
            "run": f"preset-seed-{seed}",
            "seconds": 10.0 * seed,
            "cpu_seconds": 19.0 * seed,
            "scores": {"fid": 5.0 + seed, "tvd": 0.01},
            "extractor": "some-cnn",
            "real": "2,000 test images",
            **more,
        }
        for seed in (1, 2, 3)
    ]
    return {"preset": "preset", "changes": changes, "cores": 2, "command": "it", "runs": runs}


def test_the_page_has_a_row_per_seed_their_median_and_only_columns_that_are_known() -> None:
    lines = _page(summary([]))
    assert "| seed | seconds | CPU seconds | FID | TVD |" in lines
    (median,) = [line for line in lines if line.startswith("| median")]
    assert median.split("|")[2:5] == [" 20.00 ", " 38.00 ", " 7.00 "]
    assert sum(line.startswith(("| 1 ", "| 2 ", "| 3 ")) for line in lines) == 3
    assert not any("Shortened" in line for line in lines)


def test_the_page_of_a_shortened_preset_says_so_and_names_what_was_raw() -> None:
    lines = _page(summary(["rounds=2"], raw={"fid": 9.0}))
    assert any("**Shortened**: with `rounds=2`" in line for line in lines)
    assert any("raw weights" in line for line in lines)
    assert "| seed | seconds | CPU seconds | FID | TVD | FID without average |" in lines
