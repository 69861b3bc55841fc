"""Reads topics from a place that the reader chooses, without a subscription that is kept."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Generic, Self, TypeVar, cast

from geminga.consumers.consumer import BATCH_BYTES_MAX
from geminga.consumers.receiver_queue import ReceiverQueue
from geminga.consumers.topic_consumer import SubscriptionSpec
from geminga.consumers.topic_group import TopicGroup
from geminga.errors import Closed
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import MessageId
from geminga.messages import Message

ValueT = TypeVar("ValueT")


class Reader(AsyncClosable, Generic[ValueT]):
    """Made by ``Client.reader``; closed by ``close``, by ``async with``, or by the client.

    Nothing is acknowledged: a reader knows itself how far it is, and goes on behind the message
    it read last when a connection broke. Each message is read once as long as the reader lives.
    """

    def __init__(self, topics: TopicGroup, queue: ReceiverQueue, spec: SubscriptionSpec) -> None:
        self._topics = topics
        self._queue = queue
        self._spec = spec

    @property
    def topics(self) -> list[str]:
        """The whole names of its topics at this moment, partitions each by itself."""
        return sorted(name for name, topic in self._topics.by_topic.items() if topic.is_open)

    @property
    def name(self) -> str:
        """The reader's name, made up if the options have none."""
        return self._spec.settings.name or ""

    @property
    def is_connected(self) -> bool:
        """Are brokers delivering all its topics at this moment?"""
        return all(topic.channel.is_connected for topic in self._topics.by_topic.values())

    @property
    def attachments(self) -> int:
        """How often brokers have begun to deliver its topics: more than one each time that a
        connection broke, or a topic moved. What a compaction dropped in between was not read, so
        that with ``read_compacted`` the removal of a key may be missing."""
        return sum(topic.channel.attachments for topic in self._topics.by_topic.values())

    @property
    def has_reached_end(self) -> bool:
        """Are all its topics terminated, and everything delivered?"""
        topics = self._topics.by_topic.values()
        return bool(topics) and all(topic.channel.has_reached_end for topic in topics)

    async def read(self) -> Message[ValueT]:
        """The next message, waited for; limit the wait with ``asyncio.timeout``.

        A call that is cancelled takes no message with it. Raises ``Closed``, or the
        ``BrokerRefused`` that ended the reader.
        """
        return self._queue.get_ready() or await self._queue.get()

    async def read_many(
        self,
        max_messages: int = 100,
        max_wait_s: float = 0.1,
        *,
        max_bytes: int = BATCH_BYTES_MAX,
    ) -> list[Message[ValueT]]:
        """The next messages, as ``Consumer.receive_many`` gives them."""
        messages = await self._topics.next_messages(
            self._queue, max_messages, max_bytes, max_wait_s
        )
        return cast(list[Message[ValueT]], messages)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[ValueT]:
        """The next message; ``async for`` ends when the reader is closed.

        Raises the ``ClientError`` that ended the reader.
        """
        try:
            return await self.read()
        except Closed:
            raise StopAsyncIteration from None

    async def has_message_available(self) -> bool:
        """Is there a message that was not read yet, here or at a broker? Raises ``ClientError``."""
        self._topics.check_open()
        if len(self._queue):
            return True
        topics = list(self._topics.by_topic.values())
        return any(await asyncio.gather(*[topic.has_more() for topic in topics]))

    async def seek(self, to: MessageId | int | datetime) -> None:
        """Go on at a message, or at a publish time: a datetime, or milliseconds since 1970-01-01
        UTC.

        The next message read is that one (or the first published then or later). A time,
        ``EARLIEST`` and ``LATEST`` are for all topics, an id is for the topic that it names. Raises
        ``ClientError``; when the connection broke, whether the reader was moved is not known.
        """
        await self._topics.seek(to)

    async def last_message_ids(self) -> dict[str, MessageId]:
        """The id of the last message of each topic; its ``entry_id`` is -1 if there is none.

        Raises ``ClientError``.
        """
        return await self._topics.last_message_ids()

    async def close(self) -> None:
        """Leave the brokers. Closing twice is harmless."""
        await self._topics.close()
