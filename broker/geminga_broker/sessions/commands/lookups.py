"""Discovery on a connection: LOOKUP, PARTITIONED_METADATA.

Errors are raised: the connection answers them in the form that each command's clients expect.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar

from geminga_broker.errors import TooManyRequests
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_lookup, encode_partitions
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_server.authorization import Action, Resource


class LookupCommands(CommandGroup):
    """Answers where topics are, and in how many partitions."""

    async def _lookup(self, command: api.CommandLookupTopic) -> None:
        context = self._session.context
        counts, began_s = context.counts, context.clock.monotonic()
        is_redirect: bool | None = None
        try:
            with self._admitted():
                is_redirect = await self._answer_lookup(command)
        finally:
            counts.lookups_failed += is_redirect is None
            counts.lookups_redirected += is_redirect is True
            counts.lookups_answered += is_redirect is False
            counts.lookup_durations.add((context.clock.monotonic() - began_s) * 1000)

    @contextmanager
    def _admitted(self) -> Generator[None, None, None]:
        """Count a request as pending. Raises ``TooManyRequests`` where the broker has enough: each
        waits for ZooKeeper, and after a restart of all brokers all clients ask at once."""
        context = self._session.context
        counts = context.counts
        if counts.lookups_pending >= context.config.concurrent_lookup_requests_max:
            raise TooManyRequests("Failed due to too many pending lookup requests")
        counts.lookups_pending += 1
        try:
            yield
        finally:
            counts.lookups_pending -= 1

    async def _answer_lookup(self, command: api.CommandLookupTopic) -> bool:
        """Say where the topic is, or which broker to ask; whether it is the latter."""
        context = self._session.context
        name = TopicName.parse(command.topic)
        await self._session.authorize(Action.LOOKUP, Resource.topic(str(name)))
        listener = command.advertised_listener_name or self._session.listener
        owner = await context.discovery.owner(name, authoritative=command.authoritative)
        owner = owner.at_listener(listener)
        self._session.send(
            encode_lookup(
                command.request_id,
                broker_url=owner.broker_url,
                broker_url_tls=owner.broker_url_tls or None,
                is_redirect=owner.is_redirect,
                is_authoritative=owner.is_authoritative,
            )
        )
        return owner.is_redirect

    async def _partitions(self, command: api.CommandPartitionedTopicMetadata) -> None:
        with self._admitted():
            name = TopicName.parse(command.topic)
            await self._session.authorize(Action.LOOKUP, Resource.topic(str(name)))
            partitions = await self._session.context.discovery.partitions(
                name, create=command.metadata_auto_creation_enabled
            )
        self._session.send(encode_partitions(command.request_id, partitions))

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.LOOKUP: as_task(_lookup),
        api.BaseCommand.PARTITIONED_METADATA: as_task(_partitions),
    }
