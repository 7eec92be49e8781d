"""The archives of the package hold what they should, and the source archive can test itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from shutil import copyfile, which
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PICKED = ("tests/config/test_grid.py", "tests/test_clock.py", "tests/test_architecture.py")


def requirements() -> Iterator[Requirement]:
    """Everything that may be installed, without the references to the package's own extras."""
    extras = chain.from_iterable(PROJECT["optional-dependencies"].values())
    for line in chain(PROJECT["dependencies"], extras):
        if not line.startswith("remuda["):
            yield Requirement(line)


def pins(name: str) -> dict[str, Version]:
    lines = (ROOT / name).read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(package): Version(version) for package, version in pairs}


# ---------------------------------------------------------------------------- what is asked for


def test_pinned_versions_are_allowed() -> None:
    pinned = pins("constraints.txt")
    for requirement in requirements():
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_the_oldest_versions_are_the_lower_bounds() -> None:
    oldest = pins("constraints-oldest.txt")
    bounded = {
        canonicalize_name(requirement.name): Version(next(iter(requirement.specifier)).version)
        for requirement in requirements()
        if requirement.specifier and requirement.name != "torch"
    }
    assert oldest.pop("torch") == pins("constraints.txt")["torch"]
    assert {name: oldest.get(name) for name in bounded} == bounded


def test_plots_are_extra_and_development_has_everything() -> None:
    extras = PROJECT["optional-dependencies"]
    core = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not core & {Requirement(line).name for line in extras["plots"] + extras["mpi"]}
    assert Requirement(extras["dev"][0]).extras == {"mpi-local", "plots"}


# ---------------------------------------------------------------------------- archives


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the files that belong to the source, and of nothing else."""
    if not which("git") or not (ROOT / ".git").exists():
        pytest.skip("only a git checkout knows which files belong to the source")
    folder = tmp_path_factory.mktemp("tracked") / "remuda"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            copyfile(ROOT / name, folder / name)
    return folder


def built(kind: str, source: Path) -> Path:
    """An archive made by the build backend of this Python, without a network."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}('dist')"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True, capture_output=True)
    (archive,) = (source / "dist").glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return archive


@pytest.fixture(scope="module")
def unpacked(tracked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive, unpacked."""
    folder = tmp_path_factory.mktemp("unpacked")
    before = files(tracked)
    with tarfile.open(built("sdist", tracked)) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    made = {"PKG-INFO", "setup.cfg"} | {name for name in files(source) if ".egg-info" in name}
    assert files(source) - made == before
    return source


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_source_archive_tests_itself(unpacked: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PICKED],
        cwd=unpacked,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(unpacked / "src"), str(unpacked)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(unpacked: Path) -> None:
    with zipfile.ZipFile(built("wheel", unpacked)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (metadata,) = (name for name in wheel.namelist() if name.endswith("METADATA"))
        text = wheel.read(metadata).decode()
    assert names == {f"remuda/{name}" for name in files(unpacked / "src" / "remuda")}
    assert "License-Expression: Apache-2.0\n" in text
    assert "Provides-Extra: plots\n" in text
