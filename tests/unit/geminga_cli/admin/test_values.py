"""Proves how spans of time, sizes, names and ids are read, and what is refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from geminga_cli.admin.values import (
    message_id,
    minutes_or_unit,
    moment_ms,
    namespace,
    pairs,
    seconds,
    size_bytes,
    topic,
    words,
)

READ: list[tuple[Callable[[str], object], str, object]] = [
    (seconds, "90", 90),
    (seconds, "100m", 6_000),
    (seconds, "2W", 2 * 7 * 86_400),
    (seconds, "-1", -1),
    (minutes_or_unit, "10", 600),
    (minutes_or_unit, "10s", 10),
    (size_bytes, "4096", 4_096),
    (size_bytes, "16g", 16 << 30),
    (size_bytes, "-1", -1),
    (words, " a, b ,,c", ["a", "b", "c"]),
    (pairs, "a=1,b=x=y", {"a": "1", "b": "x=y"}),
    (topic, "a b", "persistent/public/default/a%20b"),
    (topic, "non-persistent://t/n/x/y", "non-persistent/t/n/x%2Fy"),
    (namespace, "t/n", "t/n"),
    (message_id, "7:-1", {"ledgerId": 7, "entryId": -1, "partitionIndex": -1}),
    (message_id, "earliest", {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}),
    (moment_ms, "1970-01-01T01:00:01+01:00", 1_000),
]


@pytest.mark.parametrize(("read", "text", "value"), READ)
def test_a_text_is_read(read: Callable[[str], object], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (seconds, "soon"),
        (seconds, "1.5h"),
        (size_bytes, "10 MB"),
        (size_bytes, ""),
        (pairs, "a"),
        (topic, "a/b"),
        (topic, "sometimes://t/n/x"),
        (namespace, "t"),
        (namespace, "t/n/x"),
        (message_id, "7"),
        (moment_ms, "yesterday"),
        (moment_ms, "2026-01-31T16:53:08"),
    ],
)
def test_what_cannot_be_read_says_what_would_be_right(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"should|topic|namespace|none of"):
        read(text)
