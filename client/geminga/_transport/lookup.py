"""Lookups, which any broker answers: which broker serves a topic, how many partitions it has.

``HttpLookup`` asks the same over HTTP; the two have the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random
from typing import Literal

from geminga._transport.connection import Connection
from geminga._transport.connection_pool import ConnectionPool
from geminga._transport.service_urls import BrokerAddress, Route, parse_service_url
from geminga.errors import BrokerFailed, ClientError, NotConnected, TlsFailed, TooManyRedirects
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.api_pb2 import BaseCommand

# As upstream's clients; brokers that know each other redirect once or twice.
REDIRECTS_MAX = 20

# What is raised for an answer that says "failed", and names no error.
FAILED = "the lookup failed without a reason"

TopicsMode = Literal["persistent", "non-persistent", "all"]

_MODES: dict[TopicsMode, api.CommandGetTopicsOfNamespace.Mode.ValueType] = {
    "persistent": api.CommandGetTopicsOfNamespace.PERSISTENT,
    "non-persistent": api.CommandGetTopicsOfNamespace.NON_PERSISTENT,
    "all": api.CommandGetTopicsOfNamespace.ALL,
}


# ``_turn`` is all the state there is. Each method asks one connection once, but for ``owner``,
# which follows redirects; asking again after an error is left to the caller, whose next call begins
# at the broker that is then in turn.
class Lookup:
    """Asks one broker of the service URL for as long as it answers, then the next one.

    The client moves on from a broker that cannot be reached, is silent, or cannot answer at the
    moment. (Upstream's clients ask the next broker each time; staying keeps a client at one
    connection.)
    """

    def __init__(
        self,
        pool: ConnectionPool,
        addresses: tuple[BrokerAddress, ...],
        random: Random,
        listener_name: str | None = None,
        redirects_max: int = REDIRECTS_MAX,
    ) -> None:
        self._pool = pool
        # Which of its addresses a broker is to name; its usual ones where it is ``None``.
        self._listener_name = listener_name
        self._addresses = addresses
        self._redirects_max = redirects_max
        # The index of the address that is asked next. Many clients with the same URL begin at
        # different brokers.
        self._turn = random.randrange(len(addresses))

    async def partitions(self, topic: str, *, creates: bool = True) -> int:
        """How many partitions the topic has; 0 if it is not partitioned.

        A topic that does not exist may be made, as its namespace says; without ``creates`` it is
        not. Raises ``TopicNotFound``, or another ``ClientError``.
        """
        # Outside of the block below: finding a broker moves the turn on by itself.
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            asked = api.CommandPartitionedTopicMetadata(
                topic=topic,
                request_id=0,
                # Left out in the usual case, where it would say what its absence does
                # (PulsarApi.proto: true).
                metadata_auto_creation_enabled=None if creates else False,
            )
            answer = await connection.request(
                BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
            )
            response = answer.partitionMetadataResponse
            # With an error code ``request`` would have raised it; some failures have none.
            if response.response == api.CommandPartitionedTopicMetadataResponse.Failed:
                raise BrokerFailed("UnknownError", FAILED)
            return response.partitions

    async def schema(self, topic: str, version: bytes | None = None) -> api.Schema:
        """That version of the topic's schema, or the newest one.

        Raises ``TopicNotFound`` where there is none, or another ``ClientError``.
        """
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            asked = api.CommandGetSchema(request_id=0, topic=topic, schema_version=version)
            answer = await connection.request(
                BaseCommand(type=BaseCommand.GET_SCHEMA, getSchema=asked)
            )
            return answer.getSchemaResponse.schema

    async def topics(
        self, namespace: str, mode: TopicsMode, known_hash: str
    ) -> tuple[list[str] | None, str]:
        """The whole names of a namespace's topics, each partition by itself, and their hash.

        The names are ``None`` where the hash is still ``known_hash``. Raises ``ClientError``.
        """
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            asked = api.CommandGetTopicsOfNamespace(
                request_id=0, namespace=namespace, mode=_MODES[mode], topics_hash=known_hash or None
            )
            answer = await connection.request(
                BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE, getTopicsOfNamespace=asked)
            )
            response = answer.getTopicsOfNamespaceResponse
            # An unchanged list is not sent: brokers then answer without names.
            is_known = bool(known_hash) and not response.changed
            return None if is_known else list(response.topics), response.topics_hash

    async def watch_topics(
        self, watcher_id: int, namespace: str, pattern: str, changed: Callable[[], None]
    ) -> Connection | None:
        """Have ``changed`` called, once or more, when topics that match come or go, or when the
        connection to the broker that reports them breaks.

        Gives that connection, or ``None`` if the broker cannot report changes. Raises
        ``ClientError``.
        """
        connection = await self._service_connection()
        # No error: the caller asks for the list from time to time in any case.
        if not connection.watches_topics:
            return None
        # Before the broker is asked: it may report a change right behind its answer.
        connection.watchers[watcher_id] = changed
        watch = api.CommandWatchTopicList(
            request_id=0, watcher_id=watcher_id, namespace=namespace, topics_pattern=pattern
        )
        try:
            await connection.request(
                BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST, watchTopicList=watch)
            )
        except BaseException:
            # Also for a caller that was cancelled: the broker's reports are dropped from now on.
            connection.watchers.pop(watcher_id, None)
            raise
        return connection

    async def owner(self, topic: str) -> Route:
        """How to reach the broker that serves the topic. Raises ``ClientError``."""
        connection = await self._service_connection()
        with self._leaving_on_failure(connection.address):
            # A broker that has to decide who serves the topic says so when it redirects, and the
            # broker that it names then must not redirect again (``authoritative``).
            is_authoritative = False
            for _ in range(self._redirects_max):
                asked = api.CommandLookupTopic(
                    topic=topic,
                    request_id=0,
                    authoritative=is_authoritative,
                    advertised_listener_name=self._listener_name,
                )
                answer = await connection.request(
                    BaseCommand(type=BaseCommand.LOOKUP, lookupTopic=asked)
                )
                response = answer.lookupTopicResponse
                # From the answer of this broker: its TLS, or its being a proxy, holds for the next
                # one too. An answer is one of three: Connect names the owner, Redirect a broker
                # that knows it better, Failed neither.
                route = self._route(connection, response)
                if response.response == api.CommandLookupTopicResponse.Connect:
                    return route
                is_authoritative = response.authoritative
                # The broker that was named may not accept connections: the next attempt asks
                # another broker, which may have noticed.
                connection = await self._pool.get(route)
            raise TooManyRedirects(topic, self._redirects_max)

    @staticmethod
    def _route(connection: Connection, response: api.CommandLookupTopicResponse) -> Route:
        """The route to the broker that an answer names, from the one at ``connection``."""
        if response.response == api.CommandLookupTopicResponse.Failed:
            raise BrokerFailed("UnknownError", FAILED)
        is_tls = connection.address.is_tls
        url = response.brokerServiceUrlTls if is_tls else response.brokerServiceUrl
        if not url:
            scheme = "pulsar+ssl://" if is_tls else "pulsar://"
            raise NotConnected(f"the topic's owner serves no {scheme}")
        # Brokers name one address.
        (owner, *_) = parse_service_url(url)
        if response.proxy_through_service_url:
            return Route(connection.address, proxy_target=str(owner))
        return Route(owner)

    async def _service_connection(self) -> Connection:
        """A connection to the first broker that accepts one, beginning with the one in turn."""
        # Replaced in the first round: a service URL has at least one address.
        error: ClientError = NotConnected("there is no broker to ask")
        first = self._turn
        # A round costs little: the pool refuses a broker at once that has just failed (``_Pace``).
        for step in range(len(self._addresses)):
            # Other lookups may move the turn on during the wait: each tries all brokers by itself.
            address = self._addresses[(first + step) % len(self._addresses)]
            try:
                with self._leaving_on_failure(address):
                    return await self._pool.get(Route(address))
            except ClientError as reason:
                if not may_another_do_better(reason):
                    raise
                error = reason
        raise error

    @contextmanager
    def _leaving_on_failure(self, address: BrokerAddress) -> Generator[None]:
        """Move the turn on to the next broker if a request within the block fails at ``address`` in
        a way that another broker may not."""
        try:
            yield
        except ClientError as error:
            # Of many lookups that one broker leaves unanswered only the first moves the turn on.
            if may_another_do_better(error) and address == self._addresses[self._turn]:
                self._turn = (self._turn + 1) % len(self._addresses)
            raise


def may_another_do_better(error: ClientError) -> bool:
    """May another broker answer what this one did not?"""
    return error.retry or isinstance(error, TlsFailed)  # each broker has its own certificate
