"""The reader that users hold: it reads topics from a place of its choice, by no subscription."""

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
    """Reads topics from a place of its choice. Made by ``Client.reader``; closed by ``close``, by
    ``async with``, or by the client:

        async with client.reader("orders") as reader:
            while await reader.has_message_available():
                message = await reader.read()

    There is nothing to acknowledge: a reader itself knows how far it is, and goes on behind the
    message that it read last when a connection broke. It reads each message once. To go on in
    another run of the program, keep ``message.id.to_bytes()`` and start there.
    """

    def __init__(self, topics: TopicGroup, queue: ReceiverQueue, spec: SubscriptionSpec) -> None:
        self.name = spec.settings.name or ""
        """The reader's name, random if the options have none."""
        self._topics = topics
        self._queue = queue

    @property
    def topics(self) -> list[str]:
        """The whole names of its current topics, each partition by itself, sorted."""
        return sorted(name for name, topic in self._topics.by_topic.items() if topic.is_open)

    @property
    def is_connected(self) -> bool:
        """Is there a broker for each of its topics at this moment?"""
        return all(topic.channel.is_connected for topic in self._topics.by_topic.values())

    @property
    def attachments(self) -> int:
        """How often brokers have begun to deliver its topics: once each at first, and again
        whenever a connection broke or a topic moved.

        With ``read_compacted``, messages that a compaction dropped in between were not read: the
        deletion of a key may be missing.
        """
        return sum(topic.channel.attachments for topic in self._topics.by_topic.values())

    @property
    def has_reached_end(self) -> bool:
        """Are all its topics terminated, and all their messages delivered?"""
        topics = self._topics.by_topic.values()
        return bool(topics) and all(topic.channel.has_reached_end for topic in topics)

    async def read(self) -> Message[ValueT]:
        """Wait for the next message and return it; limit the wait with ``asyncio.timeout``.

        A call that is cancelled takes no message with it. Raises ``Closed``, or the ``ClientError``
        that ended the reader.
        """
        # HOT: as in ``Consumer.receive``.
        return self._queue.get_ready() or await self._queue.get()

    async def read_many(
        self,
        max_messages: int = 100,
        max_wait_s: float = 0.1,
        *,
        max_bytes: int = BATCH_BYTES_MAX,
    ) -> list[Message[ValueT]]:
        """Return the next messages, as ``Consumer.receive_many`` does: as soon as there are
        ``max_messages`` or ``max_bytes``, and after ``max_wait_s`` seconds as many as there are."""
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
        """Is there a message that was not read yet, here or at a broker?

        Asks the brokers of all topics, unless a message is here. Raises ``ClientError``.
        """
        self._topics.check_open()
        # What is here needs no broker's word.
        if len(self._queue):
            return True
        topics = list(self._topics.by_topic.values())
        return any(await asyncio.gather(*[topic.has_more() for topic in topics]))

    async def seek(self, to: MessageId | int | datetime) -> None:
        """Move the reader to a message, or to a publish time: a ``datetime``, or milliseconds since
        1970-01-01 UTC.

        The next message read is that one, or the first one published then or later. A time,
        ``EARLIEST`` and ``LATEST`` move all topics, an id moves the topic that it names. Raises
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
