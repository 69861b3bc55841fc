"""Readers and table views with the official client: where they begin, what they know to be there,
on topics that are empty, partitioned, compacted, trimmed.
"""

from __future__ import annotations

from typing import Any

import pulsar
import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.rest import rest
from tests.integration.waiting import eventually

TOPIC = "persistent://public/default/readers-"
ADMIN = "/admin/v2/persistent/public/default/readers-"
READ_TIMEOUT_MS = 60_000
MESSAGES_PER_BATCH = 10
EARLIEST, LATEST = pulsar.MessageId.earliest, pulsar.MessageId.latest


def publish(client: Any, topic: str, count: int, *, batch: bool = False) -> list[Any]:
    """Messages "0" and on; their ids."""
    producer = client.create_producer(
        topic,
        batching_enabled=batch,
        batching_max_messages=MESSAGES_PER_BATCH,
        batching_max_publish_delay_ms=60_000,
    )
    ids: list[Any] = [None] * count

    def noting(number: int) -> Any:
        def note(result: Any, message_id: Any) -> None:
            assert result == pulsar.Result.Ok
            ids[number] = message_id

        return note

    for number in range(count):
        producer.send_async(str(number).encode(), noting(number))
    producer.flush()
    producer.close()
    return ids


def rest_of(reader: Any) -> list[str]:
    """All that is still to be read."""
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(READ_TIMEOUT_MS).data().decode())
    with pytest.raises(pulsar.Timeout):
        reader.read_next(200)
    return found


@pytest.mark.parametrize("kind", ["batch", "singles"])
def test_a_reader_begins_behind_a_message_or_with_it(
    standalone: StandaloneProcess, kind: str
) -> None:
    topic = f"{TOPIC}start-{kind}"
    with client_of(standalone.service_url) as client:
        ids = publish(client, topic, 10, batch=kind == "batch")
        for number in (0, 4, 9):
            expected = [str(each) for each in range(10)]
            behind = client.create_reader(topic, ids[number])
            assert rest_of(behind) == expected[number + 1 :]
            with_it = client.create_reader(topic, ids[number], start_message_id_inclusive=True)
            assert rest_of(with_it) == expected[number:]


def test_earliest_and_latest(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}ends"
    with client_of(standalone.service_url) as client:
        publish(client, topic, 3)
        first, last = client.create_reader(topic, EARLIEST), client.create_reader(topic, LATEST)
        the_last = client.create_reader(topic, LATEST, start_message_id_inclusive=True)
        assert rest_of(first) == ["0", "1", "2"]
        assert rest_of(last) == []
        assert rest_of(the_last) == ["2"]
        publish(client, topic, 1)
        assert [rest_of(each) for each in (first, last, the_last)] == [["0"]] * 3


def test_an_empty_topic_has_nothing_until_something_comes(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}empty"
    with client_of(standalone.service_url) as client:
        readers = [client.create_reader(topic, start) for start in (EARLIEST, LATEST)]
        assert [rest_of(each) for each in readers] == [[], []]
        publish(client, topic, 2)
        assert [rest_of(each) for each in readers] == [["0", "1"], ["0", "1"]]


def test_readers_of_one_name_read_each_for_itself(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}namesakes"
    with client_of(standalone.service_url) as client:
        publish(client, topic, 3)
        readers = [client.create_reader(topic, EARLIEST, reader_name="same") for _ in range(3)]
        assert [rest_of(each) for each in readers] == [["0", "1", "2"]] * 3
        for each in readers:
            each.close()

        def subscriptions() -> Any:
            return rest(standalone.web_service_url, "GET", f"{ADMIN}namesakes/subscriptions")

        eventually(subscriptions, lambda answer: answer == (200, []))


def test_a_reader_of_a_partitioned_topic_reads_all_partitions(
    standalone: StandaloneProcess,
) -> None:
    topic = f"{TOPIC}parts"
    assert rest(standalone.web_service_url, "PUT", f"{ADMIN}parts/partitions", 3)[0] == 204
    with client_of(standalone.service_url) as client:
        publish(client, topic, 9)
        reader = client.create_reader(topic, EARLIEST)
        assert sorted(rest_of(reader)) == [str(number) for number in range(9)]
        assert rest_of(client.create_reader(topic, LATEST)) == []


def test_a_reader_seeks_by_id_and_by_time(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}seek"
    with client_of(standalone.service_url) as client:
        ids = publish(client, topic, 5)
        reader = client.create_reader(topic, EARLIEST)
        assert len(rest_of(reader)) == 5
        reader.seek(ids[2])
        assert rest_of(reader) == ["3", "4"]
        reader.seek(0)
        assert len(rest_of(reader)) == 5
        reader.seek(LATEST)
        assert rest_of(reader) == []


def test_a_trimmed_topic_has_what_is_left(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}trimmed"
    with client_of(standalone.service_url) as client:
        ids = publish(client, topic, 5)
        assert rest(standalone.web_service_url, "DELETE", f"{ADMIN}trimmed/truncate")[0] == 204
        for start in (EARLIEST, ids[2], LATEST):
            assert rest_of(client.create_reader(topic, start)) == []
        publish(client, topic, 2)
        for start in (EARLIEST, ids[2]):
            assert rest_of(client.create_reader(topic, start)) == ["0", "1"]


def compact(standalone: StandaloneProcess, name: str) -> None:
    web, path = standalone.web_service_url, f"{ADMIN}{name}/compaction"
    assert rest(web, "PUT", path)[0] == 204
    eventually(lambda: rest(web, "GET", path)[1], lambda found: found["status"] == "SUCCESS")


def test_a_compacted_topic_has_the_last_of_each_key_or_nothing(
    standalone: StandaloneProcess,
) -> None:
    topic = f"{TOPIC}compacted"
    with client_of(standalone.service_url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        for number, key in enumerate("abab"):
            producer.send(str(number).encode(), partition_key=key)
        compact(standalone, "compacted")
        reader = client.create_reader(topic, EARLIEST, is_read_compacted=True)
        assert rest_of(reader) == ["2", "3"]
        for key in "ab":
            producer.send(b"", partition_key=key)
        compact(standalone, "compacted")
        nothing = client.create_reader(topic, EARLIEST, is_read_compacted=True)
        assert not nothing.has_message_available()
        assert len(rest_of(client.create_reader(topic, EARLIEST))) == 6


def test_a_table_view_has_the_last_value_of_each_key(standalone: StandaloneProcess) -> None:
    topic = f"{TOPIC}table"
    with client_of(standalone.service_url) as client:
        producer = client.create_producer(topic, batching_enabled=False)
        for number, key in enumerate("abcab"):
            producer.send(str(number).encode(), partition_key=key)
        view = client.create_table_view(topic)
        assert {key: view.get(key) for key in "abc"} == {"a": b"3", "b": b"4", "c": b"2"}
        producer.send(b"9", partition_key="d")
        producer.send(b"", partition_key="a")
        eventually(lambda: (len(view), view.get("d")), lambda found: found == (3, b"9"))
        assert view.get("a") is None
        view.close()
