"""Parcels as bytes."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from remuda.files import to_json
from remuda.gan.parcels import Parcel, ParcelError, decode_parcel, map_parcel

TENSORS = {
    "generator.network.b": torch.arange(6.0).reshape(2, 3),
    "generator.network.a": torch.arange(3.0),
    "generator.adam.step.a": torch.tensor(4.0),
    "assessment.count": torch.tensor([3, 4]),
    "assessment.mean": torch.arange(5, dtype=torch.float64),
    "assessment.none": torch.empty(0, 4, dtype=torch.float64),
    "discriminator.network.flags": torch.tensor([True, False]),
}
META = {"genes": {}, "memory": {"name": "Füchse"}}


def as_the_library_writes(tensors: dict[str, Tensor]) -> bytes:
    rest = to_json({"cell": 1, "round": 2, "meta": META})
    return safetensors.torch.save(tensors, metadata={"remuda": rest})


@pytest.mark.parametrize(
    "tensors",
    [
        TENSORS,
        {name: value for name, value in TENSORS.items() if "assessment" not in name},
        {**TENSORS, "half": torch.ones(3, dtype=torch.float16)},
        {},
    ],
)
def test_a_parcel_is_what_safetensors_writes_to_the_byte(tensors: dict[str, Tensor]) -> None:
    parcel = Parcel(1, 2, tensors, META)
    assert parcel.encoded == as_the_library_writes(tensors)
    assert b"".join(parcel.chunks) == parcel.encoded


def test_a_tensor_that_is_a_slice_is_written_as_its_values() -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    parcel = Parcel(0, 0, {"column": whole[:, 1], "turned": whole.T}, {})
    found = decode_parcel(parcel.encoded).tensors
    assert torch.equal(found["column"], whole[:, 1])
    assert torch.equal(found["turned"], whole.T)


def test_a_mapped_parcel_is_the_one_that_was_written(tmp_path: Path) -> None:
    tensors = {
        "float": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
        "double": torch.tensor([1.0, math.nan], dtype=torch.float64),
        "count": torch.tensor(7),
        "small": torch.arange(3, dtype=torch.int32),
        "bytes": torch.arange(5, dtype=torch.uint8),
        "flags": torch.tensor([True, False]),
        "none": torch.empty(0, 4),
    }
    parcel = Parcel(2, 5, tensors, {"genes": {"loss": "minimax"}})
    path = tmp_path / "parcel"
    path.write_bytes(parcel.encoded)
    found = map_parcel(path)
    assert (found.cell, found.round, found.meta) == (2, 5, parcel.meta)
    assert found.encoded == parcel.encoded
    found.tensors["float"].zero_()  # a private mapping: nobody else sees it
    assert path.read_bytes() == parcel.encoded


def test_mapping_a_parcel_again_and_again_takes_no_memory(tmp_path: Path) -> None:
    """With safetensors' own tensors, 5,000 times 20 of them leave more than 6 MB behind."""
    path = tmp_path / "parcel"
    tensors = {f"layer.{number}": torch.zeros(4) for number in range(20)}
    path.write_bytes(Parcel(0, 0, tensors, {}).encoded)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(500):
        map_parcel(path)
    before = resident()
    for _ in range(5000):
        map_parcel(path)
    assert resident() - before < 3 * 2**20


def test_several_parts_can_be_asked_for(tmp_path: Path) -> None:
    parcel, parts = Parcel(1, 2, TENSORS, META), ("generator.network.", "discriminator.")
    wanted = {name for name in TENSORS if name.startswith(parts)}
    assert 0 < len(wanted) < len(TENSORS)
    (tmp_path / "parcel").write_bytes(parcel.encoded)
    for found in (parcel.only(parts), map_parcel(tmp_path / "parcel", parts)):
        assert set(found.tensors) == wanted
        assert found.meta == META


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"a": ("F32", [0, 2**63])}, "size"),
        ({"a": ("F32", [0, 2**33, 2**33])}, "overflow"),
        ({"a": ("F4", [0])}, "F4"),
        ({"a": ("F32", [1])}, "shape"),
        ({"a": ("F32", [0])}, "remuda"),
    ],
)
def test_a_header_that_torch_cannot_follow_is_no_parcel(
    header: dict[str, tuple[str, list[int]]], says: str
) -> None:
    described = {
        name: {"dtype": kind, "shape": shape, "data_offsets": [0, 0]}
        for name, (kind, shape) in header.items()
    }
    text = json.dumps(described).encode()
    with pytest.raises(ParcelError, match=rf"^not a parcel: .*{says}"):
        decode_parcel(len(text).to_bytes(8, "little") + text)


def test_a_header_that_takes_too_much_memory_is_refused_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "1M")
    text = b'{"a": "' + b"x" * 100_000 + b'"}'
    with pytest.raises(ParcelError, match="its header of 100,009 bytes takes too much memory"):
        decode_parcel(len(text).to_bytes(8, "little") + text)
