from __future__ import annotations

import os
from pathlib import Path

import pytest

from remuda.files import NotRegularError, open_regular, read_regular


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    assert read_regular(tmp_path / "file") == b"content"
    with open_regular(tmp_path / "file") as file:
        assert os.get_blocking(file.fileno())


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotRegularError, match="not a regular file"):
        read_regular(tmp_path / "pipe")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_a_device_is_refused_even_behind_a_link(tmp_path: Path, device: str) -> None:
    (tmp_path / "link").symlink_to(device)
    with pytest.raises(NotRegularError, match="not a regular file"):
        read_regular(tmp_path / "link")


def test_links_are_followed_only_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"content"
    with pytest.raises(NotRegularError, match="is a link"):
        read_regular(tmp_path / "link", follow=False)


def test_a_folder_and_a_missing_file_are_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none")
