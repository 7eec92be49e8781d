"""The run folder: what ran, what happened, and all that a restart needs.

config.yaml                        the resolved configuration
env.json                           the run's id, versions, host, revision, fingerprint of the data
initial-0000.safetensors           what cell 0 started from, where that was an earlier run
extractor.safetensors              what scores the run, where that was made for its data
events.jsonl                       one line per cell and round, and what happened to the run
samples/round-000005/              sample sheets
checkpoints/round-000004/          one file per cell; complete once its manifest is there
ensemble/                          the result
result.json                        the final scores; its presence says the run is finished
status.json                        the workers, while the run trains
.alive                             of a supervisor, touched by the master to show that it lives
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from remuda.config import Config, read_config, render
from remuda.config.records import read_record
from remuda.errors import ConfigError, GoneError, StoreError
from remuda.files import (
    LOCK,
    Lock,
    digest,
    disk,
    is_locked,
    lock,
    real_folder,
    write_atomically,
    write_json,
)
from remuda.gan.parcels import Parcel
from remuda.runs.checkpoints import Checkpoint, Checkpoints, SavedCell, read_saved_parcel
from remuda.runs.events import EventLog
from remuda.runs.identity import INITIAL, run_id
from remuda.runs.records import Environment, RunResult, RunStatus

STATUS = "status.json"
ENSEMBLE = "ensemble"
ALIVE = ".alive"


class RunFolder:
    """Reads and writes one run folder; every write is atomic, nothing is overwritten."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: Lock | None = None  # while this object holds it
        self._events = EventLog(path / "events.jsonl")
        self._checkpoints = Checkpoints(path / "checkpoints")

    # -------------------------------------------------------------------------- making, opening

    @classmethod
    @contextmanager
    def create(
        cls,
        config: Config,
        env: Mapping[str, Any],
        attachments: Mapping[str, bytes] | None = None,
    ) -> Iterator[RunFolder]:
        """A new folder, locked: `run.dir`, which must be empty or new, or runs/NAME-DATE-TIME."""
        attachments = attachments or {}
        path = new_path(config, attachments)
        make_run_folder(path)
        folder = cls(path)
        with folder.lock():
            # Another process may have begun a run here since we looked.
            _check_unused(path, attachments)
            folder._begin(config, env, attachments)
            yield folder

    def _begin(
        self, config: Config, env: Mapping[str, Any], attachments: Mapping[str, bytes]
    ) -> None:
        """Write all that a restart needs."""
        for name, content in attachments.items():
            write_atomically(self.path / name, content)
        sums = {name: digest(content) for name, content in attachments.items()}
        env = {**env, "attachments": sums} if sums else env
        own = run_id(config, Environment.model_validate(env))
        write_json(self.path / "env.json", {"id": own, **env})
        # Last, because it makes the folder a run: by now all that a restart needs is there.
        write_atomically(self.path / "config.yaml", render(config).encode())

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run folder."""
        if not (path / "config.yaml").is_file():
            found = "no such folder" if not path.exists() else "it has no config.yaml"
            raise StoreError(f"{path}: not a run folder: {found}; `remuda runs` lists runs")
        return cls(path)

    def config(self) -> Config:
        return read_config(self.path / "config.yaml")

    def env(self) -> Environment:
        return read_record(self.path / "env.json", Environment, "description of the environment")

    def id(self) -> str:
        """Tells the run from all others, wherever its folder is and whatever it is called."""
        env = self.env()
        return env.id or run_id(self.config(), env)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Held while a process trains here, so that two never share a folder."""
        with lock(self.path, "another process is training here") as self._lock:
            try:
                yield
            finally:
                self._lock = None

    def check_in_place(self) -> None:
        """Refuse to write where the folder is not the one that was locked any more."""
        if self._lock is not None and not self._lock.is_in_place():
            raise GoneError(
                f"{self.path}: the run folder was removed, renamed or replaced while the run was "
                "training; nothing more can be saved there, and the run has ended"
            )

    def is_locked(self) -> bool:
        """Whether a process is training here now."""
        return is_locked(self.path)

    # -------------------------------------------------------------------------- events

    def append_event(self, event: Mapping[str, Any]) -> None:
        self.check_in_place()
        self._events.append(event)

    def events(self) -> list[dict[str, Any]]:
        """All events; a last line cut short by a kill is left out."""
        return list(self._events)

    def iter_events(self) -> Iterator[dict[str, Any]]:
        """The events one by one: those of a large run fill gigabytes."""
        return iter(self._events)

    def rewind_events(self, committed: int) -> None:
        """Drop the events of rounds that will be trained again, and a line cut short by a kill."""
        self._events.rewind(committed)

    # -------------------------------------------------------------------------- checkpoints

    def save_cell(self, parcel: Parcel) -> SavedCell:
        """Write one cell's file of a checkpoint; it counts once the manifest names it."""
        return self._checkpoints.save_cell(parcel)

    def complete_checkpoint(
        self, round: int, saved: Iterable[SavedCell], loss: float | None
    ) -> None:
        """Write the manifest that makes a round count, when all its cells' files are there."""
        self.check_in_place()
        # The round's events reach the disk before the manifest says that it is complete.
        self._events.sync()
        self._checkpoints.complete(round, saved, loss)
        self._events.append({"event": "saved", "round": round})

    def checkpoints(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first; those with a damaged manifest are among them."""
        return self._checkpoints.complete_ones()

    def load_checkpoint(self, checkpoint: Checkpoint) -> dict[int, Parcel]:
        """Every cell's parcel, each checked against the manifest."""
        return {parcel.cell: parcel for parcel in self.iter_checkpoint(checkpoint)}

    def iter_checkpoint(self, checkpoint: Checkpoint) -> Iterator[Parcel]:
        """The same one by one: those of a large grid do not fit into memory together."""
        return self._checkpoints.read(checkpoint)

    def load_cells(self, round: int, cells: Iterable[int]) -> dict[int, Parcel]:
        """The parcels of some cells from a complete checkpoint."""
        return self._checkpoints.read_cells(round, cells)

    def load_initial(self, cell: int) -> Parcel:
        """What a cell started from, where that was an earlier run."""
        name = initial_file(cell)
        return read_saved_parcel(self.path / name, self.env().attachments.get(name), cell, 0)

    def set_aside(self, checkpoint: Checkpoint) -> Path:
        """Keep a checkpoint that cannot be used under a name that does not count."""
        return self._checkpoints.set_aside(checkpoint)

    def drop_checkpoint(self, round: int) -> None:
        """Remove a checkpoint; without its manifest it stops counting at once."""
        self._checkpoints.drop(round)

    def check_checkpoints(self) -> None:
        """Refuse to start over in silence where rounds were saved and nothing is left of them."""
        if self._checkpoints.is_empty() and (saved := self._events.last_saved()) is not None:
            raise StoreError(
                f"{self._checkpoints.path}: has no checkpoint, but the run was saved up to round "
                f"{saved}; allowed: put the folder back, or start afresh: `remuda train "
                f"{self.path / 'config.yaml'} run.dir=NEW`"
            )

    def drop_incomplete_checkpoints(self) -> None:
        """Remove what a killed writer left behind."""
        self._checkpoints.drop_incomplete()

    # -------------------------------------------------------------------------- results

    def write_sheet(self, round: int, name: str, png: bytes) -> Path:
        self.check_in_place()
        path = real_folder(self.path, "samples", f"round-{round:06d}") / f"{name}.png"
        write_atomically(path, png, root=self.path)
        return path

    @property
    def ensemble_path(self) -> Path:
        self.check_in_place()
        return real_folder(self.path, ENSEMBLE)

    def write_result(self, result: Mapping[str, Any]) -> None:
        self.check_in_place()
        self._events.sync()
        write_json(self.path / "result.json", result, root=self.path)

    def status(self) -> RunStatus | None:
        """What the master last wrote about its workers, or None while nobody trains here."""
        path = self.path / STATUS
        # It is not synced, so a power cut may leave an empty one.
        if not self.is_locked() or not _size(path):
            return None
        return read_record(path, RunStatus, "status of a run")

    def write_status(self, status: Mapping[str, Any]) -> None:
        self.check_in_place()
        # On one line: indenting makes json ten times slower, and this is written all the time.
        write_json(self.path / STATUS, status, durable=False, indent=None, root=self.path)

    def await_life(self) -> None:
        """Make what the master touches; without a supervisor there is no such file."""
        with suppress(OSError):
            os.close(disk.open_to_append(self.path / ALIVE))

    def show_life(self) -> None:
        """A sign of life from the master, for its supervisor."""
        with suppress(OSError):
            disk.touch(self.path / ALIVE)

    def sign_of_life(self) -> int | None:
        """Changes as long as the master lives; needs no clock of another host."""
        return _changed(self.path / ALIVE)

    def clear_life(self) -> None:
        with suppress(OSError):
            disk.remove(self.path / ALIVE)

    def sign_of_training(self) -> int | None:
        """Changes while the master trains, when all workers are there."""
        return _changed(self.path / STATUS)

    def clear_status(self) -> None:
        """Nobody trains here now; where it cannot be removed, the lock says so all the same."""
        with suppress(OSError):
            disk.remove(self.path / STATUS)
        self.clear_life()

    def result(self) -> RunResult | None:
        """The final scores, or None while the run is not finished."""
        path = self.path / "result.json"
        return read_record(path, RunResult, "result of a run") if _is_there(path) else None


def _size(path: Path) -> int:
    """Of what has this name, whatever it is; 0 if nothing has."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _changed(path: Path) -> int | None:
    """When a file, or something in a folder, was last changed; None if nobody can say."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _is_unborn(path: Path, attachments: Mapping[str, bytes]) -> bool:
    """Whether a folder holds at most what a run writes first, left by a start that was killed."""
    first = {LOCK, ALIVE, "env.json", *attachments}
    names = [entry.name for entry in path.iterdir()]
    return all(name in first or name.endswith(".part") for name in names)


def initial_file(cell: int) -> str:
    """The name of the file with what a cell started from."""
    return f"{INITIAL}{cell:04d}.safetensors"


def find_runs(root: Path) -> list[RunFolder]:
    """The run folders directly below a folder, oldest first; also those that cannot be read."""
    try:
        entries = [*root.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"{root}: cannot be read: {error.strerror or error}") from None
    found = [(_changed(path) or 0, path) for path in entries if _is_there(path / "config.yaml")]
    return [RunFolder(path) for _, path in sorted(found)]


def _is_there(path: Path) -> bool:
    """Whether there is anything of this name; where nobody can say, reading it will."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def new_path(config: Config, attachments: Mapping[str, bytes] | None = None) -> Path:
    """Where a new run goes: `run.dir`, which must be empty or new, or runs/NAME-DATE-TIME."""
    path = Path(config.run.dir).expanduser() if config.run.dir else fresh_path(config.name)
    _check_unused(path, attachments or {})
    return path


def _check_unused(path: Path, attachments: Mapping[str, bytes]) -> None:
    if path.exists() and not (path.is_dir() and _is_unborn(path, attachments)):
        raise ConfigError(
            f"run.dir={path}: already exists and is not empty; allowed: a new folder, "
            f"or `remuda resume {path}` to continue a run"
        )


def make_run_folder(path: Path) -> None:
    """An empty folder for a run, where there is none."""
    try:
        disk.make_folders(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot make the run folder: {error.strerror or error}") from None


def fresh_path(name: str) -> Path:
    """A run folder that does not exist yet: runs/NAME-DATE-TIME."""
    stem = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    for number in range(1, 1000):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            return path
    raise StoreError(f"runs/{stem}: a thousand runs of this name already exist")
