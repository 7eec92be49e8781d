"""Processes that compute the same on all x86-64 machines: made so in time, or refused."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from remuda.config import validate
from remuda.errors import ConfigError
from remuda.runs import portable
from remuda.runs.portable import VARIABLES, ensure_portable

PORTABLE = validate({"portable": True})
IN_TIME = """
import os, sys
from remuda.config import validate
from remuda.runs.portable import VARIABLES, ensure_portable

ensure_portable(validate({"portable": True}))
assert "torch" not in sys.modules
assert all(os.environ[name] == value for name, value in VARIABLES.items())
"""


@pytest.fixture(autouse=True)
def haswell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The description of a processor that has what is needed, on whatever machine this is."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu sse sse2 fma avx avx2\n")
    monkeypatch.setattr(portable, "_CPUINFO", path)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 is what it is for")
def test_before_torch_is_loaded_libraries_are_told_whatever_the_user_told_them() -> None:
    told = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "AVX2"}
    subprocess.run([sys.executable, "-c", IN_TIME], env=told, check=True)


def test_once_torch_is_loaded_it_is_refused_with_what_to_export() -> None:
    exports = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    with pytest.raises(ConfigError, match=re.escape(f"allowed: `export {exports}` before")) as info:
        ensure_portable(PORTABLE)
    assert "\n" not in str(info.value)
    assert not VARIABLES.keys() & os.environ.keys()


def test_with_what_was_to_be_exported_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    ensure_portable(PORTABLE)
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    with pytest.raises(ConfigError, match="torch is already loaded"):
        ensure_portable(PORTABLE)


def test_other_runs_are_none_of_its_business() -> None:
    ensure_portable(validate({}))
    assert not VARIABLES.keys() & os.environ.keys()


def test_processors_that_lack_what_all_share_are_refused(
    haswell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    haswell.write_text("processor\t: 0\nflags\t\t: fpu sse sse2 fma avx\n")
    with pytest.raises(ConfigError, match="has no avx2; allowed: x86-64 machines with AVX2"):
        ensure_portable(PORTABLE)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(ConfigError, match="this processor is aarch64; allowed: x86-64"):
        ensure_portable(PORTABLE)


def test_a_system_that_does_not_describe_its_processor_is_trusted(
    haswell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    haswell.unlink()
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    ensure_portable(PORTABLE)
