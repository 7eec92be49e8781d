"""The run folder: what counts, what is refused, and what survives."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from remuda.config import Config, load_config
from remuda.config.records import read_record
from remuda.errors import ConfigError, DamagedError, NewerFormatError, RemudaError, StoreError
from remuda.files import disk, write_atomically
from remuda.gan.parcels import Parcel
from remuda.runs import checkpoints, store
from remuda.runs.records import RunResult
from remuda.runs.store import RunFolder, find_runs, fresh_path, new_path
from tests import faults
from tests.tiny_runs import (
    ROUNDS,
    Command,
    happenings,
    remuda,
    save_checkpoint,
    tiny,
    tree,
    write_data,
)


def parcels(round: int = 1) -> dict[int, Parcel]:
    return {
        cell: Parcel(
            cell,
            round,
            {"weight": torch.full((50,), cell + round / 10), "step": torch.tensor(3.0)},
            {"genes": {"learning_rate": 0.1 + 0.2}, "memory": {"mixture": {"0": 1 / 3}}},
        )
        for cell in (0, 1)
    }


def create(config: Config) -> RunFolder:
    """A new folder that nobody trains in."""
    with RunFolder.create(config, {}) as folder:
        return folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    config = load_config("quickstart", [f"run.dir={tmp_path / 'run'}"])
    with RunFolder.create(config, {"torch": "x"}) as folder:
        return folder


# ---------------------------------------------------------------------------- making, opening


def test_a_new_folder_says_what_runs_in_it(folder: RunFolder) -> None:
    assert RunFolder.open(folder.path).config() == load_config(
        "quickstart", [f"run.dir={folder.path}"]
    )
    assert folder.env().torch == "x"
    assert folder.result() is None


def test_the_configuration_comes_last_for_it_makes_the_folder_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for name in ("write_atomically", "write_json"):
        monkeypatch.setattr(store, name, lambda path, _: written.append(path.name))
    config = load_config("quickstart", [f"run.dir={tmp_path / 'run'}"])
    with RunFolder.create(config, {}, {"data.npz": b""}):
        pass
    assert written == ["data.npz", "env.json", "config.yaml"]


@pytest.mark.parametrize("inside", ["a file", "a run", "is a file"])
def test_a_folder_that_holds_something_is_refused(inside: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    config = load_config("quickstart", [f"run.dir={path}"])
    if inside == "is a file":
        path.touch()
    elif inside == "a run":
        create(config)
    else:
        path.mkdir()
        (path / "thesis.tex").touch()
    with pytest.raises(ConfigError, match=r"run\.dir=.*run: already exists and is not empty"):
        create(config)


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    create(load_config("quickstart", [f"run.dir={tmp_path / 'run'}"]))


def test_the_home_folder_is_meant_by_a_tilde(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = create(load_config("quickstart", ["run.dir=~/run"]))
    assert folder.path == tmp_path / "run"


def test_without_a_choice_every_run_gets_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = [create(load_config("quickstart")).path for _ in range(3)]
    assert len(set(made)) == 3
    assert all(path.parent == Path("runs") for path in made)
    assert all(path.name.startswith("quickstart-") for path in made)
    assert fresh_path("quickstart") not in made
    assert {run.path for run in find_runs(Path("runs"))} == set(made)


@pytest.mark.slow
def test_an_unwritable_place_is_one_clear_line_and_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "run"
    data = write_data(tmp_path / "images.npz")
    code, output, errors = remuda(tmp_path, "train", *tiny(data, path))
    assert code == 3
    assert output == ""
    assert errors.startswith(f"remuda: {path}: cannot make the run folder: ")
    assert len(errors.splitlines()) == 1


@pytest.mark.slow
def test_a_read_only_folder_is_one_clear_line(tmp_path: Path) -> None:
    place = tmp_path / "read-only"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=64k", "none", str(place)], capture_output=True
    )
    if mounted.returncode:
        place.chmod(0o500)
        if os.access(place, os.W_OK):
            pytest.skip("this user may write everywhere and may not mount")
    try:
        data = write_data(tmp_path / "images.npz")
        code, _, errors = remuda(tmp_path, "train", *tiny(data, place / "run"))
    finally:
        subprocess.run(["umount", str(place)], capture_output=True)
    assert code == 3
    assert errors.startswith(f"remuda: {place / 'run'}: cannot make the run folder: ")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("env.json", "{", "not a description of the environment: Invalid JSON"),
        ("env.json", '{"data": 5}', "not a description of the environment: data=5"),
        ("env.json", '{"attachments": {"a": 1}}', "environment: attachments.a=1"),
        ("result.json", '{"rounds": "3"}', "not a result of a run: rounds='3'"),
        ("result.json", '{"rounds": 3, "scores": [1]}', r"result of a run: scores=\[1\]"),
        ("status.json", '{"time": "noon"}', "not a status of a run: time='noon'"),
    ],
)
def test_a_damaged_file_of_the_run_is_one_clear_line(
    folder: RunFolder, name: str, content: str, says: str
) -> None:
    path = folder.path / name
    path.write_text(content)
    read = {"env.json": folder.env, "result.json": folder.result, "status.json": folder.status}
    with folder.lock(), pytest.raises(DamagedError, match=f"^{path}: .*{says}") as caught:
        read[name]()
    assert len(str(caught.value).splitlines()) == 1


def test_files_of_other_versions_are_read(folder: RunFolder) -> None:
    (folder.path / "env.json").write_text('{"torch": "1", "gpu": "none", "data": {"name": "x"}}')
    assert folder.env().data.name == "x"
    assert folder.env().attachments == {}
    (folder.path / "result.json").write_text('{"rounds": 3, "scores": {"values": {"fid": null}}}')
    found = folder.result()
    assert found is not None
    assert found.scores is not None
    assert found.scores.values == {"fid": None}


# ---------------------------------------------------------------------------- the lock


def test_one_process_at_a_time_holds_the_lock(folder: RunFolder) -> None:
    other = RunFolder(folder.path)
    assert not other.is_locked()
    with folder.lock():
        assert other.is_locked()
        with pytest.raises(StoreError, match="another process is training here"), other.lock():
            pass
    assert not other.is_locked()
    with other.lock():
        pass


def test_a_status_that_a_power_cut_left_empty_counts_for_nothing(folder: RunFolder) -> None:
    (folder.path / "status.json").touch()
    with folder.lock():
        assert folder.status() is None


def test_a_run_shows_life_where_a_supervisor_waits_for_it_and_nowhere_else(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    folder = RunFolder(run)
    folder.show_life()
    assert not list(run.iterdir())
    folder.await_life()
    os.utime(run / ".alive", (0, 0))
    before = folder.sign_of_life()
    folder.show_life()
    assert folder.sign_of_life() not in (None, before)
    new_path(load_config("quickstart", [f"run.dir={run}"]))  # it is still free for a new run
    folder.clear_status()
    assert not list(run.iterdir())


def test_looking_at_a_run_does_not_write_to_it(folder: RunFolder) -> None:
    before = sorted(folder.path.iterdir())
    assert not folder.is_locked()
    assert sorted(folder.path.iterdir()) == before


# ---------------------------------------------------------------------------- events


def test_events_are_lines_of_json_with_a_time(folder: RunFolder) -> None:
    event = {"event": "round", "round": 1, "cell": 0}
    folder.append_event({**event, "score": float("nan"), "name": "a\u2028b"})
    folder.append_event({"event": "finished"})
    events = folder.events()
    assert [event["event"] for event in events] == ["round", "finished"]
    assert events[0]["score"] is None
    assert all("time" in event for event in events)


def test_a_restart_drops_what_will_be_written_again_and_the_torn_line(folder: RunFolder) -> None:
    folder.append_event({"event": "started"})
    for round in (1, 2, 3):
        for cell in (0, 1):
            folder.append_event({"event": "round", "round": round, "cell": cell})
    path = folder.path / "events.jsonl"
    path.write_bytes(path.read_bytes() + b'{"time": "2026", "round": 3, "na\xc3')
    folder.rewind_events(2)
    folder.append_event({"event": "round", "round": 3, "cell": 0})
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(event.get("round"), event.get("cell")) for event in events] == [
        (None, None),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
        (3, 0),
    ]


def test_a_torn_line_alone_does_not_spoil_the_next(folder: RunFolder) -> None:
    (folder.path / "events.jsonl").write_text('{"time": "2026-')
    folder.rewind_events(0)
    folder.append_event({"event": "started"})
    assert [event["event"] for event in folder.events()] == ["started"]


def test_lines_that_are_no_events_are_left_out(folder: RunFolder) -> None:
    lines = ["7", "[]", "", '{"event": "started", "why": "x"}', "null", "[" * 100_000]
    (folder.path / "events.jsonl").write_text("\n".join(lines) + "\n")
    for _ in range(2):
        assert folder.events() == [{"event": "started", "why": "x"}]
        folder.rewind_events(0)


ROUND = {"event": "round", "round": 1, "cell": 0}


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({**ROUND, "round": "abc"}, r"round\.round='abc': Input should be a valid integer"),
        ({**ROUND, "round": True}, "round.round=True"),
        ({**ROUND, "round": -1}, "round.round=-1"),
        ({**ROUND, "round": 10**4000}, "round.round=1000"),
        ({"event": "round", "round": 1}, "round.cell is missing"),
        ({**ROUND, "seconds": {"train": 1e300}}, r"round\.seconds\.train=1e\+300"),
        ({**ROUND, "seconds": 3.5}, "round.seconds=3.5"),
        ({**ROUND, "bytes": {"saved": None}}, "round.bytes.saved=None"),
        ({**ROUND, "cost": {"train": 1}}, "round.cost.validation is missing"),
        ({**ROUND, "centre": {"generator": {}}}, r"round\.centre\.generator\.from is missing"),
        ({**ROUND, "lr_generator": "x" * 999}, r"round\.lr_generator='x{59}\.\.\.: Input"),
        ({"event": "population"}, "population.round is missing"),
        ({"event": "population", "round": 1, "score": "good"}, "population.score='good'"),
        ({"event": "population", "round": 1, "coverage": [1]}, r"population\.coverage=\[1\]"),
        ({"event": 3}, "event.event=3"),
        ({"round": 1}, "event.event is missing"),
        ({"event": "lost", "round": "x"}, "event.round='x'"),
    ],
)
def test_events_with_other_types_are_damage_and_do_not_survive_a_restart(
    folder: RunFolder, event: dict[str, Any], says: str
) -> None:
    path = folder.path / "events.jsonl"
    path.write_text(f"{json.dumps(ROUND)}\n{json.dumps(event)}\n")
    found = folder.iter_events()
    assert next(found) == ROUND
    with pytest.raises(DamagedError, match=rf"^{path}: line 2: not an event: {says}") as caught:
        next(found)
    assert len(str(caught.value)) < 400
    folder.rewind_events(1)
    assert folder.events() == [ROUND]


def test_a_line_that_never_ends_is_not_read_to_its_end(folder: RunFolder) -> None:
    path = folder.path / "events.jsonl"
    with path.open("wb") as file:
        file.truncate(10**11)  # a file of a hundred gigabytes that takes no room
    with pytest.raises(DamagedError, match=r"line 1: not an event: longer than 4,194,304 bytes"):
        folder.events()


@pytest.mark.parametrize("name", ["events.jsonl", "result.json", "env.json", "config.yaml"])
@pytest.mark.parametrize("kind", ["pipe", "link to a device", "link to a file"])
def test_files_of_a_run_are_neither_pipes_nor_links(
    folder: RunFolder, name: str, kind: str, tmp_path: Path
) -> None:
    path = folder.path / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        (tmp_path / "elsewhere").write_text("{}")
        path.symlink_to("/dev/zero" if kind == "link to a device" else tmp_path / "elsewhere")
    readers: dict[str, Callable[[], object]] = {
        "events.jsonl": lambda: folder.events(),
        "result.json": lambda: read_record(path, RunResult, "result"),
        "env.json": lambda: folder.env(),
        "config.yaml": lambda: folder.config(),
    }
    expected = "is not a regular file" if kind == "pipe" else "is a link; expected a file"
    with pytest.raises(RemudaError, match=rf"^{path}: cannot be read: {expected}"):
        readers[name]()


def test_the_lock_of_a_stranger_may_be_a_pipe(folder: RunFolder) -> None:
    (folder.path / ".lock").unlink(missing_ok=True)
    os.mkfifo(folder.path / ".lock")
    assert not folder.is_locked()


# ---------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_comes_back_bit_for_bit(folder: RunFolder) -> None:
    save_checkpoint(folder, 3, parcels(3), 1 / 3)
    (checkpoint,) = folder.checkpoints()
    assert (checkpoint.round, checkpoint.loss) == (3, 1 / 3)
    loaded = folder.load_checkpoint(checkpoint)
    for cell, parcel in parcels(3).items():
        assert loaded[cell].meta == parcel.meta
        assert loaded[cell].round == 3
        assert set(loaded[cell].tensors) == set(parcel.tensors)
        for name, value in parcel.tensors.items():
            assert torch.equal(loaded[cell].tensors[name], value)


def test_the_manifest_is_written_last_and_makes_the_round_count(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def spy(path: Path, content: bytes, **more: Any) -> None:
        seen.append((path.name, len(folder.checkpoints())))
        write_atomically(path, content, **more)

    monkeypatch.setattr(checkpoints, "write_atomically", spy)
    monkeypatch.setattr("remuda.files.atomic.write_atomically", spy)
    save_checkpoint(folder, 1, parcels(), None)
    assert [name for name, _ in seen] == [
        "cell-0000.safetensors",
        "cell-0001.safetensors",
        "manifest.json",
    ]
    assert [count for _, count in seen] == [0, 0, 0]
    assert len(folder.checkpoints()) == 1


def test_the_events_of_a_round_are_on_disk_before_its_manifest(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log by its name too: it may be new."""
    folder.append_event({"event": "round", "round": 1})
    steps: list[Path] = []
    for name in ("sync_path", "create"):
        monkeypatch.setattr(disk, name, getattr(disk, name))  # to be put back
        faults.before(disk, name, steps.append)
    save_checkpoint(folder, 1, parcels(), None)
    manifest = steps.index(folder.path / "checkpoints/round-000001/.manifest.json.part")
    log = steps.index(folder.path / "events.jsonl")
    assert log < manifest
    assert folder.path in steps[log:manifest]
    assert folder.path / "checkpoints" in steps[manifest:]


