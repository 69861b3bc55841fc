"""Proves that a task knows whether it got all of its rows."""

from __future__ import annotations

import os

import pytest

from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.sink.writers import all_rows_came


def worker(sent: bytes) -> tuple[bool, bytes]:
    """Like Spark's worker, which reads the word behind the rows when the writer has returned."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(b"rows" + sent)
    with os.fdopen(read_end, "rb") as infile:
        assert infile.read(4) == b"rows"
        return all_rows_came(), infile.read()


def test_behind_all_rows_stands_a_word_that_the_worker_still_reads() -> None:
    assert worker(b"\xff\xff\xff\xfc") == (True, b"\xff\xff\xff\xfc")


def test_rows_that_end_with_the_pipe_are_not_all() -> None:
    assert worker(b"") == (False, b"")


def test_a_worker_that_hides_its_pipe_is_told() -> None:
    with pytest.raises(InvalidOption, match="use none where rows come in the same order"):
        all_rows_came()
