"""The result of a run: one generator or a weighted mixture, to be sampled, saved and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from torch import Tensor, nn

from remuda.config import NetworkSettings
from remuda.data import PIXELS, Scaling, find_label
from remuda.errors import ConfigError, shape_text
from remuda.files import (
    check_memory,
    digest,
    plain_markdown,
    to_json,
    write_atomically,
    write_json,
)
from remuda.gan.networks import draw_noise, generate, generator_skeleton, sampling_bytes
from remuda.gan.parcels import aligned
from remuda.streams import choice_stream, tensor_stream

FORMAT = 1
MODEL_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
_CHUNK = 1000


@dataclass(frozen=True)
class Member:
    """One generator of the mixture: where it was trained, its share of the samples, its weights."""

    cell: int
    weight: float
    state: Mapping[str, Tensor]
    network: NetworkSettings | None = None  # None: that of the ensemble
    label: int | None = None  # the label it generates, if it was trained on only one
    met: tuple[str, ...] = ()  # discriminators of its run that it may have trained against


@dataclass(frozen=True)
class Labels:
    """The labels an ensemble generates: their names, and how often each is drawn."""

    names: tuple[str, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        fits = len(self.names) == len(self.shares) > 0 and min(self.shares) >= 0
        if not fits or not math.isclose(sum(self.shares), 1, abs_tol=1e-6):
            raise ValueError(f"{len(self.names)} labels do not go with shares {self.shares}")


@dataclass(frozen=True)
class Ensemble:
    """Σ wᵢ·Gᵢ: draw a generator by its weight, then a sample from it."""

    network: NetworkSettings
    shape: tuple[int, ...]
    members: tuple[Member, ...]
    scaling: Scaling = PIXELS
    about: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None  # if samples can be asked for by label
    # Earlier versions drew noise for every member and used the last draw of its kind of network:
    # their ensembles do so still, and make the samples they made.
    noise_per_member: bool = False

    def __post_init__(self) -> None:
        weights = [member.weight for member in self.members]
        if not weights or min(weights) < 0 or not math.isclose(sum(weights), 1, abs_tol=1e-6):
            raise ValueError(f"mixture weights must be at least 0 and sum to 1, not {weights}")

    def sample(
        self, count: int, seed: int = 0, label: int | str | None = None
    ) -> npt.NDArray[np.float32]:
        """`count` samples in the data's own units: images as floats in [0, 1], NCHW.

        `label`, a name or a number, asks for samples of one label; without it, labels are as
        frequent as in the data.
        """
        raw = self.rescale(self.draw(count, seed, label)).numpy()
        return raw if len(self.shape) == 1 else raw.clip(0.0, 1.0)

    def draw(self, count: int, seed: int = 0, label: int | str | None = None) -> Tensor:
        """Samples as the networks see them, in [-1, 1]."""
        return self.draw_labelled(count, seed, label)[0]

    def draw_labelled(
        self, count: int, seed: int = 0, label: int | str | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Samples, and the label of each if the ensemble knows labels."""
        if count < 1:
            raise ConfigError(f"count={count}: not allowed; allowed: a whole number at least 1")
        if seed < 0:
            raise ConfigError(f"seed={seed}: not allowed; allowed: a whole number at least 0")
        wanted = None if label is None else self._find_label(label)
        weights = self._weights(wanted)
        # Members with equal networks share one draw; each takes its own rows of it.
        kinds = [self.network_of(member) for member in self.members]
        # One network for all of them, which takes over the weights of one after the other.
        networks = {own: generator_skeleton(own, self.shape) for own in dict.fromkeys(kinds)}
        noises = sum(own.noise_size for own in networks)
        needed = sampling_bytes(networks.values(), self.shape, count, _CHUNK, noises)
        check_memory(f"count={count}", needed, f"samples of {shape_text(self.shape)}", ConfigError)
        picks = choice_stream(seed, 0, 0, "ensemble-members").choice(
            len(weights), count, p=weights / weights.sum()
        )
        labels = self._draw_labels(picks, seed, wanted)
        rng = tensor_stream(seed, 0, 0, "ensemble-noise")
        drawn = kinds if self.noise_per_member else dict.fromkeys(kinds)
        noise = {own: draw_noise(own, count, rng) for own in drawn}
        samples = torch.empty(count, *self.shape)
        for place in np.unique(picks).tolist():
            member = self.members[place]
            network = _filled(networks[self.network_of(member)], member)
            latent = noise[self.network_of(member)]
            own_rows = torch.from_numpy(np.flatnonzero(picks == place))
            for part in torch.split(own_rows, _CHUNK):
                wanted_labels = None if labels is None else labels[part]
                with torch.no_grad():
                    samples[part] = generate(network, latent[part], wanted_labels)
        return samples, labels

    @property
    def known_labels(self) -> dict[int, str]:
        """The labels that samples can be asked for by, with their names."""
        names = enumerate(self.labels.names if self.labels else ())
        return {label: name for label, name in names if self._weights(label).any()}

    def _find_label(self, label: int | str) -> int:
        if self.labels is None:
            raise ConfigError(
                f"label={label}: this ensemble knows no labels; allowed: none, or a run of "
                "method=class_parallel or with network.condition"
            )
        return find_label(label, self.labels.names, f"label={label}", "this ensemble")

    def _weights(self, label: int | None) -> npt.NDArray[np.float64]:
        """The members' weights, with those that cannot generate the label set to 0."""
        weights = np.asarray([member.weight for member in self.members])
        own = np.asarray([member.label in (None, label) for member in self.members])
        return weights if label is None else np.where(own, weights, 0.0)

    def _draw_labels(
        self, picks: npt.NDArray[np.int64], seed: int, label: int | None
    ) -> Tensor | None:
        """Each sample's label: its generator's own, or drawn from p(y) if that is conditional."""
        if self.labels is None:
            return None
        rng = choice_stream(seed, 0, 0, "ensemble-labels")
        shares = np.asarray(self.labels.shares)
        drawn = rng.choice(len(shares), len(picks), p=shares / shares.sum())
        if label is not None:
            drawn[:] = label
        own = [-1 if member.label is None else member.label for member in self.members]
        of_member = np.asarray(own)[picks]
        return torch.from_numpy(np.where(of_member >= 0, of_member, drawn))

    def network_of(self, member: Member) -> NetworkSettings:
        return member.network or self.network

    def rescale(self, samples: Tensor) -> Tensor:
        """From [-1, 1] to the data's own units."""
        return self.scaling.to_raw(samples)

    def networks(self) -> list[nn.Module]:
        """The members' generators, in eval mode and in their order."""
        skeletons = (generator_skeleton(self.network_of(one), self.shape) for one in self.members)
        return [_filled(*pair) for pair in zip(skeletons, self.members, strict=True)]

    # -------------------------------------------------------------------------- files

    def save(self, folder: Path) -> None:
        """Write the folder; `config.json` comes last and holds the digest of the weights."""
        tensors = {
            f"{place}.{name}": value.contiguous()
            for place, member in enumerate(self.members)
            for name, value in member.state.items()
        }
        content = safetensors.torch.save(tensors)
        write_atomically(folder / MODEL_FILE, content)
        description = {
            "format": FORMAT,
            "kind": "remuda-ensemble",
            "network": self.network.model_dump(mode="json"),
            "shape": list(self.shape),
            "scale": list(self.scaling.scale),
            "offset": list(self.scaling.offset),
            "members": [self._entry(member) for member in self.members],
            "noise_per_member": self.noise_per_member,
            "sha256": digest(content),
            "about": dict(self.about),
        }
        if self.labels is not None:
            description["labels"] = {
                "names": list(self.labels.names),
                "shares": list(self.labels.shares),
            }
        write_atomically(folder / "README.md", self._card().encode())
        write_json(folder / CONFIG_FILE, description)

    def _entry(self, member: Member) -> dict[str, Any]:
        entry: dict[str, Any] = {"cell": member.cell, "weight": member.weight}
        if member.label is not None:
            entry["label"] = member.label
        if member.met:
            entry["met"] = list(member.met)
        if self.network_of(member) != self.network:
            entry["network"] = self.network_of(member).model_dump(mode="json")
        return entry

    def _card(self) -> str:
        families = dict.fromkeys(self.network_of(member).family for member in self.members)
        kind = "A generator" if len(self.members) == 1 else "A mixture of generators"
        lines = [
            f"# {kind} trained by remuda",
            "",
            f"- items: {shape_text(self.shape)}; network: {', '.join(families)}",
            *(
                f"- {plain_markdown(f'{key}: {to_json(value)}')}"
                for key, value in self.about.items()
            ),
            "",
            *self._table(),
            "",
            "```python",
            "import remuda",
            'images = remuda.load("PATH OF THIS FOLDER").sample(64, seed=0)',
            "```",
        ]
        return "\n".join(lines) + "\n"

    def _table(self) -> list[str]:
        """The cells with their weights or, where there are labels, the labels with theirs."""
        if self.labels is None:
            rows = [f"| {member.cell} | {member.weight:.4f} |" for member in self.members]
            return ["| cell | weight |", "|---|---|", *rows]
        named = zip(self.labels.names, self.labels.shares, strict=True)
        cells = dict.fromkeys(range(len(self.labels.names)), "all")
        cells |= {
            member.label: str(member.cell) for member in self.members if member.label is not None
        }
        rows = [
            f"| {label} | {plain_markdown(name)} | {share:.4f} | {cells[label]} |"
            for label, (name, share) in enumerate(named)
        ]
        return ["| label | name | share | cell |", "|---|---|---|---|", *rows]


def _filled(skeleton: nn.Module, member: Member) -> nn.Module:
    """A network of the member's kind with its weights, in eval mode."""
    # It uses the tensors themselves; sampling in eval mode changes none of them.
    state = {name: aligned(value) for name, value in member.state.items()}
    skeleton.load_state_dict(state, assign=True)
    return skeleton.eval()
