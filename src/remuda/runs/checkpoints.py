"""Checkpoints: every cell's parcel of one round, complete once the manifest has been written."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from remuda.config.records import Record, read_record
from remuda.config.root import MOST_ROUNDS
from remuda.errors import DamagedError, StoreError
from remuda.files import (
    digest,
    disk,
    read_stored,
    real_folder,
    sync,
    write_atomically,
    write_json,
)
from remuda.gan.parcels import Parcel, ParcelError, decode_parcel
from remuda.metrics.tensor_files import ROOM

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: every cell's parcel of one round."""

    round: int
    loss: float | None
    path: Path


@dataclass(frozen=True)
class SavedCell:
    """A cell's file in a checkpoint, as its manifest describes it."""

    cell: int
    bytes: int
    sha256: str


class Manifest(Record):
    """What a checkpoint consists of; it is written last."""

    format: Literal[1]
    round: Annotated[int, Field(ge=0, le=MOST_ROUNDS)]
    loss: float | None = None
    files: dict[str, SavedCell]

    @model_validator(mode="after")
    def _files_are_named_after_cells(self) -> Manifest:
        # Names are derived, not trusted, so none from a file can lead outside the folder.
        for name, entry in self.files.items():
            if name != cell_file(entry.cell):
                raise ValueError(f"file {name!r} is not that of cell {entry.cell}")
        return self


class Checkpoints:
    """Reads and writes the checkpoints of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save_cell(self, parcel: Parcel) -> SavedCell:
        """Write one cell's file of a checkpoint; it counts once the manifest names it."""
        content = parcel.chunks
        path = self._folder(parcel.round) / cell_file(parcel.cell)
        write_atomically(path, content, root=self.path.parent)
        return SavedCell(parcel.cell, sum(map(len, content)), digest(content))

    def complete(self, round: int, saved: Iterable[SavedCell], loss: float | None) -> None:
        """Write the manifest that makes a round count, when all its cells' files are there."""
        files = {
            cell_file(entry.cell): dataclasses.asdict(entry)
            for entry in sorted(saved, key=lambda entry: entry.cell)
        }
        manifest = {"format": FORMAT, "round": round, "loss": loss, "files": files}
        write_json(self._folder(round) / MANIFEST, manifest, root=self.path.parent)
        sync(self.path)

    def complete_ones(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first. A folder without a manifest does not count.

        One with a damaged manifest does, so that loading it reports the damage.
        """
        found = []
        for path in self._folders():
            number = path.name.removeprefix("round-")
            if number.isdecimal() and (path / MANIFEST).is_file():
                loss = None
                with contextlib.suppress(StoreError):
                    loss = self._manifest(path).loss
                found.append(Checkpoint(int(number), loss, path))
        return sorted(found, key=lambda checkpoint: checkpoint.round)

    def read(self, checkpoint: Checkpoint) -> Iterator[Parcel]:
        """The parcels one by one, each checked: those of a large grid do not fit into memory."""
        for entry in self._manifest(checkpoint.path).files.values():
            yield self._read_cell(checkpoint.path, entry)

    def read_cells(self, round: int, cells: Iterable[int]) -> dict[int, Parcel]:
        """The parcels of some cells from a complete checkpoint."""
        path = self._folder(round)
        entries, found = self._manifest(path).files, {}
        for cell in cells:
            if cell_file(cell) not in entries:
                raise DamagedError(f"{path / MANIFEST}: has no cell {cell}")
            found[cell] = self._read_cell(path, entries[cell_file(cell)])
        return found

    def set_aside(self, checkpoint: Checkpoint) -> Path:
        """Keep a checkpoint that cannot be used under a name that does not count."""
        target = checkpoint.path.with_name(f"damaged-{checkpoint.path.name}")
        try:
            if target.exists():
                disk.remove_tree(target)
            disk.replace(checkpoint.path, target)
            disk.sync_path(self.path)
        except OSError as error:
            raise StoreError(
                f"{checkpoint.path}: cannot be moved: {error.strerror or error}"
            ) from error
        return target

    def drop(self, round: int) -> None:
        """Remove a checkpoint; without its manifest it stops counting at once."""
        path = self._folder(round)
        try:
            disk.remove(path / MANIFEST)
            disk.sync_path(path)  # the cells must not be gone before it, even after a power cut
            disk.remove_tree(path)
            disk.sync_path(self.path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be removed: {error.strerror or error}") from error

    def drop_incomplete(self) -> None:
        """Remove what a killed writer left behind."""
        for path in self._folders():
            if not (path / MANIFEST).is_file():
                with contextlib.suppress(OSError):
                    disk.remove_tree(path)

    def is_empty(self) -> bool:
        """Whether there is no complete checkpoint, nor one that was set aside."""
        return not self.complete_ones() and not any(self.path.glob("damaged-*"))

    def _folders(self) -> Iterator[Path]:
        """The folders of rounds, none of which leads elsewhere."""
        for path in self._folder_named("").glob("round-*"):
            yield self._folder_named(path.name)

    def _folder(self, round: int) -> Path:
        return self._folder_named(f"round-{round:06d}")

    def _folder_named(self, name: str) -> Path:
        return real_folder(self.path.parent, self.path.name, *([name] if name else []))

    def _read_cell(self, folder: Path, entry: SavedCell) -> Parcel:
        round = int(folder.name.removeprefix("round-"))
        return read_saved_parcel(folder / cell_file(entry.cell), entry.sha256, entry.cell, round)

    def _manifest(self, folder: Path) -> Manifest:
        path = folder / MANIFEST
        manifest = read_record(path, Manifest, "checkpoint manifest", format=FORMAT)
        if folder.name != f"round-{manifest.round:06d}":
            raise DamagedError(f"{path}: round={manifest.round} does not belong in {folder.name}")
        return manifest


def cell_file(cell: int) -> str:
    """The name of a cell's file in a checkpoint."""
    return f"cell-{cell:04d}.safetensors"


def read_saved_parcel(path: Path, sha256: str | None, cell: int, round: int) -> Parcel:
    """The parcel in a file, which must have this digest and belong to this cell and round."""
    try:
        content = read_stored(path, room=ROOM)
    except StoreError as error:
        if isinstance(error.__context__, FileNotFoundError):
            raise DamagedError(f"{path}: is missing") from None
        raise  # a disk that cannot be read for a moment is no damage
    if digest(content) != sha256:
        raise DamagedError(f"{path}: damaged: its SHA-256 differs from the one recorded for it")
    try:
        parcel = decode_parcel(content)
    except ParcelError as error:
        raise DamagedError(f"{path}: not a remuda checkpoint: {error}") from None
    if (parcel.cell, parcel.round) != (cell, round):
        raise DamagedError(f"{path}: holds cell {parcel.cell} of round {parcel.round}")
    return parcel
