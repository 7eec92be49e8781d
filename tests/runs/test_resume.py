"""Exact resume: whatever ends a run, and wherever, it ends in the same bits."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from remuda.errors import StoreError
from remuda.files import open_regular, stored
from remuda.parallel import training
from remuda.runs.store import RunFolder
from tests import faults
from tests.tiny_runs import (
    CELLS,
    ROUNDS,
    Command,
    happenings,
    last_weights,
    remuda,
    tiny,
    tree,
    write_data,
)

pytestmark = pytest.mark.slow  # every test starts real processes

# Each way to die on the way through a run, in the order in which a run passes them.
CHAINS = {
    "first": (
        "before training",
        "in the first checkpoint",
        "after the first cell file",
        "after the manifest",
        "before the ensemble",
    ),
    "second": (
        "training a batch",
        "in an event line",
        "in a cell file",
        "in the manifest",
        "in the ensemble",
    ),
    "third": (
        "after a round's last event",
        "in a sample sheet",
        "before the manifest",
        "while pruning",
        "within the ensemble",
        "before the result",
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    code, _, errors = remuda(folder, "train", *tiny(data, folder / "run"))
    assert code == 0, errors
    return folder / "run"


def check_equal(run: Path, undisturbed: Path) -> None:
    """The same files with the same bytes, and one event per cell and round."""
    found, wanted = tree(run), tree(undisturbed)
    assert sorted(found) == sorted(wanted)
    assert [name for name in wanted if found[name] != wanted[name]] == []
    assert happenings(run) == happenings(undisturbed)
    counts = Counter((event.get("cell"), event["round"]) for event in happenings(run))
    assert set(counts.values()) == {1}
    assert len(counts) == (CELLS + 1) * ROUNDS  # and the population's
    assert not list(run.rglob("*.part"))


def resume(folder: Path, run: Path) -> str:
    code, output, errors = remuda(folder, "resume", str(run))
    assert code == 0, errors
    return output + errors


@pytest.fixture(scope="module")
def unfinished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all its checkpoints that was killed before it wrote its ensemble."""
    folder = tmp_path_factory.mktemp("unfinished")
    train = Command(
        folder, "train", *tiny(data, folder / "run"), fault=faults.kill, at="before the ensemble"
    )
    assert train.wait() == -signal.SIGKILL, train.said
    return folder / "run"


def copied(run: Path, folder: Path) -> Path:
    """The same run in another folder."""
    target = folder / "run"
    shutil.copytree(run, target)
    config = target / "config.yaml"
    config.write_text(config.read_text().replace(str(run), str(target)))
    return target


def test_the_chains_pass_every_point_of_death() -> None:
    assert sorted(itertools.chain(*CHAINS.values())) == sorted(faults.KILLS)


