"""Faults by name, injected into a process of its own: none of this is known to the program."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def before(owner: Any, name: str, act: Callable[..., None]) -> None:
    """Call `act` with the arguments of every call of owner.name, ahead of it."""
    original = getattr(owner, name)

    def spied(*args: Any, **kwargs: Any) -> Any:
        act(*args, **kwargs)
        return original(*args, **kwargs)

    setattr(owner, name, spied)


def after(owner: Any, name: str, act: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def spied(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        act(*args, **kwargs)
        return result

    setattr(owner, name, spied)


def kill(at: str) -> None:
    """End this process by SIGKILL at a named point."""
    KILLS[at]()


def _in_the_middle_of(part: str) -> None:
    """Die while a file is being written: some of its bytes are on disk under its passing name."""

    def tear(descriptor: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(part):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
            die()

    before(os, "fsync", tear)


def _training_a_batch() -> None:
    from remuda.gan.learner import Learner

    steps = 0

    def step(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 30:  # of 18 a round: three cells, two roles, three batches
            die()

    before(Learner, "descend", step)


def _after_file(end: str) -> None:
    from remuda.runs import checkpoints, ensemble, outcome, store

    def written(path: Path, *_: object, **__: object) -> None:
        if str(path).endswith(end):
            die()

    for module in (store, checkpoints, ensemble, outcome):
        for name in ("write_atomically", "write_json"):
            if hasattr(module, name):
                after(module, name, written)


def _before_file(end: str) -> None:
    from remuda.runs import checkpoints, ensemble, store

    def writing(path: Path, *_: object, **__: object) -> None:
        if str(path).endswith(end):
            die()

    for module in (store, checkpoints, ensemble):
        for name in ("write_atomically", "write_json"):
            before(module, name, writing)


def _pruning() -> None:
    from remuda.files import disk

    def remove(path: Path) -> None:
        sorted(path.iterdir())[0].unlink()
        die()

    before(disk, "remove_tree", remove)


def _event_half_written() -> None:
    from remuda.runs.store import RunFolder

    def append(folder: RunFolder, event: dict[str, Any]) -> None:
        if event.get("round") == 2 and event.get("cell") == 1:
            with (folder.path / "events.jsonl").open("a") as file:
                file.write('{"time": "2026-01-01T00:00:00.000", "event": "round", "round": 2, "ce')
            die()

    before(RunFolder, "append_event", append)


def _first_event_half_written() -> None:
    from remuda.runs.store import RunFolder

    def append(folder: RunFolder, event: dict[str, Any]) -> None:
        (folder.path / "events.jsonl").write_text('{"time": "2026-01-')
        die()

    before(RunFolder, "append_event", append)


KILLS: dict[str, Callable[[], None]] = {
    "before training": _first_event_half_written,
    "training a batch": _training_a_batch,
    "in an event line": _event_half_written,
    "after a round's last event": lambda: _before_file("round-000002/cell-0000.safetensors"),
    "after the first cell file": lambda: _after_file("round-000002/cell-0000.safetensors"),
    "in a cell file": lambda: _in_the_middle_of("round-000002/.cell-0001.safetensors.part"),
    "before the manifest": lambda: _before_file("round-000002/manifest.json"),
    "in the manifest": lambda: _in_the_middle_of("round-000002/.manifest.json.part"),
    "after the manifest": lambda: _after_file("round-000002/manifest.json"),
    "in the first checkpoint": lambda: _in_the_middle_of(
        "round-000001/.cell-0002.safetensors.part"
    ),
    "in a sample sheet": lambda: _in_the_middle_of("round-000002/.cell-0001.png.part"),
    "while pruning": _pruning,
    "before the ensemble": lambda: _before_file("ensemble/model.safetensors"),
    "in the ensemble": lambda: _in_the_middle_of("ensemble/.model.safetensors.part"),
    "within the ensemble": lambda: _after_file("ensemble/model.safetensors"),
    "before the result": lambda: _before_file("result.json"),
}


def small_files(most: str) -> None:
    """No file may grow beyond so many bytes: what a full disk looks like to one file."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), int(most)))


def full_disk(end: str) -> None:
    """The disk fills up while a file of this name is written."""

    def refuse(descriptor: int) -> None:
        if str(Path(f"/proc/self/fd/{descriptor}").readlink()).endswith(end):
            os.ftruncate(descriptor, 10)
            raise OSError(28, "No space left on device")

    before(os, "fsync", refuse)


