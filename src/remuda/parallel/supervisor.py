"""Starts `mpiexec` with the right flags, and starts it again when a job is lost.

A job of many ranks can be lost as a whole: a node goes down, a daemon is killed, a link is cut.
Then the run continues from its last saved round. Whether it succeeded is written in the run folder;
the exit code of mpiexec says little about it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from remuda.errors import STOPPED, ConfigError, RemudaError
from remuda.parallel.protocol import may_restart
from remuda.parallel.rank_watch import RankWatch, session_of
from remuda.parallel.shared_memory import (
    clear_stale_segments,
    lock_of,
    make_temporary_folder,
    remove_shared_folder,
)
from remuda.parallel.transports.mpi_thread import START_SECONDS
from remuda.runs.store import RunFolder

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 120.0  # for a job that was told to stop, or whose master is done
_SILENCE_SECONDS = 180.0  # between two signs of life; the master gives one every second
_LOOK_SECONDS = 0.2  # between two looks at the processes of a job that starts
_BACKOFF_SECONDS = 30.0  # at most, between two jobs
_VERSION_SECONDS = 60.0
_KILL_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


class LostJobError(RemudaError):
    """A job that was lost more often than it may be started again."""

    exit_code = 4


@dataclass(frozen=True)
class Commands:
    """What the ranks run: at first, and again when the run folder is there."""

    train: Sequence[str]
    resume: Sequence[str]


def find_mpiexec(given: str | None, ranks: int) -> list[str]:
    """The command that starts this many ranks, up to the program they run."""
    if given is not None:
        launcher = shlex.split(given)
        if not launcher or shutil.which(launcher[0]) is None:
            raise ConfigError(f"--mpiexec={given}: no such command; allowed: a launcher, its flags")
        return [*launcher, "-n", str(ranks)]
    beside = Path(sys.executable).with_name("mpiexec")
    command = str(beside) if beside.exists() else shutil.which("mpiexec")
    if command is None:
        raise ConfigError(
            "--engine=mpi: there is no mpiexec here; allowed: pip install 'remuda[mpi-local]', "
            "which brings one, a cluster's own (module load …), or --engine=process"
        )
    return [command, *_flags(command), "-n", str(ranks)]


def _flags(command: str) -> list[str]:
    """Flags for Open MPI, which let a job survive a lost rank; other launchers get none."""
    try:
        found = subprocess.run(
            [command, "--version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--engine=mpi: {command} does not answer: {error}") from None
    return open_mpi_flags(found.stdout)


def open_mpi_flags(version: str) -> list[str]:
    """The flags for an mpiexec of this version."""
    found = re.search(r"\((?:Open MPI|OpenRTE)\)\s*(\d+)", version)
    if found is None:
        return []
    flags = ["--with-ft", "ulfm"] if int(found[1]) >= 5 else []
    flags += ["--oversubscribe", "--bind-to", "none"]
    return [*flags, *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]


class Supervisor:
    """Takes one run through as many MPI jobs as it needs."""

    def __init__(
        self,
        mpiexec: Sequence[str],
        commands: Commands,
        folder: Path,
        restarts: int,
        say: Callable[[str], None],
        threads: int = 1,
    ) -> None:
        self._mpiexec = list(mpiexec)
        self._commands = commands
        self._folder = folder
        self._restarts = restarts
        self._say = say
        self._environ = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),  # read when a rank's torch loads
            "OMPI_MCA_osc": "^ucx",  # which only warns where there is no such network
        }
        self._received: list[int] = []
        self._complaint: str | None = None  # why we ended the job, if we did

    def run(self) -> int:
        """The exit code of the run: 0 when its result is there."""
        losses = 0
        with self._signals():
            while True:
                code = self._job()
                if self._is_finished():
                    return 0
                if self._received:
                    return self._exit_code()
                if code == STOPPED:  # the ranks were told to stop without us
                    return STOPPED
                if not may_restart(code, losses, self._restarts):
                    if code in (2, 3):  # the user's mistake, which the master has reported
                        return code
                    raise LostJobError(
                        f"the MPI job was lost {losses + 1} times ({self._why(code)}); "
                        f"the rounds saved so far are intact in {self._folder}"
                    )
                losses += 1
                pause = min(2.0 ** (losses - 1), _BACKOFF_SECONDS)
                self._say(
                    f"the MPI job was lost ({self._why(code)}); starting it again from the last "
                    f"saved round, {losses} of {self._restarts}"
                )
                self._pause(pause)
                if self._received:
                    return self._exit_code()

    def _exit_code(self) -> int:
        number = self._received[0]
        return STOPPED if number == signal.SIGUSR1 else 128 + number

    def _why(self, code: int) -> str:
        return self._complaint or f"mpiexec: {code}"

    def _job(self) -> int:
        """One job, to its end; its exit code."""
        # A run folder that is there was made by us, or by the user who resumes it.
        known = (self._folder / "config.yaml").is_file()
        command = self._commands.resume if known else self._commands.train
        temporary = make_temporary_folder()
        run = RunFolder(self._folder)
        run.await_life()
        process = subprocess.Popen(
            [*self._mpiexec, *command],
            # Where Open MPI's launcher on this host keeps its files, so that they can be swept.
            env={**self._environ, "PRTE_MCA_prte_local_tmpdir_base": str(temporary)},
            stdin=subprocess.DEVNULL,
            # Ctrl-C is ours to answer; and if we are killed, the job must not live on.
            start_new_session=True,
            preexec_fn=_die_with_parent,
            pass_fds=[lock_of(temporary)],  # the files are in use as long as it lives
        )
        try:
            self._complaint = self._watch(process)
            return 1 if self._complaint else process.returncode
        finally:
            _kill(process)
            run.clear_life()
            remove_shared_folder(temporary)
            clear_stale_segments()

    def _watch(self, process: subprocess.Popen[bytes]) -> str | None:
        """Until the job has ended, or has to be: then why."""
        folder, start, ranks = RunFolder(self._folder), time.monotonic(), RankWatch(process.pid)
        sign, training, looked = folder.sign_of_life(), folder.sign_of_training(), start
        seen, alive, stands = start, False, False
        stopping: float | None = None  # when it was told to stop
        finished: float | None = None  # when its result was there
        while process.poll() is None:
            now = time.monotonic()
            if (found := folder.sign_of_life()) != sign:
                if stopping is not None and not alive:
                    process.send_signal(signal.SIGUSR1)  # it was not there to hear the first
                sign, seen, alive = found, now, True
            if self._received and stopping is None:
                process.send_signal(signal.SIGUSR1)  # which mpiexec hands on to its ranks
                stopping = now
            if self._is_finished() and finished is None:
                finished = now
            stands = stands or finished is not None or folder.sign_of_training() != training
            for since in (stopping, finished):
                if since is not None and now - since > _GRACE_SECONDS:
                    return f"it did not end within {_GRACE_SECONDS:.0f} seconds"
            if now - seen > (_SILENCE_SECONDS if alive else START_SECONDS):
                return f"no sign of life for {now - seen:.0f} seconds"
            if not stands and now - looked > _LOOK_SECONDS:
                looked = now
                if complaint := ranks.complaint():
                    return complaint
            time.sleep(_POLL_SECONDS)
        return None

    def _is_finished(self) -> bool:
        return (self._folder / "result.json").is_file()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self._received:
            time.sleep(_POLL_SECONDS)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals are passed on to the job; we leave when the job has ended."""
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # by nohup
            numbers.append(signal.SIGHUP)
        previous = [
            (number, signal.signal(number, lambda number, _frame: self._received.append(number)))
            for number in numbers
        ]
        try:
            yield
        finally:
            for number, handler in previous:
                signal.signal(number, handler)


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a job on this host: mpiexec leads a session, and its ranks are in it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_KILL_SECONDS)
    deadline = time.monotonic() + _KILL_SECONDS
    while (left := session_of(process.pid)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        process.poll()
