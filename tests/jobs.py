"""MPI jobs for the tests: real ranks under a real mpiexec, started as the product starts them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)


class Job:
    """`mpiexec -n RANKS python -m MODULE WORDS`, which can be watched, signalled and killed."""

    def __init__(
        self, folder: Path, ranks: int, *words: str, environ: Mapping[str, str] | None = None
    ) -> None:
        # Here, because it loads torch, which other tests need not wait for.
        from remuda.parallel.supervisor import find_mpiexec

        number = len(list(folder.glob("job-*.out")))
        self._output = folder / f"job-{number}.out"
        command = [*find_mpiexec(None, ranks), sys.executable, "-m", *words]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={
                    **os.environ,
                    "OMP_NUM_THREADS": "1",
                    "PRTE_MCA_prte_local_tmpdir_base": str(folder),  # a killed one leaves files
                    **(environ or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self, timeout: float = 150) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout}s: {self.said}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """What is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def processes(word: str) -> list[int]:
    """The living processes whose command line holds a word; zombies are none."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def ranks_of(run: Path) -> dict[int, int]:
    """The processes of the job that trains a run, by rank."""
    found = {}
    for pid in processes(str(run)):
        variables = b""
        with contextlib.suppress(OSError):  # it has ended
            variables = Path(f"/proc/{pid}/environ").read_bytes()
        for variable in variables.split(b"\0"):
            if variable.startswith(b"OMPI_COMM_WORLD_RANK="):
                found[int(variable.partition(b"=")[2])] = pid
    return found


def until(condition: object, what: str, timeout: float = 120) -> None:
    """Wait until a callable says yes."""
    assert callable(condition)
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, f"never happened: {what}"
        time.sleep(0.02)
