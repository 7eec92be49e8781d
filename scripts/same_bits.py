"""Show that a change of the source changes no bit of any result: train tiny runs before and after.

    python scripts/same_bits.py REVISION [--only PATTERN] [--keep DIR] [--thorough]

Trains the same runs on a git revision (in a temporary worktree) and on the working tree, side by
side, and compares what they leave: every tensor and the memory of every cell in every checkpoint,
the ensembles, the scores, the events and the pictures. Values must be equal bit for bit; files may
gain fields, but lose none. Runs that the revision began are also finished by the working tree.
Asynchronous exchange is left out, for no two such runs are alike.

With --keep, the revision's runs are taken from DIR where they are there already, and all runs are
left there to look at. The exit code is 0 only if every case ran and nothing differs.
"""

from __future__ import annotations

import argparse
import fcntl
import fnmatch
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

ROOT = Path(__file__).resolve().parent.parent
FIRST = "round-000001"  # the checkpoint that resumed runs go on from
MOST_SHOWN = 6  # differences of one case; more of them say nothing new
# What depends on the clock and on the size of files, which may gain fields.
UNTIMED = ("time", "seconds", "cpu_seconds", "bytes")
RESULTS = ("rounds", "mixture", "acceptance", "scores", "modes_by_cell")
DESCRIPTION = ("network", "shape", "scale", "offset", "members", "labels")


# ---------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Job:
    """One run to make: trained from its words, or another's first checkpoint trained on."""

    name: str
    engine: str = "local"
    words: tuple[str, ...] = ()
    begun: str | None = None  # the run whose first checkpoint it goes on from
    begun_before: bool = False  # by the revision rather than on its own side
    needs: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """The revision's run that this one is compared with."""
        return self.name.replace("~across", "~resume")


# A file of its own, since presets may change between two revisions.
BASE = "data/base.yaml"
BASE_TEXT = """\
name: base
rounds: 30
data: digits
network: {family: mlp, activation: leaky_relu}
training: {learning_rate: 0.001}
grid: 2x2
method: {name: cellular, opponents: partner, replacement: comma}
run: {sheet_every: 10}
"""
TINY = (
    "seed=5",
    "rounds=3",
    "grid=1x2",
    "data.limit=60",
    "training.batch_size=10",
    "training.batches_per_round=3",
    "training.learning_rate=0.002",
    "score.samples=20",
    "score.final_samples=20",
    "run.sheet_every=0",
    "run.keep_last=99",
)
GREY = ("data=data/grey.npz", "score.extractor=digits")
COLOUR = ("data=data/colour.npz", "score.extractor=cifar")
MLP = ("network=mlp", "network.latent=4", "network.hidden=[8, 6]")
TOY = (
    "data.limit=100",
    "network.latent=2",
    "network.hidden=[8, 8]",
    "training.batches_per_round=4",
)
DCGAN = ("network=dcgan", "network.latent=5", "network.width=2")
GRAN = (
    "network=gran",
    "network.latent=4",
    "network.steps=2",
    "network.width=2",
    "network.discriminator_width=2",
)
CLASS_DCGAN = ("network=class_dcgan", "network.latent=5", "network.width=4")
RESNET = ("network=resnet", "network.latent=5", "network.width=4")
FAMILIES = {
    "mlp": MLP,
    "dcgan": DCGAN,
    "gran": GRAN,
    "class_dcgan": CLASS_DCGAN,
    "resnet": RESNET,
}
METHODS: dict[str, tuple[str, ...]] = {
    "cellular": (
        "method=cellular",
        "method.opponents=subpopulation",
        "method.losses=[minimax, heuristic, least_squares]",
    ),
    "independent": ("method=independent",),
    "gap": ("method=gap",),
    "class_parallel": ("method=class_parallel", *GREY),
}
# Every worker imports torch, which takes longer than the run: each method, and each network once.
ON_PROCESSES = {
    "cellular-mlp": ("train", "resume"),
    "gap-hybrid": ("train", "resume"),
    "independent-resnet": ("train",),
    "class_parallel-class_dcgan": ("train",),
    "class_parallel-gap": ("train",),
    "class_parallel-cellular": ("resume",),
}
HYBRID = "members=[{}, {network: {family: gran, latent: 3, steps: 2, width: 2, %s}}]"
HYBRID %= "discriminator_width: 2"
CLIP = ("training.objective=wasserstein", "training.clip=0.05")
PENALTY = ("training.objective=wasserstein", "training.lipschitz=gradient_penalty")
REPLICAS = ("method=class_parallel", "method.replicas=2", *GREY)


