"""The consumer that users hold: it receives the messages of topics, and acknowledges them.

Under it a ``TopicGroup`` has a part for each topic and partition, and a ``ReceiverQueue`` the
messages that have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Generic, Self, TypeVar, cast

from geminga._channels.pending.acks import AckGroup
from geminga.consumers.receiver_queue import ReceiverQueue
from geminga.consumers.topic_consumer import SubscriptionSpec, TopicConsumer
from geminga.consumers.topic_group import TopicGroup
from geminga.errors import Closed
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import EARLIEST, LATEST, MessageId
from geminga.messages import Message

ValueT = TypeVar("ValueT")

# So many bytes of data ``receive_many`` returns at most, as upstream's batch receive
# (``BatchReceivePolicy.DEFAULT_POLICY``).
BATCH_BYTES_MAX = 10 * 1024 * 1024


# Nothing below calls a consumer or a reader: messages come to the user through the queue alone, and
# what the user says about a message goes to the topic that the message names. So these classes have
# no state of their own that changes while messages arrive.
class TopicsReceiver(AsyncClosable, Generic[ValueT]):
    """What consumers and readers have in common: topics, and a queue with what came of them."""

    def __init__(self, topics: TopicGroup, queue: ReceiverQueue, spec: SubscriptionSpec) -> None:
        self.name = spec.settings.name or ""
        """The name by which brokers know it, random if the options have none."""
        self._topics = topics
        self._queue = queue
        self._spec = spec

    @property
    def topics(self) -> list[str]:
        """The whole names of its current topics, each partition by itself, sorted."""
        return sorted(name for name, topic in self._topics.by_topic.items() if topic.is_open)

    @property
    def is_connected(self) -> bool:
        """Is there a broker for each of its topics at this moment?"""
        return all(topic.channel.is_connected for topic in self._topics.by_topic.values())

    @property
    def has_reached_end(self) -> bool:
        """Are all its topics terminated, and all their messages delivered?"""
        topics = self._topics.by_topic.values()
        # Without topics (of a pattern that matches none) nothing has ended.
        return bool(topics) and all(topic.channel.has_reached_end for topic in topics)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[ValueT]:
        """The next message; ``async for`` ends when this is closed.

        Raises the ``ClientError`` that ended it.
        """
        # HOT: as in ``Consumer.receive``.
        try:
            return self._queue.get_ready() or await self._queue.get()
        # ``Closed`` is the end that the user asked for. Any other error ended the consumer by
        # itself, and must not look like the end of the messages.
        except Closed:
            raise StopAsyncIteration from None

    async def _next_messages(
        self, messages_max: int, data_bytes_max: int, wait_s: float
    ) -> list[Message[ValueT]]:
        if messages_max < 1:
            raise ValueError(f"max_messages must be at least 1, not {messages_max}")
        if messages_max > len(self._queue):
            # Up to half of the permits may wait to be granted. They must not wait now: the messages
            # for them may be the ones that are missing.
            for topic in self._topics.by_topic.values():
                topic.channel.grant_permits()
        # More can never be in the queue, and a wait for more would always last for the whole
        # ``wait_s``.
        capacity = min(messages_max, self._spec.settings.receiver_queue_size)
        messages = await self._queue.get_many(capacity, data_bytes_max, wait_s)
        return cast(list[Message[ValueT]], messages)

    async def seek(self, to: MessageId | int | datetime) -> None:
        """Move to a message, or to a publish time: a ``datetime``, or milliseconds since 1970-01-01
        UTC. A consumer moves its subscription with it.

        The next message is that one, or the first one published then or later; messages that were
        fetched before are dropped. A time, ``EARLIEST`` and ``LATEST`` move all topics, an id moves
        the topic that it names. Raises ``ClientError``; when the connection broke, it is not known
        whether the topic was moved.
        """
        self._topics.check_open()
        if isinstance(to, datetime):
            to = int(to.timestamp() * 1000)
        if isinstance(to, int) or to in (EARLIEST, LATEST):
            topics = list(self._topics.by_topic.values())
        else:
            # An id belongs to one log: in another topic it would name another message, or none.
            topics = [self._topics.topic_of(to)]
        # Topics that have moved stay where they are when another one fails: they had no common
        # place that all could go back to.
        await asyncio.gather(*[topic.seek(to) for topic in topics])

    async def last_message_ids(self) -> dict[str, MessageId]:
        """The id of the last message of each topic; its ``entry_id`` is -1 if there is none.

        Raises ``ClientError``.
        """
        return await self._topics.last_message_ids()

    async def close(self) -> None:
        """Leave the brokers. Closing twice is harmless."""
        await self._topics.close()


class Consumer(TopicsReceiver[ValueT]):
    """Receives the messages of topics for a subscription, and acknowledges them. Made by
    ``Client.consumer``; closed by ``close``, by ``async with``, or by the client:

        async with client.consumer("orders", "billing", type="shared") as consumer:
            async for message in consumer:
                try:
                    await handle(message.value)
                except Exception:
                    consumer.nack(message)  # it is delivered again later
                else:
                    consumer.ack(message)

    Delivery is at least once: after a connection broke, everything that was not acknowledged comes
    again, also messages that ``receive`` has returned before. Topics and partitions that have
    messages take turns.
    """

    def __init__(self, topics: TopicGroup, queue: ReceiverQueue, spec: SubscriptionSpec) -> None:
        super().__init__(topics, queue, spec)
        self.subscription = spec.subscription
        """The name of the subscription."""

    @property
    def is_active(self) -> bool:
        """Is this the active consumer, in at least one topic?

        Of the consumers of a Failover subscription one is active in each topic; of other types each
        consumer is.
        """
        return any(topic.channel.is_active for topic in self._topics.by_topic.values())

    @property
    def activations(self) -> int:
        """How often it became the active consumer of a Failover subscription, over all topics.

        If the number has grown, another consumer may have been active in between, also where
        ``is_active`` was true each time: for example when the connection broke and came back.
        """
        return sum(topic.channel.activations for topic in self._topics.by_topic.values())

    def is_active_in(self, topic: str) -> bool:
        """Is this the active consumer in ``topic``, the whole name of a topic or partition?"""
        # A topic that has left the consumer since is no error: it is active there no more.
        known = self._topics.by_topic.get(topic)
        return known is not None and known.channel.is_active

    # ---- receiving

    async def receive(self) -> Message[ValueT]:
        """Wait for the next message and return it; limit the wait with ``asyncio.timeout``.

        A call that is cancelled, by a timeout or otherwise, takes no message with it. Raises
        ``Closed``, or the ``ClientError`` that ended the consumer.
        """
        # HOT: a message that is there already needs no second coroutine, which takes 0.2 us.
        return self._queue.get_ready() or await self._queue.get()

    async def receive_many(
        self,
        max_messages: int = 100,
        max_wait_s: float = 0.1,
        *,
        max_bytes: int = BATCH_BYTES_MAX,
    ) -> list[Message[ValueT]]:
        """Return the next messages: as soon as there are ``max_messages`` or ``max_bytes`` of data,
        and after ``max_wait_s`` seconds as many as there are, which may be none.

        A message that has more than ``max_bytes`` comes alone. A call that is cancelled takes no
        message with it. Raises ``Closed``, or the ``ClientError`` that ended the consumer.
        """
        return await self._next_messages(max_messages, max_bytes, max_wait_s)

    def pause(self) -> None:
        """Ask brokers for no more messages; those that were asked for can still be received."""
        # For the topics that join later, too.
        self._topics.is_paused = True
        for topic in self._topics.by_topic.values():
            topic.channel.pause()

    def resume(self) -> None:
        """Ask for messages again."""
        self._topics.is_paused = False
        for topic in self._topics.by_topic.values():
            topic.channel.resume()

    # ---- acknowledging

    def ack(self, message: Message[Any] | MessageId) -> None:
        """Acknowledge a message: it is done with, and need not be delivered again.

        The client tells the broker within ``ack_group_s`` seconds, without a confirmation (see
        ``ack_confirmed``); without ``batch_index_acks`` it does so for a batch once all its
        messages are acknowledged. Raises ``NotAcknowledgeable`` for the id of a message of another
        topic or in a batch of unknown size, or the error that ended the consumer.
        """
        # HOT: the channel only collects it, and no coroutine is made.
        topic = self._topics.topic_of(message)
        topic.acknowledge(message, topic.channel)

    def ack_cumulative(self, message: Message[Any] | MessageId) -> None:
        """Acknowledge a message and all before it in its topic; for Exclusive and Failover
        subscriptions.

        Raises ``NotAcknowledgeable`` or the error that ended the consumer.
        """
        topic = self._topics.topic_of(message)
        topic.acknowledge_up_to(message, topic.channel)

    async def ack_confirmed(
        self, *messages: Message[Any] | MessageId, cumulative: bool = False
    ) -> None:
        """Acknowledge messages, or with ``cumulative`` each and all before it, and wait until the
        broker has stored that.

        Without ``batch_index_acks`` the broker is not told of a batch, and nothing is waited for,
        before all its messages are acknowledged. Raises ``ConnectionLost``, ``RequestTimedOut`` or
        ``BrokerRefused`` when it is not known whether the broker has stored it; the broker is then
        told again later, and the same call may be made again.
        """
        self._topics.check_open()
        # In groups of their own: those of the channels may leave at any time, unconfirmed.
        groups: dict[TopicConsumer, AckGroup] = {}
        for message in messages:
            topic = self._topics.topic_of(message)
            group = groups.setdefault(topic, AckGroup())
            if cumulative:
                topic.acknowledge_up_to(message, group)
            else:
                topic.acknowledge(message, group)
        await asyncio.gather(
            # One group for each topic, since each may have another broker.
            *[topic.channel.acknowledge_confirmed(each.take()) for topic, each in groups.items()]
        )

    def nack(self, message: Message[Any] | MessageId) -> None:
        """Refuse a message: it is delivered again after ``nack_delay_s``.

        Messages that came in one batch are delivered again together. Raises
        ``NotAcknowledgeable`` or the error that ended the consumer.
        """
        self._topics.topic_of(message).refuse(message)

    async def reconsume_later(
        self,
        message: Message[Any],
        delay_s: float,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Have a message delivered again after ``delay_s`` seconds, by way of the retry-letter
        topic.

        The consumer publishes it there, with more ``properties`` if there are any, and acknowledges
        it. A message for which that was done ``max_redeliver_count`` times is published to the
        dead-letter topic instead. Raises ``ClientError`` when it could not be published, and does
        not acknowledge it then; ``ValueError`` for a consumer without ``retry_letters``.
        """
        # First of all: it raises for a consumer that has ended, which must not publish a letter for
        # a message that it cannot acknowledge any more.
        topic = self._topics.topic_of(message)
        letters, policy = self._spec.letters, self._spec.settings.dead_letters
        if letters is None or policy is None or not policy.retry_letters:
            raise ValueError("reconsume_later needs dead_letters with retry_letters")
        # In this order: a message that was acknowledged before its letter is stored could be lost.
        # A failure in between delivers it twice.
        await letters.retry(message, delay_s, properties)
        topic.acknowledge(message, topic.channel)

    def redeliver_unacknowledged(self) -> None:
        """Ask for everything again that was delivered to this consumer and not acknowledged."""
        self._topics.check_open()
        for topic in self._topics.by_topic.values():
            topic.channel.redeliver_all()

    # ---- the subscription

    async def last_message_id(self) -> MessageId:
        """The id of the last message of its one topic; its ``entry_id`` is -1 if there is none.

        Raises ``ClientError``, and ``ValueError`` if there are more topics (``last_message_ids``).
        """
        # Of a partitioned topic each partition has its own: they have no order among each other.
        ids = await self.last_message_ids()
        if len(ids) != 1:
            raise ValueError(f"the consumer has {len(ids)} topics: ask for last_message_ids")
        return next(iter(ids.values()))

    async def unsubscribe(self) -> None:
        """Delete the subscription in all topics, with its backlog, and close the consumer.

        Raises ``ClientError``.
        """
        self._topics.check_open()
        # A copy: a topic whose channel ends may leave the group meanwhile.
        topics = list(self._topics.by_topic.values())
        # The requests of all attached topics are written in this turn. The first answer then ends
        # the group (``TopicGroup.end``), which closes the other channels.
        await asyncio.gather(*[topic.channel.unsubscribe() for topic in topics])
        await self.close()

    # ---- closing

    async def close(self) -> None:
        """Tell brokers what was acknowledged, and leave them; the subscription stays. Closing twice
        is harmless."""
        # First the topics, so that no further message can become a letter.
        await super().close()
        if self._spec.letters is not None:
            # Behind the topics: their last messages may still have become letters until then.
            await self._spec.letters.close()
