"""What is fuzzed: a reader, and small valid files to start from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Target:
    """A reader of files that strangers write.

    It may return, or raise a RemudaError of a few lines without control characters. Anything else
    is a failure: another exception, a warning, the death of the process, too much time or memory.
    """

    name: str
    suffix: str  # of the file that is read
    seeds: Callable[[], list[bytes]]  # small valid files
    read: Callable[[Path], object]  # what a user's command would do with the file
