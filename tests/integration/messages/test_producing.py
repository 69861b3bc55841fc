"""What is promised to producers outlives kill -9: once is once, and fenced is fenced."""

from __future__ import annotations

from typing import Any

import pytest
from tests.integration.official_client import SEND_TIMEOUT_MS, client_of
from tests.integration.processes.cluster_process import StandaloneProcess
from tests.integration.raw_client import RawClient
from tests.integration.rest import rest

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.messages.integers import UINT64_MAX

RECEIVE_TIMEOUT_MS = 60_000
PRODUCER_ID = 1
NAME = "writer"


def restart_broker(cluster: StandaloneProcess) -> None:
    cluster.wait_restarted("broker", cluster.kill_part("broker"))


def producer_of(client: Any, topic: str) -> Any:
    return client.create_producer(
        topic,
        producer_name=NAME,
        batching_enabled=False,
        block_if_queue_full=True,
        send_timeout_millis=SEND_TIMEOUT_MS,
    )


def test_a_message_sent_again_after_a_kill_is_stored_once(harmed: StandaloneProcess) -> None:
    topic = "persistent://deduplicated/once/topic"
    rest(
        harmed.web_service_url,
        "PUT",
        "/admin/v2/tenants/deduplicated",
        {"adminRoles": [], "allowedClusters": ["standalone"]},
    )
    rest(harmed.web_service_url, "PUT", "/admin/v2/namespaces/deduplicated/once")
    path = "/admin/v2/namespaces/deduplicated/once/deduplication"
    assert rest(harmed.web_service_url, "POST", path, body=True)[0] == 204
    with client_of(harmed.service_url) as client:
        client.subscribe(topic, "all").close()  # else nothing need be kept
        producer = producer_of(client, topic)
        for number in range(1500):  # beyond one snapshot
            producer.send_async(b"%d" % number, None, sequence_id=number)
        producer.flush()
    restart_broker(harmed)
    with client_of(harmed.service_url) as client:
        producer = producer_of(client, topic)
        assert producer.last_sequence_id() == 1499
        producer.send(b"again", sequence_id=1499)
        producer.send(b"new", sequence_id=1500)
        consumer = client.subscribe(topic, "all")
        received = [bytes(consumer.receive(RECEIVE_TIMEOUT_MS).data()) for _ in range(1501)]
    assert received == [*(b"%d" % number for number in range(1500)), b"new"]
    with RawClient(harmed.service_url) as raw:
        raw.connect()
        success = open_producer(raw, topic, name=NAME)
        assert success.last_sequence_id == 1500
        assert raw.publish(PRODUCER_ID, 1500, b"again") == (UINT64_MAX, UINT64_MAX)
    stats = rest(harmed.web_service_url, "GET", "/admin/v2/" + topic.replace("://", "/") + "/stats")
    assert stats[1]["deduplicationStatus"] == "Enabled"
    assert list(stats[1]["subscriptions"]) == ["all"]


def open_producer(
    raw: RawClient,
    topic: str,
    *,
    name: str,
    mode: api.ProducerAccessMode.ValueType = api.Shared,
    epoch: int | None = None,
) -> api.CommandProducerSuccess:
    raw.lookup(topic)
    raw.send(
        api.BaseCommand(
            type=api.BaseCommand.PRODUCER,
            producer=api.CommandProducer(
                topic=topic,
                producer_id=PRODUCER_ID,
                request_id=raw.request_id(),
                producer_name=name,
                user_provided_producer_name=True,
                producer_access_mode=mode,
                topic_epoch=epoch,
            ),
        )
    )
    answer = raw.receive()
    if answer.command.type == api.BaseCommand.ERROR:
        raise AssertionError(api.ServerError.Name(answer.command.error.error))
    return answer.command.producer_success


def test_a_producer_that_was_fenced_before_a_kill_is_fenced_after_it(
    harmed: StandaloneProcess,
) -> None:
    topic = "persistent://public/default/fenced"
    with RawClient(harmed.service_url) as first, RawClient(harmed.service_url) as second:
        for raw in (first, second):
            raw.connect()
        mine = open_producer(first, topic, name="a", mode=api.Exclusive)
        assert mine.topic_epoch == 0
        theirs = open_producer(second, topic, name="b", mode=api.ExclusiveWithFencing)
        assert theirs.topic_epoch == 1
    restart_broker(harmed)
    with RawClient(harmed.service_url) as raw:
        raw.connect()
        with pytest.raises(AssertionError, match="ProducerFenced"):
            open_producer(raw, topic, name="a", mode=api.Exclusive, epoch=mine.topic_epoch)
        again = open_producer(raw, topic, name="b", mode=api.Exclusive, epoch=theirs.topic_epoch)
        assert again.topic_epoch == 1