class Cases:
    """Collects the jobs of all cases; `thorough` ones are all trained on processes too."""

    def __init__(self, thorough: bool) -> None:
        self.jobs: list[Job] = []
        self._thorough = thorough

    def add(
        self,
        name: str,
        *words: str,
        preset: str = BASE,
        resume: bool = False,
        needs: Sequence[str] = (),
    ) -> None:
        """A run in one process; on demand also one that is interrupted after a round."""
        named = (preset, *TINY, *words)
        self.jobs.append(Job(name, words=named, needs=tuple(needs)))
        if resume:
            self.jobs.append(Job(f"{name}~resume", begun=name, needs=(name,)))
            across = Job(f"{name}~across", begun=name, begun_before=True, needs=(f"{name}~resume",))
            self.jobs.append(across)
        everything = ("train", "resume") if resume else ("train",)
        on_processes = everything if self._thorough else ON_PROCESSES.get(name, ())
        if "train" in on_processes:
            self.jobs.append(Job(f"{name}~process", "process", named, needs=tuple(needs)))
        if "resume" in on_processes:
            again = Job(f"{name}~process~resume", "process", begun=name, needs=(name,))
            self.jobs.append(again)


def all_jobs(thorough: bool) -> list[Job]:
    """Every case, in the order in which they are trained."""
    cases = Cases(thorough)
    for method, chosen in METHODS.items():
        for family, network in FAMILIES.items():
            cases.add(f"{method}-{family}", *chosen, *network, resume=True)
    _add_cellular(cases)
    _add_others(cases)
    _add_training(cases)
    _add_data(cases)
    _add_presets(cases)
    cases.jobs.append(Job("command~train", "command", (BASE, *TINY, *MLP)))
    cases.jobs.append(
        Job("command~resume", "command", begun="command~train", needs=("command~train",))
    )
    return cases.jobs


def _add_cellular(cases: Cases) -> None:
    mlp = ("method=cellular", *MLP)
    for name, words in {
        "2x2": ("grid=2x2", "method.replacement=elitist"),
        "elitist": ("grid=1x3", "method.replacement=elitist", "method.tournament_size=3"),
        "worst": ("grid=1x3", "method.fitness=worst", "method.replacement=elitist"),
        "best": ("grid=1x3", "method.fitness=best", "method.opponents=subpopulation"),
        "fitness_loss": ("method.fitness_loss=least_squares", "method.losses=[relativistic]"),
        "no-selection": ("method.selection=false",),
        "no-communication": ("method.communication=false", "method.tournament_size=1"),
        "no-mutation": ("method.mutation=false", "method.mixture_scale=0"),
        "moore": ("grid=3x3", "grid.neighbourhood=moore", "rounds=2"),
        "ring": ("grid=1x4", "grid.neighbourhood=ring"),
        "table": ("grid=1x3", "grid.neighbourhood=table", "grid.table=[[1], [2], [0]]"),
    }.items():
        cases.add(f"cellular-{name}", *mlp, *words)
    schedule = "grid.schedule=[{round: 2, neighbourhood: ring}, {round: 3, shape: 1x4}]"
    cases.add("cellular-schedule", *mlp, "grid=2x2", schedule, resume=True)
    cases.add("cellular-wasserstein", *mlp, *CLIP, "training.n_critic=2", resume=True)


