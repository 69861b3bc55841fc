"""Proves that the copy on disk holds what one in memory would, whenever it is opened anew, and that
one which is damaged is thrown away instead of believed."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geminga_functions.errors import LocalCopyFailed
from geminga_functions.state import local_copy
from geminga_functions.state.local_copy import LocalCopy
from geminga_functions.state.records import NO_RECORDS, LaneSummary, Records, record_digest

LANES = ("0", "1", "in-ab")
# One begins with another, one has what ends a key in other encodings, one is no valid text.
KEYS = ("v:a", "v:ab", "v:", "c:a", "v:\x00ÿ", "v:\ud800")

steps = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "write", "drop", "reopen"]),
        st.sampled_from(LANES),
        st.lists(st.sampled_from(KEYS), max_size=3, unique=True),
        st.binary(max_size=3),
    ),
    max_size=25,
)


@given(steps, st.sampled_from([0, 1000, local_copy.CACHE_BYTES]))
@settings(max_examples=40, deadline=None)
def test_a_local_copy_holds_what_records_in_memory_hold(
    steps: list[tuple[str, str, list[str], bytes]], cache_bytes: int
) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(local_copy, "CACHE_BYTES", cache_bytes),
    ):
        directory = Path(folder) / "copy"
        copy, memory = LocalCopy(directory), Records()
        for number, (what, lane, keys, record) in enumerate(steps):
            match what:
                case "write":
                    position = None if number % 3 == 0 else (7, number)
                    summary = LaneSummary(len(keys), (number << 60) % (1 << 64), position)
                    for each in (copy, memory):
                        each.write(lane, dict.fromkeys(keys, record), summary)
                case "drop":
                    copy.drop(lane)
                    memory.drop(lane)
                case _:
                    copy.close()
                    copy = LocalCopy(directory)
            for key in KEYS:
                assert copy.record(lane, key) == memory.record(lane, key)
                assert copy.of(key) == memory.of(key)
                assert copy.record(lane, key) == memory.record(lane, key)
            assert copy.summaries == memory.summaries
        copy.close()


def test_a_copy_without_records_has_no_files(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy")
    assert copy.of("v:a") == {}
    assert copy.summaries == {}
    copy.drop("0")
    copy.close()
    assert list(tmp_path.iterdir()) == []


def summary_of(copy: LocalCopy, position: tuple[int, int]) -> LaneSummary:
    """What the records of lane 0 come to, as they are read one by one."""
    keys, digest = 0, 0
    for number in range(1000):
        record = copy.record("0", f"v:{number}")
        if record is not None:
            keys, digest = keys + 1, digest ^ record_digest(f"v:{number}", record)
    return LaneSummary(keys, digest, position)


WRITER = """
import os, signal, sys
from pathlib import Path
from geminga_functions.state import local_copy
from geminga_functions.state.records import LaneSummary, record_digest

local_copy.WRITE_BUFFER_BYTES = 64 * 1024
copy, digest = local_copy.LocalCopy(Path(sys.argv[1])), 0
for number in range(int(sys.argv[2])):
    record = b"%d" % number * 200
    digest ^= record_digest(f"v:{number}", record)
    copy.write("0", {f"v:{number}": record}, LaneSummary(number + 1, digest, (7, number)))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("writes", [350, 700, 1000])
def test_a_killed_process_leaves_a_copy_of_an_earlier_moment(tmp_path: Path, writes: int) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path / "copy"), str(writes)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    copy = LocalCopy(tmp_path / "copy")
    summary = copy.summaries.get("0", NO_RECORDS)
    assert summary.position is not None  # something was flushed in the midst
    assert summary == summary_of(copy, summary.position)
    copy.close()


def break_tables(directory: Path) -> None:
    tables = list(directory.glob("*.sst"))
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        for place in range(0, len(content) // 2, 7):
            content[place] ^= 0x55
        table.write_bytes(content)


def test_a_damaged_copy_begins_anew_without_records(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy")
    copy.write("0", {"v:a": b"1"}, LaneSummary(1, 1, (7, 1)))
    copy.close()
    break_tables(tmp_path / "copy")
    copy = LocalCopy(tmp_path / "copy")
    assert copy.of("v:a") == {}
    assert copy.summaries == {}
    copy.write("0", {"v:a": b"2"}, LaneSummary(1, 2, (7, 2)))
    copy.close()
    copy = LocalCopy(tmp_path / "copy")
    assert copy.of("v:a") == {"0": b"2"}
    copy.close()


def test_damage_that_shows_while_the_copy_is_open_is_an_error_and_removes_the_copy(
    tmp_path: Path,
) -> None:
    copy = LocalCopy(tmp_path / "copy")
    copy.write("0", {"v:a": b"1"}, LaneSummary(1, 1, (7, 1)))

    class Failing:
        def __init__(self, database: Any) -> None:
            self._database = database

        def iter(self) -> None:
            raise Exception("Corruption: block checksum mismatch")  # noqa: TRY002 - as rocksdict

        def close(self) -> None:
            self._database.close()

    copy._database = Failing(copy._database)
    with pytest.raises(LocalCopyFailed, match="block checksum mismatch"):
        copy.of("v:b")
    copy.close()
    assert not (tmp_path / "copy").exists()


def test_a_second_copy_in_the_same_directory_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy")
    copy.write("0", {"v:a": b"1"}, LaneSummary(1, 1, (7, 1)))
    with pytest.raises(LocalCopyFailed, match=r"(?i)lock"):
        LocalCopy(tmp_path / "copy")
    copy.close()
    copy = LocalCopy(tmp_path / "copy")
    assert copy.of("v:a") == {"0": b"1"}
    copy.close()


def test_a_closed_copy_neither_answers_nor_opens_again(tmp_path: Path) -> None:
    copy = LocalCopy(tmp_path / "copy")
    copy.write("0", {"v:key": b"1"}, LaneSummary(1, 0, (7, 0)))
    copy.close()
    for work in (
        lambda: copy.of("v:key"),
        lambda: copy.record("0", "v:key"),
        lambda: copy.write("0", {"v:key": b"2"}, LaneSummary(1, 0, (7, 1))),
        lambda: copy.drop("0"),
    ):
        with pytest.raises(LocalCopyFailed):
            work()
    with closing(LocalCopy(tmp_path / "copy")) as later:
        assert later.of("v:key") == {"0": b"1"}
