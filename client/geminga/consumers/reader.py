"""The reader that users hold: it reads topics from a place of its choice, by no subscription."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from geminga.consumers.consumer import BATCH_BYTES_MAX, TopicsReceiver
from geminga.messages import Message

ValueT = TypeVar("ValueT")


# A reader is a consumer of a subscription of its own, which is not durable. What makes it a reader
# is ``SubscriptionSpec.is_reader``: ``TopicConsumer`` then acknowledges what is taken, and leaves
# out what was read before. Its place, which it names at each attachment, is a ``ReadPosition``.
class Reader(TopicsReceiver[ValueT]):
    """Reads topics from a place of its choice. Made by ``Client.reader``; closed by ``close``, by
    ``async with``, or by the client:

        async with client.reader("orders") as reader:
            while await reader.has_message_available():
                message = await reader.read()

    There is nothing to acknowledge: a reader itself knows how far it is, and goes on behind the
    message that it read last when a connection broke. It reads each message once. To go on in
    another run of the program, keep ``message.id.to_bytes()`` and start there.
    """

    @property
    def attachments(self) -> int:
        """How often brokers have begun to deliver its topics: once each at first, and again
        whenever a connection broke or a topic moved.

        With ``read_compacted``, messages that a compaction dropped in between were not read: the
        deletion of a key may be missing.
        """
        return sum(topic.channel.attachments for topic in self._topics.by_topic.values())

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
        return await self._next_messages(max_messages, max_bytes, max_wait_s)

    async def has_message_available(self) -> bool:
        """Is there a message that was not read yet, here or at a broker?

        Asks the brokers of all topics, unless a message is here. Raises ``ClientError``.
        """
        self._topics.check_open()
        # What is here needs no broker's word.
        if len(self._queue):
            return True
        # All at a time: a broker that does not answer must not keep the others waiting.
        topics = list(self._topics.by_topic.values())
        return any(await asyncio.gather(*[topic.has_more() for topic in topics]))
