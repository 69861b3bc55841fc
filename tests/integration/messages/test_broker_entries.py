"""What the broker writes in front of entries: seen on the wire, and counted on over a kill."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import pytest
from tests.integration.official_client import client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import Answer, RawClient
from tests.integration.rest import rest

from geminga_broker.managed_ledger.config import INDEX_INTERCEPTOR, TIME_INTERCEPTOR
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.payload import parse_broker_entry, parse_metadata

VARIABLE = "GEMINGA_BROKER_BROKER_ENTRY_METADATA_INTERCEPTORS"
EXPOSING = "GEMINGA_BROKER_EXPOSING_BROKER_ENTRY_METADATA_TO_CLIENT_ENABLED"
RECEIVE_TIMEOUT_MS = 60_000
# So many messages does the test send between two kills: some alone, then a batch of the others.
ALONE, BATCHED = 3, 7
EACH_TIME = ALONE + BATCHED
CLOCKS_APART_MS = 1000


@pytest.fixture(scope="module")
def stamping(tmp_path_factory: pytest.TempPathFactory) -> Generator[StandaloneProcess]:
    """A cluster whose broker writes time and index, and is killed by the tests."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(VARIABLE, f"{TIME_INTERCEPTOR},{INDEX_INTERCEPTOR}")
        environment.setenv(EXPOSING, "true")
        cluster = StandaloneProcess.start(tmp_path_factory.mktemp("stamping") / "data")
    yield cluster
    cluster.stop()


def publish(client: Any, topic: str, name: str) -> None:
    """Messages alone, then as many others in one batch."""
    alone = client.create_producer(topic, batching_enabled=False)
    for number in range(ALONE):
        alone.send(f"{name} alone {number}".encode(), partition_key="key")
    batching = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for number in range(BATCHED):
        batching.send_async(f"{name} batched {number}".encode(), None)
    batching.flush()


def entries_of(cluster: StandaloneProcess, topic: str, *, count: int, knows: bool) -> list[Answer]:
    """All entries of a topic as a client is sent them that knows of stamps, or does not."""
    with RawClient(cluster.service_url) as raw:
        raw.connect(supports_broker_entry_metadata=knows)
        raw.subscribe(topic, f"raw-{knows}-{time.monotonic_ns()}", 1, api.CommandSubscribe.Shared)
        raw.flow(1, 10_000)
        return [raw.expect(api.BaseCommand.MESSAGE) for _ in range(count)]


def test_the_index_goes_on_strictly_over_kills_and_the_time_is_the_brokers(
    stamping: StandaloneProcess,
) -> None:
    topic = "persistent://public/default/stamped"
    begun_ms = time.time() * 1000
    rounds = 3
    for number in range(rounds):
        with client_of(stamping.service_url) as client:
            client.subscribe(topic, "kept").close()
            publish(client, topic, str(number))
        if number < rounds - 1:
            stamping.wait_restarted("broker", stamping.kill_part("broker"))
    ended_ms = time.time() * 1000
    answers = entries_of(stamping, topic, count=rounds * (ALONE + 1), knows=True)
    found = [parse_broker_entry(each.payload, 0, len(each.payload)) for each in answers]
    noted = [each for each in found if each is not None]
    assert len(noted) == len(answers)
    assert [each.index for each in noted] == [
        EACH_TIME * number + index
        for number in range(rounds)
        for index in (*range(ALONE), EACH_TIME - 1)
    ]
    times_ms = [each.broker_timestamp for each in noted]
    assert times_ms == sorted(times_ms)
    assert begun_ms - CLOCKS_APART_MS <= times_ms[0]
    assert times_ms[-1] <= ended_ms + CLOCKS_APART_MS
    # Who does not know them is sent the same without.
    plain = entries_of(stamping, topic, count=len(answers), knows=False)
    for with_stamp, without in zip(answers, plain, strict=True):
        assert with_stamp.payload.endswith(without.payload)
        assert without.payload.startswith(b"\x0e\x01")
        assert parse_metadata(with_stamp.payload) == parse_metadata(without.payload)
    # The official client knows them, and reads its messages.
    with client_of(stamping.service_url) as client:
        consumer = client.subscribe(topic, "kept")
        received = [consumer.receive(RECEIVE_TIMEOUT_MS).data() for _ in range(rounds * EACH_TIME)]
        assert received[0] == b"0 alone 0"
        assert received[-1] == f"{rounds - 1} batched {BATCHED - 1}".encode()
        last = consumer.get_last_message_id()
        assert last.batch_index() == BATCHED - 1


def test_ids_are_found_by_index_and_times_are_the_brokers(stamping: StandaloneProcess) -> None:
    topic = "persistent://public/default/looked-up"
    with client_of(stamping.service_url) as client:
        client.subscribe(topic, "kept").close()
        publish(client, topic, "0")
        path = "/admin/v2/" + topic.replace("://", "/")
        answers = entries_of(stamping, topic, count=ALONE + 1, knows=True)
        ids = [each.command.message.message_id for each in answers]
        for index in range(EACH_TIME):
            status, found = rest(
                stamping.web_service_url, "GET", f"{path}/getMessageIdByIndex?index={index}"
            )
            wanted = ids[min(index, ALONE)]
            assert (status, found["ledgerId"], found["entryId"], found["partitionIndex"]) == (
                *(200, wanted.ledgerId, wanted.entryId),
                -1,
            )
        for wrong in ("-1", str(EACH_TIME), "x", ""):
            url = f"{path}/getMessageIdByIndex?index={wrong}"
            assert rest(stamping.web_service_url, "GET", url)[0] == 404
        noted = parse_broker_entry(answers[1].payload, 0, len(answers[1].payload))
        assert noted is not None
        consumer = client.subscribe(topic, "kept")
        consumer.seek(noted.broker_timestamp)
        assert consumer.receive(RECEIVE_TIMEOUT_MS).data() in (b"0 alone 0", b"0 alone 1")


@pytest.mark.full
def test_stamps_that_are_turned_off_and_on_again_disturb_no_consumer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    topic = "persistent://public/default/off-and-on"
    data = tmp_path_factory.mktemp("turning") / "data"
    answers: list[Answer] = []
    for number, kinds in enumerate((INDEX_INTERCEPTOR, "", INDEX_INTERCEPTOR)):
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(VARIABLE, kinds)
            environment.setenv(EXPOSING, "true")
            cluster = StandaloneProcess.start(data)
        try:
            with client_of(cluster.service_url) as client:
                client.subscribe(topic, "keeps all").close()
                consumer = client.subscribe(topic, "follows")
                publish(client, topic, str(number))
                for _ in range(EACH_TIME):
                    message = consumer.receive(RECEIVE_TIMEOUT_MS)
                    assert message.data().startswith(str(number).encode())
                    consumer.acknowledge(message)
            answers = entries_of(cluster, topic, count=(number + 1) * (ALONE + 1), knows=True)
        finally:
            cluster.stop()
    found = [parse_broker_entry(each.payload, 0, len(each.payload)) for each in answers]
    indexes = [None if each is None else each.index for each in found]
    assert indexes == [0, 1, 2, 9, None, None, None, None, 10, 11, 12, 19]
