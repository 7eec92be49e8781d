"""The result of a run: a weighted mixture of generators that can be sampled, saved and loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.torch
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from remuda.config import AnyNetwork
from remuda.config.networks import NetworkSettings
from remuda.data import find_label
from remuda.errors import ConfigError, StoreError
from remuda.files import digest, read_json, to_json, write_atomically, write_json
from remuda.gan.networks import draw_noise, generate, generator_skeleton
from remuda.runs.store import RunFolder
from remuda.streams import choice_stream, tensor_stream

FORMAT = 1
MODEL_FILE = "model.safetensors"
CONFIG_FILE = "config.json"
_CHUNK = 1000


@dataclass(frozen=True)
class Member:
    """One generator of the mixture: where it was trained, how often it is asked, its weights."""

    cell: int
    weight: float
    state: Mapping[str, Tensor]
    network: AnyNetwork | None = None  # null: that of the ensemble
    label: int | None = None  # the one label it makes, if it was trained on one
    met: tuple[str, ...] = ()  # discriminators of its run that it may have trained against


@dataclass(frozen=True)
class Labels:
    """The labels of what an ensemble makes: their names, and how often each is drawn."""

    names: tuple[str, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        fits = len(self.names) == len(self.shares) > 0 and min(self.shares) >= 0
        if not fits or not math.isclose(sum(self.shares), 1, abs_tol=1e-6):
            raise ValueError(f"{len(self.names)} labels do not go with shares {self.shares}")


@dataclass(frozen=True)
class Ensemble:
    """Σ wᵢ·Gᵢ: draw a generator by its weight, then a sample from it."""

    network: AnyNetwork
    shape: tuple[int, ...]
    members: tuple[Member, ...]
    scale: tuple[float, ...] = (0.5,)
    offset: tuple[float, ...] = (0.5,)
    about: Mapping[str, Any] = field(default_factory=dict)
    labels: Labels | None = None  # where its items can be asked for by label

    def __post_init__(self) -> None:
        weights = [member.weight for member in self.members]
        if not weights or min(weights) < 0 or not math.isclose(sum(weights), 1, abs_tol=1e-6):
            raise ValueError(f"mixture weights must be at least 0 and sum to 1, not {weights}")

    def sample(
        self, count: int, seed: int = 0, label: int | str | None = None
    ) -> npt.NDArray[np.float32]:
        """`count` samples in the data's own units: images as floats in [0, 1], NCHW.

        `label`, a name or a number, asks for samples of one label; without it labels come as often
        as in the data.
        """
        raw = self.rescale(self.draw(count, seed, label)).numpy()
        return raw if len(self.shape) == 1 else raw.clip(0.0, 1.0)

    def draw(self, count: int, seed: int = 0, label: int | str | None = None) -> Tensor:
        """Samples as the networks see them, in [-1, 1]."""
        return self.draw_labelled(count, seed, label)[0]

    def draw_labelled(
        self, count: int, seed: int = 0, label: int | str | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Samples, and the label of each where the ensemble knows labels."""
        if count < 1:
            raise ConfigError(f"count={count}: not allowed; allowed: a whole number at least 1")
        if seed < 0:
            raise ConfigError(f"seed={seed}: not allowed; allowed: a whole number at least 0")
        wanted = None if label is None else self._find_label(label)
        weights = self._weights(wanted)
        picks = choice_stream(seed, 0, 0, "ensemble-members").choice(
            len(weights), count, p=weights / weights.sum()
        )
        labels = self._draw_labels(picks, seed, wanted)
        rng = tensor_stream(seed, 0, 0, "ensemble-noise")
        # Members with equal networks share a draw, of which each takes its rows.
        noise = {own: draw_noise(own, count, rng) for own in map(self.network_of, self.members)}
        samples = torch.empty(count, *self.shape)
        for place in np.unique(picks).tolist():
            network = self._network(self.members[place])
            latent = noise[self.network_of(self.members[place])]
            own_rows = torch.from_numpy(np.flatnonzero(picks == place))
            for part in torch.split(own_rows, _CHUNK):
                told = None if labels is None else labels[part]
                with torch.no_grad():
                    samples[part] = generate(network, latent[part], told)
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
        """How often each member is asked, given a label."""
        weights = np.asarray([member.weight for member in self.members])
        own = np.asarray([member.label in (None, label) for member in self.members])
        return weights if label is None else np.where(own, weights, 0.0)

    def _draw_labels(
        self, picks: npt.NDArray[np.int64], seed: int, label: int | None
    ) -> Tensor | None:
        """Each sample's label: its generator's, or for those that are told one, drawn from p(y)."""
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

    def network_of(self, member: Member) -> AnyNetwork:
        return member.network or self.network

    def rescale(self, samples: Tensor) -> Tensor:
        """From [-1, 1] to the data's own units."""
        ones = [1] * (len(self.shape) - 1)
        scale = torch.tensor(self.scale).reshape(-1, *ones)
        offset = torch.tensor(self.offset).reshape(-1, *ones)
        return samples * scale + offset

    def networks(self) -> list[nn.Module]:
        """The members' generators, in eval mode and in their order."""
        return [self._network(member) for member in self.members]

    def _network(self, member: Member) -> nn.Module:
        network = generator_skeleton(self.network_of(member), self.shape)
        # The network takes the tensors themselves; sampling, in eval mode, changes none.
        network.load_state_dict(dict(member.state), assign=True)
        return network.eval()

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
            "scale": list(self.scale),
            "offset": list(self.offset),
            "members": [self._entry(member) for member in self.members],
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
        lines = [
            "# A mixture of generators trained by remuda",
            "",
            f"- items: {'x'.join(map(str, self.shape))}; network: {', '.join(families)}",
            *(f"- {key}: {to_json(value)}" for key, value in self.about.items()),
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
        """Which cells, how often; and which labels there are to ask for."""
        if self.labels is None:
            rows = [f"| {member.cell} | {member.weight:.4f} |" for member in self.members]
            return ["| cell | weight |", "|---|---|", *rows]
        named = zip(self.labels.names, self.labels.shares, strict=True)
        cells = dict.fromkeys(range(len(self.labels.names)), "all")
        cells |= {
            member.label: str(member.cell) for member in self.members if member.label is not None
        }
        rows = [
            f"| {label} | {name} | {share:.4f} | {cells[label]} |"
            for label, (name, share) in enumerate(named)
        ]
        return ["| label | name | share | cell |", "|---|---|---|---|", *rows]


def load_ensemble(folder: Path) -> Ensemble:
    """Read and check an ensemble: nothing in the files is executed, everything is validated."""
    path = folder / CONFIG_FILE
    description = read_json(path, "remuda ensemble")
    if description.get("kind") != "remuda-ensemble":
        raise StoreError(f"{path}: not a remuda ensemble")
    version = description.get("format")
    if version != FORMAT:
        newer = isinstance(version, int) and version > FORMAT
        hint = "; it was written by a newer remuda, please upgrade" if newer else ""
        raise StoreError(f"{path}: format {version!r} cannot be read; known: {FORMAT}{hint}")
    model = folder / MODEL_FILE
    try:
        content = model.read_bytes()
    except OSError as error:
        raise StoreError(f"{model}: cannot be read: {error.strerror or error}") from None
    if digest(content) != description.get("sha256"):
        raise StoreError(f"{model}: damaged or changed: its SHA-256 is not the one in {path.name}")
    try:
        tensors = safetensors.torch.load(content)
        network: AnyNetwork = _NETWORK.validate_python(description["network"])
        shape = tuple(int(side) for side in description["shape"])
        states = _split(tensors, len(description["members"]))
        members = tuple(
            Member(
                int(entry["cell"]),
                float(entry["weight"]),
                state,
                _NETWORK.validate_python(entry["network"]) if "network" in entry else None,
                int(entry["label"]) if "label" in entry else None,
                tuple(map(str, entry.get("met", ()))),
            )
            for entry, state in zip(description["members"], states, strict=True)
        )
        for place, member in enumerate(members):
            _check_state(member.network or network, shape, place, member.state)
        _check_scaling(description, shape)
        return Ensemble(
            network,
            shape,
            members,
            tuple(float(value) for value in description["scale"]),
            tuple(float(value) for value in description["offset"]),
            dict(description.get("about", {})),
            _read_labels(description, members),
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("network", *first["loc"])))
        raise StoreError(f"{path}: {key}={first['input']!r} is not valid: {first['msg']}") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        AttributeError,
        RuntimeError,
        ConfigError,
    ) as error:
        raise StoreError(f"{path}: not a valid ensemble: {error}") from None
    except safetensors.SafetensorError as error:
        raise StoreError(f"{model}: not a safetensors file: {error}") from None


