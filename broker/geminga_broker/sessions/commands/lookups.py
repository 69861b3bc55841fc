"""Discovery on a connection: LOOKUP and PARTITIONED_METADATA."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import ClassVar

from geminga_broker.errors import TooManyRequests
from geminga_broker.sessions.commands.command_group import CommandGroup, Handlers, as_task
from geminga_protocol.pulsar import api_pb2 as api
from geminga_protocol.pulsar.answers import encode_lookup, encode_partitions
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_server.authorization import Action, Resource


class LookupCommands(CommandGroup):
    """Answers which broker serves a topic, and how many partitions it has."""

    async def lookup(self, command: api.CommandLookupTopic) -> None:
        """LOOKUP: the broker that serves the topic, or the one to ask instead."""
        session = self.session
        context = session.context
        # All of it is measured: parsing, authorization, ZooKeeper.
        counts, began_s = context.counts, context.clock.monotonic()
        # None until the lookup succeeded. Three outcomes: None failed, False answered, True
        # redirected.
        is_redirect: bool | None = None
        try:
            with self._admitted():
                # Within the admission, so that malformed requests and refusals count as failed
                # lookups. Every lookup ends in exactly one of the three counts, also one that is
                # cancelled with its connection.
                name = TopicName.parse(command.topic)
                await session.authorize(Action.LOOKUP, Resource("topic", str(name)))
                owner = await context.discovery.owner(name, authoritative=command.authoritative)
                # A client may name the listener whose addresses it can reach; else it gets those of
                # the listener that it connected to. Raises ``ListenerMissing`` if the owner has no
                # address there; the client is refused.
                owner = owner.at_listener(command.advertised_listener_name or session.listener)
                session.send(
                    encode_lookup(
                        command.request_id,
                        broker_url=owner.broker_url,
                        broker_url_tls=owner.broker_url_tls or None,
                        is_redirect=owner.is_redirect,
                        is_authoritative=owner.is_authoritative,
                    )
                )
                is_redirect = owner.is_redirect
        finally:
            counts.lookups_failed += is_redirect is None
            counts.lookups_redirected += is_redirect is True
            counts.lookups_answered += is_redirect is False
            counts.lookup_durations.add((context.clock.monotonic() - began_s) * 1000)

    async def partitions(self, command: api.CommandPartitionedTopicMetadata) -> None:
        """PARTITIONED_METADATA: the number of partitions, 0 for a topic that is not partitioned."""
        session = self.session
        with self._admitted():
            name = TopicName.parse(command.topic)
            await session.authorize(Action.LOOKUP, Resource("topic", str(name)))
            partitions = await session.context.discovery.partitions(
                name, create=command.metadata_auto_creation_enabled
            )
        session.send(encode_partitions(command.request_id, partitions))

    @contextmanager
    def _admitted(self) -> Generator[None, None, None]:
        """Count a request as pending. Raises ``TooManyRequests`` where the broker has enough.

        Each one waits for ZooKeeper, and after a restart of all brokers all clients ask at once.
        """
        context = self.session.context
        counts = context.counts
        # No await between the look and the count, so that the bound is exact.
        if counts.lookups_pending >= context.config.concurrent_lookup_requests_max:
            raise TooManyRequests("Failed due to too many pending lookup requests")
        counts.lookups_pending += 1
        try:
            yield
        finally:
            counts.lookups_pending -= 1

    handlers: ClassVar[Handlers] = {
        api.BaseCommand.LOOKUP: as_task(lookup),
        api.BaseCommand.PARTITIONED_METADATA: as_task(partitions),
    }
