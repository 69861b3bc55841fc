"""Makes sure that a topic deduplicates before exactly-once is promised.

A producer cannot tell: the broker accepts sequence ids either way, and answers -1 as the last one
of a name both where it keeps none and where the name is new. Only the topic's statistics tell.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from geminga_protocol.pulsar.topics.topic_names import TopicName
from pyspark_geminga.rest import AdminClient
from pyspark_geminga.sink.errors import NotDeduplicated

ENABLED, RECOVERING = "Enabled", "Recovering"
# How long a process relies on an answer: a policy rarely changes while a query runs.
CHECK_AGAIN_S = 60.0
# A topic that was just loaded reads its log again to find the last sequence ids.
RECOVERY_TIMEOUT_S = 60.0
RECOVERY_POLL_S = 0.2
TOPICS_MAX = 10_000  # whose answers are remembered


@dataclass(eq=False, slots=True)
class DeduplicationCheck:
    """Asks the REST side of the cluster, and remembers the answer for a while."""

    _admin: AdminClient
    # By topic: when it was last found to deduplicate, by the clock of the event loop. Only topics
    # that do: one that does not is asked for again, as its policy may have been changed.
    _checked_s: dict[str, float] = field(default_factory=dict[str, float])

    async def __call__(self, topic: str) -> None:
        """Return if ``topic``, which has a producer, stores no message twice.

        Raises ``NotDeduplicated``, ``AdminRefused`` or ``OSError``.
        """
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        if self._checked_s.get(topic, -CHECK_AGAIN_S) + CHECK_AGAIN_S > started_s:
            return
        status = await self._status(topic)
        while status == RECOVERING and loop.time() < started_s + RECOVERY_TIMEOUT_S:
            await asyncio.sleep(RECOVERY_POLL_S)
            status = await self._status(topic)
        if status != ENABLED:
            raise NotDeduplicated(topic, status)
        if len(self._checked_s) >= TOPICS_MAX:
            # All at once: which ones are old is not worth keeping, and each costs one request.
            self._checked_s.clear()
        self._checked_s[topic] = loop.time()

    async def _status(self, topic: str) -> str:
        # The topic is loaded: it has a producer, which was opened just before.
        stats = await self._admin.get(TopicName.parse(topic), "stats")
        return "no such topic" if stats is None else str(stats.get("deduplicationStatus"))
