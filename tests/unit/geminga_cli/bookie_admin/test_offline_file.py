"""Files are read, never made or changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga_cli.bookie_admin.errors import UnreadableFile
from geminga_cli.bookie_admin.offline_file import opened


def test_a_file_is_read_at_any_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    with opened(path) as file:
        assert (file.size, file.read(2, 3), file.read(8, 100)) == (10, b"234", b"89")


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UnreadableFile, match=str(path)), opened(path):
            pass
    assert list(tmp_path.iterdir()) == []
