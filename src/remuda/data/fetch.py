"""Downloads that leave a complete and correct file, or none."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from remuda.errors import DataError
from remuda.files import open_regular

_TIMEOUT_S = 20.0
_CHUNK = 1 << 16
_MOST_BYTES = 10_000_000  # of a file: MNIST's largest has 9.9 MB


def md5_of(path: Path) -> str:
    """The checksum that MNIST's publishers give for their files."""
    digest = _md5()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fetch(name: str, md5: str, folder: Path, mirrors: Sequence[str]) -> Path:
    """Download `name` into `folder` from the first mirror that has it intact."""
    problems = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{name}"
        temporary: Path | None = None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A unique name: several workers may fetch the same file at once.
            handle, path = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
            temporary = Path(path)
            with os.fdopen(handle, "wb") as file:
                found = _download(url, name, file)
            if found == md5:
                temporary.replace(folder / name)
                return folder / name
            problems.append(f"{url}: wrong checksum {found}, expected {md5}; deleted")
        except (OSError, http.client.HTTPException, ValueError) as error:
            problems.append(f"{url}: {error}")
        finally:
            if temporary is not None:
                temporary.unlink(missing_ok=True)
    raise DataError(f"{name} could not be downloaded ({'; '.join(problems)})")


def _download(url: str, name: str, file: IO[bytes]) -> str:
    from rich.console import Console
    from rich.progress import Progress

    digest = _md5()
    console = Console(stderr=True)
    with (
        urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer,
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        length = answer.headers.get("Content-Length")
        task = progress.add_task(name, total=int(length) if length else None)
        while chunk := answer.read(_CHUNK):
            if file.tell() + len(chunk) > _MOST_BYTES:
                raise ValueError(f"more than {_MOST_BYTES:,} bytes, which the file does not have")
            file.write(chunk)
            digest.update(chunk)
            progress.advance(task, len(chunk))
    return digest.hexdigest()


def _md5() -> hashlib._Hash:
    return hashlib.md5(usedforsecurity=False)
