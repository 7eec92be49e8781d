"""The run folder: what ran, what happened, and all that a restart needs.

config.yaml                        the resolved configuration
env.json                           versions, host, revision, fingerprint of the data
initial-0000.safetensors           what cell 0 started from, where that was an earlier run
events.jsonl                       one line per cell and round, and what befell the run
samples/round-000005/              sample sheets
checkpoints/round-000004/          one file per cell; counts only once its manifest is there
ensemble/                          the result
result.json                        the final scores; its presence says the run is finished
status.json                        the workers, while the run trains
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.config import Config, load_config, render
from remuda.errors import ConfigError, DamagedError, StoreError
from remuda.files import digest, read_json, sync, to_json, write_atomically, write_json
from remuda.gan.parcels import Parcel, ParcelError, decode_parcel
from remuda.runs.retention import lines_to_keep

FORMAT = 1
MANIFEST = "manifest.json"
STATUS = "status.json"


class NewerFormatError(StoreError):
    """A file of a later remuda: sound, so it must neither be skipped nor thrown away."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: every cell's parcel of one round."""

    round: int
    loss: float | None
    path: Path


@dataclass(frozen=True)
class SavedCell:
    """A cell's file of a checkpoint, as its manifest names it."""

    cell: int
    bytes: int
    sha256: str


