"""Proves that clients' questions get brokers' answers, whichever broker knows, and a refusal they
understand where none does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.geminga_proxy.world import PORT, TOPIC, End, Place, answer

from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_lookup, encode_partitions, encode_refusal
from geminga_protocol.pulsar.api_pb2 import BaseCommand
from geminga_proxy.addresses.broker_view import BrokerView
from geminga_proxy.config import ProxyConfig
from geminga_proxy.lookups import BROKERS_TRIED_MAX, STILL_S

CONFIG = ProxyConfig(bind_address="proxy", port=PORT)
KINDS = api.CommandLookupTopicResponse


async def look_up(client: End, number: int = 7) -> api.CommandLookupTopicResponse:
    lookup = api.CommandLookupTopic(
        topic=TOPIC, request_id=number, advertised_listener_name="external"
    )
    client.say(BaseCommand.LOOKUP, lookupTopic=lookup)
    return (await client.next()).lookupTopicResponse


async def test_a_lookup_leads_back_through_the_proxy(place: Place) -> None:
    async with place.proxy():
        client = await place.asking()
        response = await look_up(client)
        assert response.response == KINDS.Connect
        assert response.proxy_through_service_url
        url = f"pulsar://broker-1:{PORT}"
        assert response.brokerServiceUrl == response.brokerServiceUrlTls == url
        assert response.request_id == 7
        (broker,) = place.brokers["broker-1"]
        asked = broker.commands[-1].lookupTopic
        assert asked.topic == TOPIC
        assert not asked.HasField("advertised_listener_name")


async def test_redirects_are_followed_with_what_they_say_of_authority(place: Place) -> None:
    second = await place.start_broker("broker-2")
    place.view = replace(place.view, service_urls=place.view.service_urls[:1])

    def answers(command: BaseCommand) -> bytes:
        lookup = command.lookupTopic
        if command.type != BaseCommand.LOOKUP or lookup.authoritative:
            return answer(command)
        return encode_lookup(
            lookup.request_id, broker_url=f"pulsar://broker-2:{PORT}", is_redirect=True
        )

    place.answers = answers
    async with place.proxy():
        response = await look_up(await place.asking())
        assert response.response == KINDS.Connect
        assert second[0].commands[-1].lookupTopic.authoritative


async def test_redirects_without_an_end_are_given_up(place: Place) -> None:
    def answers(command: BaseCommand) -> bytes:
        if command.type != BaseCommand.LOOKUP:
            return answer(command)
        url = f"pulsar://broker-1:{PORT}"
        return encode_lookup(command.lookupTopic.request_id, broker_url=url, is_redirect=True)

    place.answers = answers
    async with place.proxy():
        response = await look_up(await place.asking())
        assert response.response == KINDS.Failed
        assert response.error == api.ServiceNotReady


async def test_other_answers_are_handed_on_under_the_clients_number(place: Place) -> None:
    place.answers = lambda command: (
        encode_partitions(command.partitionMetadata.request_id, 12)
        if command.type == BaseCommand.PARTITIONED_METADATA
        else answer(command)
    )
    async with place.proxy() as proxy:
        client = await place.asking()
        for number in (1 << 40, 3):
            asked = api.CommandPartitionedTopicMetadata(topic=TOPIC, request_id=number)
            client.say(BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
            response = (await client.next()).partitionMetadataResponse
            assert (response.request_id, response.partitions) == (number, 12)
        assert proxy.lookups.counts["partitions_metadata"].asked == 2
        assert len(place.brokers["broker-1"]) == 1  # one connection for all clients


async def test_what_a_broker_refuses_is_refused_in_its_words(place: Place) -> None:
    def answers(command: BaseCommand) -> bytes:
        if command.type != BaseCommand.GET_SCHEMA:
            return answer(command)
        refusal = encode_refusal(command, api.TopicNotFound, "No such topic")
        assert refusal is not None
        return refusal

    place.answers = answers
    async with place.proxy():
        client = await place.asking()
        client.say(
            BaseCommand.GET_SCHEMA, getSchema=api.CommandGetSchema(request_id=9, topic=TOPIC)
        )
        response = (await client.next()).getSchemaResponse
        assert (response.request_id, response.error_code) == (9, api.TopicNotFound)
        assert response.error_message == "No such topic"


async def test_a_broker_that_cannot_be_reached_is_passed_over(place: Place) -> None:
    place.network.host("broker-9")
    urls = (f"pulsar://broker-9:{PORT}", *place.view.service_urls)
    place.view = replace(place.view, service_urls=urls)
    async with place.proxy():
        client = await place.asking()
        for number in range(4):
            assert (await look_up(client, number)).response == KINDS.Connect


@pytest.mark.parametrize("is_connected", [False, True], ids=["new", "connected"])
async def test_a_broker_that_stands_still_costs_one_question_its_share_of_the_time(
    place: Place, *, is_connected: bool
) -> None:
    """Stopped, a broker's kernel still takes connections; the proxy may have one already."""
    still: list[End] = []

    def connects(command: BaseCommand) -> bytes:
        is_answered = is_connected and command.type == BaseCommand.CONNECT
        return answer(command) if is_answered else b""

    def accept() -> End:
        still.append(End(connects))
        return still[-1]

    await place.network.host("broker-9").listen(accept, "0.0.0.0", PORT)
    urls = (f"pulsar://broker-9:{PORT}", *place.view.service_urls)
    place.view = replace(place.view, service_urls=urls)
    clock = asyncio.get_running_loop().time
    async with place.proxy():
        client = await place.asking()
        took_s: list[float] = []
        for number in range(8):
            begun_s = clock()
            assert (await look_up(client, number)).response == KINDS.Connect
            took_s.append(clock() - begun_s)
        share_s = CONFIG.operation_timeout_s / (BROKERS_TRIED_MAX + 1)
        slow = [each for each in took_s if each > 1]
        assert len(slow) == 1
        assert slow[0] < share_s + 1
        # Once it has been last for a while it is asked in its turn again.
        await asyncio.sleep(STILL_S)
        before = len(still) + sum(len(each.commands) for each in still)
        client = await place.asking()  # the other one has been cut off for its silence
        for number in range(2):
            assert (await look_up(client, number)).response == KINDS.Connect
        assert len(still) + sum(len(each.commands) for each in still) > before


