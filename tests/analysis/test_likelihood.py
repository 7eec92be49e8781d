"""Likelihoods of runs: mixtures, units, chunks, and the work announced is the work done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from remuda.analysis import likelihood
from remuda.analysis.likelihood import Estimate, Likelihood
from remuda.api import load
from remuda.config import validate
from remuda.gan.networks import build_generator
from remuda.metrics.ais import AisSettings, log_likelihood
from remuda.runs.ensemble import Ensemble, Member

FEW = AisSettings(variance=0.05, chains=4, steps=4)


def estimate(path: Path, examples: int = 5, simulated: int = 3) -> Estimate:
    return Estimate(path, examples=examples, simulated=simulated, settings=FEW)


def test_the_work_announced_is_the_work_done(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likelihood, "_ROWS", 8)  # two examples of four chains in a chunk
    one = estimate(alone)
    heard: list[tuple[int, int]] = []
    found = one.run(lambda done, total: heard.append((done, total)))
    members = len(load(alone).members)
    assert one.steps == members * (3 + 2 * 2) * 4
    assert heard == [(done, one.steps) for done in range(1, one.steps + 1)]
    assert found.values.shape == (5,)
    assert bool(found.values.isfinite().all())
    assert 0 < one.seconds() < 60


def test_the_same_seed_gives_the_same_figures(alone: Path) -> None:
    first, second = (estimate(alone).run() for _ in range(2))
    assert torch.equal(first.values, second.values)
    assert first.gap == second.gap


def test_decoders_speak_the_datas_own_units(images: Path) -> None:
    ensemble = load(images)
    ((weight, decode, latent), *_) = likelihood._decoders(ensemble)
    noise = torch.randn(3, latent, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        made = ensemble.networks()[0](noise)
    assert torch.allclose(decode(noise), made * 0.5 + 0.5)
    assert weight == ensemble.members[0].weight
    assert latent == 2


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["gaussian", "uniform"])
@pytest.mark.parametrize("family", ["mlp", "dcgan", "gran"])
def test_any_generator_has_a_likelihood(family: str, prior: str) -> None:
    """Also one that lies on the way: of its own sample it is higher than of noise."""
    values: dict[str, Any] = {
        "network": {"family": family, "latent": 3, "prior": prior},
        "method": {"name": "gap"},
    }
    for name, size in (("hidden", [8]), ("width", 2)):
        if (name == "hidden") == (family == "mlp"):
            values["network"][name] = size
    network = validate(values).network
    rng = torch.Generator().manual_seed(0)
    state = build_generator(network, (1, 8, 8), rng).state_dict()
    ensemble = Ensemble(network, (1, 8, 8), (Member(0, 1.0, state),))
    ((_, decode, latent),) = likelihood._decoders(ensemble)
    assert latent == network.noise_size
    own = ensemble.rescale(ensemble.draw(1, seed=1))
    items = torch.cat((own, torch.rand(own.shape, generator=rng)))
    found = log_likelihood(decode, latent, items, AisSettings(steps=10, chains=2), rng)
    assert bool(found.isfinite().all())
    assert found[0] > found[1] + 10


@pytest.mark.slow
def test_a_mixture_of_one_generator_twice_is_that_generator(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load(alone)
    state = whole.members[0].state
    settings = AisSettings(variance=1.0, steps=60)

    def figures(*weights: float) -> Likelihood:
        members = tuple(Member(cell, weight, state) for cell, weight in enumerate(weights))
        twin = Ensemble(whole.network, whole.shape, members, whole.scaling)
        monkeypatch.setattr(likelihood, "load", lambda _: twin)
        return Estimate(alone, examples=3, simulated=0, settings=settings).run()

    single = figures(1.0)
    assert single.gap is None
    assert torch.allclose(figures(0.7, 0.3).values, single.values, atol=0.15)
    assert torch.equal(figures(1.0, 0.0).values, single.values)


def test_the_lines_say_what_was_measured() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    found = Likelihood(values, 0.125, AisSettings(steps=7, chains=3), "held-out items of x")
    assert found.error == pytest.approx(math.sqrt(5 / 3) / 2)
    assert found.lines() == [
        "log-likelihood by AIS, 4 held-out items of x, observation variance 0.025, 3 chains, "
        "7 temperatures",
        "log p(x)        2.50 ± 0.65 nats",
        "BDMC gap        0.12 nats, on data drawn from the model",
    ]
    assert math.isnan(Likelihood(values[:1], None, FEW, "x").error)
    assert len(Likelihood(values, None, FEW, "x").lines()) == 2
