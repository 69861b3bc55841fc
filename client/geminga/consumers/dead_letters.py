"""Dead letters and retry letters: messages that a consumer publishes again, to another topic.

A dead letter is a message that was delivered too often; a retry letter is one that the consumer's
user wants delivered again later. Names of topics and properties are upstream's
(``RetryMessageUtil`` of its Java client), so that letters of either client work with the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from geminga.consumers.options import DeadLetterPolicy
from geminga.errors import ClientError
from geminga.messages import Message
from geminga.producers.options import ProducerOptions
from geminga.producers.producer import Producer
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)

DEAD_LETTER_SUFFIX = "-DLQ"
RETRY_LETTER_SUFFIX = "-RETRY"

# Properties of letters.
RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
# The same under the misspelt name that the Java client first used, and still writes.
ORIGIN_MESSAGE_ID_OF_OLD = "ORIGIN_MESSAGE_IDY_TIME"

# How letters are published unless the policy says otherwise, as by upstream's client. A letter may
# be larger than the broker takes in one entry, as its message was.
ALONE: ProducerOptions = {"batching": None, "chunking": True}

# So many dead letters wait to be published; the messages of further ones are delivered again.
LETTERS_WAITING_MAX = 10_000


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """Where letters of one schema go, and how they are published."""

    name: str
    schema: SchemaInfo | None
    # Created before the first letter, so that letters are kept for it; ``None`` for none.
    subscription: str | None
    producer: ProducerOptions


# Called with a message and ``None`` when its letter is stored, or the error for which it is not.
LetterCallback = Callable[[Message[Any], ClientError | None], None]


# A letter and its message are in two topics, and no step covers both. The order is always: publish
# the letter, wait for its receipt, acknowledge the message. A failure in between delivers the
# message again: its letter may be stored twice, but no message is lost.
class LetterPublisher:
    """Publishes the letters of one consumer.

    ``open_producer`` opens a producer for a topic of letters; ``spawn`` runs the task that
    publishes dead letters, one at a time in their order.
    """

    def __init__(
        self,
        policy: DeadLetterPolicy,
        subscription: str,
        open_producer: Callable[[LetterTopic], Awaitable[Producer[bytes]]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[object]],
    ) -> None:
        # A message that was delivered again more often than this is dead.
        self.redeliveries_max = policy.max_redeliver_count
        self._policy = policy
        self._subscription = subscription
        self._open_producer = open_producer
        self._spawn = spawn
        # One for each topic that letters go to, and each schema that they have.
        self._producers: dict[tuple[str, bytes | None], Producer[bytes]] = {}
        # Held while a producer is opened: two letters must not open one each.
        self._lock = asyncio.Lock()
        # Dead letters in the order in which their messages died; at most ``LETTERS_WAITING_MAX``.
        # The first of them is taken out before it is published.
        self._waiting: deque[tuple[Message[Any], LetterCallback]] = deque()
        # The task that publishes what waits, while something does.
        self._publishing: asyncio.Task[object] | None = None

    # ---- dead letters

    def add_dead(self, message: Message[Any], callback: LetterCallback) -> bool:
        """Have a message published to the dead-letter topic, and ``callback`` called afterwards.

        Says whether there is room for one more; ``callback`` is not called otherwise.
        """
        if len(self._waiting) >= LETTERS_WAITING_MAX:
            return False
        self._waiting.append((message, callback))
        # The task ends when nothing waits, so that a consumer without dead messages has none.
        if self._publishing is None:
            self._publishing = self._spawn(self._publish_waiting())
        return True

    async def _publish_waiting(self) -> None:
        try:
            while self._waiting:
                # One at a time, in their order: a topic of letters keeps the order in which
                # messages died.
                message, callback = self._waiting.popleft()
                try:
                    await self._publish_dead(message, self._properties(message, message.topic))
                except ClientError as error:
                    log.warning(
                        "dead letter not stored",
                        extra={"letter": str(message.id), "reason": str(error)},
                    )
                    callback(message, error)
                else:
                    callback(message, None)
        finally:
            # Also after a cancellation. No letter can be added between the last look at the queue
            # and this line, since nothing is awaited there.
            self._publishing = None

    async def _publish_dead(self, message: Message[Any], properties: Mapping[str, str]) -> None:
        topic = self._policy.dead_letter_topic
        if topic is None:
            topic = f"{message.topic}-{self._subscription}{DEAD_LETTER_SUFFIX}"
        policy = self._policy
        # The policy's options replace single ones of ``ALONE``, and leave the others.
        options = ALONE | (policy.dead_letter_producer or ALONE)
        letters = LetterTopic(topic, message.schema, policy.initial_subscription, options)
        await self._publish(letters, message, properties, None)

    # ---- retry letters

    async def retry(
        self, message: Message[Any], delay_s: float, more: Mapping[str, str] | None
    ) -> None:
        """Publish a message to the retry-letter topic, which delivers it after ``delay_s``; or to
        the dead-letter topic, if it was retried too often. Raises ``ClientError``."""
        assert self._policy.retry_letter_topic is not None
        # How often it was retried by a letter; 0 where the property is no number.
        noted = message.properties.get(RECONSUME_TIMES, "0")
        times = 1 + (int(noted) if noted.isascii() and noted.isdigit() else 0)
        properties = {
            # As upstream's client: a letter that was retried names the topic that its user
            # consumes, one that was dead at once the partition that the message was in.
            **self._properties(message, str(TopicName.parse(message.topic).base)),
            # In this order, of which the last one wins: the user cannot overwrite the count,
            # without which a message would be retried for ever.
            **(more or {}),
            RECONSUME_TIMES: str(times),
            DELAY_TIME: str(int(delay_s * 1000)),
        }
        if times > self._policy.max_redeliver_count:
            await self._publish_dead(message, properties)
        else:
            options = ALONE | (self._policy.retry_letter_producer or ALONE)
            topic = LetterTopic(self._policy.retry_letter_topic, message.schema, None, options)
            await self._publish(topic, message, properties, delay_s)

    def _properties(self, message: Message[Any], topic: str) -> dict[str, str]:
        """The properties of a letter: where its message came from, then the message's own.

        The message may be a letter itself, whose properties name the first message: they win.
        """
        return {
            REAL_TOPIC: topic,
            REAL_SUBSCRIPTION: self._subscription,
            ORIGIN_MESSAGE_ID_OF_OLD: str(message.id),
            ORIGIN_MESSAGE_ID: str(message.id),
            **message.properties,
        }

    async def _publish(
        self,
        topic: LetterTopic,
        message: Message[Any],
        properties: Mapping[str, str],
        delay_s: float | None,
    ) -> None:
        """Publish the data of a message, with its keys and event time. Raises ``ClientError``."""
        # By the schema, too: a producer has one schema for its life, and messages of several
        # versions of the topic's schema may die.
        key = topic.name, None if topic.schema is None else topic.schema.definition
        async with self._lock:
            if key not in self._producers:
                self._producers[key] = await self._open_producer(topic)
            producer = self._producers[key]
        # Outside of the lock: opening one topic of letters does not wait for letters of another.
        await producer.send(
            None if message.is_null else message.data,
            key=message.key if message.is_key_text else message.key_bytes,
            ordering_key=message.ordering_key,
            properties=properties,
            event_time=message.event_time_ms,
            deliver_after=delay_s,
        )

    async def close(self) -> None:
        """Publish nothing more. Messages whose letters still wait are delivered again, to another
        consumer."""
        self._waiting.clear()
        if self._publishing is not None:
            self._publishing.cancel()
        # Closed by the consumer that they belong to; the client would close them only at its own
        # end.
        producers, self._producers = self._producers, {}
        await asyncio.gather(*[producer.close() for producer in producers.values()])


def publishes_to(policy: DeadLetterPolicy, subscription: str, topic: TopicName) -> bool:
    """Is ``topic`` a dead-letter topic of this subscription, for messages of any topic?"""
    # A name without a partition: letters may go to a partitioned topic, whose partitions are left
    # out with it.
    if policy.dead_letter_topic is not None:
        return topic == TopicName.parse(policy.dead_letter_topic).base
    return topic.local.endswith(f"-{subscription}{DEAD_LETTER_SUFFIX}")


def with_topics(
    policy: DeadLetterPolicy, topics: Iterable[TopicName], subscription: str
) -> DeadLetterPolicy:
    """The policy with the names of its topics, which a consumer with retry letters shares.

    Without retry letters it stays as it is: each topic then has a dead-letter topic of its own.
    """
    if not policy.retry_letters:
        return policy
    # Upstream's client keeps the topics of a consumer sorted, and takes the first one's name.
    prefix = f"{min(map(str, topics))}-{subscription}"
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or prefix + DEAD_LETTER_SUFFIX,
        retry_letter_topic=policy.retry_letter_topic or prefix + RETRY_LETTER_SUFFIX,
    )
