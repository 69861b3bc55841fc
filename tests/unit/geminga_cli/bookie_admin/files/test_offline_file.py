"""Files are read, never made or changed; what stands across two windows is found."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.geminga_cli.bookie_admin.files.test_journal import Bytes

from geminga_cli.bookie_admin.errors import UnreadableFile
from geminga_cli.bookie_admin.files import offline_file
from geminga_cli.bookie_admin.files.offline_file import find_ahead, only_zeros, opened


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


@pytest.mark.parametrize("place", range(20))
def test_a_header_is_found_wherever_it_is(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_file, "WINDOW_BYTES", 8)
    content = b"." * place + b"HEAD" + b"." * 5
    for start in range(place + 1):
        assert find_ahead(Bytes(content), start, lambda b: b.find(b"HEAD"), 4) == place
    assert find_ahead(Bytes(content), place + 1, lambda b: b.find(b"HEAD"), 4) is None


def test_zeros_are_told_from_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline_file, "WINDOW_BYTES", 8)
    assert only_zeros(Bytes(b"x" + bytes(20)), 1)
    assert not only_zeros(Bytes(bytes(20) + b"x"), 0)
    assert only_zeros(Bytes(b""), 0)
