"""Cells that start from GANs of earlier runs (`init_from`).

The earlier runs are read and checked once, when the run is created. The cells' first parcels are
written to the new run folder, so resuming it does not need the earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from remuda.config import Config, NetworkSettings
from remuda.errors import ConfigError, DamagedError, StoreError
from remuda.files import digest, read_stored
from remuda.gan.average import Average, average_tensors
from remuda.gan.cell import parcel_network
from remuda.gan.parcels import Parcel, network_weights, role_tensors
from remuda.methods import CellState, all_met, ancestor, build_method, lineage, qualified
from remuda.metrics.tensor_files import ROOM
from remuda.runs.ensemble import CONFIG_FILE, MODEL_FILE, Ensemble
from remuda.runs.identity import is_id
from remuda.runs.loading import load_ensemble
from remuda.runs.prepare import Run
from remuda.runs.store import ENSEMBLE, RunFolder, initial_file


@dataclass(frozen=True)
class Start:
    """A GAN of an earlier run; without a discriminator where only an ensemble was left."""

    where: str
    network: NetworkSettings
    generator: Mapping[str, Tensor]
    average: Mapping[str, Tensor]  # as a learner's tensors; empty where there is none
    discriminator: Mapping[str, Tensor] | None
    lineage: str | None
    ancestor: str
    met: tuple[str, ...]


def initial_parcels(run: Run) -> dict[str, Parcel]:
    """The parcels that cells start from, by the names of their files; none without `init_from`."""
    if not run.config.init_from:
        return {}
    starts = [start for source in run.config.init_from for start in _starts(source)]
    if len(starts) != run.config.cells:
        found = ", ".join(start.where for start in starts)
        raise ConfigError(
            f"init_from: {len(starts)} GANs ({found}) for {run.config.cells} cells; allowed: as "
            f"many as cells, for example grid=1x{len(starts)}, or RUN:CELL for one of a run"
        )
    parcels = {number: _begun(run, number, start) for number, start in enumerate(starts)}
    run.method.check_start(parcels)
    return {initial_file(number): parcel for number, parcel in parcels.items()}


def _starts(source: str) -> Iterator[Start]:
    path, chosen = _split(source)
    try:
        found = list(_of_ensemble(path) if (path / CONFIG_FILE).is_file() else _of_run(path))
    except StoreError as error:
        raise ConfigError(f"init_from={source}: {error}") from None
    if chosen is None:
        yield from found
        return
    matches = [start for start in found if start.where == f"{path}:{chosen}"]
    if not matches:
        there = ", ".join(start.where.rpartition(":")[2] for start in found)
        raise ConfigError(f"init_from={source}: {path} has no cell {chosen}; allowed: {there}")
    yield from matches


def _split(source: str) -> tuple[Path, int | None]:
    """A folder, and the number of a cell after a colon; a folder's own name may hold colons."""
    whole = Path(source).expanduser()
    head, colon, tail = source.rpartition(":")
    if whole.is_dir() or not colon or not tail.isdecimal():
        if not whole.is_dir():
            raise ConfigError(
                f"init_from={source}: no such folder; allowed: a run folder, RUN:CELL, or an "
                "ensemble folder"
            )
        return whole, None
    path = Path(head).expanduser()
    if not path.is_dir():
        raise ConfigError(f"init_from={source}: no such folder: {path}")
    return path, int(tail)


def _of_run(path: Path) -> Iterator[Start]:
    folder = RunFolder.open(path)
    config, own = folder.config(), folder.id()
    parcels = _newest(folder)
    if parcels is None:
        if (folder.ensemble_path / CONFIG_FILE).is_file():
            yield from _of_ensemble(folder.ensemble_path, where=path)
            return
        raise StoreError("it has neither a readable checkpoint nor an ensemble")
    try:
        met = all_met(parcels, build_method(config))
        yield from [_start(path, own, config, parcels[cell], met[cell]) for cell in sorted(parcels)]
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise DamagedError(f"the cells of its checkpoint do not fit it: {problem}") from None


