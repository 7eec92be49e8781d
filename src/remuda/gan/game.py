"""One round of the game between a generator and a discriminator.

A `Game` holds everything a round draws, adds and checks besides the two networks: which batches,
which opponents, noise, labels, augmentation and penalties. `Cell.train` is then the loop of the
papers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor, nn

from remuda.config import TrainingSettings
from remuda.config.networks import NetworkSettings
from remuda.data import Dataset
from remuda.errors import ConfigError
from remuda.gan.augment import augmented
from remuda.gan.devices import Devices
from remuda.gan.gradients import Autograd, ByHand, Way
from remuda.gan.learner import Gan
from remuda.gan.networks import deviation_groups, draw_noise, set_stream
from remuda.gan.penalties import PENALTIES, batch_norms, without_statistics
from remuda.streams import Streams


@dataclass(frozen=True)
class Losses:
    """Mean losses over the batches of a round, each under the objective it was trained with."""

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
    """Gaussian noise on everything a discriminator sees; with sigma 0 nothing is even drawn."""

    sigma: float
    rng: torch.Generator

    def __call__(self, items: Tensor) -> Tensor:
        if self.sigma == 0:
            return items
        noise = torch.randn(items.shape, generator=self.rng).to(items.device)
        return items + self.sigma * noise


@dataclass(frozen=True)
class Batch:
    """Real items, as the discriminator sees them, with their labels where the networks use any."""

    number: int  # within the round
    real: Tensor
    labels: Tensor | None


@dataclass(frozen=True)
class RoundPlan:
    """What a round is played with: a cell's data and settings, and how far its run is."""

    network: NetworkSettings
    training: TrainingSettings
    devices: Devices
    dataset: Dataset
    streams: Streams
    batches: Tensor  # (batches, batch size) indices of items
    earlier: int  # batches of earlier rounds
    in_all: int  # batches of all rounds of the run
    input_noise: float


