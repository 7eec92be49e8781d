"""The readers of settings, records, ensembles and run folders."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

from remuda.analysis.curves import read_costs
from remuda.cli.tables import workers_table
from remuda.compare.folder import Comparison
from remuda.compare.jobs import MeasuredAgain
from remuda.compare.measure import measure
from remuda.config import MlpSettings, load_config, read_config, render
from remuda.config.records import read_record
from remuda.files import digest
from remuda.gan.networks import build_generator
from remuda.gan.parcels import ParcelError, decode_parcel
from remuda.metrics import inception
from remuda.metrics.classifier import Card, DigitsNetwork, encoded
from remuda.metrics.extractors import read_extractor
from remuda.metrics.own_extractor import OwnCard, OwnExtractor, read_own_extractor
from remuda.metrics.own_networks import build_network
from remuda.parallel.messages import (
    Configure,
    Failed,
    Hello,
    MessageError,
    RunTask,
    Saved,
    Status,
    decode,
)
from remuda.parallel.protocol import State, Timeouts, WorkerStatus
from remuda.runs.costs import acceptance_rate, genes_of, sum_costs
from remuda.runs.ensemble import Ensemble, Labels, Member
from remuda.runs.events import EventLog
from remuda.runs.loading import load_ensemble
from remuda.runs.population import load_population
from remuda.runs.records import RunStatus
from remuda.runs.store import RunFolder
from remuda.runs.summary import summarise
from tests.fuzz.target import Target
from tests.tiny import tiny_cell, tiny_config

_CONFIG = render(tiny_config(grid={"shape": "1x2"}, data={"source": "data.npz"}))
# The same in a few lines, for folders in which another file is changed: YAML is slow to read.
_SHORT = """rounds: 3
seed: 3
data: data.npz
grid: 1x2
network: {family: mlp, latent: 4, hidden: [8]}
training: {batch_size: 6, learning_rate: 0.01}
method: cellular
"""
_ENV = {
    "id": "0123456789abcdef",
    "remuda": "0.1.0",
    "torch": "2.13.0",
    "platform": "Linux",
    "config": {"seed": 3},
    "data": {"name": "digits", "items": 60, "fingerprint": "abc"},
    "attachments": {"extractor.safetensors": "0" * 64},
}
_RESULT = {
    "rounds": 3,
    "seconds": 1.5,
    "images": 100,
    "batches": 10,
    "cpu_seconds": 0.5,
    "scores": {"values": {"fid": 12.5, "classes_covered": 9}, "extractor": "digits", "samples": 20},
    "modes_by_cell": {"0": {"values": {"modes_covered": 3}, "modes": 8}},
}
_EVENTS: list[dict[str, Any]] = [
    {"time": "2026-01-01", "event": "started", "after_round": 0, "hosts": {}, "warnings": []},
    *(
        {
            "event": "round",
            "round": round,
            "cell": cell,
            "images": 18,
            "batches": 3,
            "lr_generator": 0.01,
            "loss": "heuristic",
            "r1": None,
            "score": 3.5,
            "centre": {"generator": {"from": "offspring", "fitness": 0.5}},
            "cost": {"train": 0.5, "validation": 0.25},
            "seconds": {"train": 0.5, "wait": 0.1},
            "cpu_seconds": 0.25,
            "bytes": {"saved": 100},
            "alarms": [],
        }
        for round in (1, 2)
        for cell in (0, 1)
    ),
    {"event": "population", "round": 1, "score": 3.5, "mixture": {"0": 1.0}, "seconds": 1.5},
    {"event": "population", "round": 2, "coverage": {"modes_covered": 3}, "seconds": 1.5},
    {"event": "finished", "seconds": 3.0},
]


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _lines(events: list[dict[str, Any]]) -> bytes:
    return b"".join(_json(event) + b"\n" for event in events)


def _run(path: Path, name: str = "") -> RunFolder:
    """A sound run folder, in which the file has the place of the one of this name."""
    folder = path.parent / "run"
    folder.mkdir()
    sound = {
        "config.yaml": _SHORT.encode(),
        "env.json": _json(_ENV),
        "result.json": _json(_RESULT),
        "events.jsonl": _lines(_EVENTS),
    }
    for other, content in sound.items():
        (folder / other).write_bytes(content)
    if name:
        path.rename(folder / name)
    return RunFolder.open(folder)


def _look(name: str) -> Callable[[Path], object]:
    """What commands that only look at a run do with one whose file of this name was changed."""

    def read(path: Path) -> object:
        run = _run(path, name)
        summarise(run)
        measure("arm", 0, run.path, None, "fid")
        read_costs(run.path)
        list(map(str, (sum_costs(run.iter_events()).to_json(), run.id())))
        acceptance_rate(run.iter_events())
        return genes_of(0, run.iter_events(), "heuristic")

    return read


def _rewind(path: Path) -> object:
    log = EventLog(path)
    log.rewind(1)
    return list(log)


def _statuses() -> list[bytes]:
    worker = {"worker": 1, "host": "a", "pid": 7, "state": "processing", "verdict": "working"}
    workers = [{**worker, "heard": 0.5, "cells": [0, 1], "rounds": {"0": 1, "1": 2}}]
    status = {"time": 5.0, "rounds": 9, "completed": 1, "epoch": 2, "workers": workers}
    return [_json(status)]


def _read_status(path: Path) -> object:
    found = read_record(path, RunStatus, "status of a run")
    return workers_table([WorkerStatus.from_json(one.model_dump()) for one in found.workers], 80)


# ---------------------------------------------------------------------------- checkpoints


@cache
def _cells() -> dict[int, bytes]:
    config = tiny_config(grid={"shape": "1x2"})
    found = {}
    for index in (0, 1):
        cell = tiny_cell(config, index=index)
        found[index] = cell.parcel().encoded
    return found


def _manifest(cells: Mapping[int, bytes]) -> bytes:
    files = {
        f"cell-{cell:04d}.safetensors": {
            "cell": cell,
            "bytes": len(content),
            "sha256": digest(content),
        }
        for cell, content in cells.items()
    }
    return _json({"format": 1, "round": 1, "loss": 0.5, "files": files})


def _checkpoint(path: Path, cells: Mapping[int, bytes], manifest: bytes) -> RunFolder:
    run = _run(path)
    data = path.parent / "run" / "data.npz"
    np.savez(data, x=np.zeros((24, 8, 8), np.float32))
    (run.path / "config.yaml").write_text(_SHORT.replace("data.npz", str(data)))
    folder = run.path / "checkpoints" / "round-000001"
    folder.mkdir(parents=True)
    for cell, content in cells.items():
        (folder / f"cell-{cell:04d}.safetensors").write_bytes(content)
    (folder / "manifest.json").write_bytes(manifest)
    return run


def _read_manifest(path: Path) -> object:
    run = _checkpoint(path, _cells(), path.read_bytes())
    return [run.load_checkpoint(found) for found in run.checkpoints()]


def _read_cell(path: Path) -> object:
    cells = {**_cells(), 0: path.read_bytes()}
    return load_population(_checkpoint(path, cells, _manifest(cells)).path)


def _decode_parcel(path: Path) -> object:
    with suppress(ParcelError):
        return decode_parcel(path.read_bytes())
    return None


def _header(content: bytes) -> bytes:
    """The JSON at the start of safetensors; damaged in place, its length would not fit."""
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def _headed(
    content: Callable[[], bytes], read: Callable[[Path], object]
) -> Callable[[Path], object]:
    """Reads the file as the header of safetensors, its length put right."""

    def sealed(path: Path) -> object:
        whole, header = content(), path.read_bytes()
        rest = whole[8 + len(_header(whole)) :]
        path.write_bytes(len(header).to_bytes(8, "little") + header + rest)
        return read(path)

    return sealed


# ---------------------------------------------------------------------------- ensembles


@cache
def _ensemble() -> Mapping[str, bytes]:
    """The files of a small ensemble."""
    network = MlpSettings(latent=2, hidden=(3,))
    rng = torch.Generator().manual_seed(0)
    states = [build_generator(network, (1, 2, 2), rng).state_dict() for _ in range(2)]
    members = tuple(
        Member(cell, 0.5, state, label=cell, met=("0",)) for cell, state in enumerate(states)
    )
    tensors = {
        f"{n}.{name}": value for n, state in enumerate(states) for name, value in state.items()
    }
    model = safetensors.torch.save(tensors)
    labels = Labels(("a", "b"), (0.5, 0.5))
    ensemble = Ensemble(network, (1, 2, 2), members, about={"run": "x"}, labels=labels)
    description = {
        "format": 1,
        "kind": "remuda-ensemble",
        "network": network.model_dump(mode="json"),
        "shape": [1, 2, 2],
        "scale": [0.5],
        "offset": [0.5],
        "members": [{"cell": one.cell, "weight": 0.5, "label": one.label} for one in members],
        "noise_per_member": False,
        "sha256": digest(model),
        "about": ensemble.about,
        "labels": {"names": ["a", "b"], "shares": [0.5, 0.5]},
    }
    return {"model.safetensors": model, "config.json": _json(description)}


def _read_ensemble(path: Path, files: Mapping[str, bytes]) -> object:
    folder = path.parent / "ensemble"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    found = load_ensemble(folder)
    found.save(folder)
    return found.sample(3)


def _read_description(path: Path) -> object:
    return _read_ensemble(path, {**_ensemble(), "config.json": path.read_bytes()})


def _read_model(path: Path) -> object:
    model = path.read_bytes()
    description = json.loads(_ensemble()["config.json"])
    sealed = _json({**description, "sha256": digest(model)})
    return _read_ensemble(path, {"model.safetensors": model, "config.json": sealed})


# ---------------------------------------------------------------------------- extractors


@contextmanager
def _same_weights() -> Iterator[None]:
    """Networks made inside are the same every time, as inputs must be."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _classifiers() -> list[bytes]:
    card = Card("digits-test", "[-1, 1]", 0.9, 10, (1, 28, 28), 100)
    with _same_weights():
        return [encoded(DigitsNetwork().requires_grad_(False), card)]