def _start(path: Path, own: str, config: Config, parcel: Parcel, met: frozenset[str]) -> Start:
    try:
        network = parcel_network(config, parcel)
    except ValueError as error:
        raise DamagedError(f"cell {parcel.cell} of its checkpoint has {error}") from None
    return Start(
        f"{path}:{parcel.cell}",
        network,
        network_weights(parcel, "generator"),
        average_tensors(role_tensors(parcel, "generator")),
        network_weights(parcel, "discriminator"),
        qualified(own, lineage(parcel)),
        qualified(own, ancestor(parcel)),
        tuple(sorted(qualified(own, one) for one in met)),
    )


def _newest(folder: RunFolder) -> dict[int, Parcel] | None:
    for checkpoint in reversed(folder.checkpoints()):
        try:
            return folder.load_checkpoint(checkpoint)
        except DamagedError:
            continue
    return None


def _of_ensemble(folder: Path, where: Path | None = None) -> Iterator[Start]:
    ensemble = load_ensemble(folder)
    own, founder = _origin(folder, ensemble)
    for member in ensemble.members:
        yield Start(
            f"{where or folder}:{member.cell}",
            ensemble.network_of(member),
            member.state,
            {},
            None,
            None,
            qualified(founder, str(member.cell)),
            tuple(sorted(qualified(own, one) for one in member.met or (str(member.cell),))),
        )


def _origin(folder: Path, ensemble: Ensemble) -> tuple[str, str]:
    """The run of an ensemble: what qualifies lineages that it met, and those of its generators."""
    said = ensemble.about.get("id")
    if is_id(said):
        return said, said
    # One of an earlier version does not say; if it lies in its run folder, that is asked.
    run = RunFolder(folder.resolve().parent)
    if folder.resolve().name == ENSEMBLE and (run.path / "config.yaml").is_file():
        return run.id(), run.id()
    # Else it is known by the folder it is in, as that version knew it. That may be called as other
    # folders are, and strangers must not count as relatives: its weights tell it from them.
    return run.path.name, digest(read_stored(folder / MODEL_FILE, room=ROOM))[:16]


def _begun(run: Run, number: int, start: Start) -> Parcel:
    """The parcel of round 0 of a cell with these networks, and optimisers that start anew."""
    cell = run.probe(number)
    assert isinstance(cell.state, CellState)
    if run.method.moves_priors:
        cell.network = cell.network.with_prior(start.network.prior)
    if start.network != cell.network:
        changes = ", ".join(
            f"{name}={value}"
            for name, value in start.network.model_dump().items()
            if cell.network.model_dump().get(name) != value
        )
        raise ConfigError(
            f"init_from: {start.where} has other networks than cell {number}; allowed: those of "
            f"the earlier run, network: {changes}"
        )
    _load(start.where, cell.gan.generator.network, start.generator)
    _begin_average(start, cell.gan.generator.average)
    cell.state.ancestor = start.ancestor
    if start.discriminator is not None:
        _load(start.where, cell.gan.discriminator.network, start.discriminator)
        cell.state.lineage = start.lineage
    cell.state.met = list(start.met)
    cell.scorer = run.scorer
    cell.assess()
    return cell.parcel()


def _begin_average(start: Start, average: Average | None) -> None:
    """Go on with the average of the earlier run; without one, begin with its weights."""
    if average is None:
        return
    average.restart()
    if start.average:
        try:
            average.restore(start.average)
        except (ValueError, RuntimeError) as error:
            raise ConfigError(f"init_from: {start.where}: {error}") from None
        _check_finite(start.where, average.network)


def _load(where: str, network: nn.Module, state: Mapping[str, Tensor]) -> None:
    try:
        network.load_state_dict(dict(state))
    except RuntimeError as error:
        problem = str(error).splitlines()[-1].strip()
        raise ConfigError(f"init_from: {where} does not fit the data: {problem}") from None
    _check_finite(where, network)


def _check_finite(where: str, network: nn.Module) -> None:
    if not all(bool(value.isfinite().all()) for value in network.state_dict().values()):
        raise ConfigError(f"init_from: {where} holds weights that are NaN or infinite")