def test_an_incomplete_checkpoint_does_not_count_and_can_be_cleared(folder: RunFolder) -> None:
    save_checkpoint(folder, 1, parcels(), None)
    save_checkpoint(folder, 2, parcels(2), None)
    (folder.path / "checkpoints/round-000002/manifest.json").unlink()
    assert [found.round for found in folder.checkpoints()] == [1]
    folder.drop_incomplete_checkpoints()
    assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["round-000001"]


def test_a_folder_that_is_not_there_yet_has_no_checkpoints(tmp_path: Path) -> None:
    assert RunFolder(tmp_path / "none").checkpoints() == []


def test_rounds_are_in_order_also_beyond_a_million(folder: RunFolder) -> None:
    for round in (1_000_000, 999_999, 5):
        save_checkpoint(folder, round, parcels(round), None)
    assert [found.round for found in folder.checkpoints()] == [5, 999_999, 1_000_000]


def damage_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def damage_length(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [damage_bit, damage_length, Path.unlink])
def test_a_damaged_cell_file_is_named(folder: RunFolder, damage: Any) -> None:
    save_checkpoint(folder, 1, parcels(), None)
    (checkpoint,) = folder.checkpoints()
    path = checkpoint.path / "cell-0001.safetensors"
    damage(path)
    with pytest.raises(StoreError, match=f"^{path}: (damaged|is missing|cannot be read)"):
        folder.load_checkpoint(checkpoint)


