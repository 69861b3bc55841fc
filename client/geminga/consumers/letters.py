"""Letters: messages that a consumer publishes again, to a dead-letter or a retry-letter topic.

Names of topics and properties are upstream's (``RetryMessageUtil`` of its Java client), so that
other clients' letters are understood here and ours there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from geminga.consumers.options import DeadLetterPolicy
from geminga.errors import ClientError
from geminga.messages import Message

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

# Dead letters that wait to be published; further ones are delivered again instead.
LETTERS_WAITING_MAX = 10_000


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


class Letters:
    """Posts the letters of one consumer.

    ``open_box`` opens the way to a topic, where a subscription of the second name is made if there
    is one; ``spawn`` runs the task that posts dead letters, one at a time in their order.
    """

    def __init__(
        self,
        policy: DeadLetterPolicy,
        subscription: str,
        open_box: Callable[[str, str | None], Awaitable[Letterbox]],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[object]],
    ) -> None:
        self._policy = policy
        self._subscription = subscription
        self._open_box = open_box
        self._spawn = spawn
        # One for the dead letters of each topic, and one for the retry letters.
        self._boxes: dict[str, Letterbox] = {}
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
                    await self._post_dead(message, self._properties(message))
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
        box = await self._box(topic, self._policy.initial_subscription)
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
            **self._properties(message),
            **(more or {}),
            RECONSUME_TIMES: str(times),
            DELAY_TIME: str(int(delay_s * 1000)),
        }
        if times > self._policy.max_redeliver_count:
            await self._post_dead(message, properties)
        else:
            box = await self._box(self._policy.retry_letter_topic, None)
            await box.post(message, properties, delay_s)

    def _properties(self, message: Message[Any]) -> dict[str, str]:
        """Its own, and where it came from first: a letter may be made of a letter."""
        return {
            REAL_TOPIC: message.topic,
            REAL_SUBSCRIPTION: self._subscription,
            ORIGIN_MESSAGE_ID_OF_OLD: str(message.id),
            ORIGIN_MESSAGE_ID: str(message.id),
            **message.properties,
        }

    async def _box(self, topic: str, subscription: str | None) -> Letterbox:
        async with self._turn:
            if topic not in self._boxes:
                self._boxes[topic] = await self._open_box(topic, subscription)
            return self._boxes[topic]

    async def close(self) -> None:
        """Post nothing more; what waits is delivered again, to another consumer."""
        self._waiting.clear()
        if self._posting is not None:
            self._posting.cancel()
        boxes, self._boxes = self._boxes, {}
        await asyncio.gather(*[box.close() for box in boxes.values()])


def reconsume_times(message: Message[Any]) -> int:
    """How often a message was consumed again by a retry letter; 0 for what says no number."""
    times = message.properties.get(RECONSUME_TIMES, "0")
    return int(times) if times.isascii() and times.isdigit() else 0


def with_topics(policy: DeadLetterPolicy, first_topic: str, subscription: str) -> DeadLetterPolicy:
    """The policy with the names of its topics, where retry letters need them known beforehand."""
    if not policy.retry_letters:
        return policy
    prefix = f"{first_topic}-{subscription}"
    return DeadLetterPolicy(
        policy.max_redeliver_count,
        policy.dead_letter_topic or prefix + DEAD_LETTER_SUFFIX,
        retry_letters=True,
        retry_letter_topic=policy.retry_letter_topic or prefix + RETRY_LETTER_SUFFIX,
        initial_subscription=policy.initial_subscription,
    )
