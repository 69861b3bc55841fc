"""Proves what users may choose of the sink, and how mistakes are told."""

from __future__ import annotations

import pytest

from pyspark_geminga.errors import InvalidOption
from pyspark_geminga.sink.options import Cut, SinkOptions

URL = {"service.url": "pulsar://localhost:6650"}
ADMIN = {"admin.url": "http://localhost:8080"}


def test_the_defaults_are_at_least_once() -> None:
    options = SinkOptions.of(URL | {"topic": "orders"}, is_streaming=True)
    assert options.topic == "persistent://public/default/orders"
    assert not options.deduplicates
    assert not options.is_sorted
    assert options.cut == Cut(rows_max=1000, bytes_max=128 * 1024)
    assert SinkOptions.of(URL, is_streaming=False).topic is None


def test_every_option_is_read_in_whatever_case() -> None:
    given = {
        "Topic": "a/b/c",
        "SEMANTICS": "Dedup",
        "orderWithinTask": "none",
        "batchMaxRows": "7",
        "batchMaxBytes": "8",
        "maxInFlight": "9",
        "valueMode": "raw",
        "recordFormat": "JSON",
        "pulsar.producer.compressionType": "ZSTD",
        "pulsar.producer.hashingScheme": "Murmur3_32Hash",
        "pulsar.producer.sendTimeoutMs": "1500",
        "checkpointLocation": "/somewhere",
    }
    options = SinkOptions.of(URL | ADMIN | given, is_streaming=True)
    assert (options.deduplicates, options.is_sorted, options.is_raw) == (True, False, True)
    assert (options.cut, options.in_flight_max) == (Cut(rows_max=7, bytes_max=8), 9)
    assert (options.compression, options.hashing) == ("zstd", "murmur3")
    assert (options.send_timeout_s, options.record_format) == (1.5, "json")


def test_exactly_once_sorts_unless_told_otherwise() -> None:
    options = SinkOptions.of(URL | ADMIN | {"semantics": "dedup"}, is_streaming=True)
    assert options.deduplicates
    assert options.is_sorted


@pytest.mark.parametrize(
    ("given", "is_streaming", "reason"),
    [
        ({"topics": "a"}, True, "is topic meant"),
        ({"topic": "a//b"}, True, "'topic'"),
        ({"semantics": "exactly-once"}, True, "is none of at-least-once, dedup"),
        ({"semantics": "dedup"}, True, "dedup needs admin.url"),
        (ADMIN | {"semantics": "dedup"}, False, "name what is written"),
        (ADMIN | {"semantics": "dedup", "dedupKey": "x"}, True, "a streaming query has an id"),
        ({"dedupKey": "x"}, False, "is for semantics=dedup"),
        ({"orderWithinTask": "value"}, True, "is for semantics=dedup"),
        (
            ADMIN | {"semantics": "dedup", "topic": "non-persistent://public/default/a"},
            True,
            "nothing is remembered",
        ),
        ({"batchMaxRows": "0"}, True, "no whole number from 1 on"),
        ({"pulsar.producer.compressionType": "gzip"}, True, "is none of none, lz4"),
        ({"pulsar.producer.sendTimeout": "1"}, True, "is pulsar.producer.sendTimeoutMs"),
    ],
)
def test_mistakes_are_refused_with_a_reason(
    given: dict[str, str],
    is_streaming: bool,  # noqa: FBT001
    reason: str,
) -> None:
    with pytest.raises(InvalidOption, match=reason):
        SinkOptions.of(URL | given, is_streaming=is_streaming)
