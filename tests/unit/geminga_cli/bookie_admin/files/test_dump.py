"""The findings of files are printed, for people and for programs, and wrong ones counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.geminga_cli.bookie_admin.simulated import options_of

from geminga_bookie.errors import UnknownFormat
from geminga_cli.bookie_admin.files.dump import dump_files
from geminga_cli.bookie_admin.files.offline_file import Content
from geminga_cli.bookie_admin.verdicts.finding import Finding

Capture = pytest.CaptureFixture[str]


def look(path: str, file: Content) -> Iterator[Finding]:
    yield Finding(0, "header", "fine", {"number": 1})
    if file.size > 1:
        yield Finding(32, "block", "torn", is_wrong=True)
    if file.size > 2:
        raise UnknownFormat(path, "it is of tomorrow")


def dump(directory: Path, sizes: list[int], *words: str) -> int:
    names: list[str] = []
    for size in sizes:
        path = directory / f"{size}.journal"
        path.write_bytes(bytes(size))
        names.append(str(path))
    return dump_files(options_of("dump-journal", *names, *words), look)


def test_a_sound_file_ends_with_nought(tmp_path: Path, capsys: Capture) -> None:
    assert dump(tmp_path, [1]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].endswith("1.journal  1 byte")
    assert told[1].split() == ["0", "header", "fine"]


def test_what_is_wrong_is_marked_and_counted(tmp_path: Path, capsys: Capture) -> None:
    assert dump(tmp_path, [1, 2]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[-2].split() == ["32", "WRONG", "block", "torn"]
    assert told[-1] == "1 thing in 2 files wrong"


def test_a_file_of_an_unknown_format_does_not_hide_the_next(
    tmp_path: Path, capsys: Capture
) -> None:
    assert dump(tmp_path, [3, 1]) == 1
    told = capsys.readouterr()
    assert "it is of tomorrow" in told.err
    assert "1.journal" in told.out


def test_programs_get_a_line_of_json_for_each(tmp_path: Path, capsys: Capture) -> None:
    assert dump(tmp_path, [2], "--json") == 1
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["offset"] for each in shown] == [0, 32]
    assert shown[0] | {"file": ""} == {"file": "", "offset": 0, "kind": "header", "number": 1}
    assert shown[1]["wrong"] == "torn"
