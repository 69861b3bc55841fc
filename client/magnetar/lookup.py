"""Questions about topics that any broker answers: who serves it, how many partitions it has."""

from __future__ import annotations

from random import Random

from magnetar.connection import Connection
from magnetar.connections import Connections, Route
from magnetar.errors import BrokerFailed, ClientError, NotConnected, TooManyRedirects
from magnetar.service_urls import BrokerAddress, parse_service_url
from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.api_pb2 import BaseCommand

# As upstream's clients; brokers that know each other need one or two.
REDIRECTS_MAX = 20


class Lookup:
    """Asks the brokers of the service URL, one after the other until one answers."""

    def __init__(
        self, connections: Connections, addresses: tuple[BrokerAddress, ...], random: Random
    ) -> None:
        self._connections = connections
        self._addresses = addresses
        # Many clients with the same URL begin at different brokers.
        self._turn = random.randrange(len(addresses))

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if it is not partitioned. Raises ``ClientError``."""
        connection = await self._service_connection()
        asked = api.CommandPartitionedTopicMetadata(topic=topic, request_id=0)
        answer = await connection.request(
            BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        )
        return answer.partitionMetadataResponse.partitions

    async def owner(self, topic: str) -> Route:
        """How to reach the broker that serves the topic. Raises ``ClientError``."""
        connection = await self._service_connection()
        is_authoritative = False
        for _ in range(REDIRECTS_MAX):
            asked = api.CommandLookupTopic(
                topic=topic, request_id=0, authoritative=is_authoritative
            )
            answer = await connection.request(
                BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)
            )
            response = answer.lookupTopicResponse
            route = self._route(connection, response)
            if response.response == api.CommandLookupTopicResponse.Connect:
                return route
            is_authoritative = response.authoritative
            connection = await self._connections.get(route)
        raise TooManyRedirects(topic, REDIRECTS_MAX)

    @staticmethod
    def _route(connection: Connection, response: api.CommandLookupTopicResponse) -> Route:
        if response.response == api.CommandLookupTopicResponse.Failed:
            raise BrokerFailed("UnknownError", "the lookup failed without a reason")
        owner = address_in(response.brokerServiceUrl)
        if response.proxy_through_service_url:
            return Route(connection.address, proxy_target=str(owner))
        return Route(owner)

    async def _service_connection(self) -> Connection:
        error: ClientError = NotConnected("there is no broker to ask")
        for _ in self._addresses:
            try:
                return await self._connections.get(Route(self._addresses[self._turn]))
            except NotConnected as reason:
                error = reason
                self._turn = (self._turn + 1) % len(self._addresses)
        raise error


def address_in(broker_url: str) -> BrokerAddress:
    """The address in a URL that a broker sent. Raises ``InvalidServiceUrl``."""
    return parse_service_url(broker_url)[0]
