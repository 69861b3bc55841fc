"""Proves with the official client what compaction promises: consumers that read compacted get the
newest value of every key, other consumers get everything, and a table view shows the newest."""

from __future__ import annotations

import uuid
from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

RECEIVE_TIMEOUT_MS = 60_000
# Nothing comes any more when nothing came for so long.
QUIET_MS = 500


@pytest.fixture
def name() -> str:
    """A topic of one's own."""
    return f"compaction-{uuid.uuid4()}"


def compact(cluster: StandaloneProcess, name: str) -> None:
    """Compact the topic and wait until that is done."""
    url, path = cluster.web_service_url, f"/admin/v2/persistent/public/default/{name}/compaction"
    assert rest(url, "PUT", path) == (204, None)
    answer = eventually(
        lambda: rest(url, "GET", path)[1], lambda found: found["status"] != "RUNNING"
    )
    assert answer == {"status": "SUCCESS", "lastError": ""}


def received(consumer: Any, count: int) -> list[tuple[str, bytes]]:
    """As many messages, acknowledged; behind them nothing comes that has a key.

    The client shows an application the empty places in a compacted batch; they have no key.
    """
    found: list[tuple[str, bytes]] = []
    while True:
        try:
            message = consumer.receive(RECEIVE_TIMEOUT_MS if len(found) < count else QUIET_MS)
        except pulsar.Timeout:
            return found
        consumer.acknowledge(message)
        if message.partition_key():
            found.append((message.partition_key(), message.data()))


def read_by(reader: Any) -> list[tuple[str, bytes]]:
    """Everything that the reader says is there."""
    found: list[tuple[str, bytes]] = []
    while reader.has_message_available():
        message = reader.read_next(RECEIVE_TIMEOUT_MS)
        if message.partition_key():
            found.append((message.partition_key(), message.data()))
    return found


@pytest.mark.parametrize("batching", [False, True])
def test_the_newest_of_every_key_is_read_compacted_and_all_otherwise(
    standalone: StandaloneProcess, name: str, *, batching: bool
) -> None:
    with client_of(standalone.service_url) as client:
        client.subscribe(name, "compacted", is_read_compacted=True).close()
        client.subscribe(name, "plain").close()
        producer = client.create_producer(name, batching_enabled=batching)
        for number in range(3):
            for key in "abc":
                producer.send_async(b"%d" % number, None, partition_key=key)
        producer.send_async(b"", None, partition_key="a")
        producer.flush()
        compact(standalone, name)
        producer.send(b"new", partition_key="b")
        left = [("b", b"2"), ("c", b"2"), ("b", b"new")]
        compacted = client.subscribe(name, "compacted", is_read_compacted=True)
        assert received(compacted, len(left)) == left
        assert len(received(client.subscribe(name, "plain"), 11)) == 11
        begin = pulsar.MessageId.earliest
        assert read_by(client.create_reader(name, begin, is_read_compacted=True)) == left
        assert len(read_by(client.create_reader(name, begin))) == 11


def test_a_table_shows_the_newest_values_and_no_deleted_keys(
    standalone: StandaloneProcess, name: str
) -> None:
    with client_of(standalone.service_url) as client:
        producer = client.create_producer(name)
        for key in "abc":
            producer.send(b"old", partition_key=key)
        producer.send(b"new", partition_key="a")
        producer.send(b"", partition_key="b")
        compact(standalone, name)
        producer.send(b"newer", partition_key="c")
        table = client.create_table_view(name)
        seen: dict[str, bytes] = {}
        table.for_each(seen.__setitem__)
        assert seen == {"a": b"new", "c": b"newer"}
        table.close()


def test_nothing_left_is_nothing_to_read(standalone: StandaloneProcess, name: str) -> None:
    with client_of(standalone.service_url) as client:
        producer = client.create_producer(name)
        producer.send(b"1", partition_key="a")
        producer.send(b"", partition_key="a")
        compact(standalone, name)
        reader = client.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=True)
        assert not reader.has_message_available()
