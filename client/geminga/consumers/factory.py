"""Makes consumers, readers and table views: puts their parts together, and opens them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from geminga._channels.registry import Channels
from geminga.consumers.consumer import Consumer
from geminga.consumers.dead_letters import (
    LetterPublisher,
    LetterTopic,
    publishes_to,
    with_topics,
)
from geminga.consumers.options import ConsumerSettings
from geminga.consumers.reader import Reader
from geminga.consumers.receiver_queue import ReceiverQueue
from geminga.consumers.table_rows import Inbox, TableRows
from geminga.consumers.table_view import TableView
from geminga.consumers.topic_consumer import SubscriptionSpec
from geminga.consumers.topic_group import TopicGroup
from geminga.consumers.topic_sources import NamedTopics, PatternTopics, TopicSource
from geminga.message_ids import EARLIEST, LATEST, MessageId
from geminga.producers.producer import Producer
from geminga.schemas.schema import Schema
from geminga_protocol.pulsar.enums import InitialPosition
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock

# Where a subscription that is not durable begins: the consumer says it at each attachment.
START_OF = {InitialPosition.EARLIEST: EARLIEST, InitialPosition.LATEST: LATEST}

# One name, several, or the expression that names match.
Topics = str | Sequence[str] | re.Pattern[str]


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerFactory:
    """Makes the consumers of one client."""

    channels: Channels
    clock: Clock
    # Opens the producer that publishes letters to a topic.
    open_letter_producer: Callable[[LetterTopic], Awaitable[Producer[bytes]]]

    async def consumer(
        self,
        topics: Topics,
        subscription: str,
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
    ) -> Consumer[Any]:
        """Open a consumer: brokers have accepted it for all its topics.

        Raises ``InvalidTopicName``, ``ValueError``, or the ``ClientError`` for which one did not.
        """
        names = _names(topics)
        policy, letters = settings.dead_letters, None
        if policy is not None:
            if policy.retry_letters:
                if not names:
                    raise ValueError("retry letters need topics by their names, and no pattern")
                # Before the retry topic joins them: its own name is made of theirs.
                policy = with_topics(policy, names, subscription)
                # Letters to be retried come back to the consumer that made them.
                names.append(TopicName.parse(policy.retry_letter_topic or ""))
            # Made before the consumer is open, and without a producer: the first letter opens one.
            letters = LetterPublisher(
                policy,
                subscription,
                self.open_letter_producer,
                lambda work: self.channels.spawn(work, name="publish dead letters"),
            )
        spec = SubscriptionSpec(
            subscription,
            self._named(settings),
            schema,
            self.clock,
            letters=letters,
            # A start makes the subscription a non-durable one (``TopicConsumer``), whose place the
            # client keeps.
            start=None if settings.durable else START_OF[settings.initial_position],
        )
        source: TopicSource = NamedTopics(self.channels.lookup, names)
        if isinstance(topics, re.Pattern):
            # Without the exception, a consumer of a pattern such as ".*" would get its own dead
            # letters, and publish those that die again to one more topic, without end
            # (apache/pulsar#20667).
            source = PatternTopics(
                self.channels.lookup,
                topics,
                settings.topics_mode,
                # The watcher's id: from the same numbers as the ids of consumers, so that it is
                # unique on every connection of the client.
                next(self.channels.ids),
                lambda topic: policy is not None and publishes_to(policy, subscription, topic),
            )
        queue = ReceiverQueue()
        # A failed opening closes what was opened, so that there is nothing to clean up here.
        group = TopicGroup(self.channels, source, spec, queue)
        await group.open()
        return Consumer(group, queue, spec)

    async def reader(
        self,
        topics: str | Sequence[str],
        start: MessageId | datetime,
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
        *,
        is_start_inclusive: bool,
    ) -> Reader[Any]:
        """Open a reader: brokers have accepted it for all its topics.

        Raises ``InvalidTopicName``, ``ValueError``, or the ``ClientError`` for which one did not.
        """
        # What is delivered before the seek is dropped by it.
        begin = EARLIEST if isinstance(start, datetime) else start
        spec = self._reading(settings, schema, begin, is_start_inclusive=is_start_inclusive)
        queue = ReceiverQueue()
        group = await self._group(topics, spec, queue)
        reader = Reader[Any](group, queue, spec)
        if isinstance(start, datetime):
            # SUBSCRIBE has a place for an id alone; where a time lies, a broker finds by a seek.
            try:
                await reader.seek(start)
            except BaseException:
                # The caller gets no reader that it could close.
                await reader.close()
                raise
        return reader

    async def table_view(
        self,
        topics: str | Sequence[str],
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
    ) -> TableView[Any]:
        """Open a table view: it has everything that was published before.

        Raises ``InvalidTopicName``, ``ValueError``, or ``ClientError``.
        """
        is_stored = all(name.is_persistent for name in _names(topics))
        # A table needs no messages that newer ones have replaced. Brokers refuse to read
        # non-persistent topics like that, which have no compaction.
        settings = replace(settings, read_compacted=is_stored)
        spec = self._reading(settings, schema, EARLIEST, is_start_inclusive=False)
        rows = TableRows()
        group = await self._group(topics, spec, rows)
        view = TableView[Any](group, rows)
        try:
            # Opening ends with a full table: a key that is missing then has no value.
            await view.refresh()
        except BaseException:
            await view.close()
            raise
        return view

    def _reading(
        self,
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
        start: MessageId,
        *,
        is_start_inclusive: bool,
    ) -> SubscriptionSpec:
        # A subscription of its own, which is not durable: two readers with one name would share
        # what each of them wants as a whole.
        name = f"reader-{self.channels.random_name()}"  # as upstream's, seen in statistics
        return SubscriptionSpec(
            name,
            self._named(settings),
            schema,
            self.clock,
            start=start,
            is_start_inclusive=is_start_inclusive,
            is_reader=True,
        )

    async def _group(
        self, topics: str | Sequence[str], spec: SubscriptionSpec, inbox: Inbox
    ) -> TopicGroup:
        source = NamedTopics(self.channels.lookup, _names(topics))
        group = TopicGroup(self.channels, source, spec, inbox)
        await group.open()
        return group

    def _named(self, settings: ConsumerSettings) -> ConsumerSettings:
        """The settings with a name, so that all topics of the consumer know it by the same one."""
        if settings.name is not None:
            return settings
        # Chosen here, once: each channel would choose another name.
        return replace(settings, name=self.channels.random_name())


def _names(topics: Topics) -> list[TopicName]:
    if isinstance(topics, re.Pattern):
        return []
    names = [topics] if isinstance(topics, str) else topics
    if not names:
        raise ValueError("at least one topic is needed")
    return [TopicName.parse(name) for name in names]
