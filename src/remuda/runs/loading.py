"""Reading an ensemble: nothing that its files say is believed before it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from remuda.config import NetworkSettings
from remuda.config.records import Count, Record, read_record
from remuda.data import Scaling
from remuda.errors import ConfigError, DamagedError, StoreError, shape_text
from remuda.files import check_memory, digest, read_stored
from remuda.gan.networks import generator_skeleton, sampling_bytes
from remuda.metrics.tensor_files import ROOM, NotTensorsError, decode_tensors, misfit
from remuda.runs.ensemble import CONFIG_FILE, FORMAT, MODEL_FILE, Ensemble, Labels, Member
from remuda.runs.store import RunFolder

_LARGEST_SIDE = 2**31
_SIDES = Field(min_length=1, max_length=8)


class _MemberRecord(Record):
    cell: Count
    weight: float
    network: NetworkSettings | None = None
    label: Count | None = None
    met: tuple[str, ...] = ()


class _EnsembleRecord(Record):
    """What `config.json` says about an ensemble."""

    kind: Literal["remuda-ensemble"]
    format: Literal[1]
    network: NetworkSettings
    shape: Annotated[tuple[Annotated[int, Field(ge=1, le=_LARGEST_SIDE)], ...], _SIDES]
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    members: tuple[_MemberRecord, ...]
    sha256: str
    about: dict[str, Any] = Field(default_factory=dict)
    labels: Labels | None = None
    noise_per_member: bool = True  # as it was before files said so


def load_ensemble(folder: Path, *, follow: bool = True) -> Ensemble:
    """Read and check an ensemble: nothing in the files is executed, everything is validated.

    Its files may be links, as caches of models keep them, except in a run folder (not `follow`).
    """
    path, model = folder / CONFIG_FILE, folder / MODEL_FILE
    record = read_record(path, _EnsembleRecord, "remuda ensemble", format=FORMAT, follow=follow)
    needed = sampling_bytes([], record.shape, 1, 1, 0)
    check_memory(path, needed, f"a sample of {shape_text(record.shape)}", StoreError)
    content = read_stored(model, room=ROOM, follow=follow)
    if digest(content) != record.sha256:
        raise DamagedError(f"{model}: damaged or changed: its SHA-256 is not that in {path.name}")
    try:
        tensors, _ = decode_tensors(content)
    except NotTensorsError as error:
        raise DamagedError(f"{model}: not a safetensors file: {error}") from None
    try:
        return _from_record(path, record, tensors)
    # Networks of impossible sizes fail in torch in many ways.
    except (TypeError, ValueError, OverflowError, RuntimeError, ConfigError) as error:
        raise DamagedError(f"{path}: not a valid ensemble: {error}") from None


def _from_record(where: Path, record: _EnsembleRecord, tensors: Mapping[str, Tensor]) -> Ensemble:
    states = _split(tensors, len(record.members))
    for place, (entry, state) in enumerate(zip(record.members, states, strict=True)):
        _check_state(where, entry.network or record.network, record.shape, place, state)
    _check_scaling(record)
    _check_labels(record)
    members = tuple(
        Member(entry.cell, entry.weight, state, entry.network, entry.label, entry.met)
        for entry, state in zip(record.members, states, strict=True)
    )
    scaling = Scaling(record.scale, record.offset)
    return Ensemble(
        *(record.network, record.shape, members, scaling, record.about, record.labels),
        noise_per_member=record.noise_per_member,
    )


def _check_labels(record: _EnsembleRecord) -> None:
    names = record.labels.names if record.labels else ()
    for entry in record.members:
        wanted = (entry.network or record.network).num_classes
        if wanted not in (0, len(names)):
            raise ValueError(f"a network for {wanted} labels beside {len(names)} names of labels")
    own = {entry.label for entry in record.members if entry.label is not None}
    if record.labels is None:
        if own:
            raise ValueError("its members have labels without names")
    elif not own <= set(range(len(record.labels.names))):
        raise ValueError(f"a member's label is not in 0 to {len(record.labels.names) - 1}")


def _split(tensors: Mapping[str, Tensor], count: int) -> list[dict[str, Tensor]]:
    states: list[dict[str, Tensor]] = [{} for _ in range(count)]
    for name, value in tensors.items():
        place, _, rest = name.partition(".")
        if not place.isdigit() or int(place) >= count:
            raise ValueError(f"tensor {name!r} belongs to no member")
        states[int(place)][rest] = value
    return states


def _check_state(
    where: Path,
    network: NetworkSettings,
    shape: tuple[int, ...],
    place: int,
    state: Mapping[str, Tensor],
) -> None:
    # A skeleton takes no memory, since nothing has limited the size of the network so far.
    skeleton = generator_skeleton(network, shape)
    wrong = misfit(skeleton, state)
    if wrong is not None:
        raise ValueError(f"tensor {place}.{wrong} does not fit a {network.family} network")
    for name, value in state.items():
        if not bool(torch.isfinite(value).all()):
            raise ValueError(f"tensor {place}.{name} holds NaN or infinity")
    # Few weights may make much: of one channel a picture of any size.
    needed = sampling_bytes([skeleton], shape, 1, 1, network.noise_size)
    check_memory(where, needed, f"a sample of member {place}", StoreError)


def _check_scaling(record: _EnsembleRecord) -> None:
    """One value for all pixels, or one per coordinate of a point."""
    for key, values in (("scale", record.scale), ("offset", record.offset)):
        if len(values) not in (1, record.shape[0]):
            raise ValueError(f"{key}={values} does not fit items of shape {record.shape}")


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
    return load_ensemble(run.ensemble_path, follow=False)