class Game:
    """The losses of either network and their gradients, batch by batch."""

    def __init__(self, gan: Gan, rivals: Rivals, plan: RoundPlan) -> None:
        self._gan = gan
        self._plan = plan
        self._generators = [gan.generator.network, *rivals.generators]
        self._discriminators = [gan.discriminator.network, *rivals.discriminators]
        streams = plan.streams
        self._draws = streams.choices("opponents").integers(
            [len(self._generators), len(self._discriminators)], size=(len(plan.batches), 2)
        )
        self._noise = streams.tensors("training-noise")
        self._penalty_noise = streams.tensors("gradient-penalty")
        self._add_noise = InputNoise(plan.input_noise, streams.tensors("input-noise"))
        self._augment = _augmentation(plan)
        self._has_batch_norm = bool(batch_norms(gan.discriminator.network))
        self._groups = deviation_groups(gan.discriminator.network)
        self._autograd = Autograd(gan, plan.devices)
        by_hand = None if plan.training.augment else ByHand.of(gan, rivals, plan.batches.shape[1])
        self._usual_way: Way = by_hand or self._autograd
        self._way: Way = self._usual_way  # that of the present turn
        self._shared: tuple[int, Tensor] | None = None  # a batch's number, and fakes to learn from
        self._losses: dict[str, list[Tensor]] = {"generator": [], "discriminator": []}

    def __enter__(self) -> Self:
        self._gan.generator.network.train()
        self._gan.discriminator.network.train()
        set_stream(self._gan.discriminator.network, self._plan.streams.tensors("dropout"))
        return self

    def __exit__(self, *_: object) -> None:
        set_stream(self._gan.discriminator.network, None)
        for learner in (self._gan.generator, self._gan.discriminator):
            learner.pace = 1.0
            # While other cells train, the gradients of the last batch would only take memory.
            learner.network.zero_grad(set_to_none=True)

    def __len__(self) -> int:
        return len(self._plan.batches)

    def __iter__(self) -> Iterator[Batch]:
        plan = self._plan
        for number, picked in enumerate(plan.batches):
            items = plan.dataset.items[picked]
            real = self._add_noise(plan.devices.to_discriminator(items))
            self._set_pace(number)
            yield Batch(number, real, labels_of(plan.network, plan.dataset, picked))

    def _set_pace(self, number: int) -> None:
        """By how far the whole run is, not the round."""
        for _, learner in self._gan.roles:
            learner.pace = learner.settings.pace(self._plan.earlier + number, self._plan.in_all)

    def _number_in_run(self, batch: Batch) -> int:
        """Counted over all rounds, so that cutting a run into other rounds moves no turn."""
        return self._plan.earlier + batch.number

    # -------------------------------------------------------------------------- discriminator

    def discriminator_plays(self, batch: Batch) -> bool:
        return self._number_in_run(batch) % (self._plan.training.skip_n_disc_steps + 1) == 0

    def discriminator_gradients(self, batch: Batch) -> Sequence[Tensor]:
        """Those of its loss by the discriminator's weights."""
        loss = self.discriminator_loss(batch)
        return self._way.of_discriminator(loss)

    def discriminator_loss(self, batch: Batch) -> Tensor:
        """Against the partner or a rival; no gradient reaches the generator."""
        learner = self._gan.discriminator
        training = learner.settings  # its own: the weight of R1 may be a gene
        turn = self._turns_before(batch) + 1
        penalties = [facts for facts in training.penalties if turn % facts.every(training) == 0]
        # A penalty is on the slope of the discriminator, so its gradient is one of a gradient.
        self._way = self._autograd if penalties else self._usual_way
        fake = self._opposing_fakes(batch)
        real, fake = self._augment(batch.real), self._augment(fake)
        real_logits, fake_logits, class_loss = self._discriminate_both(real, fake, batch.labels)
        loss = learner.objective.discriminator_loss(real_logits, fake_logits)
        if class_loss is not None:  # AC-GAN: of real and fake images alike
            loss = loss + class_loss

        def logits(items: Tensor) -> Tensor:
            with without_statistics(learner.network):
                return self._plan.devices.discriminate(learner.network, items, batch.labels)[0]

        reported = loss.detach()
        for facts in penalties:
            penalty = PENALTIES[facts.name](logits, real, fake, self._penalty_noise)
            term = facts.every(training) * facts.weight(training) * penalty
            loss = loss + term
            if facts.is_reported:
                reported = reported + term.detach()
        self._losses["discriminator"].append(reported)
        return loss

    def _opposing_fakes(self, batch: Batch) -> Tensor:
        """What the discriminator is to tell from real items, without a graph."""
        opponent = self._generators[self._draws[batch.number, 0]]
        plays_too = opponent is self._gan.generator.network and self.generator_plays(batch)
        if self._plan.training.share_fakes and plays_too:
            self._shared = batch.number, self._generate(opponent, batch)
            return self._shared[1].detach()
        with torch.no_grad():
            return self._generate(opponent, batch)

    def _turns_before(self, batch: Batch) -> int:
        """Batches that the discriminator has trained on before this one, over all rounds."""
        return -(-self._number_in_run(batch) // (self._plan.training.skip_n_disc_steps + 1))

    def _discriminate_both(
        self, real: Tensor, fake: Tensor, labels: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Logits of real and fake: in one pass, unless it would mix the two.

        Batch norm would, and so would a minibatch deviation with a group across their border.

        With an auxiliary classifier, also its mean loss over both.
        """
        network = self._gan.discriminator.network
        judged = partial(self._way.discriminate, network, learns=True)
        if self._has_batch_norm or any(len(real) % group for group in self._groups):
            parts = [judged(items, labels) for items in (real, fake)]
            losses = [loss for _, loss in parts if loss is not None]
            class_loss = torch.cat(losses).mean() if losses else None
            return parts[0][0], parts[1][0], class_loss
        both = None if labels is None else torch.cat((labels, labels))
        logits, losses_of_both = judged(torch.cat((real, fake)), both)
        class_loss = None if losses_of_both is None else losses_of_both.mean()
        return logits[: len(real)], logits[len(real) :], class_loss

    # -------------------------------------------------------------------------- generator

    def generator_plays(self, batch: Batch) -> bool:
        return (self._number_in_run(batch) + 1) % self._plan.training.n_critic == 0

    def generator_gradients(self, batch: Batch) -> Sequence[Tensor]:
        """Those of its loss by the generator's weights."""
        loss = self.generator_loss(batch)
        return self._way.of_generator(loss)

    def generator_loss(self, batch: Batch) -> Tensor:
        """Against the partner or a rival."""
        learner, devices = self._gan.generator, self._plan.devices
        opponent = self._discriminators[self._draws[batch.number, 1]]
        fake = self._augment(self._own_fakes(batch))
        fake_logits, class_loss = self._way.discriminate(opponent, fake, batch.labels, learns=False)
        real_logits = None
        if learner.objective.needs_real:
            with torch.no_grad():
                real = self._augment(batch.real)
                real_logits, _ = devices.discriminate(opponent, real, batch.labels)
        loss = learner.objective.generator_loss(fake_logits, real_logits)
        if class_loss is not None:
            loss = loss + class_loss.mean()
        self._losses["generator"].append(loss.detach())
        return loss

    def _own_fakes(self, batch: Batch) -> Tensor:
        """The generator's own items, to learn from: those of the discriminator's turn, if any.

        The generator has not changed since; its opponent has learnt from them.
        """
        shared, self._shared = self._shared, None
        if shared is not None and shared[0] == batch.number:
            return shared[1]  # and they were made in the way that still is the present one
        self._way = self._usual_way
        return self._generate(self._gan.generator.network, batch)

    def _generate(self, network: nn.Module, batch: Batch) -> Tensor:
        noise = draw_noise(self._plan.network, len(batch.real), self._noise)
        return self._add_noise(self._way.generate(network, noise, batch.labels))

    # -------------------------------------------------------------------------- result

    def losses(self) -> Losses:
        means = {role: _mean(losses) for role, losses in self._losses.items()}
        return Losses(**means, batches=len(self), images=self._plan.batches.numel())


def labels_of(network: NetworkSettings, dataset: Dataset, picked: Tensor) -> Tensor | None:
    """The labels of these items, where the networks are conditioned on them."""
    if not network.num_classes or dataset.labels is None:
        return None
    return dataset.labels.index_select(0, picked)


def _augmentation(plan: RoundPlan) -> Callable[[Tensor], Tensor]:
    """What happens to every image before a discriminator sees it while training."""
    kinds, stream = plan.training.augment, plan.streams.tensors("augment")
    if kinds and not plan.dataset.is_images:
        raise ConfigError(
            f"training.augment={list(kinds)}: {plan.dataset.name} holds no images; allowed: []"
        )
    return lambda images: augmented(images, kinds, stream)


def _mean(losses: Sequence[Tensor]) -> float:
    return float(torch.stack(list(losses)).mean()) if losses else float("nan")