def _add_others(cases: Cases) -> None:
    dcgans = ("method=gap", "grid=1x3", *DCGAN)
    cases.add("gap-hybrid", *dcgans, "grid=1x4", HYBRID, resume=True)
    cases.add("gap-generators", *dcgans, "method.swap=generators", resume=True)
    cases.add("gap-moves", *dcgans, "method.optimiser=moves", resume=True)
    cases.add(
        "gap-generators-move",
        *dcgans,
        "method.swap=generators",
        "method.optimiser=moves",
        "rounds=4",
    )
    cases.add("gap-none", *dcgans, "method.swap=none", "method.ensemble=uniform")
    cases.add("gap-swap_every", *dcgans, "method.swap_every=0.5", "training.batches_per_round=null")
    members = "members=[{prior: uniform, input_noise: [[0.9, 0.2]]}, {gradient_clip: 0.05}]"
    cases.add("gap-members", *dcgans, members, resume=True)
    cases.add("independent-uniform", "method=independent", "method.ensemble=uniform", *MLP)
    for family, network in {"class_dcgan": CLASS_DCGAN, "resnet": RESNET}.items():
        for condition in ("projection", "auxiliary"):
            told = (f"network.condition={condition}", "network.classes=3", *GREY)
            name = f"independent-{family}-{condition}"
            cases.add(name, "method=independent", *network, *told, resume=True)
    cases.add("class_parallel-replicas", *REPLICAS, *MLP, resume=True)
    for name, words in {
        "cellular": (
            "method.within={name: cellular, losses: [minimax, heuristic], "
            "opponents: subpopulation}",
        ),
        "gap": ("method.within={name: gap}", "method.replicas=3"),
        "gap-moves": ("method.within={name: gap, optimiser: moves, swap: generators}",),
    }.items():
        cases.add(f"class_parallel-{name}", *REPLICAS, *MLP, *words, resume=True)
    cases.add(
        "class_parallel-prior", "method=class_parallel", *GREY, *MLP, "method.prior=[1, 2, 5]"
    )
    cases.add("class_parallel-unscored", *REPLICAS, *MLP, "score.extractor=none")
    cases.add("class_parallel-is", *REPLICAS, *MLP, "score.metric=is")


def _add_training(cases: Cases) -> None:
    alone = ("method=independent", *MLP)
    for objective in ("minimax", "heuristic", "least_squares", "relativistic"):
        cases.add(f"objective-{objective}", *alone, f"training.objective={objective}")
    cases.add("objective-wasserstein-clip", *alone, *CLIP, "training.n_critic=2", resume=True)
    cases.add("objective-wasserstein-penalty", *alone, *PENALTY, resume=True)
    cases.add(
        "objective-relativistic-gamma",
        *("method=independent", *RESNET),
        *("training.objective=relativistic", "training.gamma=0.3"),
        resume=True,
    )
    cases.add(
        "objective-relativistic-no-gamma",
        *alone,
        *("training.objective=relativistic", "training.gamma=0"),
    )
    for name, words in {
        "rmsprop": ("training.optimiser=rmsprop",),
        "n_critic": ("training.n_critic=2",),
        "skip_n_disc_steps": ("training.skip_n_disc_steps=2",),
        "input_noise": ("training.input_noise=[[0.4, 0.3], [0.8, 0.1]]",),
        "gradient_clip": ("training.gradient_clip=0.05",),
        "epochs": ("training.batches_per_round=null", "training.betas=[0.0, 0.9]"),
        "spectral_norm": ("network.spectral_norm=true", "network.batch_norm=true"),
        "batch_norm": ("network.batch_norm=true", "network.discriminator_batch_norm=false"),
        "uniform-prior": ("network.prior=uniform", "network.activation=relu"),
    }.items():
        cases.add(name, "method=cellular", *MLP, *words, resume=True)
    augment = "training.augment=[translation, cutout, colour]"
    cases.add("augment-grey", "method=independent", *DCGAN, augment, resume=True)
    cases.add("augment-colour", "method=independent", *COLOUR, *DCGAN, augment)
    for name, network in {"dcgan": DCGAN, "gran": GRAN, "class_dcgan": CLASS_DCGAN}.items():
        cases.add(f"{name}-spectral_norm", "method=gap", *network, "network.spectral_norm=true")
    cases.add("gran-one-noise", "method=gap", *GRAN, "network.redraw=false")
    for name, network in {"class_dcgan": CLASS_DCGAN, "resnet": RESNET}.items():
        cases.add(f"{name}-attention", "method=gap", *network, "network.attention=true")
    plain = ("network.batch_norm=false", "network.dropout=0", "network.first_activation=leaky_relu")
    cases.add("class_dcgan-penalty", "method=independent", *CLASS_DCGAN, *plain, *PENALTY)


