"""The RocksDB store keeps what was flushed, without a log, and lets one bookie in at a time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.geminga_bookie.fakes import KEY
from tests.unit.geminga_bookie.index.store_conformance import StoreConformance

from geminga_bookie.formats.entry_log_v1 import LedgerRecord
from geminga_bookie.formats.index_v2 import BlockLocation, Counts, LogEnd, LogUsage
from geminga_bookie.formats.journal_v1 import JournalMark
from geminga_bookie.index.index import Change, Index
from geminga_bookie.index.memory_store import MemoryStore
from geminga_bookie.index.rocks_store import IndexNotOpened, RocksStore, open_index


class TestRocksStore(StoreConformance):
    """RocksDB's keeps to what every store must do."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[RocksStore]:
        store = RocksStore(tmp_path)
        yield store
        store.close()


def write_flush_write_and_die(path: Path) -> None:
    store = RocksStore(path)
    store.write([(b"flushed", b"1")])
    asyncio.run(store.flush())
    store.write([(b"lost", b"1")])
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_what_it_flushed(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(
        target=write_flush_write_and_die, args=(tmp_path,)
    )
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    store = RocksStore(tmp_path)
    assert store.get(b"flushed") == b"1"
    assert store.get(b"lost") is None
    store.close()


def test_a_second_bookie_is_kept_out_with_the_reason(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    with pytest.raises(IndexNotOpened, match="another bookie"):
        RocksStore(tmp_path)
    store.close()


def test_a_damaged_index_names_its_directory_and_the_way_out(tmp_path: Path) -> None:
    RocksStore(tmp_path).close()
    (tmp_path / "CURRENT").write_bytes(b"garbage\n")
    with pytest.raises(IndexNotOpened, match="rebuilt") as caught:
        RocksStore(tmp_path)
    assert str(tmp_path) in str(caught.value)


def written(path: Path) -> Path:
    """The directory of an index that was written and closed."""
    store = RocksStore(path)
    store.write([(b"mformat", b"1"), (b"e%d" % 7, b"2")] + [(b"b%d" % n, b"x") for n in range(99)])
    asyncio.run(store.flush())
    store.close()
    return path


def only(directory: Path, pattern: str) -> Path:
    (path,) = directory.glob(pattern)
    return path


def turn_a_bit(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "CURRENT": lambda index: (index / "CURRENT").write_bytes(b"garbage\n"),
    "no CURRENT": lambda index: (index / "CURRENT").unlink(),
    "MANIFEST": lambda index: turn_a_bit(only(index, "MANIFEST*"), 40),
    "no MANIFEST": lambda index: only(index, "MANIFEST*").unlink(),
    "table": lambda index: turn_a_bit(only(index, "*.sst"), 20),
    "table's end": lambda index: turn_a_bit(only(index, "*.sst"), -20),
    "no table": lambda index: only(index, "*.sst").unlink(),
    "half a table": lambda index: only(index, "*.sst").write_bytes(b"half"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_set_aside_and_an_empty_one_opened(
    damage: Callable[[Path], object], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in (1, 2):
        index = written(tmp_path / "index")
        damage(index)
        store = open_index(index)
        assert store.get(b"mformat") is None
        store.close()
        assert (tmp_path / f"index.damaged-{number}").is_dir()
        shutil.rmtree(index)
    assert len(caplog.records) == 2
    said = caplog.records[1].__dict__
    assert said["set_aside"] == str(tmp_path / "index.damaged-2")
    assert said["directory"] == str(index)


def test_a_sound_index_is_opened_as_it_is(tmp_path: Path) -> None:
    store = open_index(written(tmp_path / "index"))
    assert store.get(b"mformat") == b"1"
    store.close()


def test_an_index_in_use_is_no_damaged_one(tmp_path: Path) -> None:
    store = open_index(tmp_path / "index")
    with pytest.raises(IndexNotOpened, match="another bookie"):
        open_index(tmp_path / "index")
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["index"]


def test_damage_that_shows_only_when_it_is_read_names_file_and_way_out(tmp_path: Path) -> None:
    index = written(tmp_path / "index")
    turn_a_bit(only(index, "*.sst"), 20)
    store = RocksStore(index)
    with pytest.raises(OSError, match=r"\.sst .*move the index's directory away"):
        list(store.descend(b"z", b""))
    store.close()


@given(
    st.dictionaries(st.binary(min_size=1, max_size=3), st.binary(max_size=3)),
    st.binary(max_size=3),
    st.binary(max_size=3),
)
@settings(max_examples=20)
def test_it_answers_as_the_memory_store_does(
    pairs: dict[bytes, bytes], high: bytes, low: bytes
) -> None:
    memory = MemoryStore()
    memory.write(list(pairs.items()))
    with tempfile.TemporaryDirectory() as directory:
        store = RocksStore(Path(directory))
        store.write(list(pairs.items()))
        assert list(store.descend(high, low)) == list(memory.descend(high, low))
        for one in (store, memory):
            one.write([(b"new", b"1")], list(pairs)[::2])
        assert list(store.descend(high, low)) == list(memory.descend(high, low))
        assert store.get(high) == memory.get(high)
        store.close()


async def test_a_checkpoint_outlives_the_store(tmp_path: Path) -> None:
    blocks = [BlockLocation(1, 0, 9, 3, 32, 500, 10)]
    records = [LedgerRecord(1, KEY, is_fenced=True, last_entry=9)]
    marks, end = (JournalMark(1, 2, 3),), LogEnd(3, 532)
    store = RocksStore(tmp_path)
    change = Change(
        blocks=blocks, ledgers=records, log_end=end, journal_marks=marks, counts=Counts(1, 10)
    )
    await Index(store).commit(change)
    store.close()
    store = RocksStore(tmp_path)
    index = Index(store)
    assert (list(index.blocks(1, 4)), list(index.ledgers())) == (blocks, records)
    assert (index.journal_marks(), index.log_end()) == (marks, end)
    assert index.logs == {3: LogUsage(500, 532)}
    store.close()
