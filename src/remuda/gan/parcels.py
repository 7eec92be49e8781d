"""Parcels: what a cell publishes after a round, and how one becomes bytes and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from remuda.files import to_json
from remuda.metrics import Assessment
from remuda.metrics.tensor_files import UNREADABLE, decode_tensors

# What the names of some of a parcel's tensors start with.
ASSESSMENT = "assessment."
GENERATOR = "generator.network."
AVERAGE = "generator.average."  # the same names, averaged, where `training.average` is set


# The kinds of numbers that networks and statistics have, as safetensors calls them.
_KINDS = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {kind: dtype for dtype, kind in _KINDS.items()}
_ALIGNMENT = 64  # bytes
# Tensors whose names start with this, or with one of these; "" is all of them.
Part = str | tuple[str, ...]


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

    @property
    def encoded(self) -> bytes:
        """safetensors with the rest as JSON in its header: one form for disk, memory and wire."""
        return b"".join(self.chunks)

    @cached_property
    def chunks(self) -> Sequence[bytes | memoryview]:
        """The same bytes in pieces, of which the tensors are not copied."""
        rest = {"cell": self.cell, "round": self.round, "meta": dict(self.meta)}
        return _chunks(self.tensors, {"remuda": to_json(rest)})

    @property
    def nbytes(self) -> int:
        """The size of its tensors."""
        return sum(value.nbytes for value in self.tensors.values())

    def only(self, part: Part) -> Parcel:
        """The same parcel with only the tensors whose names start with `part`."""
        if part == "":
            return self
        chosen = {name: value for name, value in self.tensors.items() if name.startswith(part)}
        return Parcel(self.cell, self.round, chosen, self.meta)


def decode_parcel(content: bytes) -> Parcel:
    """The parcel in these bytes, or a ParcelError; nothing in them is executed."""
    try:
        tensors, said = decode_tensors(content)
        return _parcel(said["remuda"], tensors)
    except UNREADABLE as error:
        raise ParcelError(f"not a parcel: {error}") from None


def _chunks(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> list[bytes | memoryview]:
    """What `safetensors.torch.save` writes, to the byte, without its checks and its copies.

    A cell publishes a hundred small tensors in every round, and those take most of the time.
    """
    if any(value.dtype not in _KINDS for value in tensors.values()):
        return [safetensors.torch.save(dict(tensors), metadata=dict(metadata))]
    header: dict[str, Any] = {"__metadata__": metadata}
    contents: list[bytes | memoryview] = []
    end = 0
    # The largest kind of numbers first, which keeps all of them aligned.
    for name, value in sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0])):
        start, end = end, end + value.nbytes
        kind, shape = _KINDS[value.dtype], list(value.shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        contents.append(value.contiguous().reshape(-1).numpy().data.cast("B"))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *contents]


def aligned(tensor: Tensor) -> Tensor:
    """The same numbers where memory of torch's own would lie.

    A matrix product can have other bits where its weights begin elsewhere, as they do in a file.
    """
    return tensor if tensor.data_ptr() % _ALIGNMENT == 0 else tensor.clone()


def map_parcel(path: Path, part: Part = "") -> Parcel:
    """The parcel in a file in memory, mapped rather than copied.

    With `part`, only the tensors whose names start with it; the others are not even read.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:  # which checks the whole layout
            return _parcel(file.metadata()["remuda"], _views(path, part))
    except UNREADABLE as error:
        raise ParcelError(f"not a parcel: {error}") from None


def _views(path: Path, part: Part) -> dict[str, Tensor]:
    """The tensors of a file whose layout is known to be right, as views of one mapping.

    As `safe_open` would give them, but that loses 64 bytes with every tensor (safetensors 0.8.0),
    and a worker reads parcels in every round.
    """
    content = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    begin = 8 + int.from_bytes(content[:8].numpy().tobytes(), "little")
    header = json.loads(content[8:begin].numpy().tobytes())
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__" and name.startswith(part):
            start, end = entry["data_offsets"]
            values = content[begin + start : begin + end].view(_TYPES[entry["dtype"]])
            tensors[name] = values.reshape(entry["shape"])
    return tensors


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
