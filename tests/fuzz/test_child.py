"""The harness itself: whatever a reader can do wrong is found, and the input of it named."""

from __future__ import annotations

import ctypes
import time
import warnings
from pathlib import Path

import pytest

from remuda.errors import DataError, RemudaError
from tests.fuzz.child import fuzz
from tests.fuzz.target import Target


class _RawError(RemudaError):
    """What no message should be."""

    def __str__(self) -> str:
        return str(self.args[0])


def _read(path: Path) -> object:
    """A reader that obeys the first letter."""
    match path.read_bytes()[:1]:
        case b"a":
            raise ValueError("no RemudaError")
        case b"b":
            ctypes.string_at(0)
        case b"c":
            while True:
                pass
        case b"d":
            return bytearray(2**30)
        case b"e":
            try:
                bytearray(2**30)
            except MemoryError as error:
                raise DataError("a: damaged") from error
        case b"f":
            raise _RawError("a\x1b[2Jb")
        case b"g":
            raise RemudaError(*["a"] * 30)
        case b"h":
            warnings.warn("careful", stacklevel=1)
        case b"i":
            raise DataError("a: damaged")
    return None


FAULTS = {
    b"a": "ValueError: no RemudaError",
    b"b": "died with status -11",
    b"c": "took more than 2.0 s of CPU",
    b"d": "MemoryError",
    b"e": "took more than 512 MB of memory",
    b"f": "control characters",
    b"g": "30 lines",
    b"h": "UserWarning: careful",
}


@pytest.mark.slow
def test_every_fault_is_found_and_its_input_saved(tmp_path: Path) -> None:
    seeds = [b"i", *FAULTS, b"", b"i"]
    failures = fuzz(Target("toy", ".toy", lambda: seeds, _read), 0, len(seeds), tmp_path)
    assert {failure.path.read_bytes() for failure in failures} == FAULTS.keys()
    for failure in failures:
        assert FAULTS[failure.path.read_bytes()] in failure.reason
        assert failure.path.name == f"toy-{failure.number}.toy"


@pytest.mark.slow
def test_a_reader_that_waits_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.child._MOST_SECONDS", 0.2)
    target = Target("idle", "", lambda: [b""], lambda _: time.sleep(60))
    (failure,) = fuzz(target, 0, 1, tmp_path)
    assert "waited" in failure.reason