def _add_data(cases: Cases) -> None:
    cellular, gap = ("method=cellular", *MLP), ("method=gap", *MLP)
    cases.add("view-share", *cellular, "data.view=share", "data.share=0.5", resume=True)
    cases.add("view-disjoint", *gap, "data.view=share", "data.share=0.4", "data.overlap=false")
    cases.add("view-label", *cellular, *GREY, "data.view=label", "data.label=1")
    cases.add("validation", *gap, "data.validation=20", resume=True)
    cases.add("validation-cellular", *cellular, "data.validation=20", "data.seed=3")
    for metric in ("fid_logits", "is", "tvd"):
        cases.add(f"score-{metric}", *cellular, f"score.metric={metric}")
    cases.add("score-none", *cellular, "score.extractor=none", resume=True)
    for family, network in FAMILIES.items():
        cases.add(f"colour-{family}", "method=gap", *COLOUR, *network)
    cases.add("points-ring8", *cellular, *TOY, "data=ring8", resume=True)
    cases.add("points-mog25", *gap, *TOY, "data=mog25", "data.seed=2", resume=True)
    cases.add("points-r15", "method=independent", *MLP, *TOY, "data=r15")
    cases.add("points-file", *cellular, *TOY, "data=data/points.csv")
    labels = ("method=class_parallel", *MLP, *TOY, "data=ring8", "data.limit=null", "rounds=2")
    cases.add("points-class_parallel", *labels)
    # Started from runs of other cases: all their cells, one cell, an ensemble.
    for name, words, needs in (
        ("run", ("init_from=[independent-mlp]",), ["independent-mlp"]),
        (
            "cells",
            ("init_from=[gap-mlp:1, independent-mlp:0]",),
            ["gap-mlp", "independent-mlp"],
        ),
        ("ensemble", ("init_from=[cellular-mlp/ensemble]",), ["cellular-mlp"]),
    ):
        cases.add(f"init_from-{name}", *gap, *words, resume=name != "ensemble", needs=needs)


def _add_presets(cases: Cases) -> None:
    """What the presets say, where it does not make a run large."""
    cases.add("preset-gap-toy-r15", *TOY, "training.batches_per_round=null", preset="gap-toy-r15")
    cases.add(
        "preset-gap-toy-mog25",
        *(*TOY, "data.limit=200", "training.batches_per_round=null", "training.batch_size=50"),
        preset="gap-toy-mog25",
    )
    small = ("network.width=2", "network.latent=4")
    short = ("data.limit=60", "data.validation=20", "training.batches_per_round=null")
    cases.add(
        "preset-gap-mnist-hybrid",
        *("data=digits", "grid=1x4", *small, *short, HYBRID),
        preset="gap-mnist-hybrid",
    )
    for preset in ("class-parallel-mnist", "wclass-mnist", "dcgan-mnist"):
        cases.add(f"preset-{preset}", *GREY, "network.width=4", "network.latent=4", preset=preset)
    cases.add(
        "preset-dccgan-mnist",
        *(*GREY, "network.width=4", "network.latent=4", "network.classes=3"),
        preset="dccgan-mnist",
    )


def chosen_jobs(jobs: Sequence[Job], pattern: str | None) -> list[Job]:
    """Those whose names match, and those that they start from."""
    by_name = {job.name: job for job in jobs}
    wanted: set[str] = set()

    def want(name: str) -> None:
        wanted.add(name)
        for needed in by_name[name].needs:
            want(needed)

    for name in by_name:
        if pattern is None or pattern in name or fnmatch.fnmatchcase(name, pattern):
            want(name)
    return [job for job in jobs if job.name in wanted]


