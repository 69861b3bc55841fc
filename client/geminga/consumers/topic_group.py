"""The topics of one consumer, reader or table view: opened together, and more as they appear.

Partitions are added to topics, topics to namespaces: the group asks its source again and again
which topics there are, opens those that are new and closes those that are gone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from geminga._channels.registry import Channels
from geminga.consumers.table_rows import Inbox
from geminga.consumers.topic_consumer import SubscriptionSpec, TopicConsumer
from geminga.consumers.topic_sources import TopicSource
from geminga.errors import BrokerRefused, ClientError, Closed, NotAcknowledgeable
from geminga.message_ids import EARLIEST, LATEST, MessageId, from_proto
from geminga.messages import Message
from geminga_protocol.pulsar.enums import InitialPosition
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)

# So many topics are opened at the same time: each takes a lookup and a SUBSCRIBE, and more would
# wait at the broker instead of here.
OPENING_MAX = 100


# The life of one topic in a group, once the group is open:
#
#   _join ─▶ in by_topic, not open ─▶ accepted: is_open ─▶ its channel ends ─▶ the group ends
#                    │                       │                  │
#                    │ refused               │ not listed       │ deleted, with a pattern
#                    ▼                       ▼                  ▼
#            taken out of by_topic; a later refresh may find the topic again
#
# While the group is being opened, a topic that is refused is the end of the group.
class TopicGroup:
    """A ``TopicConsumer`` for each topic that ``source`` names.

    All of them put their messages into ``queue``, and share its ``receiver_queue_size``. The group
    ends with the first of its topics that ends; where a pattern chose the topics, one that is
    deleted only leaves the group.
    """

    def __init__(
        self,
        channels: Channels,
        source: TopicSource,
        spec: SubscriptionSpec,
        queue: Inbox,
    ) -> None:
        # By whole names of topics and partitions; some may not be open yet.
        self.by_topic: dict[str, TopicConsumer] = {}
        # Why the group ended; ``None`` until then.
        self.error: ClientError | None = None
        # Does the consumer ask for no messages? It pauses its topics itself; those that join it
        # later are paused here.
        self.is_paused = False
        self._channels = channels
        self._source = source
        self._spec = spec
        self._queue = queue
        # What logs and errors call it by.
        self._title = f"the consumer of {source} for {spec.subscription}"
        # Asks which topics there are, if these can change.
        self._refreshing: asyncio.Task[object] | None = None

    # ---- opening, and growing

    async def open(self) -> None:
        """Find the topics and have brokers accept all of them.

        Raises ``ValueError`` for a start that is a message, where there are several topics; or the
        ``ClientError`` for which a topic could not be opened, or ended while others were opened.
        None is open then.
        """
        # Entered before the first await: a client that is closed meanwhile closes this group too.
        self._channels.owners[self] = self.close
        try:
            topics = await self._channels.retrying(self._find_topics)
            await asyncio.gather(*self._openings(topics, self._spec))
            # A topic that was accepted may have ended while the others were being opened.
            self.check_open()
        except BaseException as error:
            # Read before ``close`` sets it.
            ended = self.error
            await self.close()
            if ended is not None and isinstance(error, Closed):
                # This topic was closed because another one ended: that is the reason to raise.
                raise ended from None
            raise
        if self._source.can_change:
            self._refreshing = self._channels.spawn(self._refresh(), name=self._title)

    async def _find_topics(self) -> list[TopicName]:
        """The topics to begin with; raises ``ValueError`` where the start does not fit to them."""
        self.check_open()  # the client may be closed between two attempts
        topics = await self._source.topics()
        start = self._spec.start
        if len(topics) > 1 and start not in (None, EARLIEST, LATEST):
            raise ValueError(f"{len(topics)} topics have no message {start} in common to start at")
        return topics

    async def _refresh(self) -> None:
        """Ask again and again which topics there are, until the group ends."""
        refresh_s = wait_s = self._spec.settings.topics_refresh_s
        backoff = self._channels.backoff()
        while True:
            await self._source.wait(wait_s)
            try:
                topics = await self._source.topics()
            except ClientError as error:
                log.info("topics not known", extra={"of": self._title, "reason": str(error)})
                # No broker reports changes now: ask again sooner than usual.
                wait_s = min(backoff.next_s(), refresh_s)
                continue
            backoff.reset()
            wait_s = refresh_s
            if self._source.can_shrink:
                gone = self.by_topic.keys() - {str(topic) for topic in topics}
                # Sorted, since the order of a set differs from run to run.
                for name in sorted(gone):
                    topic = self.by_topic.get(name)
                    if topic is None:  # it left while another one was being closed
                        continue
                    # Removed before the wait: what happens to it meanwhile is no longer of the
                    # group, and its permits go to the other topics at once.
                    self._remove(name)
                    await topic.close()
            await self._join([each for each in topics if str(each) not in self.by_topic])

    async def _join(self, topics: list[TopicName]) -> None:
        """Consume topics that are new, from their first messages on: these were published after the
        consumer was opened, though before it knew of the topic."""
        settings = replace(self._spec.settings, initial_position=InitialPosition.EARLIEST)
        start = None if self._spec.start is None else EARLIEST
        from_first = replace(self._spec, settings=settings, start=start)
        openings = self._openings(topics, from_first)
        # All are awaited before any is looked at: a topic that is refused must not keep those
        # behind it from being opened.
        for topic, error in zip(
            topics, await asyncio.gather(*openings, return_exceptions=True), strict=True
        ):
            if isinstance(error, ClientError):  # the next refresh tries again
                self._remove(str(topic))
                log.warning("topic not opened", extra={"topic": str(topic), "reason": str(error)})
            elif isinstance(error, BaseException):
                raise error

    def _openings(self, topics: list[TopicName], spec: SubscriptionSpec) -> list[Any]:
        """Add topics to the group; gives what has to be awaited to open them."""
        free = asyncio.Semaphore(OPENING_MAX)

        async def open_one(topic: TopicConsumer) -> None:
            async with free:
                await topic.channel.open()
                topic.is_open = True

        added = [
            TopicConsumer(self._channels, each, spec, self._queue, self._topic_ended)
            for each in topics
        ]
        # Entered before they are opened: permits are shared among all of them from their first
        # SUBSCRIBE on, and a group that is closed meanwhile closes them too.
        self.by_topic |= {each.topic: each for each in added}
        self._share_permits()
        # A topic that joins a paused consumer must not bring messages before ``resume``.
        if self.is_paused:
            for each in added:
                each.channel.pause()
        return [open_one(each) for each in added]

    def _share_permits(self) -> None:
        """Give each topic its share of the queue: at least one message."""
        if self.by_topic:
            size = self._spec.settings.receiver_queue_size
            # Also among topics that are not open yet. With more topics than places in the queue the
            # sum is larger than the queue: a topic without a permit would never be read.
            share = max(1, size // len(self.by_topic))
            for topic in self.by_topic.values():
                topic.channel.limit_permits(share)

    def _remove(self, name: str) -> None:
        if self.by_topic.pop(name, None) is not None:
            self._share_permits()

    # ---- for consumers, readers and views

    def check_open(self) -> None:
        """Raise the error that ended the group, if one did."""
        if self.error is not None:
            raise self.error

    def topic_of(self, message: Message[Any] | MessageId) -> TopicConsumer:
        """The topic that a message came from.

        Raises ``NotAcknowledgeable`` where that is not known, or the error that ended the group.
        """
        # HOT: every acknowledgement comes here. ``check_open`` is written out.
        if self.error is not None:
            raise self.error
        name = message.topic
        topic = self.by_topic.get(name or "")
        if topic is not None:
            return topic
        if name is None and len(self.by_topic) == 1:
            return next(iter(self.by_topic.values()))
        raise NotAcknowledgeable(
            f"{message} is of {name or 'an unknown topic'}, and the consumer has "
            f"{', '.join(sorted(self.by_topic)[:3])} ({len(self.by_topic)} in all)"
        )

    async def last_message_ids(self) -> dict[str, MessageId]:
        """The id of the last message of each topic. Raises ``ClientError``."""
        self.check_open()
        topics = list(self.by_topic.values())
        answers = await asyncio.gather(*[topic.channel.last_message_id() for topic in topics])
        return {
            topic.topic: from_proto(answer.last_message_id, topic.partition, topic.topic)
            for topic, answer in zip(topics, answers, strict=True)
        }

    # ---- ends

    def end(self, error: ClientError) -> None:
        """Receive no more. The first call counts; brokers are not told."""
        if self.error is not None:
            return
        self.error = error
        self._queue.end(error)
        if self._refreshing is not None:
            self._refreshing.cancel()
        # No more topics are looked for, and watchers are taken back.
        self._source.close()
        self._channels.owners.pop(self, None)

    def _topic_ended(self, topic: TopicConsumer, error: ClientError) -> None:
        topic.stop_timers()
        # A topic that fails to open is reported to the caller of its opening; one that was removed,
        # or replaced by another of the same name, is of no concern here.
        is_ours = topic.is_open and self.by_topic.get(topic.topic) is topic
        if self.error is not None or not is_ours:
            return
        if self._source.can_shrink and isinstance(error, BrokerRefused):
            log.info("topic left", extra={"topic": topic.topic, "reason": str(error)})
            self._remove(topic.topic)
            return
        self.end(error)
        # The other topics cannot be received from any more: their messages must go to others. As a
        # task: this is a callback of a channel, which cannot wait for brokers.
        self._channels.spawn(self.close(), name=f"close {self._title}")

    async def close(self) -> None:
        """Tell brokers what is acknowledged, and leave them. Closing twice is harmless."""
        self.end(Closed(self._title))
        await asyncio.gather(*[topic.close() for topic in self.by_topic.values()])
