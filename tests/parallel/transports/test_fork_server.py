"""What forks workers: single-threaded, with torch and not computing, and no orphan of anybody's."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from remuda.config import load_config
from remuda.parallel.engines import Engine
from remuda.parallel.launch import usable_cores
from remuda.parallel.signals import STOPPING
from remuda.parallel.transports.fork_server import (
    Forked,
    NoForkError,
    can_fork,
    fork_worker,
    start_server,
    stop_server,
)
from tests.parallel.runs import children, process_name, servers

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_fork(), reason="workers cannot be forks here"),
]
SECONDS = 60


@pytest.fixture(autouse=True)
def _without_a_server() -> Iterator[None]:
    stop_server()
    yield
    stop_server()


def tell(pipe: Connection[Any, Any], *names: str) -> None:
    """A worker that tells of its process before it ends, and waits until it may."""
    import torch

    modules = {name: name in sys.modules for name in ("torch", "torch._dynamo", "sympy")}
    ignored = [signal.getsignal(number) is signal.SIG_IGN for number in STOPPING]
    pipe.send_bytes(
        json.dumps(
            {
                "pid": os.getpid(),
                "parent": os.getppid(),
                "folder": str(Path.cwd()),
                "threads": threads(os.getpid()),
                "torch": torch.get_num_threads(),
                "variables": {name: os.environ.get(name) for name in names},
                "modules": modules,
                "ignored": ignored,
            }
        ).encode()
    )
    pipe.recv_bytes()


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def worker(
    number: int = 1, names: tuple[str, ...] = ()
) -> tuple[Forked, Connection[Any, Any], dict[str, Any]]:
    """One that tells, the pipe to it, and what it told."""
    ours, theirs = Pipe()
    with theirs:
        forked = fork_worker(number, theirs, ours, tell, names, "remuda-worker-1")
    assert ours.poll(SECONDS)
    return forked, ours, json.loads(ours.recv_bytes())


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("number", [1, 2])
def test_the_server_has_torch_and_one_thread_whatever_the_workers_compute_with(number: int) -> None:
    forked, pipe, told = worker(number)
    server = start_server(number)
    assert told["parent"] == server.pid
    assert threads(server.pid) == told["threads"] == 1
    assert told["torch"] == min(number, usable_cores())
    assert told["modules"] == {"torch": True, "torch._dynamo": False, "sympy": False}
    pipe.close()
    forked.join(SECONDS)
    assert not forked.is_alive()


def test_paths_that_are_no_texts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts and notebooks put a Path into sys.path, which the import system passes over."""
    stop_server()
    monkeypatch.setattr(sys, "path", [*sys.path, Path("somewhere")])
    forked, pipe, told = worker(1)
    assert told["parent"] == start_server(1).pid
    pipe.close()
    forked.join(SECONDS)


def test_the_program_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    forked, pipe, told = worker(1)
    assert told["parent"] == start_server(1).pid
    pipe.close()
    forked.join(SECONDS)


def test_an_interrupt_while_the_server_is_started_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop_server()
    block, before = signal.pthread_sigmask, set(children(os.getpid()))
    started: set[int] = set()

    def interrupted(how: int, numbers: Any) -> Any:
        found = block(how, numbers)
        if how == signal.SIG_SETMASK:
            started.update(set(children(os.getpid())) - before)
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(signal, "pthread_sigmask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_server(1)
    assert started
    assert not started & set(children(os.getpid()))


def test_a_worker_has_the_folder_and_the_variables_of_its_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_server(1)  # early, with other variables: it must not be this one that forks
    monkeypatch.setenv("REMUDA_DATA", "elsewhere")
    monkeypatch.chdir(tmp_path)
    _, pipe, told = worker(1, ("REMUDA_DATA",))
    pipe.close()
    assert told["folder"] == str(tmp_path)
    assert told["variables"] == {"REMUDA_DATA": "elsewhere"}
    assert servers(os.getpid()) == [start_server(1).pid]


def test_the_server_and_its_workers_ignore_the_signals_that_ask_a_job_to_stop() -> None:
    server = start_server(1)
    for number in STOPPING:  # also while it is starting
        os.kill(server.pid, number)
    forked, pipe, told = worker()
    assert told["parent"] == server.pid
    assert all(told["ignored"])
    for number in STOPPING:
        os.kill(forked.pid, number)
    pipe.send_bytes(b"go on")
    forked.join(SECONDS)
    assert process_name(server.pid) == "remuda-server"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_server_that_dies_or_hangs_is_replaced_and_its_workers_go_on(
    number: signal.Signals,
) -> None:
    first, pipe, told = worker()
    os.kill(told["parent"], number)
    if number == signal.SIGSTOP:
        start_server(1)._socket.settimeout(0.2)
    second, other, more = worker()
    assert more["parent"] != told["parent"]
    assert servers(os.getpid()) == [more["parent"]]
    assert first.is_alive()
    for forked, end in ((first, pipe), (second, other)):
        end.send_bytes(b"go on")
        forked.join(SECONDS)
        assert not forked.is_alive()


def test_a_worker_can_be_killed_though_it_is_stopped() -> None:
    forked, pipe, _ = worker()
    os.kill(forked.pid, signal.SIGSTOP)
    assert forked.is_alive()
    forked.kill()
    forked.join(SECONDS)
    assert not forked.is_alive()
    with pytest.raises(EOFError):
        pipe.recv_bytes()
    forked.kill()  # its number may be another's by now, which must not be hit
    forked.close()
    assert not forked.is_alive()


def test_an_interrupted_request_leaves_no_worker_and_the_next_is_not_taken_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forked, pipe, told = worker()
    ours, theirs = Pipe()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(socket, "recv_fds", interrupt)
    with theirs, pytest.raises(KeyboardInterrupt):
        fork_worker(1, theirs, ours, tell, (), "remuda-worker-2")
    monkeypatch.undo()
    ours.close()
    second, other, more = worker()
    assert second.pid == more["pid"] != told["pid"]
    for end in (pipe, other):
        end.close()
    for one in (forked, second):
        one.join(SECONDS)
        assert not one.is_alive()


def test_without_a_server_that_lives_workers_must_be_spawned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    ours, theirs = Pipe()
    with ours, theirs, pytest.raises(NoForkError):
        fork_worker(1, theirs, ours, tell, (), "remuda-worker-1")


def test_a_server_with_a_second_thread_refuses_to_fork(tmp_path: Path) -> None:
    """A lock that the other thread holds would stay locked in the fork."""
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        start_server(1, ["threaded"])
        ours, theirs = Pipe()
        with ours, theirs, pytest.raises(NoForkError):
            fork_worker(1, theirs, ours, tell, (), "remuda-worker-1")


def test_the_server_ends_with_its_master_also_while_it_starts(tmp_path: Path) -> None:
    code = (
        "import os, signal; from remuda.parallel.transports.fork_server import start_server; "
        "print(start_server(1).pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert found.returncode == -signal.SIGKILL
    until(lambda: process_name(int(found.stdout)) == "")


def test_the_server_is_started_early_only_for_processes() -> None:
    config = load_config("cellular-digits", ["grid=1x3"])
    for engine in (Engine("local"), Engine("auto", 1)):
        engine.start_early(config)
    assert not servers(os.getpid())
    Engine("auto", 2).start_early(config)
    until(lambda: len(servers(os.getpid())) == 1)
