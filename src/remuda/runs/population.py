"""The GANs of a run as its last checkpoint holds them: both networks, and whom they met."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from remuda.config import OBJECTIVES, Config, DataSettings, NetworkSettings
from remuda.data import Dataset, StoredItems, has_unseen, load_dataset, load_unseen
from remuda.errors import ConfigError, DamagedError, DataError, StoreError
from remuda.files import check_memory
from remuda.gan.networks import check_size, draw_noise, generate, sampling_bytes
from remuda.methods import all_met, build_method, lineage, linked_cells, qualified
from remuda.runs.prepare import with_data_dir
from remuda.runs.store import RunFolder
from remuda.streams import tensor_stream

_CHUNK = 500


@dataclass(frozen=True)
class Member:
    """One GAN of a population, its networks in eval mode; the generator averaged, if it is."""

    cell: int
    network: NetworkSettings
    generator: nn.Module
    discriminator: nn.Module
    lineage: str
    met: frozenset[str]  # lineages of the discriminators that its generator trained against

    @torch.no_grad()
    def draw(self, count: int, rng: torch.Generator, labels: Tensor | None = None) -> Tensor:
        """Samples of the generator as networks see them, in [-1, 1]; a conditional one's have
        the labels of items that are drawn from these."""
        noise = draw_noise(self.network, count, rng)
        wanted: Sequence[Tensor | None] = [None] * math.ceil(count / _CHUNK)
        if self.network.num_classes and labels is not None:
            drawn = labels[torch.randint(len(labels), (count,), generator=rng)]
            wanted = torch.split(drawn, _CHUNK)
        parts = zip(torch.split(noise, _CHUNK), wanted, strict=True)
        return torch.cat([generate(self.generator, part, given) for part, given in parts])


@dataclass(frozen=True)
class Population:
    """All GANs of a run after some round, with the data they were trained on."""

    path: Path
    id: str  # of the run
    config: Config
    dataset: Dataset
    round: int
    members: tuple[Member, ...]
    is_isolated: bool  # no cell ever exchanged anything with another: GANs trained alone

    def draw(self, member: Member, count: int, seed: int, purpose: str) -> Tensor:
        """Samples of one member, from a random stream of its own."""
        noise = member.network.noise_size
        needed = sampling_bytes([member.generator], self.dataset.shape, count, _CHUNK, noise)
        check_memory(f"count={count}", needed, "samples", ConfigError)
        rng = tensor_stream(seed, member.cell, self.round, purpose)
        return member.draw(count, rng, self.dataset.labels)


def load_population(
    path: Path, data_dir: Path | None = None, *, conditional: bool = False
) -> Population:
    """The population in the last complete checkpoint of a run, finished or not.

    `conditional` allows networks that need labels, of which nobody is to judge another's samples.
    """
    folder = RunFolder.open(path)
    config = with_data_dir(folder.config(), data_dir)
    checkpoints = folder.checkpoints()
    if not checkpoints:
        raise StoreError(
            f"{path}: has no complete checkpoint, so there is no population yet; "
            f"`remuda resume {path}` continues it"
        )
    if not conditional and any(network.num_classes for network in config.networks):
        raise ConfigError(
            f"{path}: its networks are conditional, and judges see no labels; "
            "allowed: runs with network.condition=none"
        )
    dataset = load_dataset(config.data)
    for network in dict.fromkeys(config.networks):
        check_size(network, dataset.shape)
    method = build_method(config)
    parcels, own = folder.load_checkpoint(checkpoints[-1]), folder.id()
    with _fitting(f"{checkpoints[-1].path}: its cells do not fit together"):
        met = all_met(parcels, method)
    members = []
    for index in range(config.cells):
        cell = method.probe(index, dataset, method.view(dataset, index))
        with _fitting(f"{checkpoints[-1].path}: cell {index} does not fit the run's configuration"):
            cell.restore(parcels[index])
        members.append(
            Member(
                index,
                cell.network,
                cell.gan.generator.judged.requires_grad_(False),
                cell.gan.discriminator.network.eval().requires_grad_(False),
                qualified(own, lineage(parcels[index])),
                frozenset(qualified(own, one) for one in met[index]),
            )
        )
    groups = linked_cells(method, config.cells, checkpoints[-1].round)
    isolated = all(len(group) == 1 for group in groups.values())
    last = checkpoints[-1].round
    return Population(path, own, config, dataset, last, tuple(members), isolated)


@contextmanager
def _fitting(otherwise: str) -> Iterator[None]:
    """Around what parcels with other contents than a run's own make fail."""
    try:
        yield
    except (LookupError, AttributeError, TypeError, ValueError, RuntimeError, ArithmeticError) as e:
        raise DamagedError(f"{otherwise}: {' '.join(str(e).split())}") from None


def judging_objectives() -> list[str]:
    """The objectives whose discriminators say whether an item is real."""
    return [name for name, facts in OBJECTIVES.items() if facts.is_classifier]


def run_data(path: Path, data_dir: Path | None = None) -> tuple[Dataset, DataSettings]:
    """The data of a run and their settings, looked for in `data_dir` where that is given."""
    settings = with_data_dir(RunFolder.open(path).config(), data_dir).data
    return load_dataset(settings), settings


def held_out(dataset: Dataset, settings: DataSettings) -> tuple[StoredItems, str]:
    """Items that no cell trained on where there are any, and what they are."""
    if has_unseen(settings):
        try:
            unseen, called = load_unseen(settings, dataset)
            return unseen.items, f"{called} items of {dataset.name}"
        except DataError:
            pass  # the files of the test split are not here
    return dataset.items, f"training items of {dataset.name} (none are held out)"
