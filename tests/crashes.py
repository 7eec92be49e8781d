"""Runs that fail, are killed or lose their power at a given step on disk, each in a fork.

As SQLite is tested: every change to a file or folder goes through `remuda.files.disk`, whose
functions ask here before each step, and do it, fail, or wait for their end. Whoever is asked
(`Watch`) follows what would survive a power cut: the content of a file up to its last sync, and
the names in a folder as they were at its last sync.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.forked import end_session, fork, serve_workers, session
from remuda.config import Config, load_config
from remuda.files import disk
from tests.tiny_runs import happenings, tree

STEPS = (
    "create",
    "open_to_append",
    "open_to_lock",
    "write",
    "sync_file",
    "sync_path",
    "replace",
    "link",
    "remove",
    "touch",
    "make_folder",
    "remove_folder",
)
# What a full disk still does.
FREE_STEPS = ("remove", "remove_folder", "touch", "replace", "open_to_lock")
# In JSON: times, seconds, and the number of a process.
_OF_TIME = re.compile(rb'\d{4}-\d\d-\d\dT[\d:.]+|\d+\.\d+(e-?\d+)?|\d+e-\d+|"pid": \d+')
LONGEST = 60.0  # seconds of a run
_GRACE = 10.0  # for the workers of a master that is gone
Engine = Literal["local", "process"]
State = Mapping[str, bytes | None]  # the content of every file by its path, None for folders


def tiny_run(base: Path) -> Config:
    """Two cells, two rounds, and all that a run writes: scores, sheets, checkpoints that go."""
    data = base.parent / "points.csv"
    if not data.exists():
        data.write_text("".join(f"{x},{x * x % 17}\n" for x in range(60)))
    words = [f"data={data}", f"run.dir={base / 'run'}", "rounds=2", "grid=1x2"]
    words += ["network.hidden=[4]", "network.latent=2", "training.batch_size=10"]
    words += ["training.batches_per_round=1", "score.every=2", "score.samples=20"]
    words += ["score.final_samples=20", "run.checkpoint_every=1", "run.keep_last=1"]
    return load_config("quickstart", [*words, "run.sheet_every=0", "run.keep_best=false"])


def carry(config: Config, engine: Engine) -> None:
    """What a user does: start the run, or if it has begun, continue it."""
    from remuda.parallel import training
    from remuda.parallel.engines import Engine as Carrier

    run = Path(config.run.dir or "")
    setattr(os, "fsync", lambda _: None)  # noqa: B010 - it is `Shadow` that knows what is synced
    if engine == "process":
        serve_workers()
    carrier = Carrier(engine, 2 if engine == "process" else None)
    if (run / "config.yaml").exists():
        training.resume(run, engine=carrier)
    else:
        training.train(config, engine=carrier)


# -------------------------------------------------------------------------- in the run's processes


class Asking:
    """Asks, before every step on disk of this process, what becomes of it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._owner = 0
        self._lock = threading.Lock()  # its threads take turns
        for name in STEPS:
            setattr(disk, name, self._asking(name, getattr(disk, name)))

    def _asking(self, name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*args: Any) -> Any:
            with self._lock:
                answer = self._ask({"step": name, "paths": list(map(_path, args[: _paths(name)]))})
                if answer == b"wait":
                    signal.pause()
                if answer in (b"fail", b"tear") and name == "write":
                    whole = args[1] if isinstance(args[1], bytes) else b"".join(args[1])
                    step(args[0], whole[: len(whole) // 2])
                if answer == b"tear":
                    self._socket.send(b"done")
                    signal.pause()
                if answer == b"fail":
                    self._socket.send(b"raised")
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                try:
                    result = step(*args)
                except OSError:
                    self._socket.send(b"raised")
                    raise
                self._socket.send(b"done")
                return result

        return asked

    def _ask(self, question: Mapping[str, Any]) -> bytes:
        if self._owner != os.getpid():  # a worker is a fork, and speaks for itself
            self._owner = os.getpid()
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._socket.connect(self._address)
        self._socket.send(json.dumps({**question, "pid": os.getpid()}).encode())
        answer = self._socket.recv(64)
        if not answer:
            os._exit(1)
        return answer


def _paths(step: str) -> int:
    return 2 if step in ("replace", "link") else 1


def _path(argument: Path | int) -> str:
    if isinstance(argument, int):
        return str(Path(f"/proc/self/fd/{argument}").readlink())
    return str(argument)


# -------------------------------------------------------------------------- what would survive


@dataclass
class File:
    """A file, and its content when it was last synced."""

    synced: bytes = b""


@dataclass
class Folder:
    """A folder: what is in it, and what was in it when it was last synced."""

    now: dict[str, Node] = field(default_factory=dict)
    synced: dict[str, Node] = field(default_factory=dict)


Node = File | Folder


class Shadow:
    """What of a folder is on disk for good; all that was there at first is."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._root = _scanned(base)

    def note(self, step: str, paths: Sequence[Path]) -> None:
        """A step was done."""
        if not paths[0].is_relative_to(self._base):
            return  # in shared memory
        if step == "remove" and paths[0].parent != self._base and not paths[0].parent.is_dir():
            return  # there was nothing to remove
        parent, name = self._place(paths[0])
        match step:
            case "create":
                parent.now[name] = File()
            case "open_to_append" | "open_to_lock":
                parent.now.setdefault(name, File())
            case "make_folder":
                parent.now[name] = Folder()
            case "remove" | "remove_folder":
                parent.now.pop(name, None)
            case "replace" | "link":
                node = parent.now.pop(name) if step == "replace" else parent.now[name]
                target, new = self._place(paths[1])
                target.now[new] = node
            case "sync_file" | "sync_path":
                found = self._root if paths[0] == self._base else parent.now[name]
                if isinstance(found, File):
                    found.synced = paths[0].read_bytes()
                else:
                    found.synced = dict(found.now)

    def _place(self, path: Path) -> tuple[Folder, str]:
        folder = self._root
        parts = path.relative_to(self._base).parts
        for part in parts[:-1]:
            inner = folder.now[part]
            assert isinstance(inner, Folder)
            folder = inner
        return folder, parts[-1] if parts else ""

    def all_lost(self) -> State:
        """After a power cut that took all that was not synced."""
        return dict(_state(self._root, lambda folder: folder.synced))

    def names_survived(self) -> State:
        """After one that took what was written, while names were made, changed and removed."""
        return dict(_state(self._root, lambda folder: folder.now))

    def names(self) -> set[str]:
        return set(self.names_survived())


def _state(
    folder: Folder, names: Callable[[Folder], dict[str, Node]], before: str = ""
) -> Iterator[tuple[str, bytes | None]]:
    for name, node in sorted(names(folder).items()):
        if isinstance(node, File):
            yield before + name, node.synced
        else:
            yield before + name, None
            yield from _state(node, names, f"{before}{name}/")


def _scanned(path: Path) -> Folder:
    found: dict[str, Node] = {}
    for entry in path.iterdir():
        found[entry.name] = _scanned(entry) if entry.is_dir() else File(entry.read_bytes())
    return Folder(found, dict(found))


def snapshot(base: Path) -> State:
    """What is in a folder now."""
    return {
        str(path.relative_to(base)): None if path.is_dir() else path.read_bytes()
        for path in sorted(base.rglob("*"))
    }


def saved_round(names: Collection[str]) -> int:
    """The newest round with a manifest."""
    found = (re.search(r"round-(\d+)/manifest\.json$", name) for name in names)
    return max((int(one[1]) for one in found if one), default=0)


def restore(base: Path, state: State) -> None:
    """Make a folder what it was."""
    import shutil

    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    for name, content in state.items():
        if content is None:
            (base / name).mkdir()
        else:
            (base / name).write_bytes(content)


def likeness(state: State) -> str:
    """Equal for states that differ in nothing but times, as those of two equal runs do."""
    whole = hashlib.sha256()
    for name, content in sorted(state.items()):
        text = content or b""
        if ".json" in name:
            text = _OF_TIME.sub(b"N", re.sub(rb"\n[^\n]+\Z", b"\ntorn", text))
        whole.update(f"{name} {content is None} {len(text)} ".encode() + text)
    return whole.hexdigest()


# -------------------------------------------------------------------------- watching a run


@dataclass(frozen=True)
class Fault:
    """What happens to a run at a step, counted over all its processes; 0 is never."""

    kind: Literal["none", "kill", "full disk"] = "none"
    step: int = 0


@dataclass
class Crash:
    """How a run came to its end, and what may be on disk then."""

    code: int | None  # of the process that trains; minus the signal, None where it had to be ended
    said: str
    steps: list[tuple[str, str]]  # all that were asked for, with the path of each
    victim: str  # that was killed: master, worker, or nobody
    states: dict[str, State]  # what may be on disk after the kill, by the kind of it
    names: set[str]  # that are in the folder at the end, as the steps have it
    promised: int  # the round that a power cut must not take any more


class Watch:
    """Carries a run in a fork, and decides over every step of it."""

    def __init__(self, base: Path, engine: Engine, fault: Fault) -> None:
        self._base, self._engine, self._fault = base, engine, fault
        self._shadow = Shadow(base)
        self._steps: list[tuple[str, str]] = []
        self._states: dict[str, State] = {}
        self._victim = "nobody"
        self._promised = 0

    def run(self, config: Config) -> Crash:
        address = str(self._base.parent / f"{self._base.name}.socket")
        log = self._base.parent / f"{self._base.name}.log"
        log.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(address)
            listener.listen()

            def work() -> None:
                listener.close()
                Asking(address)
                carry(config, self._engine)

            self._pid = fork(work, log)
            try:
                code = self._attend(listener)
            finally:
                end_session(self._pid)
                Path(address).unlink()
        names = self._shadow.names()
        said = log.read_text()
        return Crash(code, said, self._steps, self._victim, self._states, names, self._promised)

    def _attend(self, listener: socket.socket) -> int | None:
        """Answer until no process of the run is left; the exit code of its first."""
        conversations: dict[int, socket.socket] = {}
        poll = select.poll()
        poll.register(listener, select.POLLIN)
        code: int | None = None
        end = time.monotonic() + LONGEST
        while time.monotonic() < end:
            for descriptor, _ in poll.poll(20):
                if descriptor == listener.fileno():
                    one, _ = listener.accept()
                    conversations[one.fileno()] = one
                    poll.register(one, select.POLLIN)
                elif not self._answer(conversations[descriptor]):
                    poll.unregister(descriptor)
                    conversations.pop(descriptor).close()
            if code is None:
                pid, status = os.waitpid(self._pid, os.WNOHANG)
                if pid:
                    code = os.waitstatus_to_exitcode(status)
                    end = min(end, time.monotonic() + _GRACE)
            elif not conversations and not session(self._pid):
                return code
        return None

    def _answer(self, one: socket.socket) -> bool:
        """Decide over the step that a process asks for; False if it is gone."""
        try:
            question = one.recv(2**16)
        except ConnectionResetError:
            return False
        if not question:
            return False
        asked = json.loads(question)
        step, paths = asked["step"], [Path(path) for path in asked["paths"]]
        self._steps.append((step, str(paths[-1])))
        if self._is_met(step):
            if self._fault.kind == "kill":
                self._kill(one, asked["pid"], step)
                return False
            one.send(b"fail")
        else:
            one.send(b"go")
        if one.recv(64) == b"done":
            self._shadow.note(step, paths)
            # What a run that goes on after the kill says later is not promised by then.
            if step == "sync_path" and paths[0].name == "checkpoints" and not self._states:
                self._promised = saved_round(self._shadow.names())
        return True

    def _is_met(self, step: str) -> bool:
        if self._fault.kind == "full disk":  # it stays full
            late = 0 < self._fault.step <= len(self._steps)
            return late and (step not in FREE_STEPS or len(self._steps) == self._fault.step)
        return len(self._steps) == self._fault.step

    def _kill(self, one: socket.socket, pid: int, step: str) -> None:
        self._victim = "master" if pid == self._pid else "worker"
        self._states = {
            "killed": snapshot(self._base),
            "all unsynced lost": self._shadow.all_lost(),
            "unsynced data lost": self._shadow.names_survived(),
        }
        if step == "write":
            one.send(b"tear")
            one.recv(64)
            self._states["killed in the middle"] = snapshot(self._base)
        os.kill(pid, signal.SIGKILL)


# -------------------------------------------------------------------------- judging


def outcome(run: Path) -> dict[str, Any]:
    """All of a finished run that must be the same, however it was disturbed."""
    result = json.loads((run / "result.json").read_text())
    events = sorted(happenings(run), key=lambda event: (event["round"], event.get("cell", -1)))
    timeless = {key: result[key] for key in ("rounds", "mixture", "scores", "genes", "images")}
    parts = [str(path) for path in run.rglob("*.part")]
    return {"files": tree(run), "result": timeless, "events": events, "left behind": parts}


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """In a line, where two outcomes differ; empty where they do not."""
    for key in wanted:
        if found[key] != wanted[key]:
            if key != "files":
                return f"other {key}: {str(found[key])[:300]}"
            names = found[key].keys() | wanted[key].keys()
            return "other files: " + ", ".join(
                sorted(name for name in names if found[key].get(name) != wanted[key].get(name))
            )
    return ""


class Laboratory:
    """Tries the crashes of a run on one engine, and says which of them it does not survive."""

    def __init__(self, base: Path, engine: Engine) -> None:
        self._base, self._engine = base, engine
        self._config = tiny_run(base)
        self._survived: set[str] = set()  # states, by likeness
        self.runs = 0
        self.states = 0
        self.problems: list[str] = []
        base.mkdir()
        undisturbed = self._watched(Fault())
        assert undisturbed.code == 0, undisturbed.said
        self.steps = undisturbed.steps
        self._wanted = outcome(base / "run")
        found = {str(path.relative_to(base)) for path in base.rglob("*")}
        assert found == undisturbed.names, "something was changed behind the layer's back"

    def _watched(self, fault: Fault) -> Crash:
        restore(self._base, {})
        self.runs += 1
        return Watch(self._base, self._engine, fault).run(self._config)

    def kill_at(self, step: int) -> None:
        """Kill the process that takes this step, and try all that may be on disk then."""
        crash = self._watched(Fault("kill", step))
        where = f"{self._engine}, {crash.victim} killed at {self._named(crash)}"
        if crash.victim == "worker":
            self._check(f"{where}: went on by itself", crash.code, crash.said)
        elif crash.victim == "nobody":
            self._check(f"{where}: not reached", crash.code, crash.said)
        for kind, state in crash.states.items():
            self.states += 1
            if saved_round(state) < crash.promised:
                self.problems.append(f"{where}, {kind}: round {crash.promised} is not saved")
            like = likeness(state)
            if like not in self._survived:
                restore(self._base, state)
                if self._resume(f"{where}, {kind}"):
                    self._survived.add(like)

    def fill_at(self, step: int) -> None:
        """Fill the disk at this step; once there is room again, the run goes on."""
        crash = self._watched(Fault("full disk", step))
        where = f"{self._engine}, disk full at {self._named(crash)}"
        if crash.code not in (0, 3) or "Traceback" in crash.said:
            self.problems.append(f"{where}: ended with {crash.code}: {crash.said[-2000:]}")
        self.states += 1
        self._resume(where)

    def _named(self, crash: Crash) -> str:
        number = len(crash.steps)
        return f"step {number} ({crash.steps[-1][0]} {crash.steps[-1][1]})"

    def _resume(self, where: str) -> bool:
        """Whether the same command, given again, ends as if nothing had happened."""
        log = self._base.parent / f"{self._base.name}.log"
        log.unlink(missing_ok=True)
        self.runs += 1
        pid = fork(lambda: carry(self._config, self._engine), log)
        end = time.monotonic() + LONGEST
        code: int | None = None
        while time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.002)
        end_session(pid)
        return self._check(where, code, log.read_text())

    def _check(self, where: str, code: int | None, said: str) -> bool:
        if code != 0:
            self.problems.append(f"{where}: exit code {code}: {said[-2000:]}")
            return False
        wrong = difference(outcome(self._base / "run"), self._wanted)
        if wrong:
            self.problems.append(f"{where}: {wrong}")
        return not wrong


def explore(base: Path, engine: Engine, kind: str, share: float, report: Path) -> None:
    """Try the steps of a run, or an even share of them, and write down what came of it."""
    laboratory = Laboratory(base, engine)
    count = len(laboratory.steps)
    every = max(1, round(1 / share))
    tried = range(1 + (every // 2), count + 1, every)
    for step in tried:
        if kind == "kill":
            laboratory.kill_at(step)
        else:
            laboratory.fill_at(step)
    found = {
        "steps": laboratory.steps,
        "tried": len(tried),
        "runs": laboratory.runs,
        "states": laboratory.states,
        "problems": laboratory.problems,
    }
    report.write_text(json.dumps(found))
