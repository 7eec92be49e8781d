"""Log-likelihood of a generator by annealed importance sampling (AIS), and a check of it.

A generator with Gaussian noise on its output is a density, p(x) = ∫ p(z) N(x; G(z), s²I) dz. AIS
(Neal 2001; for decoders: Wu et al. 2017) walks chains from the prior to the posterior through
f_t(z) = p(z) N(x; G(z), s²I)^β_t, with Hamiltonian Monte Carlo on the way; its estimate is a lower
bound on log p(x) in expectation. For data from the generator itself an exact posterior sample is
known, and walking back from it gives an upper bound: the gap between the two says how far the
estimate can be trusted (BDMC, Grosse et al. 2015).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from remuda.errors import ConfigError

Decoder = Callable[[Tensor], Tensor]
Tick = Callable[[int, int], None]
Prior = Literal["gaussian", "uniform"]
ACCEPTANCE = 0.65  # what the step size is adapted to; about the best for HMC
_ADAPTATION = 0.2  # the most by which a step changes the logarithm of the step size
# Trajectories of one length return to their start in every direction whose period divides it, and
# such directions never mix; so every chain varies its step size by this much, either way.
_JITTER = 0.5
# Of the sigmoid that spaces the temperatures. Wu et al. take 4; on the linear-Gaussian decoder of
# the tests 6 brings the deviation between chains from 1.5 to 1.1 nats.
_STEEPNESS = 6.0


@dataclass(frozen=True)
class AisSettings:
    """How much work goes into an estimate; more steps make it tighter."""

    variance: float = 0.025  # s²; the `sigma` of the public evaluator is this, not s
    chains: int = 16
    steps: int = 1000  # temperatures between prior and posterior
    leapfrog: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.variance < math.inf:
            raise ConfigError(f"variance={self.variance}: not allowed; allowed: above 0")
        for name in ("chains", "steps", "leapfrog"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)}: not allowed; allowed: at least 1")


@dataclass(frozen=True)
class Bounds:
    """BDMC: per simulated example, bounds in nats that hold in expectation."""

    lower: Tensor
    upper: Tensor

    @property
    def gap(self) -> float:
        """Mean distance of the bounds: on such data the estimate is off by no more than this."""
        return (self.upper - self.lower).mean().item()


def temperatures(steps: int) -> Tensor:
    """β_0 = 0 … β_steps = 1, spaced by a sigmoid: dense at both ends, where densities change."""
    places = torch.linspace(-_STEEPNESS, _STEEPNESS, steps + 1, dtype=torch.float64)
    curve = places.sigmoid()
    return (curve - curve[0]) / (curve[-1] - curve[0])


def with_prior(decoder: Decoder, prior: Prior) -> Decoder:
    """The decoder as a function of Gaussian noise: the same density, without hard borders."""
    if prior == "gaussian":
        return decoder
    # 2Φ(v) - 1 of a standard Gaussian v is uniform on [-1, 1].
    return lambda noise: decoder(torch.erf(noise / math.sqrt(2)))


def log_likelihood(
    decoder: Decoder,
    latent: int,
    items: Tensor,
    settings: AisSettings,
    rng: torch.Generator,
    tick: Tick | None = None,
) -> Tensor:
    """Estimates of log p(x) in nats, one per item, from standard Gaussian noise of size `latent`.

    All chains of all items move as one batch.
    """
    walk = _Walk(decoder, items, settings, rng)
    start = torch.randn(settings.chains * len(items), latent, generator=rng, dtype=items.dtype)
    weights, _ = walk.up(start, tick)
    return _log_mean_exp(weights)


def bidirectional_bounds(
    decoder: Decoder,
    latent: int,
    count: int,
    settings: AisSettings,
    rng: torch.Generator,
    tick: Tick | None = None,
) -> Bounds:
    """Lower and upper bounds on log p of `count` items drawn from the generator itself."""
    secret = torch.randn(count, latent, generator=rng)
    with torch.no_grad():
        clean = decoder(secret)
    noise = torch.randn(clean.shape, generator=rng)
    items = clean + math.sqrt(settings.variance) * noise
    walk = _Walk(decoder, items, settings, rng)
    start = torch.randn(settings.chains * count, latent, generator=rng)

    def half(offset: int) -> Tick | None:
        if tick is None:
            return None
        return lambda done, total: tick(offset * total + done, 2 * total)

    upward, sizes = walk.up(start, half(0))
    # The noise behind an item is an exact sample of its posterior; every chain starts there.
    downward = walk.down(secret.repeat(settings.chains, 1), sizes, half(1))
    return Bounds(_log_mean_exp(upward), -_log_mean_exp(-downward))


class _Walk:
    """Chains between prior and posterior of some items; chain c of item i is row c·n + i."""

    def __init__(
        self, decoder: Decoder, items: Tensor, settings: AisSettings, rng: torch.Generator
    ) -> None:
        self._decoder = decoder
        self._settings = settings
        self._rng = rng
        self._items = items.flatten(1).repeat(settings.chains, 1)
        self._constant = -0.5 * self._items.shape[1] * math.log(2 * math.pi * settings.variance)
        self._betas = temperatures(settings.steps).tolist()

    def up(self, place: Tensor, tick: Tick | None) -> tuple[Tensor, list[Tensor]]:
        """From the prior to the posterior: log weights (chains, items), and the step sizes taken.

        A step size is shared by an item's chains and follows their acceptance.
        """
        steps = self._settings.steps
        state = self._look(place)
        total = torch.zeros(len(place), dtype=torch.float64)
        size = torch.full((self._count,), 0.5, dtype=place.dtype)
        sizes = []
        for step in range(1, steps + 1):
            before, beta = self._betas[step - 1], self._betas[step]
            total += (beta - before) * state.fit.double()
            state, accepted = self._move(state, beta, size)
            sizes.append(size)
            size = size * torch.exp(_ADAPTATION * (self._by_item(accepted).mean(0) - ACCEPTANCE))
            if tick is not None:
                tick(step, steps)
        return self._by_item(total), sizes

    def down(self, place: Tensor, sizes: list[Tensor], tick: Tick | None) -> Tensor:
        """From exact posterior samples to the prior, by the upward step sizes in reverse."""
        steps = self._settings.steps
        state = self._look(place)
        total = torch.zeros(len(place), dtype=torch.float64)
        for step in range(steps, 0, -1):
            before, beta = self._betas[step - 1], self._betas[step]
            state, _ = self._move(state, beta, sizes[step - 1])
            total += (beta - before) * state.fit.double()
            if tick is not None:
                tick(steps - step + 1, steps)
        return self._by_item(total)

    @property
    def _count(self) -> int:
        return len(self._items) // self._settings.chains

    def _by_item(self, values: Tensor) -> Tensor:
        return values.reshape(self._settings.chains, self._count)

    def _look(self, place: Tensor) -> _State:
        """log N(x; G(z), s²I) at a place, and its slope."""
        place = place.detach().requires_grad_()
        with torch.enable_grad():
            off = self._decoder(place).flatten(1) - self._items
            fit = self._constant - off.square().sum(1) / (2 * self._settings.variance)
            (slope,) = torch.autograd.grad(fit.sum(), place)
        return _State(place.detach(), fit.detach(), slope)

    def _move(self, state: _State, beta: float, size: Tensor) -> tuple[_State, Tensor]:
        """One step of HMC that leaves f_β as it is: the new state and the chance it had."""
        step = size.repeat(self._settings.chains)
        step = step * (1 + _JITTER * (2 * torch.rand(step.shape, generator=self._rng) - 1))
        step = step[:, None]
        momentum = torch.randn(state.place.shape, generator=self._rng, dtype=state.place.dtype)
        start = _log_density(state, beta) - 0.5 * momentum.square().sum(1)
        at, push = state, momentum
        for _ in range(self._settings.leapfrog):
            push = push + 0.5 * step * (beta * at.slope - at.place)
            at = self._look(at.place + step * push)
            push = push + 0.5 * step * (beta * at.slope - at.place)
        end = _log_density(at, beta) - 0.5 * push.square().sum(1)
        # A trajectory that ends in NaN is never accepted.
        chance = torch.nan_to_num((end - start).clamp(max=0).exp(), nan=0.0).to(step.dtype)
        taken = torch.rand(chance.shape, generator=self._rng, dtype=chance.dtype) < chance
        keep = taken[:, None]
        return (
            _State(
                torch.where(keep, at.place, state.place),
                torch.where(taken, at.fit, state.fit),
                torch.where(keep, at.slope, state.slope),
            ),
            chance,
        )


@dataclass(frozen=True)
class _State:
    """Where chains are, how well they explain their items there, and the slope of that."""

    place: Tensor
    fit: Tensor
    slope: Tensor


def _log_density(state: _State, beta: float) -> Tensor:
    # In double precision: the difference of two of these decides, and each may be in the thousands.
    return beta * state.fit.double() - 0.5 * state.place.double().square().sum(1)


def _log_mean_exp(weights: Tensor) -> Tensor:
    return weights.logsumexp(0) - math.log(len(weights))
