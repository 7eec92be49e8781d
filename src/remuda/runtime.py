"""Runs a configuration from start to result: the only place where decisions meet I/O."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from remuda.alarms import Alarm, find_alarms
from remuda.cell import Cell, Parcel, generator_weights
from remuda.clock import Clock
from remuda.comm import CommManager, LocalComm
from remuda.config import Config
from remuda.data import Dataset, load_dataset
from remuda.ensemble import Ensemble, Member
from remuda.errors import ConfigError, StoreError
from remuda.files import write_atomically
from remuda.methods import Method, Recipe, RoundReport, build_method
from remuda.metrics import HIGHER_IS_BETTER, Judge, Scores, extractor_for, score_samples
from remuda.networks import check_shape
from remuda.pictures import sheet
from remuda.protocol import acceptance_rate, checkpoint_due, checkpoints_to_drop, sheet_due
from remuda.store import NewerFormatError, RunFolder
from remuda.version import __version__

# Real images behind the scores: enough for stable moments, few enough to start in a second.
REAL_SAMPLES = 10_000
SHEET_SAMPLES = 64
# What reading a checkpoint that does not fit, whatever is wrong with it, may raise.
_UNUSABLE = (StoreError, LookupError, AttributeError, TypeError, ValueError, RuntimeError)


class Observer:
    """Told what happens in a run; the terminal view is one. This one watches in silence."""

    def started(self, run: Run, path: Path, round: int) -> None:
        """Training starts, or goes on, after `round` rounds."""

    def ticked(self, cell: int, round: int, batch: int, batches: int) -> None:
        """A cell is at a batch of its round."""

    def reported(self, report: RoundReport, alarms: list[Alarm]) -> None:
        """A cell finished its round."""

    def completed(self, round: int, recipe: Recipe, seconds: float) -> None:
        """All cells finished a round."""

    def warned(self, message: str) -> None:
        """Something the user should know, though the run goes on."""


@dataclass(frozen=True)
class Result:
    """What a finished run leaves."""

    path: Path
    picture: Path
    ensemble: Ensemble
    scores: Scores | None
    acceptance: Mapping[str, float]  # share of offspring that became their cell's centre
    seconds: float


@dataclass
class Run:
    """A configuration with all it needs, checked, before anything is written to disk."""

    config: Config
    dataset: Dataset
    method: Method
    judge: Judge | None
    views: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def prepare(cls, config: Config, dataset: Dataset | None = None) -> Run:
        dataset = dataset if dataset is not None else load_dataset(config.data)
        check_shape(config.network, dataset.shape)
        extractor = extractor_for(config.score, dataset.shape)
        method = build_method(config)
        views = [method.view(dataset, cell) for cell in range(config.cells)]
        for cell, view in enumerate(views):
            if config.training.batch_size > len(view):
                raise ConfigError(
                    f"training.batch_size={config.training.batch_size}: larger than the "
                    f"{len(view)} items that cell {cell} sees of {dataset.name} "
                    f"(data.view={config.data.view}); allowed: 2 to {len(view)}"
                )
            batches = config.training.batches_per_round or len(view) // config.training.batch_size
            if config.training.n_critic > batches:
                raise ConfigError(
                    f"training.n_critic={config.training.n_critic}: larger than the {batches} "
                    f"batches of a round, so no generator would train; allowed: 1 to {batches}"
                )
        judge = None
        if extractor is not None:
            judge = Judge(extractor, dataset.items[:REAL_SAMPLES], config.score.metric)
        return cls(config, dataset, method, judge, views)


def train(
    config: Config,
    observer: Observer | None = None,
    dataset: Dataset | None = None,
    attachments: Mapping[str, bytes] | None = None,
) -> Result:
    """Train a configuration in a new run folder, in which `attachments` are laid first."""
    observer = observer or Observer()
    with _threads(config.threads):
        run = Run.prepare(config, dataset)
        folder = RunFolder.create(config, _environment(run), attachments)
        with folder.lock():
            return _Training(run, folder, observer).run()


def resume(path: Path, observer: Observer | None = None) -> Result | None:
    """Continue an interrupted run from its last complete round; None if it is finished."""
    observer = observer or Observer()
    folder = RunFolder.open(path)
    config = folder.config()
    with _threads(config.threads), folder.lock():
        if folder.result() is not None:
            return None
        run = Run.prepare(config)
        _check_environment(folder, run, observer)
        return _Training(run, folder, observer).run()


class _Training:
    """The loop of the local engine: all cells in this process, one after the other."""

    def __init__(self, run: Run, folder: RunFolder, observer: Observer) -> None:
        self.run_ = run
        self.config = run.config
        self.folder = folder
        self.observer = observer
        self.comm: CommManager = LocalComm()
        self.completed = 0  # the last round of which everything, events included, is done
        self.saved = 0
        self.loss: float | None = None  # of the last complete round
        self.cells = self._new_cells()

    def _new_cells(self) -> list[Cell]:
        run = self.run_
        return [
            Cell(index, run.config, run.dataset, run.views[index], run.judge)
            for index in range(run.config.cells)
        ]

    def run(self) -> Result:
        start = time.perf_counter()
        self._restore()
        for cell in self.cells:
            self.comm.publish(cell.parcel())
            cell.tick = lambda batch, batches, cell=cell: self.observer.ticked(
                cell.index, cell.round, batch, batches
            )
        self.folder.append_event({"event": "started", "after_round": self.completed})
        self.observer.started(self.run_, self.folder.path, self.completed)
        try:
            for round in range(self.completed + 1, self.config.rounds + 1):
                self._play(round)
        except BaseException as error:
            self._rescue(error)
            raise
        return self._finish(time.perf_counter() - start)

    # -------------------------------------------------------------------------- one round

    def _play(self, round: int) -> None:
        start = time.perf_counter()
        for cell in self.cells:
            clock = Clock()
            cell.round = round
            with clock.routine("gather"):
                peers = self.run_.method.peers(cell.index, round)
                parcels = self.comm.collect(peers, round - 1)
            report = self.run_.method.advance(cell, parcels, clock)
            self.comm.publish(cell.parcel())
            self._report(report)
        recipe = self.run_.method.ensemble(self._parcels(round), self.run_.judge)
        seconds = time.perf_counter() - start
        self._complete(round, recipe, seconds)
        self.observer.completed(round, recipe, seconds)

    def _parcels(self, round: int) -> dict[int, Parcel]:
        """All cells' parcels of a round."""
        indices = [cell.index for cell in self.cells]
        return dict(zip(indices, self.comm.collect(indices, round), strict=True))

    def _report(self, report: RoundReport) -> None:
        judge = self.run_.judge
        alarms = find_alarms(
            batches=report.round * report.losses.batches,
            diverged=report.diverged,
            discriminator_loss=report.losses.discriminator,
            objective=self.config.training.objective,
            classes=report.classes,
            real_classes=int((judge.real.class_shares > 0).sum()) if judge else None,
            duplicates=report.duplicates,
        )
        self.folder.append_event(
            {
                "event": "round",
                "round": report.round,
                "cell": report.cell,
                "loss_generator": report.losses.generator,
                "loss_discriminator": report.losses.discriminator,
                "images": report.losses.images,
                **report.genes,
                "score": report.score,
                "classes": report.classes,
                "duplicates": report.duplicates,
                "diverged": report.diverged,
                **report.details,
                "seconds": dict(report.seconds),
                "alarms": [vars(alarm) for alarm in alarms],
            }
        )
        self.observer.reported(report, alarms)

    def _complete(self, round: int, recipe: Recipe, seconds: float) -> None:
        run, rounds = self.config.run, self.config.rounds
        self.folder.append_event(
            {
                "event": "population",
                "round": round,
                "score": recipe.score,
                "mixture": dict(recipe.weights),
                "seconds": seconds,
            }
        )
        if sheet_due(round, every=run.sheet_every, rounds=rounds):
            self._draw_sheets(round, recipe)
        # Interrupted before this line, the round counts for nothing and is trained again;
        # after it, all that the round leaves is there.
        self.completed, self.loss = round, _loss(recipe.score, self.config.score.metric)
        self.comm.forget(round)
        if checkpoint_due(round, every=run.checkpoint_every, rounds=rounds):
            self._save()

    # -------------------------------------------------------------------------- disk

    def _save(self) -> None:
        self.folder.save_checkpoint(self.completed, self._parcels(self.completed), self.loss)
        self.saved = self.completed
        self._prune()

    def _prune(self) -> None:
        run = self.config.run
        losses = {found.round: found.loss for found in self.folder.checkpoints()}
        for old in checkpoints_to_drop(losses, keep_last=run.keep_last, keep_best=run.keep_best):
            self.folder.drop_checkpoint(old)

    def _restore(self) -> None:
        """Go back to the newest checkpoint that can be read, or to the very beginning."""
        self.folder.drop_incomplete_checkpoints()
        found = self.folder.checkpoints()
        for checkpoint in reversed(found):
            try:
                parcels = self.folder.load_checkpoint(checkpoint)
                for cell in self.cells:
                    cell.restore(parcels[cell.index])
            except NewerFormatError:
                raise
            except _UNUSABLE as error:
                kept = self.folder.set_aside(checkpoint)
                self.observer.warned(
                    f"checkpoint of round {checkpoint.round} skipped and kept as {kept.name}: "
                    f"{' '.join(str(error).split())}"
                )
                continue
            self.completed = self.saved = checkpoint.round
            break
        else:
            if found:
                # A checkpoint that fitted only some cells must leave no trace in them.
                self.cells = self._new_cells()
        self._prune()
        self.folder.rewind_events(self.completed)

    def _rescue(self, error: BaseException) -> None:
        """Save the last complete round before the error goes its way."""
        if isinstance(error, StoreError):
            return
        if self.completed > self.saved:
            self._save()
        self.folder.append_event(
            {"event": "stopped", "after_round": self.completed, "why": type(error).__name__}
        )

    def _draw_sheets(self, round: int, recipe: Recipe) -> None:
        ensemble = self._ensemble(recipe, round)
        for cell in self.cells:
            samples = ensemble.rescale(cell.images(SHEET_SAMPLES, "sheet")).numpy()
            self.folder.write_sheet(round, f"cell-{cell.index:04d}", sheet(samples))
        mixture = sheet(ensemble.sample(SHEET_SAMPLES, self.config.seed))
        self.folder.write_sheet(round, "mixture", mixture)

    # -------------------------------------------------------------------------- the result

    def _ensemble(self, recipe: Recipe, round: int) -> Ensemble:
        parcels, dataset = self._parcels(round), self.run_.dataset
        return Ensemble(
            self.config.network,
            dataset.shape,
            tuple(
                Member(cell, weight, generator_weights(parcels[cell]))
                for cell, weight in recipe.weights.items()
            ),
            dataset.scale,
            dataset.offset,
            {
                "run": self.config.name,
                "method": self.config.method.name,
                "data": dataset.name,
                "rounds": round,
                "seed": self.config.seed,
                "chosen": recipe.reason,
                "remuda": __version__,
            },
        )

    def _finish(self, seconds: float) -> Result:
        recipe = self.run_.method.ensemble(self._parcels(self.completed), self.run_.judge)
        ensemble = self._ensemble(recipe, self.completed)
        scores = None
        if self.run_.judge is not None:
            images = ensemble.draw(self.config.score.final_samples, self.config.seed)
            scores = score_samples(self.run_.judge.extractor, images, self.run_.judge.real)
        acceptance = acceptance_rate(self.folder.events())
        target = self.folder.ensemble_path
        ensemble.save(target)
        picture = target / "samples.png"
        write_atomically(picture, sheet(ensemble.sample(SHEET_SAMPLES, self.config.seed)))
        self.folder.write_result(
            {
                "rounds": self.completed,
                "seconds": round(seconds, 3),
                "mixture": dict(recipe.weights),
                "chosen": recipe.reason,
                "acceptance": acceptance,
                "scores": scores.to_json() if scores else None,
            }
        )
        self.folder.append_event({"event": "finished", "seconds": seconds})
        return Result(self.folder.path, picture, ensemble, scores, acceptance, seconds)


