"""Proves that a proxy's metrics have the names of Pulsar's, and say what happened."""

from __future__ import annotations

from tests.unit.geminga_proxy.world import PORT, TOPIC, Place

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_proxy.metrics import ProxyNumbers, families


async def test_the_names_are_those_of_pulsars_dashboards(place: Place) -> None:
    async with place.proxy() as proxy:
        client = await place.asking()
        lookup = api.CommandLookupTopic(topic=TOPIC, request_id=1)
        client.say(BaseCommand.LOOKUP, lookupTopic=lookup)
        await client.next()
        joined = await place.joined(f"broker-1:{PORT}")
        joined.transport.write(b"12345")
        (_, broker) = place.brokers["broker-1"]
        await broker.until(lambda: broker.read.endswith(b"12345"))
        samples = {
            sample.name: sample.value
            for family in families({"": ProxyNumbers.of(proxy)})
            for sample in family.samples
        }
    counters = {
        "new_connections": 2,
        "rejected_connections": 0,
        "binary_ops": 1,
        "binary_bytes": 5,
        "lookup_requests": 1,
        "rejected_lookup_requests": 0,
        "partitions_metadata_requests": 0,
        "rejected_partitions_metadata_requests": 0,
        "get_topics_of_namespace_requests": 0,
        "rejected_get_topics_of_namespace_requests": 0,
        "get_schema_requests": 0,
        "rejected_get_schema_requests": 0,
    }
    expected = {f"pulsar_proxy_{name}": value for name, value in counters.items()}
    assert samples == {
        **expected,
        **{f"{name}_total": value for name, value in expected.items()},
        "pulsar_proxy_active_connections": 2,
        "geminga_proxy_splices": 1,
        "geminga_proxy_brokers": 1,
    }
