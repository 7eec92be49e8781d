"""One cell of the population: a GAN, its view of the data, and a round of training.

Read this first, then `game.py` and one file under `methods/`: together they are a whole algorithm.
A method decides *which* networks train and *against whom*; the cell owns *how* a round runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self, get_args

import numpy as np
import torch
from torch import Tensor, nn

from remuda.config import Config, TrainingSettings
from remuda.config.networks import NetworkSettings, Prior
from remuda.data import Dataset
from remuda.gan.devices import Devices
from remuda.gan.game import Game, Losses, Rivals, RoundPlan, labels_of
from remuda.gan.learner import Gan, Learner
from remuda.gan.networks import build_discriminator, build_generator, draw_noise
from remuda.gan.parcels import ASSESSMENT, Parcel, parcel_assessment, role_tensors
from remuda.gan.penalties import clip_weights
from remuda.metrics import Assessment, Scorer
from remuda.streams import Streams, choice_stream

Tick = Callable[[int, int], None]
TICK_EVERY = 20  # batches
# Samples that convolutional generators draw at a time: their layers then stay in the CPU's cache.
DRAWN_AT_A_TIME = 50
MOST_COST_ITEMS = 1000  # behind a discriminator's cost: enough for a curve, and cheap


class State(Protocol):
    """What a method remembers of a cell from round to round; it travels with the parcel."""

    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self: ...


@dataclass
class Cell:
    """The GAN at one place of the population, and everything it needs to train a round."""

    index: int
    config: Config
    dataset: Dataset
    view: Tensor
    scorer: Scorer | None
    state: State
    founder: int | None = None  # the cell whose first weights it starts with; None: its own
    # Its own: members of a population may differ, and its generator may have come with a prior.
    network: NetworkSettings = field(init=False)
    training: TrainingSettings = field(init=False)
    devices: Devices = field(init=False)
    gan: Gan = field(init=False)
    round: int = 0
    assessment: Assessment | None = field(default=None, init=False)
    tick: Tick | None = None  # called with (batch, batches) every few batches

    def __post_init__(self) -> None:
        self.network = self.config.network_of(self.index)
        self.training = self.config.training_of(self.index)
        self.devices = Devices.of(self.config.devices)
        self.gan = self._new_gan()
        self.assess()

    def _new_gan(self) -> Gan:
        founder = self.index if self.founder is None else self.founder
        streams, shape = Streams(self.config.seed, founder, 0), self.dataset.shape
        generator = build_generator(self.network, shape, streams.tensors("init-generator"))
        discriminator = build_discriminator(
            self.network, shape, streams.tensors("init-discriminator")
        )
        clip = partial(clip_weights, bound=self.training.clip)
        return Gan(
            self.index,
            Learner(generator.to(self.devices.generator), self.training, averages=True),
            Learner(
                discriminator.to(self.devices.discriminator),
                self.training.of_discriminator,
                after_step=[clip] if self.training.clips_weights else (),
            ),
        )

    @property
    def streams(self) -> Streams:
        """The random streams of this cell in the round it is in."""
        return Streams(self.config.seed, self.index, self.round)

    @property
    def batch_size(self) -> int:
        """As configured, or the whole view if that is smaller."""
        return min(self.training.batch_size, len(self.view))

    # -------------------------------------------------------------------------- training

    def train(self, gan: Gan, rivals: Rivals = Rivals()) -> Losses:  # noqa: B008 - frozen
        """Train `gan` for one round on this cell's data.

        Each batch, either network plays an opponent drawn from its partner in `gan`, which learns
        along, and the frozen `rivals`. Without rivals this is ordinary GAN training.
        """
        with Game(gan, rivals, self._plan()) as game:
            for batch in game:
                if game.discriminator_plays(batch):
                    gan.discriminator.descend(game.discriminator_gradients(batch))
                if game.generator_plays(batch):
                    gan.generator.descend(game.generator_gradients(batch))
                if self.tick is not None and (batch.number + 1) % TICK_EVERY == 0:
                    self.tick(batch.number + 1, len(game))
        return game.losses()

    def _plan(self) -> RoundPlan:
        batches = self._batches()
        return RoundPlan(
            self.network,
            self.training,
            self.devices,
            self.dataset,
            self.streams,
            batches,
            earlier=(self.round - 1) * len(batches),
            in_all=self.config.rounds * len(batches),
            input_noise=self.training.noise_in(self.round, self.config.rounds),
        )

    def _batches(self) -> Tensor:
        """Indices of this round's batches: epochs of the view, each in an order of its own.

        A round that is not a whole number of epochs continues where the last one stopped, so a cell
        sees the same batches however its run is cut into rounds.
        """
        size = self.batch_size
        per_epoch = len(self.view) // size
        wanted = self.config.round_batches(len(self.view))
        start = (self.round - 1) * wanted
        epochs = range(start // per_epoch, -(-(start + wanted) // per_epoch))
        orders = [
            choice_stream(self.config.seed, self.index, epoch + 1, "order").permutation(
                len(self.view)
            )[: per_epoch * size]
            for epoch in epochs
        ]
        skipped = (start - epochs[0] * per_epoch) * size
        order = torch.from_numpy(np.concatenate(orders)[skipped : skipped + wanted * size])
        return self.view[order].reshape(wanted, size)

    # -------------------------------------------------------------------------- evaluation

    def real_batch(self, purpose: str, batches: int = 1) -> tuple[Tensor, Tensor | None]:
        """As many of this cell's items as in a few batches, with labels, for evaluation."""
        count = min(len(self.view), batches * self.batch_size)
        chosen = self.streams.choices(purpose).choice(len(self.view), count, replace=False)
        picked = self.view[torch.from_numpy(chosen)]
        return self.dataset.items[picked], labels_of(self.network, self.dataset, picked)

    def noise_batch(self, purpose: str, count: int | None = None) -> Tensor:
        count = self.batch_size if count is None else count
        return draw_noise(self.network, count, self.streams.tensors(purpose))

    def images(self, count: int, purpose: str) -> Tensor:
        """Samples of the centre's generator in this round; of its average, if it has one."""
        return self._draw(self.gan.generator.judged, count, purpose)

    def _draw(self, network: nn.Module, count: int, purpose: str) -> Tensor:
        # Labels in the shares they have in the data.
        some = self.streams.choices(f"{purpose}-labels").choice(len(self.view), count)
        labels = labels_of(self.network, self.dataset, self.view[torch.from_numpy(some)])
        noise = draw_noise(self.network, count, self.streams.tensors(purpose))
        # Products of matrices round differently in other sizes, and gain nothing from it.
        size = DRAWN_AT_A_TIME if self.network.is_convolutional else count
        noises = torch.split(noise, size)
        parts = [None] * len(noises) if labels is None else torch.split(labels, size)
        with torch.no_grad():
            drawn = [
                self.devices.to_cpu(self.devices.generate(network, *given))
                for given in zip(noises, parts, strict=True)
            ]
        return torch.cat(drawn) if len(drawn) > 1 else drawn[0]

    def assess(self) -> Assessment | None:
        """Score samples of the centre's generator, where an extractor fits the data."""
        if self.scorer is not None:
            samples = self.images(self.config.score.samples, "assess")
            self.assessment = self.scorer.assess(samples)
        return self.assessment

    def discriminator_costs(self) -> dict[str, float]:
        """The discriminator's mean loss on data it trains on and on held-out data, same fakes.

        Empty without held-out data.
        """
        held_out = self.dataset.validation
        if held_out is None:
            return {}
        count = min(MOST_COST_ITEMS, len(held_out), len(self.view))
        seen = self.streams.choices("cost-train").choice(len(self.view), count, replace=False)
        unseen = self.streams.choices("cost-validation").choice(len(held_out), count, replace=False)
        samples = {
            "train": self.dataset.items[self.view[torch.from_numpy(seen)]],
            "validation": held_out[torch.from_numpy(unseen)],
        }
        learner = self.gan.discriminator
        network = learner.network.eval()
        # It is the discriminator that is examined: with what it plays against, not the average.
        fake = self._draw(self.gan.generator.network.eval(), count, "cost-noise")
        with torch.no_grad():
            fake_logits, _ = self.devices.discriminate(network, fake, None)
            logits = {
                name: self.devices.discriminate(network, items, None)[0]
                for name, items in samples.items()
            }
            return {
                name: float(learner.objective.discriminator_loss(real_logits, fake_logits))
                for name, real_logits in logits.items()
            }

    # -------------------------------------------------------------------------- exchange

    def parcel(self) -> Parcel:
        """A copy of everything this cell is: for its peers, and for a restart."""
        tensors: dict[str, Tensor] = {}
        for role, learner in self.gan.roles:
            for name, value in learner.tensors().items():
                tensors[f"{role}.{name}"] = self.devices.to_cpu(value.detach()).clone()
        if self.assessment is not None:
            for name, value in self.assessment.tensors().items():
                tensors[f"{ASSESSMENT}{name}"] = value
        genes = {role: learner.genes() for role, learner in self.gan.roles}
        meta: dict[str, Any] = {"genes": genes, "memory": self.state.to_json()}
        if self.network.prior != self.config.network_of(self.index).prior:
            meta["prior"] = self.network.prior
        return Parcel(self.index, self.round, tensors, meta)

    def host(self, parcel: Parcel) -> Gan:
        """An independent GAN with the contents of a parcel."""
        guest = Gan(parcel.cell, self.gan.generator.clone(), self.gan.discriminator.clone())
        for role, learner in guest.roles:
            learner.restore(role_tensors(parcel, role))
            learner.take_genes(parcel.meta["genes"][role])
        return guest

    def restore(self, parcel: Parcel) -> None:
        """Become exactly what the cell was when it made this parcel."""
        self.gan = self.host(parcel)
        self.network = parcel_network(self.config, parcel)
        self.round = parcel.round
        self.state = type(self.state).from_json(parcel.meta["memory"])
        self.assessment = parcel_assessment(parcel)


def parcel_network(config: Config, parcel: Parcel) -> NetworkSettings:
    """The networks of a parcel: its cell's, with the prior that its generator was trained with."""
    own = config.network_of(parcel.cell)
    prior = parcel.meta.get("prior", own.prior)
    if prior not in get_args(Prior):
        raise ValueError(f"a prior of {prior!r}; allowed: {', '.join(get_args(Prior))}")
    return own.with_prior(prior)
