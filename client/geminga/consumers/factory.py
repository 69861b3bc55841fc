"""Makes consumers: puts together what one consists of, and has brokers accept it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from geminga._channels.channel import Channels
from geminga.consumers.consumer import Consumer
from geminga.consumers.dead_letters import (
    Letterbox,
    LetterPublisher,
    LetterTopic,
    publishes_to,
    with_topics,
)
from geminga.consumers.options import ConsumerSettings
from geminga.consumers.reader import Reader
from geminga.consumers.receiver_queue import Inbox, ReceiverQueue
from geminga.consumers.table_view import TableRows, TableView
from geminga.consumers.topic_consumer import SubscriptionSpec
from geminga.consumers.topic_group import TopicGroup
from geminga.consumers.topic_sources import NamedTopics, PatternTopics, TopicSource
from geminga.message_ids import EARLIEST, LATEST, MessageId
from geminga.schemas.schema import Schema
from geminga_protocol.pulsar.enums import InitialPosition
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock

# Where a subscription begins that no broker keeps.
START_OF = {InitialPosition.EARLIEST: EARLIEST, InitialPosition.LATEST: LATEST}

Topics = str | Sequence[str] | re.Pattern[str]


class ConsumerFactory:
    """Makes the consumers of one client. ``open_box`` opens the way to a topic for letters."""

    def __init__(
        self,
        channels: Channels,
        clock: Clock,
        open_box: Callable[[LetterTopic], Awaitable[Letterbox]],
    ) -> None:
        self._channels = channels
        self._clock = clock
        self._open_box = open_box

    async def consumer(
        self,
        topics: Topics,
        subscription: str,
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
    ) -> Consumer[Any]:
        """A consumer that brokers have accepted for all its topics.

        Raises ``InvalidTopicName``, ``ValueError``, or the ``ClientError`` for which one did not.
        """
        names = _names(topics)
        policy, letters = settings.dead_letters, None
        if policy is not None:
            if policy.retry_letters:
                if not names:
                    raise ValueError("retry letters need topics by their names, and no pattern")
                policy = with_topics(policy, names, subscription)
                names.append(TopicName.parse(policy.retry_letter_topic or ""))
            letters = LetterPublisher(policy, subscription, self._open_box, self._spawn_posting)
        spec = SubscriptionSpec(
            subscription,
            self._named(settings),
            schema,
            self._clock,
            letters=letters,
            start=None if settings.durable else START_OF[settings.initial_position],
        )
        source: TopicSource = NamedTopics(self._channels.lookup, names)
        if isinstance(topics, re.Pattern):
            # Else the consumer of a pattern such as ".*" gets its dead letters, and what dies again
            # goes to one more topic, without end (apache/pulsar#20667).
            source = PatternTopics(
                self._channels.lookup,
                topics,
                settings.topics_mode,
                self._channels.next_id(),
                lambda topic: policy is not None and publishes_to(policy, subscription, topic),
            )
        queue = ReceiverQueue()
        group = TopicGroup(self._channels, source, spec, queue)
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
        """A reader that brokers have accepted for all its topics.

        Raises ``InvalidTopicName``, ``ValueError``, or the ``ClientError`` for which one did not.
        """
        begin = EARLIEST if isinstance(start, datetime) else start
        spec = self._reading(settings, schema, begin, is_start_inclusive=is_start_inclusive)
        queue = ReceiverQueue()
        group = await self._group(topics, spec, queue)
        reader = Reader[Any](group, queue, spec)
        if isinstance(start, datetime):
            try:
                await reader.seek(start)
            except BaseException:
                await reader.close()
                raise
        return reader

    async def table_view(
        self,
        topics: str | Sequence[str],
        settings: ConsumerSettings,
        schema: Schema[Any] | None,
    ) -> TableView[Any]:
        """A view that has everything published until now.

        Raises ``InvalidTopicName``, ``ValueError``, or ``ClientError``.
        """
        is_stored = all(name.is_persistent for name in _names(topics))
        settings = replace(settings, read_compacted=is_stored)
        spec = self._reading(settings, schema, EARLIEST, is_start_inclusive=False)
        rows = TableRows()
        group = await self._group(topics, spec, rows)
        view = TableView[Any](group, rows)
        try:
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
        name = f"reader-{self._channels.random_name()}"  # as upstream's, seen in statistics
        return SubscriptionSpec(
            name,
            self._named(settings),
            schema,
            self._clock,
            start=start,
            is_start_inclusive=is_start_inclusive,
            is_reader=True,
        )

    async def _group(
        self, topics: str | Sequence[str], spec: SubscriptionSpec, inbox: Inbox
    ) -> TopicGroup:
        source = NamedTopics(self._channels.lookup, _names(topics))
        group = TopicGroup(self._channels, source, spec, inbox)
        await group.open()
        return group

    def _named(self, settings: ConsumerSettings) -> ConsumerSettings:
        """All topics of a consumer know it by one name."""
        if settings.name is not None:
            return settings
        return replace(settings, name=self._channels.random_name())

    def _spawn_posting(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[object]:
        return self._channels.spawn(work, name="post dead letters")


def _names(topics: Topics) -> list[TopicName]:
    if isinstance(topics, re.Pattern):
        return []
    names = [topics] if isinstance(topics, str) else topics
    if not names:
        raise ValueError("at least one topic is needed")
    return [TopicName.parse(name) for name in names]
