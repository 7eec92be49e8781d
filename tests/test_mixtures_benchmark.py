"""What the benchmark of mixtures chooses for planted members, and what it says of runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import mixtures
from benchmarks.mixtures import FIGURES, WAYS, Found, choose, compare, main
from remuda.config import DataSettings, load_config
from remuda.data import load_dataset
from remuda.metrics import GroupedStatistics, SampleStatistics, load_extractor, score_of
from remuda.parallel import training
from remuda.runs.ensemble import Ensemble, Labels
from remuda.runs.loading import load
from remuda.runs.population import Population

LOW, HIGH = range(5), range(5, 10)


def planted(rows: slice, labels: Sequence[int] = (), noise: float = 0.0) -> GroupedStatistics:
    """A member that makes real digits: only those of some labels, or with noise on them."""
    data = load_dataset(DataSettings.model_validate({"source": "digits"}))
    assert data.labels is not None
    items = data.items[rows]
    if labels:
        items = items[torch.isin(data.labels[rows], torch.tensor(labels))]
    more = noise * torch.randn(items.shape, generator=torch.Generator().manual_seed(0))
    return GroupedStatistics.of(load_extractor("digits")((items + more).clamp(-1, 1)))


@pytest.fixture(scope="module")
def real() -> SampleStatistics:
    return GroupedStatistics.mixture([planted(slice(0, 2000))], [1.0]).whole


def fid(real: SampleStatistics, parts: Sequence[GroupedStatistics], weights: list[float]) -> float:
    return GroupedStatistics.mixture(parts, weights).corrected(partial(score_of, "fid", real))


# ---------------------------------------------------------------------------- weights


def test_members_with_half_the_modes_each_are_mixed_equally_and_beat_the_best(
    real: SampleStatistics,
) -> None:
    parts = [planted(slice(2000, 4000), LOW), planted(slice(2000, 4000), HIGH)]
    found = choose(real, parts)
    assert found["uniform"] == [0.5, 0.5]
    for way in ("weighted", "balanced"):
        assert found[way] == pytest.approx([0.5, 0.5], abs=0.04)
    assert sorted(found["best"]) == [0, 1]
    # Other samples of the same members.
    fresh = [planted(slice(4000, 6000), LOW), planted(slice(4000, 6000), HIGH)]
    assert fid(real, fresh, found["weighted"]) < 0.1 * fid(real, fresh, found["best"])


def test_a_bad_member_gets_no_weight(real: SampleStatistics) -> None:
    noisy = planted(slice(4000, 5000), noise=1.0)
    parts = [planted(slice(2000, 4000), LOW), noisy, planted(slice(2000, 4000), HIGH)]
    found = choose(real, parts)
    assert found["best"][1] == 0
    assert found["weighted"][1] < 0.01
    assert found["weighted"][::2] == pytest.approx([0.5, 0.5], abs=0.04)
    assert fid(real, parts, found["weighted"]) < fid(real, parts, found["uniform"])


def test_a_member_alone_has_all_the_weight(real: SampleStatistics) -> None:
    found = choose(real, [planted(slice(2000, 3000))])
    assert all(weights == [1.0] for weights in found.values())


# ---------------------------------------------------------------------------- arms


def test_arms_are_compared_with_best_by_seed() -> None:
    runs = [
        Found("", "/runs/a", {}, {"best": of(9 + seed), "uniform": of(8 + seed)})
        for seed in range(6)
    ]
    other = [Found("", None, {}, {"best": of(1)}), Found("", "/runs/b", {}, {})]
    rows = compare([*runs, *other])
    assert {(row.arm, row.way, row.seeds) for row in rows} == {("/runs/a", "uniform", 6)}
    assert [row.figure for row in rows] == [*FIGURES]
    assert all(row.difference.estimate == -1 for row in rows)
    assert all(row.test.p == 2 / 2**6 for row in rows)


def of(value: float) -> dict[str, float]:
    return dict.fromkeys(FIGURES, value)


# ---------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of relatives, and one of strangers."""
    folder = tmp_path_factory.mktemp("mixed")
    for name, seed, method in (
        ("a-seed-0", 0, "averaging"),
        ("a-seed-1", 1, "averaging"),
        ("strangers", 0, "independent"),
    ):
        settings = [
            *("data=digits", "data.limit=300", f"run.dir={folder / name}", f"seed={seed}"),
            "network={family: mlp, latent: 3, hidden: [8]}",
            "training={batch_size: 20, batches_per_round: 5, average: 5}",
            "score={samples: 20, final_samples: 20}",
            *("rounds=2", "grid=1x2", "run.sheet_every=0", f"method={method}"),
        ]
        training.train(load_config("cellular-digits", settings))
    return folder


def test_the_command_prints_every_way_and_the_arm(
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(mixtures, "CHOOSING", 50)
    monkeypatch.setattr(mixtures, "REPORTING", 100)
    drawn, make = [], mixtures.make_ensemble

    def recorded(
        population: Population, weights: list[float], labels: Labels | None, *, merged: bool
    ) -> Ensemble:
        drawn.append(make(population, weights, labels, merged=merged))
        return drawn[-1]

    monkeypatch.setattr(mixtures, "make_ensemble", recorded)
    paths = [str(runs / name) for name in ("a-seed-0", "a-seed-1", "strangers")]
    file = tmp_path / "out.json"
    assert main([*paths, str(tmp_path), "--json", str(file)]) != 0
    shown = capsys.readouterr()
    assert f"mixtures: {tmp_path}: not a run folder: it has no config.yaml" in shown.err
    assert shown.out.count("weighted") == 3 + 1
    record = json.loads(file.read_text())
    ways = [list(run["figures"]) for run in record["runs"]]
    assert ways == [[*WAYS], [*WAYS], [*WAYS[:-1]]]
    assert [run["arm"] for run in record["runs"]] == [str(runs / "a")] * 2 + [None]
    assert {row["seeds"] for row in record["versus_best"]} == {2}
    assert len(record["versus_best"]) == len(WAYS[1:]) * len(FIGURES)
    # Averaging ends with the mean of all cells, which is what "average" makes of them.
    (own,), (merged, _) = load(runs / "a-seed-0").members, drawn[len(WAYS) - 1].members
    assert own.state.keys() == merged.state.keys()
    for name, value in own.state.items():
        assert torch.allclose(merged.state[name], value, atol=1e-6), name
