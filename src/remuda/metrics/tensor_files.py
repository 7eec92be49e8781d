"""Tensors from bytes of others: safetensors, of which nothing is executed.

safetensors itself checks that the header is no longer than 100 MB, that every type and shape fits
its place in the file, and that these places follow each other without gaps, so that no tensor is
larger than its file, nor are two in the same place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from remuda.files import memory_limit

# What a damaged header may raise; nested deeply enough it exhausts the stack.
UNREADABLE = (
    *(ValueError, LookupError, TypeError, RuntimeError, OverflowError, RecursionError),
    SafetensorError,
)
ROOM = 4  # bytes of memory for one of a file: itself, its tensors, and copies of either
_HEADER_ROOM = 40  # the same of the header, where it is one of many small tensors


class NotTensorsError(ValueError):
    """Bytes that are not safetensors."""


def decode_tensors(content: bytes) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors in these bytes, and what is said about them in text."""
    try:
        # The header is a little-endian length and JSON.
        length = int.from_bytes(content[:8], "little")
        if _HEADER_ROOM * min(length, len(content)) > memory_limit():
            raise ValueError(f"its header of {length:,} bytes takes too much memory")
        said = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
        return safetensors.torch.load(content), {key: str(text) for key, text in said.items()}
    except (*UNREADABLE, AttributeError) as error:
        raise NotTensorsError(str(error) or type(error).__name__) from None


def misfit(network: nn.Module, tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that is missing, too many, or of another shape or type than here."""
    wanted = network.state_dict()
    for name in sorted(wanted.keys() | tensors.keys()):
        if (
            name not in tensors
            or name not in wanted
            or tensors[name].shape != wanted[name].shape
            or tensors[name].dtype != wanted[name].dtype
        ):
            return name
    return None
