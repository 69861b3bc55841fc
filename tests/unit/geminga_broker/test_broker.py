"""Proves how a broker opens and ends (who comes early waits, who comes late is let go), and that it
answers for its listeners as a real Pulsar 4.0.6 was recorded to do (`golden/records`)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.geminga_broker.stand_ins import MemoryNetwork

from geminga_broker.broker import Broker
from geminga_broker.config import BrokerConfig
from geminga_broker.metrics.collector import BrokerMetrics
from geminga_broker.ownership.listeners import ListenerConfig
from geminga_broker.topics.backlog import Backlog, MessageExpiry
from geminga_broker.topics.maintenance import TopicMaintenance
from geminga_broker.topics.producing.deduplication import TopicDeduplication
from geminga_broker.topics.topic_compaction import TopicCompaction
from geminga_protocol.pulsar import api_pb2 as api

Settle = Callable[[], Awaitable[None]]
Tree = Callable[[], dict[str, bytes]]

GOLDEN = Path(__file__).parents[2] / "golden" / "records" / "listeners.jsonl"
RECORDED: list[dict[str, Any]] = list(map(json.loads, GOLDEN.read_text().splitlines()))
RECORDED_TEXTS = {row["path"]: row["text"] for row in RECORDED if "path" in row}


def recorded_config() -> BrokerConfig:
    """What the recorded broker was told."""
    told = RECORDED[0]
    assert told["kind"] == "settings"
    listeners = ListenerConfig(
        advertised_listeners=tuple(told["advertisedListeners"].split(",")),
        internal_listener_name=told["internalListenerName"],
        bind_addresses=tuple(told["bindAddresses"].split(",")),
    )
    address = told["advertisedAddress"]
    return BrokerConfig(advertised_address=address, listeners=listeners, port=16601, web_port=18601)


with_recorded_listeners = pytest.mark.parametrize("broker", [recorded_config()], indirect=True)
# All that a broker does again and again: who does it, and what.
PERIODIC = [
    (BrokerMetrics, "renew"),
    (TopicMaintenance, "delete_unused"),
    (Backlog, "maintain_all"),
    (MessageExpiry, "maintain_all"),
    (TopicCompaction, "maintain_all"),
    (TopicDeduplication, "maintain_all"),
]
# Longer than two periods of any of it.
TWO_PERIODS_S = 3600.0


async def test_a_client_that_comes_while_the_broker_opens_is_answered_when_it_is_open(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        early = network.clients[0]
        early.ask("lookupTopic", topic="public/default/topic")
        await settle()
        (answer,) = early.all_of("lookupTopicResponse")
        assert answer.brokerServiceUrl == "pulsar://here:6650"


async def test_a_broker_that_ends_closes_its_connections_and_takes_no_more(
    broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        client = network.come(6650)
        await settle()
    assert client.transport.is_closing()
    assert not network.is_listening


@with_recorded_listeners
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=f"{row['port']} {row['listener']}") for row in RECORDED[4:]],
)
async def test_a_lookup_is_answered_for_the_listener_named_or_else_for_the_port_it_came_by(
    row: dict[str, Any], broker: Broker, network: MemoryNetwork, settle: Settle
) -> None:
    async with broker:
        client = network.come(row["port"])
        client.ask(
            "lookupTopic", topic="public/default/t", advertised_listener_name=row["listener"]
        )
        await settle()
        (answer,) = client.all_of("lookupTopicResponse")
    if "error" in row:
        assert answer.response == api.CommandLookupTopicResponse.Failed
        assert answer.error == api.ServerError.Value(row["error"])
        assert answer.message == row["message"]
    else:
        assert answer.response == api.CommandLookupTopicResponse.Connect
        assert answer.brokerServiceUrl == row["brokerServiceUrl"]
        assert answer.brokerServiceUrlTls == row["brokerServiceUrlTls"]


@with_recorded_listeners
async def test_listeners_stand_in_the_brokers_records_as_upstream_writes_them(
    broker: Broker, network: MemoryNetwork, settle: Settle, tree: Tree
) -> None:
    async with broker:
        network.clients[0].ask("lookupTopic", topic="public/default/t")
        await settle()
        nodes = {path: value.decode() for path, value in tree().items()}
    (owned,) = (
        text for path, text in nodes.items() if path.startswith("/namespace/public/default/")
    )
    assert owned == RECORDED_TEXTS["/namespace/public/default/0x00000000_0x40000000"]
    assert nodes["/loadbalance/leader"] == RECORDED_TEXTS["/loadbalance/leader"]
    path = "/loadbalance/brokers/localhost:18601"
    registered, recorded = json.loads(nodes[path]), json.loads(RECORDED_TEXTS[path])
    told = ("webServiceUrl", "pulsarServiceUrl", "pulsarServiceUrlTls", "advertisedListeners")
    assert [registered[name] for name in told] == [recorded[name] for name in told]


@pytest.mark.parametrize(("owner", "work"), PERIODIC)
async def test_what_a_broker_does_again_and_again_goes_on_after_an_error_nobody_foresaw(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, owner: type, work: str
) -> None:
    calls: list[str] = []

    def fail(*_: object) -> None:
        calls.append(work)
        raise ValueError(f"a bug in {work}")

    monkeypatch.setattr(owner, work, fail)
    async with broker:
        await asyncio.sleep(TWO_PERIODS_S)
    assert len(calls) > 1
