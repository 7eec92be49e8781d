"""Which engine carries a run, and on how many workers. Importing this does not import torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from remuda.config import Config, suggest
from remuda.errors import ConfigError
from remuda.parallel.allocation import keep_memory
from remuda.parallel.launch import usable_cores
from remuda.parallel.protocol import Timeouts
from remuda.parallel.transports.fork_server import can_fork, start_server

if TYPE_CHECKING:
    from remuda.parallel.transports.base import MasterComm
    from remuda.parallel.transports.mpi_thread import Session
    from remuda.runs.prepare import Run
    from remuda.runs.store import RunFolder


@dataclass(frozen=True)
class Engine:
    """How a run is carried; never what comes out of it.

    `name` is one of `ENGINES`, or `auto`: processes where they can help. `workers` is the number of
    worker processes (None: as many as the cores and cells allow); on MPI it follows from the job
    that `session` belongs to.
    """

    name: str = "local"
    workers: int | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    session: Session | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        allowed = engine_names()
        if self.name not in allowed:
            hint = suggest(self.name, allowed) or ";"
            raise ConfigError(f"engine {self.name}: unknown{hint} allowed: {', '.join(allowed)}")
        stuck = self.timeouts.stuck
        if stuck is not None and not stuck > 0:
            raise ConfigError(f"timeouts.stuck={stuck}: allowed: None, or seconds, more than 0")

    def check(self, config: Config) -> None:
        """Refuse, before anything is written, what cannot start."""
        if self.name == "mpi" and self.session is None:
            raise ConfigError(
                "engine mpi: this process is not part of an MPI job; allowed: `mpiexec -n 3 remuda "
                "…`, `remuda train --engine mpi`, or engine process"
            )
        if self.session is None:  # those of other ranks may be on other machines
            from remuda.gan.devices import Devices

            Devices.of(config.devices)

    def start_early(self, config: Config, modules: Sequence[str] = ()) -> None:
        """For a command, before it imports torch: what forks workers imports it at the same time.

        `modules` are what the main program has imported by now, so that no worker needs to.
        """
        name = self._chosen(config).name
        if name == "local":
            keep_memory()  # the command's own process will train
        elif name == "process" and can_fork():
            with contextlib.suppress(OSError):  # workers will be told why
                start_server(config.threads, modules)

    def start(self, run: Run, folder: RunFolder) -> MasterComm:
        """Start the workers; the caller closes what it gets."""
        # Only now, for data may make more cells than the settings alone say.
        chosen = self._chosen(run.config)
        return ENGINES[chosen.name](chosen, run, folder)

    def _chosen(self, config: Config) -> Engine:
        """With `auto` and the number of workers decided."""
        count, name = self.workers or default_workers(config), self.name
        if name == "auto":
            name = "process" if count > 1 else "local"
        return replace(self, name=name, workers=count)


def _start_local(engine: Engine, run: Run, folder: RunFolder) -> MasterComm:
    from remuda.parallel.starting import start_local

    return start_local(run, folder, engine.timeouts)


def _start_processes(engine: Engine, run: Run, folder: RunFolder) -> MasterComm:
    from remuda.parallel.starting import start_processes

    return start_processes(run, folder, engine.timeouts, engine.workers or 1)


def _start_ranks(engine: Engine, run: Run, folder: RunFolder) -> MasterComm:
    from remuda.parallel.ranks import start_ranks

    assert engine.session is not None  # see `Engine.check`
    return start_ranks(engine.session, run, folder, engine.timeouts)


# How each engine starts its workers. A new one is a MasterComm and a WorkerComm in `transports/`,
# and a line here.
ENGINES: dict[str, Callable[[Engine, Run, RunFolder], MasterComm]] = {
    "local": _start_local,
    "process": _start_processes,
    "mpi": _start_ranks,
}


def engine_names() -> tuple[str, ...]:
    """What a user may ask for."""
    return ("auto", *ENGINES)


def choose_engine(
    name: str, workers: int | None, session: Session | None = None, stuck: float | None = None
) -> Engine:
    """The engine for a name from the command line; in an MPI job it is the job's."""
    timeouts = Timeouts(stuck=stuck)
    if session is not None:
        return Engine("mpi", timeouts=timeouts, session=session)
    return Engine(name, workers, timeouts)


def default_workers(config: Config) -> int:
    """As many as the cores hold at the configured threads, and no more than there are cells."""
    return max(1, min(config.cells, usable_cores() // config.threads))
