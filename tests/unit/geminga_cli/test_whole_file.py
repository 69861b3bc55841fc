"""Proves that a file is replaced as a whole or not at all, and left alone where it is right."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from geminga_cli.whole_file import keep_whole, read_record, write_whole


def full_disk(self: Path, _text: str) -> int:
    """Stands in for ``Path.write_text``: the file is made, and nothing goes into it."""
    self.touch()
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_replaced_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_whole(path, "one")
    write_whole(path, "two")
    assert path.read_text() == "two"
    assert list(tmp_path.iterdir()) == [path]


def test_on_a_full_disk_the_file_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, "one")
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, "two")
    assert path.read_text() == "one"


def test_a_file_that_is_right_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    keep_whole(path, "one")
    monkeypatch.setattr(Path, "write_text", full_disk)
    keep_whole(path, "one")
    with pytest.raises(OSError, match="No space left"):
        keep_whole(path, "two")
    assert path.read_text() == "one"


@pytest.mark.parametrize("rubbish", [b"", b"other", b"\xff"])
def test_a_file_that_is_wrong_is_replaced(tmp_path: Path, rubbish: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(rubbish)
    keep_whole(path, "one")
    assert path.read_text() == "one"


def test_a_record_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert read_record(path) == {}
    write_whole(path, '{"a": [1]}')
    assert read_record(path) == {"a": [1]}


@pytest.mark.parametrize("rubbish", [b"", b"{", b"\xff", b"[]", b"7"])
def test_what_is_no_record_is_empty(tmp_path: Path, rubbish: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(rubbish)
    assert read_record(path) == {}