def manifests() -> Iterator[tuple[str, Any]]:
    entry = {"cell": 0, "bytes": 1, "sha256": "0"}
    yield "other format", {"format": 0}
    yield "no format", {"format": None}
    yield "another round", {"round": 7}
    yield "no round", {"round": None}
    yield "text as loss", {"loss": "good"}
    yield "files a list", {"files": []}
    yield "entry a number", {"files": {"cell-0000.safetensors": 5}}
    yield "entry without digest", {"files": {"cell-0000.safetensors": {"cell": 0}}}
    yield "cell a text", {"files": {"cell-0000.safetensors": {**entry, "cell": "0"}}}
    for name in ("../../config.yaml", "/etc/passwd", "..", "a/b", ""):
        yield f"name {name}", {"files": {name: entry}}


@pytest.mark.parametrize(("case", "change"), list(manifests()))
def test_a_manifest_that_lies_is_named(folder: RunFolder, case: str, change: Any) -> None:
    save_checkpoint(folder, 1, parcels(), 2.0)
    (checkpoint,) = folder.checkpoints()
    path = checkpoint.path / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DamagedError, match=f"^{path}: ") as caught:
        folder.load_checkpoint(checkpoint)
    assert len(str(caught.value).splitlines()) == 1
    assert folder.checkpoints()[0].loss is None  # listed, so that loading it reports the damage


