"""Discovery on a connection: LOOKUP, PARTITIONED_METADATA, GET_TOPICS_OF_NAMESPACE.

Errors are raised: the connection answers them in the form that each command's clients expect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from magnetar_protocol.pulsar import api_pb2 as api
from magnetar_protocol.pulsar.answers import (
    encode_lookup,
    encode_partitions,
    encode_topics_of_namespace,
)
from magnetar_protocol.pulsar.topic_names import NamespaceName, TopicName
from magnetar_server.authorization import Action, Resource

if TYPE_CHECKING:
    from magnetar_broker.sessions.connection import Connection


class Lookups:
    """Answers where topics are and which there are."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.handlers: dict[int, Callable[[Any], None]] = {
            api.BaseCommand.LOOKUP: self._handle_lookup,
            api.BaseCommand.PARTITIONED_METADATA: self._handle_partitions,
            api.BaseCommand.GET_TOPICS_OF_NAMESPACE: self._handle_topics,
        }

    def _handle_lookup(self, command: api.CommandLookupTopic) -> None:
        self._connection.start(command, self._lookup(command))

    async def _lookup(self, command: api.CommandLookupTopic) -> None:
        context = self._connection.context
        counts, began_s = context.counts, context.clock.monotonic()
        counts.lookups_pending += 1
        is_redirect: bool | None = None
        try:
            is_redirect = await self._answer_lookup(command)
        finally:
            counts.lookups_pending -= 1
            counts.lookups_failed += is_redirect is None
            counts.lookups_redirected += is_redirect is True
            counts.lookups_answered += is_redirect is False
            counts.lookup_durations.add((context.clock.monotonic() - began_s) * 1000)

    async def _answer_lookup(self, command: api.CommandLookupTopic) -> bool:
        """Say where the topic is; whether that is another broker."""
        context = self._connection.context
        name = TopicName.parse(command.topic)
        self._connection.authorize(Action.LOOKUP, Resource.topic(str(name)))
        context.check_listener(command.advertised_listener_name)
        owner = await context.discovery.owner(name)
        self._connection.send(
            encode_lookup(
                command.request_id,
                broker_url=owner.broker_url,
                broker_url_tls=owner.broker_url_tls or None,
                is_redirect=not owner.is_self,
                is_authoritative=owner.is_self,
            )
        )
        return not owner.is_self

    def _handle_partitions(self, command: api.CommandPartitionedTopicMetadata) -> None:
        self._connection.start(command, self._partitions(command))

    async def _partitions(self, command: api.CommandPartitionedTopicMetadata) -> None:
        name = TopicName.parse(command.topic)
        self._connection.authorize(Action.LOOKUP, Resource.topic(str(name)))
        partitions = await self._connection.context.discovery.partitions(
            name, create=command.metadata_auto_creation_enabled
        )
        self._connection.send(encode_partitions(command.request_id, partitions))

    def _handle_topics(self, command: api.CommandGetTopicsOfNamespace) -> None:
        self._connection.start(command, self._topics(command))

    async def _topics(self, command: api.CommandGetTopicsOfNamespace) -> None:
        namespace = NamespaceName.parse(command.namespace)
        self._connection.authorize(Action.LOOKUP, Resource.namespace(str(namespace)))
        topics = await self._connection.context.discovery.topics_of(namespace)
        names = [str(topic) for topic in topics if _matches_mode(topic, command.mode)]
        # The pattern is left to the client: a regular expression from outside may run for ever.
        self._connection.send(encode_topics_of_namespace(command.request_id, names))


def _matches_mode(topic: TopicName, mode: int) -> bool:
    if mode == api.CommandGetTopicsOfNamespace.ALL:
        return True
    is_persistent = topic.domain == "persistent"
    return is_persistent == (mode == api.CommandGetTopicsOfNamespace.PERSISTENT)