class RunFolder:
    """Reads and writes one run folder; every write is atomic, nothing is overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # -------------------------------------------------------------------------- making, opening

    @classmethod
    def create(
        cls,
        config: Config,
        env: Mapping[str, Any],
        attachments: Mapping[str, bytes] | None = None,
    ) -> RunFolder:
        """A new folder: `run.dir`, which must not hold anything yet, or runs/NAME-DATE-TIME."""
        path = new_path(config, attachments)
        try:
            there = path.exists()
            # A new folder is made by one process only, also when two start in the same second.
            path.mkdir(parents=True, exist_ok=there)
        except OSError as error:
            raise StoreError(
                f"{path}: cannot make the run folder: {error.strerror or error}"
            ) from None
        for name, content in (attachments or {}).items():
            write_atomically(path / name, content)
        sums = {name: digest(content) for name, content in (attachments or {}).items()}
        write_json(path / "env.json", {**env, "attachments": sums} if sums else env)
        # Last, for it makes the folder a run: whoever finds it finds all that a restart needs.
        write_atomically(path / "config.yaml", render(config).encode())
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not (path / "config.yaml").is_file():
            found = "no such folder" if not path.exists() else "it has no config.yaml"
            raise StoreError(f"{path}: not a run folder: {found}; `remuda runs` lists runs")
        return cls(path)

    def config(self) -> Config:
        return load_config(str(self.path / "config.yaml"))

    def env(self) -> dict[str, Any]:
        return read_json(self.path / "env.json", "description of the environment")

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Held while a process trains here, so that two never share a folder."""
        path = self.path / ".lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror or error}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StoreError(f"{self.path}: another process is training here") from None
        try:
            yield
        finally:
            os.close(descriptor)

    def is_locked(self) -> bool:
        """Whether a process is training here now."""
        try:
            descriptor = os.open(self.path / ".lock", os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(descriptor)
        return False

    # -------------------------------------------------------------------------- events

    @property
    def _events(self) -> Path:
        return self.path / "events.jsonl"

    def append_event(self, event: Mapping[str, Any]) -> None:
        line = to_json({"time": datetime.now().isoformat(timespec="milliseconds"), **event})
        try:
            with self._events.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise StoreError(
                f"{self._events}: cannot be written: {error.strerror or error}"
            ) from error

    def events(self) -> list[dict[str, Any]]:
        """All events; a last line cut short by a kill is left out."""
        return list(self.iter_events())

    def iter_events(self) -> Iterator[dict[str, Any]]:
        """The events one by one: those of a large run fill gigabytes."""
        return (event for _, event in self._event_lines())

    def _event_lines(self) -> Iterator[tuple[bytes, dict[str, Any]]]:
        """The lines that are events, without their ends."""
        if not self._events.exists():
            return
        try:
            with self._events.open("rb") as file:
                for line in file:
                    with contextlib.suppress(ValueError):
                        event = json.loads(line)
                        if isinstance(event, dict):
                            yield line.rstrip(b"\n"), event
        except OSError as error:
            raise StoreError(f"{self._events}: cannot be read: {error.strerror or error}") from None

    def rewind_events(self, committed: int) -> None:
        """Drop the events of rounds that will be trained again, and a line cut short by a kill."""
        if not self._events.exists():
            return
        lines, rounds = [], []
        for line, event in self._event_lines():
            lines.append(line)
            rounds.append(event.get("round"))
        kept = lines_to_keep(rounds, committed)
        write_atomically(self._events, b"".join(lines[number] + b"\n" for number in kept))

    # -------------------------------------------------------------------------- checkpoints

    def save_cell(self, parcel: Parcel) -> SavedCell:
        """Write one cell's file of a checkpoint; it counts once the manifest names it."""
        content = parcel.encoded
        path = self._checkpoint_path(parcel.round) / cell_file(parcel.cell)
        write_atomically(path, content)
        return SavedCell(parcel.cell, len(content), digest(content))

    def complete_checkpoint(
        self, round: int, saved: Iterable[SavedCell], loss: float | None
    ) -> None:
        """Write the manifest that makes a round count, when all its cells' files are there."""
        files = {
            cell_file(entry.cell): dataclasses.asdict(entry)
            for entry in sorted(saved, key=lambda entry: entry.cell)
        }
        # What the round left elsewhere reaches the disk before the manifest says it is complete.
        if self._events.exists():
            sync(self._events)
        folder = self._checkpoint_path(round)
        manifest = {"format": FORMAT, "round": round, "loss": loss, "files": files}
        write_json(folder / MANIFEST, manifest)
        sync(folder.parent)

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first. A folder without a manifest does not count.

        One with a damaged manifest does, so that whoever loads it is told.
        """
        found = []
        for path in (self.path / "checkpoints").glob("round-*"):
            number = path.name.removeprefix("round-")
            if number.isdecimal() and (path / MANIFEST).is_file():
                loss = None
                with contextlib.suppress(StoreError):
                    loss = self._manifest(path)["loss"]
                found.append(Checkpoint(int(number), loss, path))
        return sorted(found, key=lambda checkpoint: checkpoint.round)

    def load_checkpoint(self, checkpoint: Checkpoint) -> dict[int, Parcel]:
        """Every cell's parcel, each checked against the manifest."""
        return {parcel.cell: parcel for parcel in self.iter_checkpoint(checkpoint)}

    def iter_checkpoint(self, checkpoint: Checkpoint) -> Iterator[Parcel]:
        """The same one by one: those of a large grid do not fit into memory together."""
        for entry in self._manifest(checkpoint.path)["files"].values():
            yield self._load_file(checkpoint.path, entry)

    def load_cells(self, round: int, cells: Iterable[int]) -> dict[int, Parcel]:
        """Some cells' parcels of a complete checkpoint."""
        path = self._checkpoint_path(round)
        entries, found = self._manifest(path)["files"], {}
        for cell in cells:
            if cell_file(cell) not in entries:
                raise DamagedError(f"{path / MANIFEST}: has no cell {cell}")
            found[cell] = self._load_file(path, entries[cell_file(cell)])
        return found

    def load_initial(self, cell: int) -> Parcel:
        """What a cell started from, where that was an earlier run."""
        name = initial_file(cell)
        sums = self.env().get("attachments", {})
        return self._read_parcel(self.path / name, sums.get(name), cell, 0)

    def _load_file(self, folder: Path, entry: Mapping[str, Any]) -> Parcel:
        cell, round = entry["cell"], int(folder.name.removeprefix("round-"))
        return self._read_parcel(folder / cell_file(cell), entry["sha256"], cell, round)

    def _read_parcel(self, path: Path, sha256: str | None, cell: int, round: int) -> Parcel:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DamagedError(f"{path}: is missing") from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror or error}") from None
        if digest(content) != sha256:
            raise DamagedError(f"{path}: damaged: its SHA-256 is not the manifest's")
        try:
            parcel = decode_parcel(content)
        except ParcelError as error:
            raise DamagedError(f"{path}: not a remuda checkpoint: {error}") from None
        if (parcel.cell, parcel.round) != (cell, round):
            raise DamagedError(f"{path}: holds cell {parcel.cell} of round {parcel.round}")
        return parcel

    def set_aside(self, checkpoint: Checkpoint) -> Path:
        """Keep a checkpoint that cannot be used under a name that does not count."""
        target = checkpoint.path.with_name(f"damaged-{checkpoint.path.name}")
        try:
            if target.exists():
                shutil.rmtree(target)
            return checkpoint.path.rename(target)
        except OSError as error:
            raise StoreError(
                f"{checkpoint.path}: cannot be moved: {error.strerror or error}"
            ) from error

    def drop_checkpoint(self, round: int) -> None:
        """Remove a checkpoint; without its manifest it stops counting at once."""
        path = self._checkpoint_path(round)
        try:
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path)
        except OSError as error:
            raise StoreError(f"{path}: cannot be removed: {error.strerror or error}") from error

    def drop_incomplete_checkpoints(self) -> None:
        """Clear what a killed writer left behind."""
        for path in (self.path / "checkpoints").glob("round-*"):
            if not (path / MANIFEST).is_file():
                shutil.rmtree(path, ignore_errors=True)

    def _checkpoint_path(self, round: int) -> Path:
        return self.path / "checkpoints" / f"round-{round:06d}"

    def _manifest(self, path: Path) -> dict[str, Any]:
        manifest = read_json(path / MANIFEST, "checkpoint manifest")
        version = manifest.get("format")
        if isinstance(version, int) and version > FORMAT:
            raise NewerFormatError(
                f"{path / MANIFEST}: format {version} was written by a newer remuda; "
                f"known: {FORMAT}; please upgrade"
            )
        if version != FORMAT:
            raise DamagedError(
                f"{path / MANIFEST}: format {version!r} cannot be read; known: {FORMAT}"
            )
        files, loss = manifest.get("files"), manifest.get("loss")
        if (
            not isinstance(manifest.get("round"), int)
            or path.name != self._checkpoint_path(manifest["round"]).name
            or not isinstance(files, dict)
            or not isinstance(loss, int | float | None)
        ):
            raise DamagedError(f"{path / MANIFEST}: not a checkpoint manifest")
        for name, entry in files.items():
            # The name is known beforehand, so none from a file can lead outside the folder.
            if (
                not isinstance(entry, dict)
                or not isinstance(entry.get("cell"), int)
                or not isinstance(entry.get("sha256"), str)
                or name != cell_file(entry["cell"])
            ):
                raise DamagedError(f"{path / MANIFEST}: not a valid entry: {name!r}")
        return {**manifest, "loss": loss}

    # -------------------------------------------------------------------------- results

    def write_sheet(self, round: int, name: str, png: bytes) -> Path:
        path = self.path / "samples" / f"round-{round:06d}" / f"{name}.png"
        write_atomically(path, png)
        return path

    @property
    def ensemble_path(self) -> Path:
        return self.path / "ensemble"

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.path / "result.json", result)

    def status(self) -> dict[str, Any] | None:
        """What the master wrote last of its workers, or None while nobody trains here."""
        path = self.path / STATUS
        if not self.is_locked() or not path.is_file():
            return None
        return read_json(path, "status of a run")

    def write_status(self, status: Mapping[str, Any]) -> None:
        # On one line: json indents in Python, ten times slower, and this is written all the time.
        write_json(self.path / STATUS, status, durable=False, indent=None)

    def touch_status(self) -> None:
        """A sign of life of the master, for whoever supervises it."""
        with contextlib.suppress(OSError):
            os.utime(self.path / STATUS)

    def sign_of_life(self) -> int | None:
        """Changes while the master lives; no clock of another host is asked."""
        try:
            return (self.path / STATUS).stat().st_mtime_ns
        except OSError:
            return None

    def clear_status(self) -> None:
        (self.path / STATUS).unlink(missing_ok=True)

    def result(self) -> dict[str, Any] | None:
        """The final scores, or None while the run is not finished."""
        path = self.path / "result.json"
        return read_json(path, "result of a run") if path.is_file() else None


