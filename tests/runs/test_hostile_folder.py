"""A run folder that others change: begun twice, taken away, read-only, full of links and pipes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

import remuda
from remuda.config import load_config
from remuda.errors import RemudaError, StoreError
from remuda.parallel import training
from remuda.runs import store
from remuda.runs.store import RunFolder
from tests import faults
from tests.tiny_runs import _CONTEXT, Command, tiny, write_data
from tests.tiny_runs import remuda as command

CREATORS = 4

Barrier = Any  # of multiprocessing, which has no type to name


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.fixture(scope="module")
def unfinished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all its checkpoints that was killed before it wrote its ensemble."""
    folder = tmp_path_factory.mktemp("unfinished")
    words = tiny(data, folder / "run")
    train = Command(folder, "train", *words, fault=faults.kill, at="before the ensemble")
    assert train.wait() == -signal.SIGKILL, train.said
    return folder / "run"


@pytest.fixture
def run(unfinished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(unfinished, tmp_path / "run")


# ---------------------------------------------------------------------------- begun by several


def _create(path: Path, number: int, looked: Barrier, tried: Barrier, answers: Path) -> None:
    """Begin a run in a folder that all creators have found empty."""
    real = store.new_path

    def found_empty(*args: Any) -> Path:
        found = real(*args)
        looked.wait(60)
        return found

    setattr(store, "new_path", found_empty)  # noqa: B010 - of a process of its own
    config = load_config("quickstart", [f"run.dir={path}", f"seed={number}"])
    try:
        with RunFolder.create(config, {"torch": str(number)}, {f"data-{number}": b""}):
            (answers / str(number)).touch()
            tried.wait(60)
    except RemudaError as error:
        (answers / str(number)).write_text(str(error))
        tried.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("there", [False, True])
def test_of_several_creators_of_a_folder_one_writes_it(there: bool, tmp_path: Path) -> None:
    context: ForkServerContext = _CONTEXT
    path, answers = tmp_path / "run", tmp_path / "answers"
    answers.mkdir()
    if there:
        path.mkdir()
    looked, tried = context.Barrier(CREATORS), context.Barrier(CREATORS)
    creators = [
        context.Process(target=_create, args=(path, number, looked, tried, answers))
        for number in range(CREATORS)
    ]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join(60)
    said = {int(answer.name): answer.read_text() for answer in answers.iterdir()}
    (winner,) = [number for number, text in said.items() if not text]
    for number, text in said.items():
        assert number == winner or "another process is training here" in text, text
    folder = RunFolder.open(path)
    assert folder.config().seed == winner
    assert folder.env().torch == str(winner)
    assert sorted(entry.name for entry in path.iterdir()) == [
        ".lock",
        "config.yaml",
        f"data-{winner}",
        "env.json",
    ]


# ---------------------------------------------------------------------------- taken away


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "process"])
@pytest.mark.parametrize("how", ["removed", "moved", "replaced"])
def test_a_folder_that_is_taken_away_ends_the_run_with_an_error(
    how: str, engine: str, tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", *tiny(data, run), "--engine", engine]
    train = Command(tmp_path, *words, fault=faults.taken_away, at=how)
    assert train.wait() == 3, train.said
    (line,) = train.errors.read_text().splitlines()
    assert line.startswith(f"remuda: {run}: the run folder was removed, renamed or replaced while")
    assert "resume" not in line
    if how == "replaced":
        assert not (run / "result.json").exists()
    else:
        assert not run.exists()


@pytest.mark.slow
def test_a_disk_that_turns_read_only_ends_the_run_in_a_line_and_advice(
    tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", *tiny(data, run)]
    train = Command(tmp_path, *words, fault=faults.read_only, at="first round")
    assert train.wait() == 3, train.said
    problem, advice = train.errors.read_text().splitlines()
    assert problem.startswith(f"remuda: {run}")
    assert problem.endswith("cannot be written: Read-only file system")
    assert f"resume {run}" in advice
    code, _, errors = command(tmp_path, "resume", str(run))
    assert code == 0, errors


@pytest.mark.slow
@pytest.mark.parametrize("words", [["resume"], ["train"], ["train", "--engine", "mpi"]])
def test_a_folder_that_cannot_be_written_is_refused_in_a_line(
    words: list[str], tmp_path: Path, data: Path, run: Path
) -> None:
    more = [str(run)] if words == ["resume"] else tiny(data, tmp_path / "other" / "new")
    more += words[1:]
    refused = Command(tmp_path, words[0], *more, fault=faults.read_only, at="start")
    assert refused.wait() == 3, refused.said
    (line,) = refused.errors.read_text().splitlines()
    assert line.endswith(": Read-only file system")


# ---------------------------------------------------------------------------- links and pipes


def moved_and_linked(path: Path) -> Path:
    """The same path as a link to where it is now."""
    elsewhere = path.parent.parent / f"elsewhere-{path.name}"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    return elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/round-000003"])
def test_checkpoints_elsewhere_are_neither_read_nor_changed(
    name: str, tmp_path: Path, run: Path
) -> None:
    elsewhere = moved_and_linked(run / name)
    before = {path: path.stat().st_ctime_ns for path in elsewhere.rglob("*")}
    with pytest.raises(StoreError, match=f"{name}: is a link; allowed: a folder of its own"):
        training.resume(run)
    with pytest.raises(StoreError, match=f"{name}: is a link"):
        RunFolder(run).checkpoints()
    assert {path: path.stat().st_ctime_ns for path in elsewhere.rglob("*")} == before


@pytest.mark.slow
def test_a_run_folder_that_is_a_link_itself_is_fine(tmp_path: Path, run: Path, data: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert training.resume(tmp_path / "link") is not None
    assert remuda.load(tmp_path / "link").sample(2).shape == (2, 1, 28, 28)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["samples", "samples/round-000001", "ensemble"])
def test_nothing_is_written_where_a_link_leads(name: str, tmp_path: Path, run: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(elsewhere)

    def write() -> None:
        if name == "ensemble":
            training.resume(run)
        else:
            RunFolder(run).write_sheet(1, "mixture", b"")

    with pytest.raises(StoreError, match=f"{name}: is a link; allowed: a folder of its own"):
        write()
    assert not list(elsewhere.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["events.jsonl", ".lock"])
def test_files_that_grow_are_not_links(name: str, tmp_path: Path, run: Path) -> None:
    (run / name).touch()
    elsewhere = moved_and_linked(run / name)
    before = elsewhere.read_bytes()
    with pytest.raises(StoreError, match=rf"{name}: cannot be (read|written): is"):
        training.resume(run)
    assert elsewhere.read_bytes() == before


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _endless(path: Path) -> None:
    """A file of a terabyte that takes no room."""
    path.touch()
    os.truncate(path, 2**40)


@pytest.mark.slow
@pytest.mark.parametrize("special", [_pipe, _device, _endless])
@pytest.mark.parametrize(
    "name", ["checkpoints/round-000003/cell-0001.safetensors", "events.jsonl", "extractor"]
)
def test_what_is_no_file_is_refused_without_waiting_or_reading_for_ever(
    name: str, special: Callable[[Path], None], run: Path
) -> None:
    if name == "extractor":
        name = "extractor.safetensors"
        env = json.loads((run / "env.json").read_text())
        (run / "env.json").write_text(json.dumps({**env, "attachments": {name: "digest"}}))
    (run / name).unlink(missing_ok=True)
    special(run / name)
    with pytest.raises(StoreError, match=f"{name}: (cannot be read: is|would take|missing)"):
        training.resume(run)


@pytest.mark.parametrize("special", [_pipe, _device, _endless])
def test_an_ensemble_that_is_no_file_is_refused(
    special: Callable[[Path], None], tmp_path: Path
) -> None:
    old = Path(__file__).parents[1] / "fixtures" / "before" / "finished" / "run"
    ensemble = shutil.copytree(old, tmp_path / "run") / "ensemble"
    (ensemble / "model.safetensors").unlink()
    special(ensemble / "model.safetensors")
    for path in (ensemble, tmp_path / "run"):
        with pytest.raises(
            StoreError, match=r"model\.safetensors: (cannot be read: is|would take)"
        ):
            remuda.load(path)


def test_only_an_ensemble_of_its_own_may_hold_links(tmp_path: Path) -> None:
    """Caches of models hold them; what is in a run folder was written there."""
    old = Path(__file__).parents[1] / "fixtures" / "before" / "finished" / "run"
    ensemble = shutil.copytree(old, tmp_path / "run") / "ensemble"
    for path in [*ensemble.iterdir()]:
        path.rename(tmp_path / path.name)
        path.symlink_to(tmp_path / path.name)
    assert len(remuda.load(ensemble).sample(2, seed=0)) == 2
    with pytest.raises(StoreError, match="is a link; expected a file"):
        remuda.load(tmp_path / "run")