async def test_the_only_broker_has_all_of_the_time(place: Place) -> None:
    late = CONFIG.operation_timeout_s / 2

    def answers(command: BaseCommand) -> bytes:
        if command.type != BaseCommand.LOOKUP:
            return answer(command)
        (broker,) = place.brokers["broker-1"]
        asyncio.get_running_loop().call_later(late, lambda: broker.transport.write(answer(command)))
        return b""

    place.answers = answers
    async with place.proxy():
        assert (await look_up(await place.asking())).response == KINDS.Connect


async def test_without_a_broker_a_client_is_told_to_try_again(place: Place) -> None:
    place.view = BrokerView()
    async with place.proxy():
        response = await look_up(await place.asking())
        assert (response.response, response.error) == (KINDS.Failed, api.ServiceNotReady)


async def test_too_many_open_requests_are_refused_at_once(place: Place) -> None:
    place.answers = lambda command: b"" if command.type == BaseCommand.LOOKUP else answer(command)
    async with place.proxy(replace(CONFIG, concurrent_lookup_requests_max=1)) as proxy:
        client = await place.asking()
        for number in (1, 2):
            lookup = api.CommandLookupTopic(topic=TOPIC, request_id=number)
            client.say(BaseCommand.LOOKUP, lookupTopic=lookup)
        response = (await client.next()).lookupTopicResponse
        assert (response.request_id, response.error) == (2, api.ServiceNotReady)
        assert proxy.lookups.counts["lookup"].rejected == 1
        # The silent broker's turn ends, and there is room again.
        assert (await client.next()).type in (BaseCommand.LOOKUP_RESPONSE, BaseCommand.PING)