def _own(kind: str, shape: tuple[int, ...], classes: int) -> bytes:
    card = OwnCard(kind=kind, shape=shape, classes=classes, accuracy=0.5, held_out=9)
    with _same_weights():
        return OwnExtractor(build_network(kind, shape, classes), card).encoded()


def _own_extractors() -> list[bytes]:
    return [_own("labels", (2,), 2), _own("random", (2,), 0)]


def _read_own(path: Path) -> object:
    extractor = read_own_extractor(path, (2,))
    return extractor.card.has_learnt, extractor(torch.zeros(3, 2))


def _arrays() -> list[bytes]:
    found = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        arrays: dict[str, Any] = {"a.bn.bias": np.zeros(3, np.float16), "b": np.arange(4.0)}
        save(file, **arrays)
        found.append(file.getvalue())
    return found


def _read_weights(path: Path) -> object:
    return inception._tensors(path, inception._content(path))


# ---------------------------------------------------------------------------- comparisons, messages


def _plans() -> list[bytes]:
    arms = [
        {"name": name, "words": ["quickstart"], "config": {"name": name, "rounds": 2}, "images": 5}
        for name in ("a", "b")
    ]
    plan = {
        "format": 1,
        "written": "2026-01-01",
        "arms": arms,
        "seeds": [0, 1],
        "score": "fid",
        "live": "fid",
        "metrics": ["fid"],
        "budget": "images=100",
        "target": 5.0,
        "collapsed": "tvd>0.5",
        "additions": [{"time": "2026-01-02", "seeds": [2]}],
        "environment": {"cores": 2},
    }
    found = [{**arm, "runs": {"0": "nowhere", "1": "nowhere"}} for arm in arms]
    return [_json(plan), _json({**plan, "found": True, "arms": found, "collapsed": None})]


