"""Makes consumers: puts together what one consists of, and has brokers accept it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from geminga._channels.channel import Channels
from geminga.consumers.consumer import Consumer
from geminga.consumers.letters import Letterbox, Letters, with_topics
from geminga.consumers.options import ConsumerSettings
from geminga.consumers.receiver_queue import ReceiverQueue
from geminga.consumers.topic_consumer import Subscribing
from geminga.consumers.topic_group import TopicGroup
from geminga.consumers.topic_sources import NamedTopics, PatternTopics, TopicSource
from geminga.schemas.schema import Schema
from geminga_protocol.pulsar.topic_names import TopicName
from geminga_runtime.clock import Clock

Topics = str | Sequence[str] | re.Pattern[str]


class ConsumerFactory:
    """Makes the consumers of one client. ``open_box`` opens the way to a topic for letters, where a
    subscription of the second name is made if there is one."""

    def __init__(
        self,
        channels: Channels,
        clock: Clock,
        open_box: Callable[[str, str | None], Awaitable[Letterbox]],
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
                policy = with_topics(policy, str(names[0]), subscription)
                names.append(TopicName.parse(policy.retry_letter_topic or ""))
            letters = Letters(policy, subscription, self._open_box, self._spawn_posting)
        subscribing = Subscribing(
            subscription, self._named(settings), schema, self._clock, letters=letters
        )
        source: TopicSource = NamedTopics(self._channels.lookup, names)
        if isinstance(topics, re.Pattern):
            source = PatternTopics(
                self._channels.lookup, topics, settings.topics_mode, self._channels.next_id()
            )
        queue = ReceiverQueue()
        group = TopicGroup(self._channels, source, subscribing, queue)
        await group.open()
        return Consumer(group, queue, subscribing)

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