def test_a_newer_format_asks_for_an_upgrade(folder: RunFolder) -> None:
    save_checkpoint(folder, 1, parcels(), None)
    (checkpoint,) = folder.checkpoints()
    path = checkpoint.path / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(NewerFormatError, match="format 2 was written by a newer remuda"):
        folder.load_checkpoint(checkpoint)


def test_a_manifest_may_have_fields_of_a_later_version(folder: RunFolder) -> None:
    save_checkpoint(folder, 1, parcels(), 2.0)
    (checkpoint,) = folder.checkpoints()
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["cell-0000.safetensors"]["compressed"] = False
    path.write_text(json.dumps({**manifest, "wall_time": 3}))
    assert folder.load_checkpoint(checkpoint).keys() == {0, 1}
    assert folder.checkpoints() == [checkpoint]


def test_what_is_set_aside_is_kept_but_does_not_count(folder: RunFolder) -> None:
    for _ in range(2):
        save_checkpoint(folder, 1, parcels(), None)
        (checkpoint,) = folder.checkpoints()
        aside = folder.set_aside(checkpoint)
        assert (aside / "cell-0001.safetensors").is_file()
        assert folder.checkpoints() == []
    folder.drop_incomplete_checkpoints()
    assert aside.is_dir()


# ---------------------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data(tmp_path_factory.mktemp("data") / "images.npz")