def _read_plan(path: Path) -> object:
    path.rename(path.with_name("plan.json"))
    found = Comparison.open(path.parent)
    found.measure_all()
    found.write("stopped")
    return found.jobs()


def _scores() -> list[bytes]:
    return [_json({"metrics": ["fid"], "run": "0" * 64, "scores": {"values": {"fid": 1.5}}})]


def _messages() -> list[bytes]:
    config = tiny_config().model_dump_json()
    return [
        message.encode()
        for message in (
            Configure(config=config, folder="a", data="b", fingerprint="c", timeouts=Timeouts()),
            RunTask(term=1, cells=(0, 1), start=0, owners=(1, 2)),
            Hello(host="a", pid=1, cores=2, memory=3),
            Status(number=1, state=State.PROCESSING, term=1, rounds={0: 1}, cell=0),
            Saved(term=1, cell=0, round=1, bytes=5, sha256="0" * 64),
            Failed(term=1, cell=0, round=1, error="x"),
        )
    ]


def _decode_message(path: Path) -> object:
    with suppress(MessageError):
        return decode(path.read_bytes())
    return None


TARGETS: list[Target] = [
    Target(
        "yaml",
        ".yaml",
        lambda: [_CONFIG.encode(), b"preset: quickstart\ngrid: 3x3\n"],
        lambda path: load_config(str(path)),
    ),
    Target("run-config", ".yaml", lambda: [_CONFIG.encode()], read_config),
    Target("env", ".json", lambda: [_json(_ENV)], _look("env.json")),
    Target("result", ".json", lambda: [_json(_RESULT)], _look("result.json")),
    Target("events", ".jsonl", lambda: [_lines(_EVENTS)], _look("events.jsonl")),
    Target("rewind", ".jsonl", lambda: [_lines(_EVENTS)], _rewind),
    Target("status", ".json", _statuses, _read_status),
    Target("manifest", ".json", lambda: [_manifest(_cells())], _read_manifest),
    Target("parcel", ".safetensors", lambda: [*_cells().values()], _decode_parcel),
    Target("cell", ".safetensors", lambda: [_cells()[0]], _read_cell),
    Target("ensemble", ".json", lambda: [_ensemble()["config.json"]], _read_description),
    Target("model", ".safetensors", lambda: [_ensemble()["model.safetensors"]], _read_model),
    Target("classifier", ".safetensors", _classifiers, read_extractor),
    Target("own-extractor", ".safetensors", _own_extractors, _read_own),
    Target("inception", ".npz", _arrays, _read_weights),
    Target("inception-tensors", ".safetensors", _own_extractors, _read_weights),
    Target("plan", ".json", _plans, _read_plan),
    Target("scores", ".json", _scores, lambda path: read_record(path, MeasuredAgain, "scores")),
    Target("message", ".json", _messages, _decode_message),
    Target(
        "parcel-header",
        ".json",
        lambda: [_header(_cells()[0])],
        _headed(lambda: _cells()[0], _decode_parcel),
    ),
    Target(
        "cell-header",
        ".json",
        lambda: [_header(_cells()[0])],
        _headed(lambda: _cells()[0], _read_cell),
    ),
    Target(
        "model-header",
        ".json",
        lambda: [_header(_ensemble()["model.safetensors"])],
        _headed(lambda: _ensemble()["model.safetensors"], _read_model),
    ),
    Target(
        "own-header",
        ".json",
        lambda: [_header(_own("labels", (2,), 2))],
        _headed(lambda: _own("labels", (2,), 2), _read_own),
    ),
]