def read_only(since: str) -> None:
    """Nothing can be changed any more: from the start, or after the first round."""
    from remuda.runs.store import RunFolder

    real = os.open

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            refuse()
        return real(path, flags, *args, **kwargs)

    def remount(*_: object) -> None:
        for name in ("unlink", "replace", "mkdir", "rmdir", "utime", "fsync"):
            setattr(os, name, refuse)
        setattr(os, "open", opened)  # noqa: B010 - not a new function to mypy

    if since == "start":
        remount()
    else:
        after(RunFolder, "complete_checkpoint", remount)


def taken_away(how: str) -> None:
    """After the first round the run folder is removed, moved, or another is in its place."""
    from remuda.runs.store import RunFolder

    gone = False

    def take(folder: RunFolder, *_: object) -> None:
        nonlocal gone
        if gone:
            return
        gone = True
        moved = folder.path.with_name("moved")
        folder.path.rename(moved)  # at once: nothing is written while it is being removed
        if how == "removed":
            shutil.rmtree(moved, ignore_errors=True)
        elif how == "replaced":
            shutil.copytree(moved, folder.path)

    after(RunFolder, "complete_checkpoint", take)


def slow_disk() -> None:
    """Every write takes its time."""
    before(os, "fsync", lambda _: time.sleep(0.1))


def interrupt_within_a_library() -> None:
    """Ctrl-C comes where a library makes another error of it."""
    from remuda.gan.learner import Learner

    def step(learner: Learner, *_: object) -> None:
        if learner.optimiser.state():
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt as error:
                raise RuntimeError("Error calling __set_name__") from error

    before(Learner, "descend", step)


def in_a_finaliser(act: Callable[[], None]) -> None:
    class Dying:
        pass

    dying = Dying()
    weakref.finalize(dying, act)
    del dying


def in_a_destructor(act: Callable[[], None]) -> None:
    class Dying:
        def __del__(self) -> None:
            act()

    Dying()


def in_a_callback_from_c(act: Callable[[], None]) -> None:
    ctypes.CFUNCTYPE(None)(act)()


# Where Python prints what is raised, and goes on as if nothing had happened.
CALLBACKS = {
    "finaliser": in_a_finaliser,
    "destructor": in_a_destructor,
    "C": in_a_callback_from_c,
}


def interrupt_in_a_callback(callback: str) -> None:
    """Ctrl-C comes where its exception gets lost, at the start of a very long round."""
    from remuda.gan.learner import Learner
    from remuda.parallel.master import Master

    interrupted = False

    def interrupt_once(master: Master, *_: object) -> None:
        nonlocal interrupted
        if master._completed == 1 and not interrupted:
            interrupted = True
            CALLBACKS[callback](lambda: signal.raise_signal(signal.SIGINT))

    def slow(learner: Learner, *_: object) -> None:
        if learner.optimiser.state():
            time.sleep(3.0 if interrupted else 0.02)

    before(Master, "_listen", interrupt_once)
    before(Learner, "descend", slow)


def interrupt(at: str) -> None:
    """Ctrl-C exactly at a named point."""
    from remuda.runs import checkpoints, outcome
    from remuda.runs.ensemble import Ensemble
    from remuda.runs.store import RunFolder

    passed = 0

    def now(*_: object, **__: object) -> None:
        nonlocal passed
        passed += 1
        if passed == 2:
            signal.raise_signal(signal.SIGINT)

    def at_event(_: object, event: dict[str, Any]) -> None:
        if event["event"] == "population":
            now()

    def at_cell(path: Path, *_: object, **__: object) -> None:
        if path.name == "cell-0001.safetensors":
            now()

    if at == "between the cells and the population":
        before(RunFolder, "append_event", at_event)
    elif at == "after the population's event":
        after(RunFolder, "append_event", at_event)
    elif at == "in the sample sheets":
        before(outcome, "sheet", now)
    elif at == "in a checkpoint":
        before(checkpoints, "write_atomically", at_cell)
    elif at == "after a checkpoint":
        after(RunFolder, "complete_checkpoint", now)
    elif at == "before pruning":
        passed = 1
        before(RunFolder, "drop_checkpoint", now)
    elif at == "in the ensemble":
        passed = 1
        before(Ensemble, "save", now)


INTERRUPTS = (
    "between the cells and the population",
    "after the population's event",
    "in the sample sheets",
    "in a checkpoint",
    "after a checkpoint",
    "before pruning",
    "in the ensemble",
)
