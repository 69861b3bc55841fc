"""Lookups, which any broker answers: which broker serves a topic, how many partitions it has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from random import Random

from geminga._transport.connection import Connection
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.service_urls import BrokerAddress, Route, parse_service_url
from geminga.errors import BrokerFailed, ClientError, NotConnected, TooManyRedirects
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

# As upstream's clients; brokers that know each other need one or two.
REDIRECTS_MAX = 20


class Lookup:
    """Asks one broker of the service URL for as long as it answers, then the next one.

    Which one is asked next is decided by how the last lookup ended: a broker that cannot be
    reached, is silent, or cannot tell at the moment is left for the next in the URL. (Upstream's
    clients ask the next one each time; staying keeps a client at one connection.)
    """

    def __init__(
        self, pool: ConnectionPool, addresses: tuple[BrokerAddress, ...], random: Random
    ) -> None:
        self._pool = pool
        self._addresses = addresses
        # Many clients with the same URL begin at different brokers.
        self._turn = random.randrange(len(addresses))

    async def partitions(self, topic: str) -> int:
        """How many partitions the topic has; 0 if it is not partitioned. Raises ``ClientError``."""
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            asked = api.CommandPartitionedTopicMetadata(topic=topic, request_id=0)
            answer = await connection.request(
                BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
            )
            response = answer.partitionMetadataResponse
            if response.response == api.CommandPartitionedTopicMetadataResponse.Failed:
                raise _failed_without_reason()
            return response.partitions

    async def owner(self, topic: str) -> Route:
        """How to reach the broker that serves the topic. Raises ``ClientError``."""
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            return await self._owner(topic, connection)

    async def _owner(self, topic: str, connection: Connection) -> Route:
        """The same, beginning with the broker at ``connection``."""
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
            connection = await self._pool.get(route)
        raise TooManyRedirects(topic, REDIRECTS_MAX)

    @staticmethod
    def _route(connection: Connection, response: api.CommandLookupTopicResponse) -> Route:
        if response.response == api.CommandLookupTopicResponse.Failed:
            raise _failed_without_reason()
        (owner, *_) = parse_service_url(response.brokerServiceUrl)
        if response.proxy_through_service_url:
            return Route(connection.address, proxy_target=str(owner))
        return Route(owner)

    async def _service_connection(self) -> Connection:
        """A connection to the first broker that takes one, from the one whose turn it is on."""
        error: ClientError = NotConnected("there is no broker to ask")
        first = self._turn
        for step in range(len(self._addresses)):
            # Other lookups may move the turn on meanwhile: each goes round all brokers by itself.
            address = self._addresses[(first + step) % len(self._addresses)]
            try:
                with self._leaving_on_failure(address):
                    return await self._pool.get(Route(address))
            except ClientError as reason:
                if not reason.retry:
                    raise
                error = reason
        raise error

    @contextmanager
    def _leaving_on_failure(self, address: BrokerAddress) -> Generator[None]:
        """If what is asked within fails in a way that may pass, it is the next broker's turn."""
        try:
            yield
        except ClientError as error:
            # Of many lookups that one broker leaves unanswered only the first moves the turn on.
            if error.retry and address == self._addresses[self._turn]:
                self._turn = (self._turn + 1) % len(self._addresses)
            raise


def _failed_without_reason() -> BrokerFailed:
    return BrokerFailed("UnknownError", "the lookup failed without a reason")