def write_data(folder: Path) -> None:
    """Noise with a little structure: what is trained on it need not be good, only the same."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    for name, shape in {"grey": (28, 28), "colour": (32, 32, 3)}.items():
        images = rng.integers(0, 128, (60, *shape), dtype=np.uint8)
        images[labels == 1, :14] += 100
        images[labels == 2, :, :14] += 100
        np.savez(folder / f"{name}.npz", x=images, y=labels)
    (folder / "base.yaml").write_text(BASE_TEXT)
    np.savetxt(folder / "points.csv", rng.normal(size=(120, 2)), delimiter=",", fmt="%.6f")


# ---------------------------------------------------------------------------------- training


def train_jobs(output: TextIO) -> None:
    """Make the runs that are asked for on standard input, one line of JSON each.

    Only what is public is used, so that it is the same on any two revisions.
    """
    import remuda

    where = str(Path(remuda.__file__).parent)
    for line in sys.stdin:
        started, error = time.perf_counter(), None
        try:
            _make(Job(**json.loads(line)), line)
        except BaseException as failure:
            error = (str(failure).strip().splitlines() or [""])[-1]
            error = f"{type(failure).__name__}: {error}"
            if not isinstance(failure, Exception):
                raise
        finally:
            seconds = time.perf_counter() - started
            print(json.dumps({"error": error, "seconds": seconds, "source": where}), file=output)
            output.flush()


def _make(job: Job, line: str) -> None:
    import remuda

    folder = Path(job.name)
    if job.begun is not None:
        begun = Path(json.loads(line)["begun"])
        _copy_begun(begun, folder)
    if job.engine == "command":
        words = ["resume", str(folder)] if job.begun else ["train", *job.words, f"run.dir={folder}"]
        command = [sys.executable, "-m", "remuda", *words, "--engine", "process", "--workers", "2"]
        done = subprocess.run([*command, "--plain"], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"exit code {done.returncode}")
        return
    engine = remuda.Engine("process", 2) if job.engine == "process" else remuda.Engine()
    if job.begun is None:
        remuda.train(*job.words, f"run.dir={folder}", engine=engine)
    elif remuda.resume(folder, engine=engine) is None:
        raise RuntimeError("there was nothing to resume")


def _copy_begun(begun: Path, folder: Path) -> None:
    """A run as it was after its first round."""

    def ignored(path: str, names: list[str]) -> set[str]:
        if Path(path) == begun:
            return {"ensemble", "result.json", "samples", ".lock"} & set(names)
        return {name for name in names if name.startswith("round-") and name != FIRST}

    shutil.copytree(begun, folder, ignore=ignored)


class Side:
    """The runs of one state of the source, made one after the other by one process."""

    def __init__(self, tree: Path, folder: Path, reuse: bool) -> None:
        self.tree = tree
        self.folder = folder
        self._reuse = reuse
        self._process: subprocess.Popen[str] | None = None
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder / "data")

    def _mark(self, job: Job) -> Path:
        return self.folder / f"{job.name}.json"

    def has(self, job: Job) -> bool:
        """Whether the run was made earlier, from the same words and with the same torch."""
        try:
            return self._reuse and json.loads(self._mark(job).read_text()) == _key(job)
        except (OSError, ValueError):
            return False

    def make(self, job: Job, begun: Path | None) -> str | None:
        """Make a run; the error, if it came to nothing."""
        self._mark(job).unlink(missing_ok=True)
        shutil.rmtree(self.folder / job.name, ignore_errors=True)
        asked = {**asdict(job), "begun": str(begun) if begun else None}
        error = self._ask(json.dumps(asked))
        if error is None:
            self._mark(job).write_text(json.dumps(_key(job)))
        return error

    def _ask(self, line: str) -> str | None:
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
        except (OSError, ValueError):
            process.wait()
            log = (self.folder / "log.txt").read_text(errors="replace").strip().splitlines()
            return f"the process ended ({process.returncode}): {(log or ['it said nothing'])[-1]}"
        if not Path(answer["source"]).is_relative_to(self.tree):
            raise RuntimeError(f"{answer['source']} was trained instead of {self.tree}")
        error: str | None = answer["error"]
        return error

    def _started(self) -> subprocess.Popen[str]:
        if self._closed:
            raise RuntimeError("interrupted")
        if self._process is not None and self._process.poll() is None:
            return self._process
        env = {name: value for name, value in os.environ.items() if name != "REMUDA_DATA"}
        # Of two places with remuda, the environment's own and this one, this one comes first.
        env |= {"PYTHONPATH": str(self.tree / "src"), "OMP_NUM_THREADS": "1"}
        with (self.folder / "log.txt").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), "--train"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env=env,
            )
        return self._process

    def close(self) -> None:
        self._closed = True
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _key(job: Job) -> dict[str, Any]:
    """What a run follows from, other than the source."""
    versions = {name: version(name) for name in ("torch", "numpy")}
    python = ".".join(map(str, sys.version_info[:3]))
    return json.loads(json.dumps({**asdict(job), **versions, "python": python}))  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Stored:
    """A safetensors file, read without torch: bytes are all that is compared."""

    tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]
    metadata: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> Stored:
        content = path.read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        metadata = header.pop("__metadata__", {})
        tensors = {}
        for name, entry in header.items():
            first, last = entry["data_offsets"]
            place = content[start + first : start + last]
            tensors[name] = (entry["dtype"], tuple(entry["shape"]), place)
        return cls(tensors, json.loads(metadata.get("remuda", "{}")))


NUMPY = {"F64": "f8", "F32": "f4", "F16": "f2", "I64": "i8", "I32": "i4", "U8": "u1", "BOOL": "u1"}


def differences(old: Path, new: Path) -> Iterator[str]:
    """What a run has otherwise than the one before, in words."""
    names = _binaries(old) | _binaries(new)
    # By rounds: what differs first is nearest to the cause.
    for name in sorted(names):
        missing = [
            which for which, run in (("old", old), ("new", new)) if not (run / name).exists()
        ]
        if missing:
            yield f"{name}: is not in the {missing[0]} run"
        elif name.endswith(".png"):
            if (old / name).read_bytes() != (new / name).read_bytes():
                yield f"{name}: another picture"
        else:
            for line in _compared_tensors(Stored.read(old / name), Stored.read(new / name)):
                yield f"{name}: {line}"
    for name, (before, after) in {
        "ensemble/config.json": (
            _part(one, "ensemble/config.json", DESCRIPTION) for one in (old, new)
        ),
        "result.json": (_part(one, "result.json", RESULTS) for one in (old, new)),
        "env.json": (_environment(one) for one in (old, new)),
        "events.jsonl": (_events(one) for one in (old, new)),
    }.items():
        for line in _compared(before, after):
            yield f"{name}: {line}"


def _binaries(run: Path) -> set[str]:
    patterns = (
        "checkpoints/*/cell-*.safetensors",
        "initial-*.safetensors",
        "ensemble/*.safetensors",
        "ensemble/*.png",
        "samples/*/*.png",
    )
    return {str(path.relative_to(run)) for pattern in patterns for path in run.glob(pattern)}


def _compared_tensors(old: Stored, new: Stored) -> Iterator[str]:
    # Scores last: they differ where the networks do.
    for name in sorted(
        old.tensors.keys() | new.tensors.keys(), key=lambda name: ("assessment" in name, name)
    ):
        if name not in new.tensors or name not in old.tensors:
            yield f"tensor {name} was {'added' if name in new.tensors else 'removed'}"
            continue
        (kind, shape, content), (new_kind, new_shape, new_content) = (
            old.tensors[name],
            new.tensors[name],
        )
        if (kind, shape) != (new_kind, new_shape):
            yield f"tensor {name} was {kind}{list(shape)} and is {new_kind}{list(new_shape)}"
        elif content != new_content:
            yield f"tensor {name} {_distance(kind, content, new_content)}"
    yield from _compared(old.metadata, new.metadata)


def _distance(kind: str, old: bytes, new: bytes) -> str:
    if kind not in NUMPY:
        return "differs"

    def numbers(content: bytes) -> npt.NDArray[np.float64]:
        return np.frombuffer(content, f"<{NUMPY[kind]}").astype(np.float64)

    apart = np.abs(numbers(old) - numbers(new))
    changed = int(np.count_nonzero(apart != 0))  # also where one is no number
    return f"differs by up to {np.nanmax(apart, initial=0):.3g} ({changed} of {apart.size} values)"


def _without_paths(text: str) -> str:
    """Before runs had ids, an ancestor was named by a hash of where its run lay, too."""
    return re.sub(r"@[0-9a-f]{8}/", "@/", text)


def _compared(old: Any, new: Any, where: str = "") -> Iterator[str]:
    """Plain JSON: nothing may be lost or changed; a mapping may gain keys."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old:
            place = f"{where}.{key}" if where else str(key)
            if key not in new:
                yield f"{place} was removed"
            else:
                yield from _compared(old[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _compared(before, after, f"{where}[{number}]")
    elif _without_paths(repr(old)) != _without_paths(
        repr(new)
    ):  # no number equals itself, nor 1 equals 1.0
        yield f"{where} was {_short(old)} and is {_short(new)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _part(run: Path, name: str, keys: Iterable[str]) -> dict[str, Any]:
    path = run / name
    found = json.loads(path.read_text()) if path.exists() else {}
    return {key: found[key] for key in keys if key in found}


def _environment(run: Path) -> dict[str, Any]:
    """The resolved settings and the data; where they lie is each side's own affair."""
    # Of a run that was begun elsewhere, the folder of data is elsewhere too.
    found = _part(run, "env.json", ("config", "data"))
    if "config" in found:
        source = found["config"]["data"]
        source["source"] = Path(source["source"]).name
        found["config"]["run"].pop("dir", None)
    return found


def _events(run: Path) -> dict[str, Any]:
    """What the cells and the population did, by round, without when and how fast."""
    found: dict[str, Any] = {}
    path = run / "events.jsonl"
    for line in path.read_text().splitlines() if path.exists() else ():
        event = json.loads(line)
        if event["event"] in ("round", "population"):
            key = f"round {event['round']}, {event['event']} {event.get('cell', '')}".strip()
            found[key] = {name: value for name, value in event.items() if name not in UNTIMED}
    return dict(sorted(found.items()))


# ---------------------------------------------------------------------------------- both sides


@dataclass
class Comparison:
    """Trains both sides at a time, and tells of every case when both have it."""

    old: Side
    new: Side
    jobs: Sequence[Job]
    _news: queue.Queue[tuple[str, str, str | None]] = field(default_factory=queue.Queue)
    _old_done: threading.Event = field(default_factory=threading.Event)

    def run(self) -> int:
        """Make and compare all; how many cases differ or failed."""
        mine = [job for job in self.jobs if not job.begun_before]
        across = [job for job in self.jobs if job.begun_before]
        threads = [
            threading.Thread(target=self._old_side, args=(mine,), daemon=True),
            threading.Thread(target=self._new_side, args=(mine, across), daemon=True),
        ]
        for thread in threads:
            thread.start()
        bad, left, waiting = 0, len(self.jobs), {job.name: job for job in self.jobs}
        found: dict[tuple[str, str], str | None] = {}
        while left:
            which, name, error = self._news.get()
            if not name:
                raise RuntimeError(error)
            found[which, name] = error
            for job in list(waiting.values()):
                if ("old", job.reference) in found and ("new", job.name) in found:
                    del waiting[job.name]
                    left -= 1
                    errors = found["old", job.reference], found["new", job.name]
                    bad += not self._tell(job, *errors)
        return bad

    def _old_side(self, jobs: Sequence[Job]) -> None:
        self._guarded("old", self.old, jobs)
        self._old_done.set()

    def _new_side(self, jobs: Sequence[Job], across: Sequence[Job]) -> None:
        self._guarded("new", self.new, jobs)
        self._old_done.wait()
        self._guarded("new", self.new, across)

    def _guarded(self, which: str, side: Side, jobs: Sequence[Job]) -> None:
        try:
            for job in jobs:
                begun = None
                if job.begun is not None:
                    begun = (self.old if job.begun_before else side).folder / job.begun
                error = None if side.has(job) else side.make(job, begun)
                self._news.put((which, job.name, error))
        except Exception as error:
            self._news.put((which, "", f"{type(error).__name__}: {error}"))

    def _tell(self, job: Job, old_error: str | None, new_error: str | None) -> bool:
        lines = []
        if old_error is not None:
            lines.append(f"failed before: {old_error}")
        if new_error is not None:
            lines.append(f"fails now: {new_error}")
        if not lines:
            old, new = self.old.folder / job.reference, self.new.folder / job.name
            lines = list(differences(old, new))
        print(f"{job.name:40} {'DIFFERS' if lines else 'equal'}", flush=True)
        for line in lines[:MOST_SHOWN]:
            print(f"    {line}", flush=True)
        if len(lines) > MOST_SHOWN:
            print(f"    ... and {len(lines) - MOST_SHOWN} more differences", flush=True)
        return not lines


def git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *words], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def compare(revision: str, jobs: Sequence[Job], folder: Path) -> int:
    """Train and compare in a folder; how many cases differ or failed."""
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    tree = folder / "tree"
    shutil.rmtree(folder / "working-tree", ignore_errors=True)
    old = Side(tree, folder / commit, reuse=True)
    new = Side(ROOT, folder / "working-tree", reuse=False)
    try:
        if not all(old.has(job) for job in jobs if not job.begun_before):
            _remove_worktree(tree)  # one that a kill left
            git("worktree", "add", "--quiet", "--detach", str(tree), commit)
        return Comparison(old, new, jobs).run()
    finally:
        old.close()
        new.close()
        _remove_worktree(tree)


def _remove_worktree(tree: Path) -> None:
    if tree.exists():
        subprocess.run(
            ["git", "-C", str(ROOT), "worktree", "remove", "--force", str(tree)], check=False
        )
        shutil.rmtree(tree, ignore_errors=True)
    git("worktree", "prune")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Two comparisons at a time in one folder would compare each other's runs."""
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"same_bits: {folder}: another comparison is running there")
        yield