def _read_labels(description: Mapping[str, Any], members: Sequence[Member]) -> Labels | None:
    own = {member.label for member in members if member.label is not None}
    if "labels" not in description:
        if own:
            raise ValueError("its members have labels without names")
        return None
    entry = description["labels"]
    labels = Labels(tuple(map(str, entry["names"])), tuple(map(float, entry["shares"])))
    if not own <= set(range(len(labels.names))):
        raise ValueError(f"a member's label is none of 0 to {len(labels.names) - 1}")
    return labels


_NETWORK: TypeAdapter[Any] = TypeAdapter(NetworkSettings)


def _split(tensors: Mapping[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    states: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for name, value in tensors.items():
        place, _, rest = name.partition(".")
        if not place.isdigit() or int(place) >= count:
            raise ValueError(f"tensor {name!r} belongs to no member")
        states[int(place)][rest] = value
    return states


def _check_state(
    network: AnyNetwork, shape: tuple[int, ...], place: int, state: Mapping[str, Tensor]
) -> None:
    # Without memory: what the description asks for may be of any size until the tensors fit it.
    wanted = generator_skeleton(network, shape).state_dict()
    for name in wanted.keys() | state.keys():
        if (
            name not in state
            or name not in wanted
            or state[name].shape != wanted[name].shape
            or state[name].dtype != wanted[name].dtype
        ):
            raise ValueError(f"tensor {place}.{name} does not fit a {network.family} network")
        if not bool(torch.isfinite(state[name]).all()):
            raise ValueError(f"tensor {place}.{name} holds values that are no numbers")


def _check_scaling(description: Mapping[str, Any], shape: tuple[int, ...]) -> None:
    """One factor for all, or one per coordinate of a point."""
    for key in ("scale", "offset"):
        values = description[key]
        if len(values) not in (1, shape[0]) or not all(map(math.isfinite, values)):
            raise ValueError(f"{key}={values} does not fit items of shape {shape}")


def load(path: str | Path) -> Ensemble:
    """The ensemble of a run folder, or of an ensemble folder itself."""
    folder = Path(path)
    if (folder / CONFIG_FILE).is_file():
        return load_ensemble(folder)
    run = RunFolder.open(folder)
    if run.result() is None:
        raise StoreError(
            f"{folder}: the run is not finished; `remuda resume {folder}` continues it "
            f"(sample sheets so far are in {folder / 'samples'})"
        )
    return load_ensemble(run.ensemble_path)
