"""The log-likelihood of held-out data under a finished run: AIS in nats, with the BDMC gap."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from remuda.errors import ConfigError
from remuda.metrics import some_of
from remuda.metrics.ais import (
    AisSettings,
    Decoder,
    bidirectional_bounds,
    log_likelihood,
    with_prior,
)
from remuda.runs.ensemble import Ensemble
from remuda.runs.loading import load
from remuda.runs.population import held_out, run_data
from remuda.streams import tensor_stream

# Chains that move as one batch: enough to keep a core busy, few enough for convolutions' memory.
_ROWS = 1024
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Likelihood:
    """log p(x) of some examples, with everything that must be known to compare it."""

    values: Tensor  # nats, one per example
    gap: float | None  # BDMC, weighted like the mixture; None if not requested
    settings: AisSettings
    examples: str

    @property
    def mean(self) -> float:
        return self.values.mean().item()

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single example."""
        count = len(self.values)
        return self.values.std().item() / math.sqrt(count) if count > 1 else math.nan

    def lines(self) -> list[str]:
        """For the terminal."""
        work = self.settings
        lines = [
            f"log-likelihood by AIS, {len(self.values)} {self.examples}, observation variance "
            f"{work.variance:g}, {work.chains} chains, {work.steps} temperatures",
            f"log p(x)        {self.mean:.2f} ± {self.error:.2f} nats",
        ]
        if self.gap is not None:
            lines.append(f"BDMC gap        {self.gap:.2f} nats, on data drawn from the model")
        return lines


class Estimate:
    """An estimate that knows its cost before it starts."""

    def __init__(
        self,
        path: Path,
        *,
        examples: int,
        simulated: int,
        settings: AisSettings,
        seed: int = 0,
        data_dir: Path | None = None,
    ) -> None:
        self._ensemble = load(path)
        items, self._what = held_out(*run_data(path, data_dir))
        self._items = items[some_of(len(items), examples)]
        self._simulated = simulated
        self._settings = settings
        self._seed = seed
        self._decoders = _decoders(self._ensemble)

    @property
    def steps(self) -> int:
        """Steps of work: moves of one chunk of chains, for every member of the mixture."""
        chunks = len(self._chunks(len(self._items))) + 2 * len(self._chunks(self._simulated))
        return len(self._decoders) * chunks * self._settings.steps

    def seconds(self) -> float:
        """About how long it will take: one gradient of every member is timed and multiplied."""
        total = 0.0
        for _, decoder, latent in self._decoders:
            for count, times in ((len(self._items), 1), (self._simulated, 2)):
                for chunk in self._chunks(count):
                    total += times * _gradient_seconds(
                        decoder, latent, len(chunk) * self._settings.chains
                    )
        return total * self._settings.leapfrog * self._settings.steps

    def run(self, progress: Progress = lambda _done, _all: None) -> Likelihood:
        """The estimate; `progress` is called after every step."""
        done = 0

        def tick(_step: int, _steps: int) -> None:
            nonlocal done
            done += 1
            progress(done, self.steps)

        raw = self._ensemble.rescale(self._items)
        by_member, gap = [], 0.0
        for place, (weight, decoder, latent) in enumerate(self._decoders):
            parts = [
                log_likelihood(
                    *(decoder, latent, raw[chunk], self._settings),
                    tensor_stream(self._seed, place, number, "ais"),
                    tick,
                )
                for number, chunk in enumerate(self._chunks(len(raw)))
            ]
            by_member.append(math.log(weight) + torch.cat(parts))
            gap += weight * self._gap(place, decoder, latent, tick)
        # The mixture's density is the weighted sum of its members'.
        values = torch.stack(by_member).logsumexp(0)
        return Likelihood(values, gap if self._simulated else None, self._settings, self._what)

    def _gap(self, place: int, decoder: Decoder, latent: int, tick: Progress) -> float:
        total = 0.0
        for number, chunk in enumerate(self._chunks(self._simulated)):
            rng = tensor_stream(self._seed, place, number, "bdmc")
            found = bidirectional_bounds(decoder, latent, len(chunk), self._settings, rng, tick)
            total += found.gap * len(chunk) / self._simulated
        return total

    def _chunks(self, count: int) -> list[range]:
        size = max(1, _ROWS // self._settings.chains)
        return [range(start, min(start + size, count)) for start in range(0, count, size)]


def _decoders(ensemble: Ensemble) -> list[tuple[float, Decoder, int]]:
    """Weight, decoder into the data's own units, and size of the noise, of members that count."""
    found = []
    for member, network in zip(ensemble.members, ensemble.networks(), strict=True):
        own = ensemble.network_of(member)
        if own.num_classes:
            raise ConfigError(
                "ais: these generators are conditional, so their likelihood is that of labelled "
                "items; allowed: runs with network.condition=none, which includes one GAN per label"
            )
        network.requires_grad_(False)

        def decode(noise: Tensor, generator: torch.nn.Module = network) -> Tensor:
            return ensemble.rescale(generator(noise))

        if member.weight > 0:
            found.append((member.weight, with_prior(decode, own.prior), own.noise_size))
    return found


def _gradient_seconds(decoder: Decoder, latent: int, rows: int) -> float:
    noise = torch.zeros(rows, latent, requires_grad=True)
    best = math.inf
    for _ in range(2):  # the first one warms up
        start = time.perf_counter()
        torch.autograd.grad(decoder(noise).square().sum(), noise)
        best = min(best, time.perf_counter() - start)
    return best