def _terminated(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    if sys.argv[1:] == ["--train"]:
        signal.signal(signal.SIGTERM, _terminated)
        # Answers have a line of their own; whatever a run prints goes to the log.
        output = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        train_jobs(output)
        return
    parser = argparse.ArgumentParser(description="Compare the results of two states of the source.")
    parser.add_argument("revision", help="the git revision to compare the working tree with")
    parser.add_argument("--only", metavar="PATTERN", help="cases with this in their names, or glob")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs, and reuse the old")
    parser.add_argument(
        "--thorough", action="store_true", help="all cases on processes too, which takes long"
    )
    arguments = parser.parse_args()
    jobs = chosen_jobs(all_jobs(arguments.thorough), arguments.only)
    if not jobs:
        parser.error(f"no case matches {arguments.only}")
    signal.signal(signal.SIGTERM, _terminated)
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory(prefix="same-bits-") as temporary:
            folder = arguments.keep or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder):
                bad = compare(arguments.revision, jobs, folder.resolve())
    except KeyboardInterrupt:
        sys.exit("same_bits: interrupted")
    except subprocess.CalledProcessError as error:
        sys.exit(f"same_bits: {' '.join(error.cmd)} failed")
    seconds = time.perf_counter() - started
    print(f"\n{len(jobs)} cases: {len(jobs) - bad} equal, {bad} differ or failed ({seconds:.0f} s)")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
