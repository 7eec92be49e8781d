"""Make the runs of an earlier revision that the tests resume, load and sample.

    python scripts/make_old_run_fixture.py OUT

It was run once, on the last revision before the source was rearranged, with
OUT=tests/fixtures/before. Made again on a later revision, the runs would no longer show that old
ones can be read. For every case OUT holds

run/                   the run folder after its first round, or when finished
ensemble/              what the same revision made of it in the end (if finished: run/ensemble)
finished.safetensors   all cells' networks in the end
samples.npy            samples of the ensemble, with seed 0
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

import remuda

SAMPLES = 4
TINY = (
    "seed=5",
    "rounds=3",
    "training.batch_size=10",
    "training.batches_per_round=4",
    "training.learning_rate=0.01",
    "score.samples=20",
    "score.final_samples=20",
    "run.dir=run",
    "run.keep_last=99",
    "run.sheet_every=0",
)
POINTS = ("network.latent=2", "network.hidden=[4]", "network.output=linear")
IMAGES = ("data=digits", "data.limit=60", "network=dcgan", "network.latent=2", "network.width=1")
LOSSES = "losses: [minimax, heuristic, least_squares]"
INTERRUPTED = {
    "cellular": ("data=ring8", "grid=2x2", f"method={{name: cellular, {LOSSES}}}", *POINTS),
    "gap": ("data=mog25", "data.limit=200", "method=gap", "grid=1x3", *POINTS),
    "class_parallel": (
        *("data=ring8", "method=class_parallel", "method.replicas=2"),
        *("method.within={name: cellular, replacement: elitist}", *POINTS),
    ),
    "independent": ("method=independent", "grid=1x2", "score.extractor=none", *IMAGES),
}
FINISHED = {"finished": ("method=cellular", "grid=1x2", *IMAGES)}


def make(out: Path, words: tuple[str, ...], *, interrupted: bool) -> None:
    """Train a run in the current folder, and keep what the tests need of it."""
    run = Path("run")
    remuda.train("cellular-digits", *TINY, *words)
    rounds = sorted((run / "checkpoints").glob("round-*"))
    networks = {
        f"{file.stem}.{name}": value
        for file in sorted(rounds[-1].glob("cell-*.safetensors"))
        for name, value in load_file(file).items()
        if ".network." in name
    }
    out.mkdir(parents=True)
    save_file(networks, out / "finished.safetensors")
    np.save(out / "samples.npy", remuda.load(run).sample(SAMPLES, seed=0))
    for picture in run.rglob("*.png"):  # large, and nobody reads them
        picture.unlink()
    # What scores a finished run's cells is large, and the ensemble is all that is read of them.
    for checkpoint in rounds[1:] if interrupted else rounds:
        shutil.rmtree(checkpoint)
    shutil.rmtree(run / "samples")
    (run / ".lock").unlink()
    if interrupted:
        shutil.move(run / "ensemble", out / "ensemble")
        (run / "result.json").unlink()
    _scrub(run, rounds=1 if interrupted else len(rounds))
    shutil.copytree(run, out / "run")


def _scrub(run: Path, rounds: int) -> None:
    """Take out where the run was made, and the events of rounds that it did not come to."""
    env = json.loads((run / "env.json").read_text())
    env |= {"host": "host", "platform": "platform", "cores": 1}
    (run / "env.json").write_text(json.dumps(env, indent=2) + "\n")
    kept = []
    for line in (run / "events.jsonl").read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "started":
            about = {"workers": 1, "cores": 1, "memory": 0, "devices": []}
            event["hosts"] = {"host": about}
        if event["event"] == "placed":
            (cells,) = event["placement"].values()
            event["placement"] = {"1@host": cells}
        finished = event["event"] == "finished" and not (run / "result.json").exists()
        if event.get("round", 0) <= rounds and not finished:
            kept.append(json.dumps(event))
    (run / "events.jsonl").write_text("\n".join(kept) + "\n")


def check(out: Path) -> None:
    """Nothing of the machine that made the runs is in them."""
    telling = [str(Path.home()), str(Path.cwd()), platform.platform(), platform.release()]
    telling += [f'"{platform.node()}"', f"@{platform.node()}"]
    for path in out.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        found = [word for word in telling if word.encode() in content]
        if found:
            raise SystemExit(f"{path}: holds {', '.join(found)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the old runs that the tests resume.")
    parser.add_argument("out", type=Path, help="folder to make; it must not exist")
    out = parser.parse_args().out.absolute()
    if out.exists():
        parser.error(f"{out} exists; it was made by an earlier revision, which is its point")
    for cases, interrupted in ((INTERRUPTED, True), (FINISHED, False)):
        for name, words in cases.items():
            # A folder of its own, so that run.dir is the same relative path in all of them.
            with tempfile.TemporaryDirectory() as folder:
                os.chdir(folder)
                make(out / name, words, interrupted=interrupted)
                check(out / name)
                os.chdir(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size:,} bytes")


if __name__ == "__main__":
    main()