def _loss(score: float | None, metric: str) -> float | None:
    if score is None:
        return None
    return -score if metric in HIGHER_IS_BETTER else score


# ---------------------------------------------------------------------------- the environment


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Threads are part of what makes two runs equal, so the configuration decides them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _environment(run: Run) -> dict[str, Any]:
    return {
        "remuda": __version__,
        "revision": _revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "platform": platform.platform(),
        "host": platform.node(),
        "cores": os.cpu_count(),
        "threads": run.config.threads,
        "data": {
            "name": run.dataset.name,
            "items": len(run.dataset),
            "fingerprint": run.dataset.fingerprint,
        },
    }


def _check_environment(folder: RunFolder, run: Run, observer: Observer) -> None:
    """Refuse other data; warn where other software may round differently."""
    then: Mapping[str, Any] = folder.env()
    now = _environment(run)
    if then.get("data", {}).get("fingerprint") != now["data"]["fingerprint"]:
        raise StoreError(
            f"{folder.path}: the data changed since the run started: "
            f"{then.get('data')} then, {now['data']} now"
        )
    for key in ("torch", "remuda", "platform"):
        if then.get(key) != now[key]:
            observer.warned(
                f"{key} was {then.get(key)} and is {now[key]}: weights may differ in the last bits"
            )


def _revision() -> str | None:
    """The git revision of remuda's own source, where it is a checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
