from __future__ import annotations

import pytest

from remuda.errors import ConfigError, DataError, StoreError
from remuda.files import check_memory, machine_memory, memory_limit
from remuda.files.limits import size_text


def test_half_of_the_memory_is_allowed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMUDA_MEMORY", raising=False)
    assert machine_memory() > 2**28
    assert memory_limit() == machine_memory() // 2
    check_memory("file", memory_limit())
    with pytest.raises(DataError, match=r"^file: would take .* GB; allowed: .* GB \(REMUDA_MEMORY"):
        check_memory("file", memory_limit() + 1)


def test_the_limit_can_be_set_and_names_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", "500M")
    assert memory_limit() == 500 * 2**20
    with pytest.raises(StoreError, match=r"x: would take 4.0 GB for images; allowed: 524.3 MB"):
        check_memory("x", 4 * 10**9, "images", StoreError)


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("2k", 2048), ("3 GB", 3 * 2**30), ("1TiB", 2**40)]
)
def test_sizes_are_understood(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", text)
    assert memory_limit() == size


@pytest.mark.parametrize("text", ["half", "-1", "0", "1.5G", "4X", "9" * 100])
def test_another_limit_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("REMUDA_MEMORY", text)
    with pytest.raises(ConfigError, match=r"REMUDA_MEMORY=.*: allowed: a size such as"):
        memory_limit()


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (3_600_000_000, "3.6 GB")],
)
def test_sizes_are_written_for_people(size: int, text: str) -> None:
    assert size_text(size) == text
