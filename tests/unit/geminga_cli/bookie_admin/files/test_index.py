"""An index is read as it is, beside the bookie or without, and damage is told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.geminga_cli.bookie_admin.simulated import options_of

from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, Counts, LogEnd
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_bookie.index.index import Change, Index
from geminga_bookie.index.rocks_store import RocksStore
from geminga_cli.bookie_admin.errors import UnreadableFile
from geminga_cli.bookie_admin.files.index import dump_index

Capture = pytest.CaptureFixture[str]
CHANGE = Change(
    blocks=[BlockLocation(5, 0, 9, 1, 32, 1000, 10)],
    ledgers=[LedgerRecord(5, bytes(20), is_fenced=True, last_entry=9)],
    log_end=LogEnd(1, 1032),
    journal_marks=[JournalMark(3, 777, 12)],
    counts=Counts(1, 10),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    store = RocksStore(tmp_path / "index")
    asyncio.run(Index(store).commit(CHANGE))
    store.close()
    return tmp_path


def dump(directory: Path, *words: str) -> int:
    return dump_index(options_of("dump-index", "--data-directory", str(directory), *words))


def test_ledgers_logs_and_marks_are_told(data: Path, capsys: Capture) -> None:
    assert dump(data) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:2] == ["1 ledger, 10 entries", "journal 0: replayed from file 3, byte 777"]
    assert told[3] == "000000000001.entries  1.0 kB  1.0 kB"
    assert told[5].split() == ["5", "9", "True"]
    assert dump(data, "--json") == 0
    assert json.loads(capsys.readouterr().out)["journalMarks"][0]["offset"] == 777


def test_a_ledgers_blocks_are_told(data: Path, capsys: Capture) -> None:
    assert dump(data, "--ledger", "5") == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "ledger 5: last entry 9, fenced"
    assert told[2].split() == ["000000000001.entries", "32", "1000", "0", "9", "10"]
    assert dump(data, "--ledger", "5", "--json") == 0
    assert json.loads(capsys.readouterr().out)["blocks"][0]["offset"] == 32
    assert dump(data, "--ledger", "6") == 1


def test_it_is_read_beside_a_bookie_and_not_changed(data: Path) -> None:
    store = RocksStore(data / "index")
    before = sorted(path.name for path in (data / "index").iterdir())
    assert dump(data) == 0
    assert sorted(path.name for path in (data / "index").iterdir()) == before
    store.close()


def test_a_directory_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="no index"):
        dump(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_index_is_told(data: Path, capsys: Capture) -> None:
    for path in (data / "index").glob("*.sst"):
        path.write_bytes(b"\0" * path.stat().st_size)
    (data / "index" / "CURRENT").write_bytes(b"garbage\n")
    assert dump(data) == 1
    assert "cannot be opened" in capsys.readouterr().out
