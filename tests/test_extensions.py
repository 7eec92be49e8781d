"""A new method, network, objective, penalty and metric from outside the package, trained together.

Each is what CONTRIBUTING.md asks for: a settings class or facts, an implementation, and one line in
a registry. (Toy data formats are in tests/data/test_formats.py, a toy engine in
tests/parallel/test_engines.py.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import Field
from torch import Tensor, nn

import remuda
from remuda.clock import Clock
from remuda.config import MethodSettings, MetricFacts, NetworkSettings, load_config
from remuda.config import objectives as config_objectives
from remuda.config import score as config_score
from remuda.config.objectives import ObjectiveFacts, PenaltyFacts
from remuda.gan.cell import Cell
from remuda.gan.networks import FAMILIES
from remuda.gan.networks.family import Family, Shape, uniform_weights
from remuda.gan.objectives import OBJECTIVES, Objective
from remuda.gan.parcels import Parcel
from remuda.gan.penalties import PENALTIES
from remuda.methods import METHODS, Method, Mixture
from remuda.methods.base import Match
from remuda.metrics import METRICS, Scorer
from remuda.metrics.metric import Metric, Need
from remuda.metrics.statistics import SampleStatistics
from remuda.parallel import training
from remuda.runs.store import RunFolder
from tests.tiny_runs import write_data

# ---------------------------------------------------------------------------- a method


def chain_settings() -> type[MethodSettings]:
    class ChainSettings(MethodSettings):
        """Every cell continues from its left neighbour's GAN every few rounds."""

        name: Literal["chain"] = Field("chain", description="GANs that move along a chain")
        every: int = Field(2, ge=1, description="rounds between moves")

    return ChainSettings


class Chain(Method):
    def peers(self, cell: int, round: int) -> tuple[int, ...]:
        moves = round % self.settings.every == 0  # type: ignore[attr-defined]
        return ((cell - 1) % self.config.cells,) if moves and self.config.cells > 1 else ()

    def adapt(self, cell: Cell, parcels: Sequence[Parcel], clock: Clock) -> Match:
        guest = cell.host(parcels[0]) if parcels else cell.gan.clone()
        return Match(guest, details={"came_from": guest.cell})

    def ensemble(self, parcels: Mapping[int, Parcel], scorer: Scorer | None) -> Mixture:
        return Mixture({0: 1.0}, None, "the first of the chain")


# ---------------------------------------------------------------------------- a network family


def affine_settings() -> type[NetworkSettings]:
    class AffineSettings(NetworkSettings):
        """One matrix each."""

        family: Literal["affine"] = Field("affine", description="one matrix each")

    return AffineSettings


def _generator(settings: NetworkSettings, shape: Shape) -> nn.Module:
    size = math.prod(shape)
    return nn.Sequential(nn.Linear(settings.latent, size), nn.Tanh(), nn.Unflatten(1, shape))


def _discriminator(_: NetworkSettings, shape: Shape) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 1), nn.Flatten(0))


AFFINE = Family[NetworkSettings](
    lambda _settings, _shape: None, _generator, _discriminator, uniform_weights
)

# ---------------------------------------------------------------------------- an objective


class RawSquares(Objective):
    name = "raw_squares"

    def generator_loss(self, fake: Tensor, real: Tensor | None = None) -> Tensor:
        return (fake - 1).square().mean()

    def discriminator_loss(self, real: Tensor, fake: Tensor) -> Tensor:
        return 0.5 * ((real - 1).square().mean() + fake.square().mean())


# ---------------------------------------------------------------------------- a penalty


def small_logits(
    discriminate: Callable[[Tensor], Tensor], real: Tensor, fake: Tensor, rng: torch.Generator
) -> Tensor:
    return discriminate(real).square().mean() + discriminate(fake).square().mean()


# ---------------------------------------------------------------------------- a metric


def _shift(real: SampleStatistics, fake: SampleStatistics) -> float:
    return float((real.feature_mean - fake.feature_mean).norm())


SHIFT = Metric(
    name="shift",
    facts=MetricFacts("shift"),
    rows=(("mean shift", "{shift:.3f}"),),
    needs=frozenset({Need.FEATURES}),
    from_statistics=_shift,
)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything registered, and gone again afterwards."""
    monkeypatch.setitem(METHODS, "chain", Chain)
    family = affine_settings()
    chain_settings()
    monkeypatch.setitem(FAMILIES, family, AFFINE)
    monkeypatch.setitem(OBJECTIVES, "raw_squares", RawSquares())
    squares = ObjectiveFacts("raw_squares", "LSGAN", is_classifier=False, is_critic=True)
    monkeypatch.setitem(config_objectives.OBJECTIVES, "raw_squares", squares)
    monkeypatch.setitem(PENALTIES, "small_logits", small_logits)
    facts = PenaltyFacts("small_logits", lambda t: t.objective == "raw_squares", lambda _: 0.1)
    monkeypatch.setitem(config_objectives.PENALTIES, "small_logits", facts)
    monkeypatch.setitem(METRICS, "shift", SHIFT)
    monkeypatch.setitem(config_score.METRICS, "shift", SHIFT.facts)
    yield
    del MethodSettings.kinds["chain"], NetworkSettings.kinds["affine"]


@pytest.mark.usefixtures("toys")
def test_toys_of_every_kind_train_together(tmp_path: Path) -> None:
    images = write_data(tmp_path / "images.npz")
    config = load_config(
        "cellular-digits",
        [
            "method.name=chain",
            "network={family: affine, latent: 5}",
            "training.objective=raw_squares",
            "training.batch_size=10",
            "score.metric=shift",
            "score.every=1",
            "score.extractor=digits",
            "score.samples=20",
            "score.final_samples=20",
            "grid=1x2",
            "rounds=2",
            f"data={images}",
            f"run.dir={tmp_path / 'run'}",
        ],
    )
    result = training.train(config)
    events = RunFolder.open(result.path).events()
    rounds: dict[tuple[Any, Any], Any] = {
        (event["round"], event["cell"]): event for event in events if event["event"] == "round"
    }
    assert {event["loss"] for event in rounds.values()} == {"raw_squares"}
    assert [rounds[2, cell]["came_from"] for cell in (0, 1)] == [1, 0]
    assert all(event["score"] > 0 for event in rounds.values())
    again = training.train(
        config.model_copy(
            update={"run": config.run.model_copy(update={"dir": str(tmp_path / "again")})}
        )
    )
    assert (result.ensemble.sample(4) == again.ensemble.sample(4)).all()
    assert remuda.load(result.path).sample(3).shape == (3, 1, 28, 28)
    scores = remuda.score(result.path, ["shift"])
    assert scores.values["shift"] > 0
    assert any(line.startswith("mean shift") for line in scores.lines())


@pytest.mark.usefixtures("toys")
def test_a_penalty_of_ones_own_reaches_the_discriminator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_data(tmp_path / "images.npz")

    def trained(weight: float, name: str) -> Any:
        facts = PenaltyFacts(
            "small_logits", lambda t: t.objective == "raw_squares", lambda _: weight
        )
        monkeypatch.setitem(config_objectives.PENALTIES, "small_logits", facts)
        overrides = ["method=independent", "grid=1x1", "rounds=1", "training.objective=raw_squares"]
        overrides += ["network={family: affine, latent: 5}", "training.batch_size=10"]
        overrides += ["score.extractor=none", f"data={images}", f"run.dir={tmp_path / name}"]
        return training.train(load_config("cellular-digits", overrides)).ensemble.sample(4)

    assert (trained(0.1, "light") != trained(10.0, "heavy")).any()
