"""Proves that an instance's output is bounded in size and speed, and its end kept in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from geminga_functions.runtime.output import OutputFile
from geminga_simulation.event_loop.clock import SimulatedClock


def output_file(path: Path, *, bytes_per_s_max: int = 10**9, tail_bytes: int = 100) -> OutputFile:
    return OutputFile(
        path,
        SimulatedClock(),
        file_bytes_max=1000,
        bytes_per_s_max=bytes_per_s_max,
        tail_bytes=tail_bytes,
    )


async def copied(output: OutputFile, *chunks: bytes) -> None:
    """Copy chunks that are read one by one."""
    reader = asyncio.StreamReader()

    async def feed() -> None:
        for chunk in chunks:
            reader.feed_data(chunk)
            await asyncio.sleep(0.0001)
        reader.feed_eof()

    await asyncio.gather(feed(), output.copy(reader))


async def test_output_goes_into_the_file_and_later_output_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "functions" / "f.log"
    await copied(output_file(path), b"one\n", b"two\n")
    await copied(output_file(path), b"three\n")
    assert path.read_bytes() == b"one\ntwo\nthree\n"


async def test_a_long_file_is_put_aside_in_the_place_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "f.log"
    await copied(output_file(path), b"1" * 1000, b"2" * 999, b"2", b"3")
    assert path.read_bytes() == b"3"
    assert (tmp_path / "f.log.old").read_bytes() == b"2" * 1000


async def test_the_tail_is_whole_lines_of_the_end(tmp_path: Path) -> None:
    output = output_file(tmp_path / "f.log", tail_bytes=10)
    await copied(output, b"one\n")
    assert output.tail == "one"
    await copied(output, b"a long line\n", b"two\n", b"three\n")
    assert output.tail == "three"
    await copied(output, b"a line that has no end")
    assert output.tail == "has no end"


async def test_without_a_tail_nothing_is_kept(tmp_path: Path) -> None:
    output = output_file(tmp_path / "f.log", tail_bytes=0)
    await copied(output, b"one\n")
    assert output.tail == ""


async def test_a_process_that_writes_more_than_its_limit_waits(tmp_path: Path) -> None:
    began_s = asyncio.get_running_loop().time()
    await copied(output_file(tmp_path / "f.log", bytes_per_s_max=100), *[b"x" * 50] * 20)
    assert 8 <= asyncio.get_running_loop().time() - began_s <= 11


async def test_a_process_that_writes_little_never_waits(tmp_path: Path) -> None:
    began_s = asyncio.get_running_loop().time()
    await copied(output_file(tmp_path / "f.log", bytes_per_s_max=100), *[b"x"] * 99)
    assert asyncio.get_running_loop().time() - began_s < 0.1


async def test_a_file_that_cannot_be_written_loses_output_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_bytes(b"")
    output = output_file(tmp_path / "taken" / "f.log")
    await copied(output, b"one\n", b"two\n")
    assert output.tail == "one\ntwo"
    assert [record.message for record in caplog.records] == ["output of an instance is lost"]