@pytest.mark.slow
def test_old_checkpoints_go_and_the_best_stays(tmp_path: Path, data: Path) -> None:
    run = tmp_path / "run"
    more = ["rounds=8", "run.keep_last=1", "run.keep_best=true", "score.metric=tvd"]
    assert remuda(tmp_path, "train", *tiny(data, run, *more))[0] == 0
    scores = {
        event["round"]: event["score"]
        for event in happenings(run)
        if event["event"] == "population"
    }
    best = min(scores, key=lambda number: (scores[number], number))
    kept = {found.round: found.loss for found in RunFolder(run).checkpoints()}
    assert set(kept) == {best, 8}
    assert kept[best] == scores[best]


@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        "round-000003/.cell-0001.safetensors.part",
        "round-000003/.manifest.json.part",
        "round-000002/.mixture.png.part",
        "ensemble/.model.safetensors.part",
        ".result.json.part",
    ],
)
def test_a_disk_that_fills_up_costs_no_earlier_checkpoint(
    file: str, tmp_path: Path, data: Path
) -> None:
    run = tmp_path / "run"
    train = Command(tmp_path, "train", *tiny(data, run), fault=faults.full_disk, at=file)
    assert train.wait() == 3, train.said
    errors = train.errors.read_text()
    assert errors.startswith(f"remuda: {run}")
    problem, advice = errors.splitlines()
    assert problem.endswith("cannot be written: No space left on device")
    assert f"resume {run}" in advice
    folder = RunFolder(run)
    assert [len(folder.load_checkpoint(found)) for found in folder.checkpoints()]
    assert not list(run.rglob("*.part"))
    code, _, errors = remuda(tmp_path, "resume", str(run))
    assert code == 0, errors


@pytest.mark.slow
def test_files_that_may_not_grow_stop_the_run_and_space_lets_it_go_on(tmp_path: Path) -> None:
    """The kernel's own refusal, in the event log: it is the one file that grows."""
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    data = tmp_path / "points.csv"
    data.write_text("".join(f"{x},{x * x % 17}\n" for x in range(60)))
    more = ["rounds=10", "network.hidden=[2]", "score.extractor=none"]
    assert remuda(tmp_path, "train", *tiny(data, undisturbed, *more))[0] == 0
    largest = max(map(len, tree(undisturbed).values()))
    log = (undisturbed / "events.jsonl").stat().st_size
    assert log > largest + 5000
    train = Command(
        tmp_path, "train", *tiny(data, run, *more), fault=faults.small_files, at=str(log - 2500)
    )
    assert train.wait() == 3, train.said
    assert f"{run / 'events.jsonl'}: cannot be written: File too large" in train.said
    code, _, errors = remuda(tmp_path, "resume", str(run))
    assert code == 0, errors
    assert tree(run) == tree(undisturbed)
    assert happenings(run) == happenings(undisturbed)


@pytest.mark.slow
def test_a_small_disk_fills_up_for_real(tmp_path: Path, data: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        run = disk / "run"
        words = tiny(data, run, "network.hidden=[16]", "rounds=1000", "run.keep_last=1000")
        code, _, errors = remuda(tmp_path, "train", *words)
        assert code == 3
        assert "cannot be written: No space left on device" in errors
        assert len(errors.splitlines()) == 2
        assert f"resume {run}" in errors
        folder = RunFolder(run)
        assert len([folder.load_checkpoint(found) for found in folder.checkpoints()]) >= ROUNDS - 1
    finally:
        subprocess.run(["umount", str(disk)], capture_output=True)