@pytest.mark.parametrize("chain", CHAINS)
def test_killed_again_and_again_equals_undisturbed(
    chain: str, tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", *tiny(data, run)]
    for point in CHAINS[chain]:
        command = Command(tmp_path, *words, fault=faults.kill, at=point)
        assert command.wait() == -signal.SIGKILL, (point, command.said)
        assert not (run / "result.json").exists()
        words = ["resume", str(run)]
    resume(tmp_path, run)
    check_equal(run, undisturbed)


def test_killed_at_any_change_to_the_file_system(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    """A sweep over fsyncs, renames and removals: each attempt gets a few of them further."""
    run = tmp_path / "run"
    for step in itertools.count():
        words = ["resume", str(run)] if (run / "config.yaml").exists() else ["train"]
        if words == ["train"]:
            words = ["train", *tiny(data, run)]
        at = str(1 + 7 * step + step * step % 5)
        command = Command(tmp_path, *words, fault=faults.kill_at_operation, at=at)
        if command.wait() == 0:
            break
        assert command.wait() == -signal.SIGKILL, command.said
    assert step > 3
    check_equal(run, undisturbed)


def test_signals_at_arbitrary_times_lose_nothing(
    tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    words = ["train", *tiny(data, run)]
    delays = np.random.default_rng(2).uniform(0, 0.25, 6)
    interrupted = set()
    for delay, number in zip(delays, [signal.SIGINT, signal.SIGTERM] * 3, strict=True):
        command = Command(tmp_path, *words)
        command.wait_for("run folder")
        time.sleep(delay)
        command.send(number)
        code = command.wait()
        if (run / "result.json").exists():
            break
        interrupted.add(number)
        assert code == 128 + number, command.said
        assert f"rounds are complete and saved. Continue with:\n  remuda resume {run}" in (
            command.said.replace(f"{Path.cwd()}/", "").replace(".venv/bin/", "")
        )
        assert "Traceback" not in command.said
        words = ["resume", str(run)]
    assert interrupted
    resume(tmp_path, run)
    check_equal(run, undisturbed)


@pytest.mark.parametrize("point", faults.INTERRUPTS)
def test_ctrl_c_at_the_worst_moments_loses_nothing(
    point: str, tmp_path: Path, data: Path, undisturbed: Path
) -> None:
    """Every event and every sheet too, not only the weights."""
    run = tmp_path / "run"
    train = Command(tmp_path, "train", *tiny(data, run), fault=faults.interrupt, at=point)
    assert train.wait() == 130, train.said
    resume(tmp_path, run)
    check_equal(run, undisturbed)


def test_ctrl_c_between_checkpoints_saves_the_last_complete_round(
    tmp_path: Path, data: Path
) -> None:
    apart = ["run.checkpoint_every=3", "rounds=5", "training.batches_per_round=20"]
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    assert remuda(tmp_path, "train", *tiny(data, undisturbed, *apart))[0] == 0
    command = Command(tmp_path, "train", *tiny(data, run, *apart))
    command.wait_for("round    2/5")
    command.send(signal.SIGINT)
    assert command.wait() == 130, command.said
    saved = RunFolder(run).checkpoints()[-1].round
    assert saved == 2, command.said
    assert "2 of 5 rounds are complete and saved" in command.said
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "stopped"
    assert "continuing after round 2" in resume(tmp_path, run)
    assert last_weights(run) == last_weights(undisturbed)
    assert happenings(run) == happenings(undisturbed)


def test_the_impatient_do_not_interrupt_the_saving(tmp_path: Path, data: Path) -> None:
    words = tiny(data, tmp_path / "run", "run.checkpoint_every=50", "rounds=1000")
    command = Command(tmp_path, "train", *words, fault=faults.slow_disk)
    command.wait_for("round    2/1000")
    command.send(signal.SIGINT)
    time.sleep(0.05)
    command.send(signal.SIGINT)
    assert command.wait() == 130, command.said
    saved = RunFolder(tmp_path / "run").checkpoints()[-1].round
    assert f"{saved} of 1000 rounds are complete and saved" in command.said


def test_a_finished_run_says_so(tmp_path: Path, undisturbed: Path) -> None:
    before = tree(undisturbed)
    code, output, _ = remuda(tmp_path, "resume", str(undisturbed))
    assert code == 0
    assert output.startswith(f"{undisturbed} is finished; nothing to resume")
    assert tree(undisturbed) == before


@pytest.mark.parametrize("what", ["missing", "empty folder", "file"])
def test_what_is_no_run_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    path = tmp_path / "other"
    if what == "empty folder":
        path.mkdir()
    elif what == "file":
        path.touch()
    code, output, errors = remuda(tmp_path, "resume", str(path))
    assert code == 3
    assert output == ""
    assert errors.startswith(f"remuda: {path}: not a run folder")
    assert len(errors.splitlines()) == 1


def test_other_data_are_refused(tmp_path: Path, data: Path) -> None:
    own = tmp_path / "own.npz"
    own.write_bytes(data.read_bytes())
    run = tmp_path / "run"
    train = Command(tmp_path, "train", *tiny(own, run), fault=faults.kill, at="after the manifest")
    train.wait()
    write_data(own, seed=1)
    before = tree(run)
    code, _, errors = remuda(tmp_path, "resume", str(run))
    assert code == 3
    assert f"{run}: the data changed since the run started" in errors
    assert len(errors.splitlines()) == 1
    assert tree(run) == before
    own.unlink()
    code, _, errors = remuda(tmp_path, "resume", str(run))
    assert code == 2
    assert str(own) in errors
    assert tree(run) == before


def test_two_at_once_are_refused(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    long = Command(tmp_path, "train", *tiny(data, run, "rounds=1000"))
    long.wait_for("round    1/1000")
    for words in (["resume", str(run)], ["train", *tiny(data, run)]):
        code, _, errors = remuda(tmp_path, *words)
        assert code == (3 if words[0] == "resume" else 2)
        assert len(errors.splitlines()) == 1
        assert "another process is training here" in errors or "already exists" in errors
    assert "running" in remuda(tmp_path, "runs", str(tmp_path))[1]
    long.send(signal.SIGKILL)
    assert long.wait() == -signal.SIGKILL
    assert "interrupted" in remuda(tmp_path, "runs", str(tmp_path))[1]


# What else may be damaged in a checkpoint is tested in test_store.py.
@pytest.mark.parametrize("damage", ["flipped bit", "manifest"])
def test_a_damaged_checkpoint_costs_a_round_and_a_warning(
    damage: str, tmp_path: Path, unfinished: Path, undisturbed: Path
) -> None:
    run = copied(unfinished, tmp_path)
    last = run / "checkpoints" / f"round-{ROUNDS:06d}"
    cell = last / "cell-0002.safetensors"
    content = bytearray(cell.read_bytes())
    if damage == "flipped bit":
        content[len(content) // 2] ^= 16
        cell.write_bytes(content)
    else:
        (last / "manifest.json").write_text('{"format": 1, "rou')
    said = resume(tmp_path, run)
    assert f"warning checkpoint of round {ROUNDS} skipped and kept as damaged-{last.name}" in said
    assert "manifest.json" in said if damage == "manifest" else str(cell) in said
    assert f"continuing after round {ROUNDS - 1}" in said
    aside = run / "checkpoints" / f"damaged-{last.name}"
    assert aside.is_dir()
    for path in aside.iterdir():
        path.unlink()
    check_equal(run, undisturbed)


def test_a_checkpoint_of_a_newer_remuda_is_not_thrown_away(
    tmp_path: Path, unfinished: Path
) -> None:
    run = copied(unfinished, tmp_path)
    manifest = run / "checkpoints" / f"round-{ROUNDS:06d}" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    before = tree(run)
    code, _, errors = remuda(tmp_path, "resume", str(run))
    assert code == 3
    assert errors.startswith(f"remuda: {manifest}: format 2 was written by a newer remuda")
    assert tree(run) == before


def test_with_no_usable_checkpoint_the_run_starts_afresh(
    tmp_path: Path, unfinished: Path, undisturbed: Path
) -> None:
    run = copied(unfinished, tmp_path)
    for cell in (run / "checkpoints").rglob("cell-0002.safetensors"):
        cell.write_bytes(b"")
    said = resume(tmp_path, run)
    assert said.count("warning") == len(list((run / "checkpoints").glob("damaged-*"))) >= 2
    for path in (run / "checkpoints").glob("damaged-*/*"):
        path.unlink()
    check_equal(run, undisturbed)


# ---------------------------------------------------------------------------- other settings


def test_an_edited_configuration_is_refused_and_costs_no_checkpoint(
    tmp_path: Path, unfinished: Path
) -> None:
    run = copied(unfinished, tmp_path)
    before, config = tree(run), run / "config.yaml"
    text = config.read_text()
    for old, new, says in (
        ("seed: 0", "seed: 5", "seed was 0 when the run started and is 5"),
        ("learning_rate: 0.001", "learning_rate: 0.002", "training.learning_rate was 0.001"),
        ("hidden: [8]", "hidden: [9]", "network.hidden was [8]"),
    ):
        assert old in text
        config.write_text(text.replace(old, new))
        with pytest.raises(StoreError, match=re.escape(says)):
            training.resume(run)
    config.write_text(text)
    assert tree(run) == before


def test_more_rounds_may_be_asked_for_before_the_run_is_finished(
    tmp_path: Path, data: Path, unfinished: Path
) -> None:
    longer, run = tmp_path / "longer", copied(unfinished, tmp_path)
    assert remuda(tmp_path, "train", *tiny(data, longer, "rounds=5"))[0] == 0
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("rounds: 3", "rounds: 5"))
    resume(tmp_path, run)
    assert last_weights(run) == last_weights(longer)


def test_a_run_resumes_from_another_folder(
    tmp_path: Path, data: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths of the data are made absolute when the run starts."""
    monkeypatch.chdir(data.parent)
    run = tmp_path / "run"
    stopped = Command(
        tmp_path, "train", *tiny(data.name, run), fault=faults.kill, at="before the manifest"
    )
    assert stopped.wait() == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)
    resume(tmp_path, run)
    assert last_weights(run) == last_weights(undisturbed)


def test_a_disk_that_cannot_be_read_for_a_moment_costs_no_checkpoint(
    tmp_path: Path, unfinished: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(unfinished, tmp_path)
    before = tree(run)
    open_ = open_regular

    def refuse(path: Path, *, follow: bool) -> BinaryIO:
        if path.name == "cell-0001.safetensors":
            raise OSError(5, "Input/output error")
        return open_(path, follow=follow)

    with monkeypatch.context() as patch:
        patch.setattr(stored, "open_regular", refuse)
        with pytest.raises(StoreError, match="Input/output error"):
            training.resume(run)
    assert tree(run) == before
    resume(tmp_path, run)
    check_equal(run, undisturbed)
