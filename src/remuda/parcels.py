"""Parcels: what a cell publishes after a round, and how one becomes bytes and comes back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from remuda.files import to_json


class ParcelError(ValueError):
    """Bytes that are no parcel."""


@dataclass(frozen=True)
class Parcel:
    """All that others may read of a cell after a round, and all that its restart needs.

    `tensors` are copies that nobody changes any more; `meta` is plain JSON.
    """

    cell: int
    round: int
    tensors: Mapping[str, Tensor]
    meta: Mapping[str, Any]


def encode_parcel(parcel: Parcel) -> bytes:
    """safetensors with the rest as JSON in its header: the same on disk, in memory, on the wire."""
    rest = {"cell": parcel.cell, "round": parcel.round, "meta": dict(parcel.meta)}
    return safetensors.torch.save(dict(parcel.tensors), metadata={"remuda": to_json(rest)})


def decode_parcel(content: bytes) -> Parcel:
    """The parcel in these bytes, or a ParcelError; nothing in them is executed."""
    try:
        # The header is a little-endian length and JSON; safetensors itself checks its layout.
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        rest = json.loads(header["__metadata__"]["remuda"])
        tensors = safetensors.torch.load(content)
        cell, round, meta = rest["cell"], rest["round"], rest["meta"]
    except (ValueError, KeyError, TypeError, safetensors.SafetensorError) as error:
        raise ParcelError(f"not a parcel: {error}") from None
    if not isinstance(cell, int) or not isinstance(round, int) or not isinstance(meta, dict):
        raise ParcelError("not a parcel: its cell, round or meta is of the wrong kind")
    return Parcel(cell, round, tensors, meta)
