"""Parcels: what a cell publishes after a round, and how one becomes bytes and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from remuda.files import to_json
from remuda.metrics import Assessment

# What the names of some of a parcel's tensors start with.
ASSESSMENT = "assessment."
GENERATOR = "generator.network."
AVERAGE = "generator.average."  # the same names, averaged, where `training.average` is set


# What a damaged header may raise; nested deeply enough it exhausts the stack.
_UNREADABLE = (ValueError, KeyError, TypeError, RecursionError)


class ParcelError(ValueError):
    """Bytes that are not a parcel."""


@dataclass(frozen=True)
class Parcel:
    """Everything others may read of a cell after a round, and everything its restart needs.

    `tensors` are copies that never change; `meta` is plain JSON.
    """

    cell: int
    round: int
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]

    @cached_property
    def encoded(self) -> bytes:
        """safetensors with the rest as JSON in its header: one form for disk, memory and wire."""
        rest = {"cell": self.cell, "round": self.round, "meta": dict(self.meta)}
        return safetensors.torch.save(dict(self.tensors), metadata={"remuda": to_json(rest)})

    @property
    def nbytes(self) -> int:
        """The size of its tensors."""
        return sum(value.nbytes for value in self.tensors.values())

    def only(self, part: str) -> Parcel:
        """The same parcel with only the tensors whose names start with `part`."""
        chosen = {name: value for name, value in self.tensors.items() if name.startswith(part)}
        return Parcel(self.cell, self.round, chosen, self.meta)


def decode_parcel(content: bytes) -> Parcel:
    """The parcel in these bytes, or a ParcelError; nothing in them is executed."""
    try:
        # The header is a little-endian length and JSON; safetensors itself checks its layout.
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        rest = header["__metadata__"]["remuda"]
        tensors = safetensors.torch.load(content)
        return _parcel(rest, tensors)
    except (*_UNREADABLE, safetensors.SafetensorError) as error:
        raise ParcelError(f"not a parcel: {error}") from None


def map_parcel(path: Path, part: str = "") -> Parcel:
    """The parcel in a file in memory, mapped rather than copied.

    With `part`, only the tensors whose names start with it; the others are not even read.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            names = [name for name in file.keys() if name.startswith(part)]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
            return _parcel(file.metadata()["remuda"], tensors)
    except (*_UNREADABLE, safetensors.SafetensorError) as error:
        raise ParcelError(f"not a parcel: {error}") from None


def _parcel(rest: str, tensors: Mapping[str, Tensor]) -> Parcel:
    values = json.loads(rest)
    cell, round, meta = values["cell"], values["round"], values["meta"]
    numbers = all(type(number) is int and number >= 0 for number in (cell, round))
    if not numbers or not isinstance(meta, dict):
        raise ParcelError("its cell, round or meta is of the wrong type")
    return Parcel(cell, round, tensors, meta)


def parcel_assessment(parcel: Parcel) -> Assessment | None:
    """The scores that travel with a parcel, if its cell was scored."""
    tensors = strip_prefix(ASSESSMENT, parcel.tensors)
    return Assessment.from_tensors(tensors) if tensors else None


def role_tensors(parcel: Parcel, role: str) -> dict[str, Tensor]:
    """What `Learner.restore` takes, of a parcel's generator or discriminator."""
    return strip_prefix(f"{role}.", parcel.tensors)


def network_weights(parcel: Parcel, role: str) -> dict[str, Tensor]:
    """The state dict of a parcel's generator or discriminator."""
    return strip_prefix(f"{role}.network.", parcel.tensors)


def strip_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names start with the prefix, named by the rest."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
