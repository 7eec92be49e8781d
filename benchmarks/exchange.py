"""What an exchange between two neighbours costs, on worker processes and on MPI ranks.

Two workers send each other the parcel of a cell that has trained, by turns: one copies its GAN into
a parcel and publishes it, the other waits for it and reads every number of it. `MB` is what the
method reads of a neighbour, `ms` the wall-clock time of one way, `CPU ms` what sending and reading
cost a worker (on MPI, its talking thread as well), and the share is that beside a round of training
with one neighbour.

    python -m benchmarks.exchange [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measuring import print_table, publish
from remuda.config import load_config
from remuda.gan.cell import Cell
from remuda.gan.parcels import Parcel, decode_parcel
from remuda.parallel.messages import Stop
from remuda.parallel.shared_memory import make_shared_folder
from remuda.parallel.supervisor import find_mpiexec
from remuda.parallel.transports.base import MasterGoneError, WorkerComm
from remuda.parallel.transports.process import ProcessMaster
from remuda.runs.prepare import Run

# Batches to time a round by; the rest of it is like them.
PRESETS = {"quickstart": 20, "cellular-digits": 20, "gap-toy-r15": 10, "gap-mnist": 2}
QUICK = ("gap-toy-r15",)
NEVER = 600.0  # seconds
WARM_UP = 3


def trained(preset: str, batches: int, folder: Path) -> dict[str, Any]:
    """Leave the parcel of a cell that has trained; CPU seconds of a round, and what peers read."""
    config = load_config(preset, [])
    run = Run.prepare(config.model_copy(update={"score": _unscored(config.score)}))
    cell = run.cell(0)
    cell.round = 1
    _cut(cell, batches)
    cell.train(cell.gan)  # warms up
    begun = time.process_time()
    cell.train(cell.gan)
    spent = (time.process_time() - begun) / batches
    folder.mkdir()
    (folder / "parcel").write_bytes(cell.parcel().encoded)
    (folder / "reads").write_text(json.dumps(run.method.reads))
    return {"round_seconds": spent * config.round_batches(len(cell.view))}


def _unscored(score: Any) -> Any:
    return score.model_copy(update={"extractor": "none"})


def _cut(cell: Cell, batches: int) -> None:
    """Only so many of the batches of a round."""
    whole = cell._batches()[:batches]
    cell._batches = lambda: whole  # type: ignore[method-assign]


def exchanging(comm: WorkerComm, folder: str, rounds: int) -> None:
    """What either worker does; the one that comes first is cell 0."""
    torch.set_num_threads(1)
    place = Path(folder)
    own = _claim(place)
    sent = decode_parcel((place / "parcel").read_bytes())
    reads = json.loads((place / "reads").read_text())
    part = reads if isinstance(reads, str) else tuple(reads)
    wall, cpu, gathered = [], [], 0
    for round in range(rounds + WARM_UP):
        begun, used = time.perf_counter(), time.process_time()
        for turn in (own, 1 - own):
            if turn == 0:
                tensors = {name: value.clone() for name, value in sent.tensors.items()}
                comm.publish(1, Parcel(own, round, tensors, sent.meta), {1, 2}, part)
            else:
                (found,) = comm.collect(1, [1 - own], round, lambda: False, part)
                gathered = found.nbytes
                for value in found.tensors.values():
                    value.sum()  # what is mapped is read only now
        wall.append((time.perf_counter() - begun) / 2)  # there and back
        cpu.append(time.process_time() - used)
        comm.exchange.forget(1, round - 1)
    figures = {"wall": wall[WARM_UP:], "cpu": cpu[WARM_UP:], "bytes": gathered}
    (place / f"part-{own}").write_text(json.dumps(figures))
    (place / f"part-{own}").rename(place / f"figures-{own}")
    try:
        while not isinstance(comm.receive(0.2), Stop):
            pass
    except MasterGoneError:
        return


def _claim(folder: Path) -> int:
    for number in (0, 1):
        try:
            os.close(os.open(folder / f"claim-{number}", os.O_CREAT | os.O_EXCL))
            return number
        except FileExistsError:
            continue
    raise RuntimeError("more than two workers")


def _wait_for_figures(folder: Path) -> list[dict[str, Any]]:
    files = [folder / f"figures-{number}" for number in (0, 1)]
    deadline = time.monotonic() + NEVER
    while not all(file.exists() for file in files):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder}: the workers did not finish")
        time.sleep(0.02)
    return [json.loads(file.read_text()) for file in files]


def on_processes(folder: Path, rounds: int) -> list[dict[str, Any]]:
    shared = make_shared_folder(2**28)
    master = ProcessMaster(exchanging, (str(folder), rounds), shared, 2)
    try:
        return _wait_for_figures(folder)
    finally:
        master.close()


def on_ranks(folder: Path, rounds: int) -> list[dict[str, Any]]:
    command = [*find_mpiexec(None, 3), sys.executable, "-m", "benchmarks.exchange"]
    command += ["--rank", str(folder), "--rounds", str(rounds)]
    free = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    subprocess.run(command, check=True, env={**os.environ, **free}, timeout=NEVER)
    return _wait_for_figures(folder)


def as_rank(folder: Path, rounds: int) -> None:
    """What a rank of the MPI job runs."""
    from remuda.parallel.transports.mpi import MpiMaster, MpiWorker
    from remuda.parallel.transports.mpi_thread import Session

    session = Session()
    if session.rank == 0:
        master = MpiMaster(session)
        _wait_for_figures(folder)
        master.close()
    else:
        exchanging(MpiWorker(session), str(folder), rounds)
    session.end()


def summary(found: Sequence[dict[str, Any]], round_seconds: float) -> dict[str, float]:
    wall = found[0]["wall"]
    cpu = [value for one in found for value in one["cpu"]]
    megabytes = found[0]["bytes"] / 1e6
    return {
        "megabytes": megabytes,
        "least_ms": 1e3 * min(wall),
        "median_ms": 1e3 * statistics.median(wall),
        "cpu_ms": 1e3 * statistics.median(cpu),
        "megabytes_per_second": megabytes / min(wall),
        "share_of_round": statistics.median(cpu) / round_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    if options.rank is not None:
        as_rank(options.rank, options.rounds)
        return
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    chosen = QUICK if options.quick else tuple(PRESETS)
    if "REMUDA_DATA" not in os.environ:
        chosen = tuple(name for name in chosen if "mnist" not in name)
    figures: dict[str, Any] = {}
    rows = []
    for preset in chosen:
        for engine, carry in {"process": on_processes, "mpi": on_ranks}.items():
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name) / engine
                spent = trained(preset, PRESETS[preset], folder)["round_seconds"]
                found = summary(carry(folder, options.rounds), spent)
            figures.setdefault(preset, {"round_seconds": spent})[engine] = found
            shown = [found[key] for key in ("megabytes", "least_ms", "median_ms", "cpu_ms")]
            share = f"{100 * found['share_of_round']:.2f} %"
            rows.append([preset, engine, *shown, found["megabytes_per_second"], share])
            print(*rows[-1], flush=True)
    head = ["preset", "engine", "MB", "least ms", "median ms", "CPU ms", "MB/s", "of a round"]
    print_table("One exchange with a neighbour, two workers", head, rows)
    publish("exchange", {"presets": figures}, quick=options.quick)


if __name__ == "__main__":
    main()
