"""Runs of an earlier revision go on, load and sample as they did then.

The runs in `fixtures/before` were made by `scripts/make_old_run_fixture.py` before the source was
rearranged; each lies beside what that revision made of it. Only what is public is used here, and
`RunFolder`, for a run's id.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

import remuda
from remuda.runs.environment import check_environment
from remuda.runs.prepare import Run
from remuda.runs.store import RunFolder
from tests import tiny_runs

BEFORE = Path(__file__).parent / "fixtures" / "before"
INTERRUPTED = ("cellular", "gap", "class_parallel", "independent")
OLD_IDS = {
    "cellular": "874e81026a5c6b19",
    "gap": "fd6c4734fb6f57ba",
    "class_parallel": "29815701edca689d",
    "independent": "4f5f1bf1b9138183",
    "finished": "9f15df171ae5ae57",
}
ROUNDS = 3
Tensors = dict[str, npt.NDArray[Any]]


def copied(name: str, folder: Path) -> Path:
    """An old run where it may be written to."""
    return shutil.copytree(BEFORE / name / "run", folder / "run")


def ensemble_path(name: str) -> Path:
    return BEFORE / name / ("run/ensemble" if name == "finished" else "ensemble")


def assert_close(found: npt.NDArray[Any], wanted: npt.NDArray[Any], name: str = "") -> None:
    """Another processor or build of torch rounds otherwise; other training is far off."""
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


def assert_all_close(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert_close(found[name], value, name)


def assert_finished_as_before(run: Path, name: str) -> None:
    """All cells' networks and the mixture are those that the old revision ended with."""
    files = sorted((run / "checkpoints" / f"round-{ROUNDS:06d}").glob("cell-*.safetensors"))
    networks = {
        f"{file.stem}.{tensor}": value
        for file in files
        for tensor, value in load_file(file).items()
        if ".network." in tensor
    }
    assert_all_close(networks, load_file(BEFORE / name / "finished.safetensors"))
    wanted, found = ensemble_path(name), run / "ensemble"
    model = "model.safetensors"
    assert_all_close(load_file(found / model), load_file(wanted / model))
    now, then = (json.loads((path / "config.json").read_text()) for path in (found, wanted))
    assert now.get("labels") == then.get("labels")
    for member, old in zip(now["members"], then["members"], strict=True):
        assert member["weight"] == pytest.approx(old["weight"])
        assert [member.get(key) for key in ("cell", "label", "met")] == [
            old.get(key) for key in ("cell", "label", "met")
        ]


@pytest.mark.slow
@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_old_run_is_finished_as_the_old_revision_finished_it(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    result = remuda.resume(run)
    assert result is not None
    assert_finished_as_before(run, name)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    trained = [(event["round"], event["cell"]) for event in events if event["event"] == "round"]
    assert len(trained) == len(set(trained))
    assert {round for round, _ in trained} == {1, 2, 3}
    assert remuda.resume(run) is None


@pytest.mark.slow
def test_an_old_run_is_finished_by_the_command_on_processes(tmp_path: Path) -> None:
    run = copied("gap", tmp_path)
    words = ("resume", str(run), "--plain", "--engine", "process", "--workers", "2")
    code, _, errors = tiny_runs.remuda(tmp_path, *words)
    assert code == 0, errors
    assert_finished_as_before(run, "gap")


@pytest.mark.parametrize("name", [*INTERRUPTED, "finished"])
def test_an_old_ensemble_makes_the_samples_it_made(name: str) -> None:
    wanted = np.load(BEFORE / name / "samples.npy")
    found = remuda.load(ensemble_path(name)).sample(len(wanted), seed=0)
    assert found.dtype == wanted.dtype
    assert_close(found, wanted)


def test_an_old_ensemble_can_be_asked_for_a_label() -> None:
    ensemble = remuda.load(ensemble_path("class_parallel"))
    points = ensemble.sample(4, label=3)
    assert points.shape == (4, 2)
    np.testing.assert_array_equal(points, ensemble.sample(4, label="3"))


def test_an_old_finished_run_is_loaded_and_has_nothing_to_resume(tmp_path: Path) -> None:
    run = copied("finished", tmp_path)
    assert remuda.resume(run) is None
    wanted = np.load(BEFORE / "finished" / "samples.npy")
    assert_close(remuda.load(run).sample(len(wanted), seed=0), wanted)


def test_a_run_of_the_earliest_versions_says_nothing_of_its_settings(tmp_path: Path) -> None:
    """They wrote neither an id nor the settings beside the configuration: none can be missed."""
    run = RunFolder.open(copied("gap", tmp_path))
    env = json.loads((run.path / "env.json").read_text())
    del env["config"]
    (run.path / "env.json").write_text(json.dumps(env))
    check_environment(run, Run.prepare(run.config(), folder=run))


@pytest.mark.parametrize(("name", "known"), OLD_IDS.items())
def test_an_old_run_has_the_same_id_in_every_version(name: str, known: str, tmp_path: Path) -> None:
    """Later runs write it into the lineages of what they take from here."""
    run = RunFolder.open(copied(name, tmp_path))
    assert run.env().id is None
    assert run.id() == known


@pytest.mark.parametrize("name", ["finished", "independent"])
def test_a_new_run_starts_from_an_old_one(name: str, tmp_path: Path) -> None:
    """From an ensemble, and from the cells of a checkpoint."""
    old = copied(name, tmp_path)
    words = ("data=digits", "data.limit=60", "network=dcgan", "network.latent=2", "network.width=1")
    remuda.train(
        "cellular-digits",
        *words,
        *("method=gap", "grid=1x2", "rounds=1", "training.batch_size=10"),
        *("training.batches_per_round=1", "score.extractor=none", "score.final_samples=20"),
        f"init_from=[{old}]",
        f"run.dir={tmp_path / 'new'}",
    )
    first = load_file(tmp_path / "new" / "initial-0000.safetensors")
    role = "generator.network."
    if name == "finished":
        model = load_file(ensemble_path(name) / "model.safetensors")
        start = {role + key[2:]: value for key, value in model.items() if key.startswith("0.")}
    else:
        saved = load_file(old / "checkpoints" / "round-000001" / "cell-0000.safetensors")
        start = {key: value for key, value in saved.items() if key.startswith(role)}
    assert start
    for key, value in start.items():
        np.testing.assert_array_equal(first[key], value)
