"""Runs a configuration from start to result, on any engine."""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing import process
from pathlib import Path

from remuda.config import Config
from remuda.data import Dataset
from remuda.errors import RemudaError
from remuda.parallel.engines import Engine
from remuda.parallel.master import Master
from remuda.parallel.observer import Observer
from remuda.parallel.signals import interrupts_stop
from remuda.runs.environment import check_environment, environment
from remuda.runs.extractors import attachments as extractor_file
from remuda.runs.extractors import find_extractor
from remuda.runs.initial import initial_parcels
from remuda.runs.outcome import Result
from remuda.runs.portable import ensure_portable
from remuda.runs.prepare import Run, with_absolute_paths, with_data_dir
from remuda.runs.scoring import check_reference
from remuda.runs.store import RunFolder
from remuda.runs.threads import threads


def train(
    config: Config,
    observer: Observer | None = None,
    dataset: Dataset | None = None,
    attachments: Mapping[str, bytes] | None = None,
    engine: Engine = Engine(),  # noqa: B008 - frozen
) -> Result:
    """Train a configuration in a new run folder; `attachments` are written there first."""
    _check_not_a_worker()
    ensure_portable(config)
    observer = observer or Observer()
    with interrupts_stop(), threads(config.threads):
        run = Run.prepare(config, dataset, say=observer.prepared)
        check_reference(run)
        engine.check(run.config)
        initial = {name: start.encoded for name, start in initial_parcels(run).items()}
        with RunFolder.create(
            with_absolute_paths(run.config),
            environment(run),
            {**(attachments or {}), **initial, **extractor_file(run.extractor)},
        ) as folder:
            return _carry(run, folder, observer, engine)


def resume(
    path: Path,
    observer: Observer | None = None,
    data_dir: Path | None = None,
    engine: Engine = Engine(),  # noqa: B008 - frozen
) -> Result | None:
    """Continue an interrupted run from its last complete round; None if it is finished.

    `data_dir` says where the data are now; it is checked that they are the same.
    """
    observer = observer or Observer()
    folder = RunFolder.open(path)
    config = with_data_dir(folder.config(), data_dir)
    ensure_portable(config)
    with interrupts_stop(), threads(config.threads), folder.lock():
        if folder.result() is not None:
            return None
        folder.check_checkpoints()
        run = Run.prepare(config, folder=folder)
        check_reference(run)
        if run.extractor is None:
            # Of an earlier version, which had none for these data: only its result is scored.
            run.extractor = find_extractor(run.config, run.dataset, observer.prepared)
        engine.check(run.config)
        for warning in check_environment(folder, run):
            observer.warned(warning)
        return _carry(run, folder, observer, engine)


def _check_not_a_worker() -> None:
    """Refuse to train while a worker imports the script that trains."""
    if getattr(process.current_process(), "_inheriting", False):
        raise RemudaError(
            "workers import the script that starts them, and this one trains as it is imported; "
            'put that part under `if __name__ == "__main__":`'
        )


def _carry(run: Run, folder: RunFolder, observer: Observer, engine: Engine) -> Result:
    comm = engine.start(run, folder)
    return Master(run, folder, comm, observer, engine.timeouts).run()