def _is_unborn(path: Path, attachments: Mapping[str, bytes]) -> bool:
    """Whether a folder holds nothing but what a start that was killed lays down first."""
    first = {"env.json", *attachments}
    names = [entry.name for entry in path.iterdir()]
    return all(name in first or name.endswith(".part") for name in names)


def cell_file(cell: int) -> str:
    """The name of a cell's file in a checkpoint."""
    return f"cell-{cell:04d}.safetensors"


def initial_file(cell: int) -> str:
    """The name of the file of what a cell started from."""
    return f"initial-{cell:04d}.safetensors"


def find_runs(root: Path) -> list[RunFolder]:
    """The run folders directly below a folder, oldest first."""
    found = [path.parent for path in root.glob("*/config.yaml")]
    return [RunFolder(path) for path in sorted(found, key=lambda path: path.stat().st_mtime)]


def new_path(config: Config, attachments: Mapping[str, bytes] | None = None) -> Path:
    """Where a new run goes: `run.dir`, which must not hold anything yet, or runs/NAME-DATE-TIME."""
    path = Path(config.run.dir).expanduser() if config.run.dir else fresh_path(config.name)
    if path.exists() and not (path.is_dir() and _is_unborn(path, attachments or {})):
        raise ConfigError(
            f"run.dir={path}: is already there and not empty; allowed: a new folder, "
            f"or `remuda resume {path}` to continue a run"
        )
    return path


def fresh_path(name: str) -> Path:
    """A run folder that does not exist yet: runs/NAME-DATE-TIME."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise StoreError(f"runs/{stem}: a thousand runs of this name already exist")
