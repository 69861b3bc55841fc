"""Proves what the REST side gets of a real broker: its topics, and what all of it counts."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from magnetar_broker.admin.app import create_app
from magnetar_broker.broker import Broker
from magnetar_broker.errors import NotAllowed
from magnetar_protocol.pulsar.topic_names import TopicName

TOPICS = "/admin/v2/non-persistent/public/default"


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the REST side of a broker that serves."""
    transport = httpx.ASGITransport(app=create_app(broker.services()))
    async with broker, httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client


async def test_a_topic_is_made_listed_unloaded_and_gone(client: httpx.AsyncClient) -> None:
    assert (await client.put(f"{TOPICS}/topic")).status_code == 204
    listed = ["non-persistent://public/default/topic"]
    assert (await client.get(TOPICS)).json() == listed
    assert (await client.get(f"{TOPICS}/topic/stats")).json()["ownerBroker"] == "here:8080"
    assert (await client.put(f"{TOPICS}/topic/unload")).status_code == 204
    assert (await client.get(TOPICS)).json() == []
    assert (await client.put(f"{TOPICS}/topic/unload")).status_code == 404


async def test_a_topic_that_keeps_nothing_is_not_trimmed(broker: Broker) -> None:
    async with broker:
        name = TopicName.parse("non-persistent://public/default/topic")
        await broker.ownership.owner(name)
        await broker.administration.create_topic(name, {})
        for change in (broker.administration.trim_topic, broker.administration.truncate_topic):
            with pytest.raises(NotAllowed, match="keeps no messages"):
                await change(name)


async def test_metrics_show_what_ledgers_count_under_bookkeepers_names(
    broker: Broker, client: httpx.AsyncClient
) -> None:
    counters = broker.ledgers.counters
    counters.ensemble_changes, counters.reads_speculative, counters.copies_missing = 3, 4, 5
    lines = (await client.get("/metrics/")).text.splitlines()
    client_of = "pulsar_managedLedger_client_bookkeeper_client"
    assert f"# TYPE {client_of}_NUM_ENSEMBLE_CHANGE counter" in lines
    assert f'{client_of}_NUM_ENSEMBLE_CHANGE{{cluster="standalone"}} 3' in lines
    assert f'{client_of}_SPECULATIVE_READ_COUNT{{cluster="standalone"}} 4' in lines
    assert 'magnetar_ledger_copies_missing_total{cluster="standalone"} 5' in lines
    assert 'magnetar_ledger_bookies_replaced_total{cluster="standalone"} 0' in lines
