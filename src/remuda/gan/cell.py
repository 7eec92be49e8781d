"""One cell of the population: a GAN, its optimisers, its view of the data, and a round of training.

Read this first, then one file under `methods/`: together they are a whole algorithm. A method
decides *which* networks train and *against whom*; the cell owns *how* a round of training runs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from remuda.config import AnyNetwork, Config, TrainingSettings
from remuda.data import Dataset
from remuda.errors import ConfigError
from remuda.gan.augment import augmented
from remuda.gan.devices import Devices
from remuda.gan.learner import Learner, strip_prefix
from remuda.gan.networks import (
    build_discriminator,
    build_generator,
    discriminate,
    draw_noise,
    generate,
    label_count,
    set_stream,
)
from remuda.gan.objectives import (
    OBJECTIVES,
    clip_weights,
    discriminator_loss,
    generator_loss,
    gradient_penalty,
    needs_real,
    r1_r2,
)
from remuda.gan.parcels import Parcel
from remuda.metrics import Assessment, Scorer
from remuda.streams import choice_stream, tensor_stream

Tick = Callable[[int, int], None]
# What the names of some of a parcel's tensors start with.
ASSESSMENT = "assessment."
GENERATOR = "generator.network."
MOST_JUDGED = 1000  # items behind a discriminator's cost: enough for a curve, and cheap


@dataclass
class Gan:
    """A generator and a discriminator with the cell they come from."""

    cell: int
    generator: Learner
    discriminator: Learner

    def clone(self) -> Gan:
        return Gan(self.cell, self.generator.clone(), self.discriminator.clone())

    def is_finite(self) -> bool:
        return self.generator.is_finite() and self.discriminator.is_finite()


@dataclass(frozen=True)
class Losses:
    """Mean losses over the batches of a round, each under the loss it was trained with."""

    generator: float
    discriminator: float
    batches: int
    images: int


@dataclass(frozen=True)
class Rivals:
    """Frozen networks of other cells that may stand in as opponents, batch by batch."""

    generators: Sequence[nn.Module] = ()
    discriminators: Sequence[nn.Module] = ()


@dataclass(frozen=True)
class InputNoise:
    """Gaussian noise on all that a discriminator sees; none, and no draw, where sigma is 0."""

    sigma: float
    rng: torch.Generator

    def __call__(self, items: Tensor) -> Tensor:
        if self.sigma == 0:
            return items
        noise = torch.randn(items.shape, generator=self.rng).to(items.device)
        return items + self.sigma * noise


@dataclass
class Cell:
    """The GAN at one place of the population, and everything it needs to train a round."""

    index: int
    config: Config
    dataset: Dataset
    view: Tensor
    scorer: Scorer | None
    network: AnyNetwork = field(init=False)  # its own: members of a population may differ
    training: TrainingSettings = field(init=False)
    devices: Devices = field(init=False)
    gan: Gan = field(init=False)
    round: int = 0
    memory: dict[str, Any] = field(default_factory=dict)  # the method's own state, plain JSON
    assessment: Assessment | None = field(default=None, init=False)
    tick: Tick | None = None  # told (batch, batches) now and then, for whoever watches

    def __post_init__(self) -> None:
        self.network = self.config.network_of(self.index)
        self.training = self.config.training_of(self.index)
        self.devices = Devices.of(self.config.devices)
        self.gan = self._new_gan()
        self.assess()

    def _new_gan(self) -> Gan:
        shape = self.dataset.shape
        networks = (
            build(self.network, shape, self._tensor_stream(purpose, round=0)).to(device)
            for build, purpose, device in (
                (build_generator, "init-generator", self.devices.generator),
                (build_discriminator, "init-discriminator", self.devices.discriminator),
            )
        )
        return Gan(
            self.index,
            *(Learner(network, self.training) for network in networks),
        )

    # -------------------------------------------------------------------------- randomness

    def choices(self, purpose: str) -> np.random.Generator:
        """The stream of this cell's decisions in the round it is in."""
        return choice_stream(self.config.seed, self.index, self.round, purpose)

    def _tensor_stream(self, purpose: str, round: int | None = None) -> torch.Generator:
        number = self.round if round is None else round
        return tensor_stream(self.config.seed, self.index, number, purpose)

    def latent(self, count: int, rng: torch.Generator) -> Tensor:
        return draw_noise(self.network, count, rng)

    def real_batch(self, purpose: str) -> Tensor:
        """One batch of this cell's data, for judging rather than training."""
        picked = self.choices(purpose).choice(len(self.view), self.batch_size, replace=False)
        return self.dataset.items[self.view[torch.from_numpy(picked)]]

    def noise_batch(self, purpose: str) -> Tensor:
        return self.latent(self.batch_size, self._tensor_stream(purpose))

    @property
    def batch_size(self) -> int:
        """As configured, or all of a view that is smaller than that."""
        return min(self.training.batch_size, len(self.view))

    def _labels(self, picked: Tensor) -> Tensor | None:
        """The labels of these items, where the networks are told them."""
        if not label_count(self.network) or self.dataset.labels is None:
            return None
        return self.dataset.labels.index_select(0, picked)

    # -------------------------------------------------------------------------- training

    def train(self, gan: Gan, rivals: Rivals = Rivals()) -> Losses:  # noqa: B008 - frozen
        """Train `gan` for one round on this cell's data.

        Each batch, either network plays an opponent drawn from its partner in `gan`, which learns
        along, and the frozen `rivals`. Without rivals this is ordinary GAN training.
        """
        settings = self.training
        generator, discriminator = gan.generator, gan.discriminator
        batches = self._batches()
        before = (self.round - 1) * len(batches)  # of earlier rounds
        draws = self.choices("opponents").integers(
            [len(rivals.generators) + 1, len(rivals.discriminators) + 1], size=(len(batches), 2)
        )
        noise = self._tensor_stream("training-noise")
        penalty_noise = self._tensor_stream("gradient-penalty")
        augment = self._augmentation()
        noisy = InputNoise(
            settings.noise_in(self.round, self.config.rounds), self._tensor_stream("input-noise")
        )
        generator_opponents = [discriminator.network, *rivals.discriminators]
        discriminator_opponents = [generator.network, *rivals.generators]
        generator.network.train()
        discriminator.network.train()
        set_stream(discriminator.network, self._tensor_stream("dropout"))
        generator_losses: list[Tensor] = []
        discriminator_losses: list[Tensor] = []

        for number, picked in enumerate(batches):
            items = self.dataset.items.index_select(0, picked)
            real, labels = noisy(self.devices.to_discriminator(items)), self._labels(picked)
            if number % (settings.skip_n_disc_steps + 1) == 0:
                opponent = discriminator_opponents[draws[number, 0]]
                with torch.no_grad():
                    fake = noisy(self._made(opponent, len(real), noise, labels))
                loss = self._discriminator_loss(
                    discriminator, augment(real), augment(fake), labels, penalty_noise
                )
                discriminator.step(loss)
                if settings.objective == "wasserstein" and settings.lipschitz == "clip":
                    clip_weights(discriminator.network, settings.clip)
                discriminator_losses.append(loss.detach())
            if (before + number + 1) % settings.n_critic == 0:
                scorer = generator_opponents[draws[number, 1]]
                fake = noisy(self._made(generator.network, len(real), noise, labels))
                fake_logits, class_loss = self._judged(scorer, augment(fake), labels)
                real_logits = None
                if needs_real(generator.loss):
                    with torch.no_grad():
                        real_logits, _ = self._judged(scorer, augment(real), labels)
                loss = generator_loss(generator.loss, fake_logits, real_logits)
                loss = loss if class_loss is None else loss + class_loss.mean()
                generator.step(loss)
                generator_losses.append(loss.detach())
            if self.tick is not None and number % 20 == 19:
                self.tick(number + 1, len(batches))

        set_stream(discriminator.network, None)
        return Losses(
            _mean(generator_losses),
            _mean(discriminator_losses),
            len(batches),
            batches.numel(),
        )

    def _made(
        self, network: nn.Module, count: int, noise: torch.Generator, labels: Tensor | None
    ) -> Tensor:
        """What a generator makes, brought to where the discriminator is."""
        told = None if labels is None else self.devices.to_generator(labels)
        latent = self.devices.to_generator(self.latent(count, noise))
        return self.devices.to_discriminator(generate(network, latent, told))

    def _judged(
        self, network: nn.Module, items: Tensor, labels: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        told = None if labels is None else self.devices.to_discriminator(labels)
        return discriminate(network, items, told)

    def _batches(self) -> Tensor:
        """Indices of this round's batches: epochs of the view, each in an order of its own.

        Rounds that are no whole epochs go on where the last one stopped, so however a run is cut
        into rounds, a cell sees the same batches.
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

    def _augmentation(self) -> Callable[[Tensor], Tensor]:
        """What happens to every image before a discriminator sees it while training."""
        kinds, stream = self.training.augment, self._tensor_stream("augment")
        if kinds and not self.dataset.is_images:
            raise ConfigError(
                f"training.augment={list(kinds)}: {self.dataset.name} are no images; allowed: []"
            )
        return lambda images: augmented(images, kinds, stream)

    def _discriminator_loss(
        self,
        discriminator: Learner,
        real: Tensor,
        fake: Tensor,
        labels: Tensor | None,
        noise: torch.Generator,
    ) -> Tensor:
        settings, network = self.training, discriminator.network
        labels = None if labels is None else self.devices.to_discriminator(labels)
        real_logits, fake_logits, class_loss = _judge_both(network, real, fake, labels)
        loss = discriminator_loss(discriminator.loss, real_logits, fake_logits)
        if class_loss is not None:  # AC-GAN: of real and made images alike
            loss = loss + class_loss

        def logits(items: Tensor) -> Tensor:
            return discriminate(network, items, labels)[0]

        if settings.objective == "wasserstein" and settings.lipschitz == "gradient_penalty":
            loss = loss + settings.penalty * gradient_penalty(logits, real, fake, noise)
        elif settings.objective == "relativistic" and settings.gamma > 0:
            loss = loss + settings.gamma * r1_r2(logits, real, fake)
        return loss

    # -------------------------------------------------------------------------- judging

    def images(self, count: int, purpose: str) -> Tensor:
        """Samples of the centre's generator in this round."""
        network = self.gan.generator.network.eval()
        # Labels in the shares they have in the data.
        some = self.choices(f"{purpose}-labels").choice(len(self.view), count)
        labels = self._labels(self.view[torch.from_numpy(some)])
        told = None if labels is None else self.devices.to_generator(labels)
        latent = self.devices.to_generator(self.latent(count, self._tensor_stream(purpose)))
        with torch.no_grad():
            return self.devices.to_cpu(generate(network, latent, told))

    def assess(self) -> Assessment | None:
        """Score samples of the centre's generator, where an extractor fits the data."""
        if self.scorer is not None:
            samples = self.images(self.config.score.samples, "assess")
            self.assessment = self.scorer.assess(samples)
        return self.assessment

    def discriminator_costs(self) -> dict[str, float]:
        """The discriminator's mean loss on data it trains on and on held-out data, same fakes.

        Nothing without held-out data.
        """
        held_out = self.dataset.validation
        if held_out is None:
            return {}
        count = min(MOST_JUDGED, len(held_out), len(self.view))
        seen = self.choices("cost-train").choice(len(self.view), count, replace=False)
        unseen = self.choices("cost-validation").choice(len(held_out), count, replace=False)
        fake = self.images(count, "cost-noise")
        scorer = self.gan.discriminator
        network = scorer.network.eval()
        with torch.no_grad():
            there = self.devices.to_discriminator
            fake_logits = network(there(fake))
            return {
                name: float(discriminator_loss(scorer.loss, network(there(items)), fake_logits))
                for name, items in (
                    ("train", self.dataset.items[self.view[torch.from_numpy(seen)]]),
                    ("validation", held_out[torch.from_numpy(unseen)]),
                )
            }

    # -------------------------------------------------------------------------- exchange

    def parcel(self) -> Parcel:
        """A copy of all this cell is: for its peers, and for a restart."""
        tensors: dict[str, Tensor] = {}
        for role, learner in _roles(self.gan):
            for name, value in learner.tensors().items():
                tensors[f"{role}.{name}"] = self.devices.to_cpu(value.detach()).clone()
        if self.assessment is not None:
            for name, value in self.assessment.tensors().items():
                tensors[f"{ASSESSMENT}{name}"] = value
        genes = {
            role: {"learning_rate": learner.learning_rate, "loss": learner.loss}
            for role, learner in _roles(self.gan)
        }
        meta = {"genes": genes, "memory": copy.deepcopy(self.memory)}
        return Parcel(self.index, self.round, tensors, meta)

    def host(self, parcel: Parcel) -> Gan:
        """An independent GAN with the contents of a parcel."""
        guest = Gan(parcel.cell, self.gan.generator.clone(), self.gan.discriminator.clone())
        for role, learner in _roles(guest):
            learner.restore(strip_prefix(f"{role}.", parcel.tensors))
            rate, loss = _checked_genes(parcel.meta["genes"][role])
            learner.learning_rate, learner.loss = rate, loss
        return guest

    def restore(self, parcel: Parcel) -> None:
        """Become exactly what the cell was when it made this parcel."""
        self.gan = self.host(parcel)
        self.round = parcel.round
        self.memory = copy.deepcopy(dict(parcel.meta["memory"]))
        self.assessment = parcel_assessment(parcel)


def parcel_assessment(parcel: Parcel) -> Assessment | None:
    """The scores that travel with a parcel, if its cell was scored."""
    tensors = strip_prefix(ASSESSMENT, parcel.tensors)
    return Assessment.from_tensors(tensors) if tensors else None


def lineage(parcel: Parcel) -> str:
    """The id of a parcel's discriminator, which goes with it from member to member.

    The number of the cell that it began in; of an earlier run, RUN/NUMBER.
    """
    return str(parcel.meta["memory"].get("lineage", parcel.cell))


def lineages_met(parcel: Parcel) -> frozenset[str]:
    """The discriminators that a parcel's generator has trained against, by their lineages."""
    return frozenset(map(str, parcel.meta["memory"].get("met", [parcel.cell])))


def role_tensors(parcel: Parcel, role: str) -> dict[str, Tensor]:
    """What `Learner.restore` takes, of a parcel's generator or discriminator."""
    return strip_prefix(f"{role}.", parcel.tensors)


def generator_weights(parcel: Parcel) -> dict[str, Tensor]:
    """The state dict of a parcel's generator."""
    return strip_prefix(GENERATOR, parcel.tensors)


def _roles(gan: Gan) -> tuple[tuple[str, Learner], tuple[str, Learner]]:
    return ("generator", gan.generator), ("discriminator", gan.discriminator)


def _checked_genes(genes: Mapping[str, Any]) -> tuple[float, str]:
    rate, loss = float(genes["learning_rate"]), str(genes["loss"])
    if not 0 < rate < math.inf or loss not in OBJECTIVES:
        raise ValueError(f"learning rate {rate} and loss {loss!r} are no genes")
    return rate, loss


def _judge_both(
    network: nn.Module, real: Tensor, fake: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Logits of real and fake: in one pass, unless batch statistics would mix the two.

    And how wrong an auxiliary classifier is about both, where there is one.
    """
    if any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in network.modules()):
        parts = [discriminate(network, real, labels), discriminate(network, fake, labels)]
        losses = [loss for _, loss in parts if loss is not None]
        wrong = torch.cat(losses).mean() if losses else None
        return parts[0][0], parts[1][0], wrong
    both = None if labels is None else torch.cat((labels, labels))
    logits, class_loss = discriminate(network, torch.cat((real, fake)), both)
    wrong = None if class_loss is None else class_loss.mean()
    return logits[: len(real)], logits[len(real) :], wrong


def _mean(losses: Sequence[Tensor]) -> float:
    return float(torch.stack(list(losses)).mean()) if losses else float("nan")
