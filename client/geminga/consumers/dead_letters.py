"""Dead letters and retry letters: messages that a consumer publishes again, to another topic.

Names of topics and properties are upstream's (``RetryMessageUtil`` of its Java client), so that
other clients' letters are understood here and ours there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from geminga.consumers.options import DeadLetterPolicy
from geminga.errors import ClientError
from geminga.messages import Message
from geminga.producers.options import ProducerOptions
from geminga.schemas.schema import SchemaInfo
from geminga_protocol.pulsar.topic_names import TopicName

log = logging.getLogger(__name__)

DEAD_LETTER_SUFFIX = "-DLQ"
RETRY_LETTER_SUFFIX = "-RETRY"

RECONSUME_TIMES = "RECONSUMETIMES"
DELAY_TIME = "DELAY_TIME"
REAL_TOPIC = "REAL_TOPIC"
REAL_SUBSCRIPTION = "REAL_SUBSCRIPTION"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
# What the Java client wrote before it found its slip, and still writes.
ORIGIN_MESSAGE_ID_OF_OLD = "ORIGIN_MESSAGE_IDY_TIME"

# What upstream's client publishes letters with: a letter may be larger than the broker takes, as
# its message was.
ALONE: ProducerOptions = {"batching": None, "chunking": True}

# Dead letters that wait to be published; further ones are delivered again instead.
LETTERS_WAITING_MAX = 10_000


@dataclass(frozen=True, slots=True)
class LetterTopic:
    """Where letters of one schema go, and how they are published. ``subscription`` is made first,
    if it is not ``None``."""

    name: str
    schema: SchemaInfo | None
    subscription: str | None
    producer: ProducerOptions


class Letterbox(Protocol):
    """What is needed of a producer to post letters."""

    async def post(
        self, message: Message[Any], properties: Mapping[str, str], delay_s: float | None
    ) -> None:
        """Publish the data of a message, with its keys and event time. Raises ``ClientError``."""
        ...

    async def close(self) -> None:
        """Post nothing more."""
        ...


# What becomes of a letter: it is stored, or the error for which it is not.
Posted = Callable[[Message[Any], ClientError | None], None]


class LetterPublisher:
    """Posts the letters of one consumer.

    ``open_box`` opens the way to a topic; ``spawn`` runs the task that posts dead letters, one at a
    time in their order.
    """

    def __init__(
        self,
        policy: DeadLetterPolicy,
        subscription: str,
        open_box: Callable[[LetterTopic], Awaitable[Letterbox]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[object]],
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._open_box = open_box
        self._spawn = spawn
        # One for each topic that letters go to, and each schema that they have.
        self._boxes: dict[tuple[str, bytes | None], Letterbox] = {}
        self._waiting: deque[tuple[Message[Any], Posted]] = deque()
        self._posting: asyncio.Task[object] | None = None
        self._turn = asyncio.Lock()  # of two that want a box, one opens it

    @property
    def redeliveries_max(self) -> int:
        """A message that was delivered more often again is dead."""
        return self._policy.max_redeliver_count

    # ---- dead letters

    def bury(self, message: Message[Any], posted: Posted) -> bool:
        """Publish a message to the dead-letter topic, and say what became of it; not at once.

        Says whether there is room for one more.
        """
        if len(self._waiting) >= LETTERS_WAITING_MAX:
            return False
        self._waiting.append((message, posted))
        if self._posting is None:
            self._posting = self._spawn(self._bury_waiting())
        return True

    async def _bury_waiting(self) -> None:
        try:
            while self._waiting:
                message, posted = self._waiting.popleft()
                try:
                    await self._post_dead(message, self._properties(message, message.topic))
                except ClientError as error:
                    log.warning(
                        "dead letter not stored",
                        extra={"letter": str(message.id), "reason": str(error)},
                    )
                    posted(message, error)
                else:
                    posted(message, None)
        finally:
            self._posting = None

    async def _post_dead(self, message: Message[Any], properties: Mapping[str, str]) -> None:
        topic = self._policy.dead_letter_topic
        if topic is None:
            topic = f"{message.topic}-{self._subscription}{DEAD_LETTER_SUFFIX}"
        policy = self._policy
        options = ALONE | (policy.dead_letter_producer or ALONE)
        box = await self._box(
            LetterTopic(topic, message.schema, policy.initial_subscription, options)
        )
        await box.post(message, properties, None)

    # ---- retry letters

    async def retry(
        self, message: Message[Any], delay_s: float, more: Mapping[str, str] | None
    ) -> None:
        """Publish a message to the retry-letter topic, from which it comes after ``delay_s``; to
        the dead-letter topic if that was done too often. Raises ``ClientError``."""
        assert self._policy.retry_letter_topic is not None
        times = reconsume_times(message) + 1
        properties = {
            # Upstream's client says here which topic its user consumes, and in a letter that was
            # dead at once which partition the message was in.
            **self._properties(message, str(TopicName.parse(message.topic).base)),
            **(more or {}),
            RECONSUME_TIMES: str(times),
            DELAY_TIME: str(int(delay_s * 1000)),
        }
        if times > self._policy.max_redeliver_count:
            await self._post_dead(message, properties)
        else:
            options = ALONE | (self._policy.retry_letter_producer or ALONE)
            topic = LetterTopic(self._policy.retry_letter_topic, message.schema, None, options)
            box = await self._box(topic)
            await box.post(message, properties, delay_s)

    def _properties(self, message: Message[Any], topic: str) -> dict[str, str]:
        """Its own, and where it came from first: a letter may be made of a letter."""
        return {
            REAL_TOPIC: topic,
            REAL_SUBSCRIPTION: self._subscription,
            ORIGIN_MESSAGE_ID_OF_OLD: str(message.id),
            ORIGIN_MESSAGE_ID: str(message.id),
            **message.properties,
        }

    async def _box(self, topic: LetterTopic) -> Letterbox:
        key = topic.name, None if topic.schema is None else topic.schema.definition
        async with self._turn:
            if key not in self._boxes:
                self._boxes[key] = await self._open_box(topic)
            return self._boxes[key]

    async def close(self) -> None:
        """Post nothing more; what waits is delivered again, to another consumer."""
        self._waiting.clear()
        if self._posting is not None:
            self._posting.cancel()
        boxes, self._boxes = self._boxes, {}
        await asyncio.gather(*[box.close() for box in boxes.values()])


def publishes_to(policy: DeadLetterPolicy, subscription: str, topic: TopicName) -> bool:
    """Would dead letters of this subscription go to ``topic``, from whichever topic they come?"""
    if policy.dead_letter_topic is not None:
        return topic == TopicName.parse(policy.dead_letter_topic).base
    return topic.local.endswith(f"-{subscription}{DEAD_LETTER_SUFFIX}")


def reconsume_times(message: Message[Any]) -> int:
    """How often a message was consumed again by a retry letter; 0 for what says no number."""
    times = message.properties.get(RECONSUME_TIMES, "0")
    return int(times) if times.isascii() and times.isdigit() else 0


def with_topics(
    policy: DeadLetterPolicy, topics: Iterable[TopicName], subscription: str
) -> DeadLetterPolicy:
    """The policy with the names of its topics, where retry letters need them known beforehand."""
    if not policy.retry_letters:
        return policy
    # Upstream's client keeps the topics of a consumer sorted.
    prefix = f"{min(map(str, topics))}-{subscription}"
    return replace(
        policy,
        dead_letter_topic=policy.dead_letter_topic or prefix + DEAD_LETTER_SUFFIX,
        retry_letter_topic=policy.retry_letter_topic or prefix + RETRY_LETTER_SUFFIX,
    )
