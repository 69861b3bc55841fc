"""Sends entries as a program cuts and numbers them: what exactly-once by deduplication needs.

``Producer`` also cuts batches by time, so a program that runs again may cut the same messages
elsewhere. A topic that deduplicates compares the first sequence id of an entry and drops the entry
as a whole, with those of its messages that the topic does not have. With an ``EntryProducer`` the
program alone decides where entries begin and end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from geminga._channels.registry import Channels
from geminga.errors import ClientError
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import MessageId
from geminga.producers.options import ProducerSettings
from geminga.producers.outgoing.attributes import MessageAttributes, decode_attributes
from geminga.producers.outgoing.batches import Batch
from geminga.producers.send_window import MemoryLimit, SendWindow, WindowWaiter
from geminga.producers.topic_producer import TopicProducer
from geminga_protocol.pulsar.topics.topic_names import TopicName
from geminga_runtime.clock import Clock


# What exactly-once needs of each part:
#
# - The program sends the same entries with the same numbers again after a restart, from
#   the one behind ``known_sequence_id`` on.
# - The topic deduplicates by producer name and sequence id, and so drops what it has.
# - This class stores no entry without those before it. Its state has one step, from open to failed
#   (``_error``), and nothing is sent behind that step.
class EntryProducer(AsyncClosable):
    """Publishes entries that the program cuts and numbers itself, to a topic without partitions or
    to one partition. Made by ``Client.entry_producer``; closed by ``close``, by ``async with``, or
    by the client:

        async with client.entry_producer("orders-partition-0", name="import-7") as producer:
            first = producer.known_sequence_id + 1
            await producer.send([b"a", b"b"], encode_attributes(2), first)
            await producer.flush()

    Entries are stored in the order of the calls, and none without those before it: the first one
    that fails ends the producer. If later ones were stored without it, another attempt with the
    same sequence ids would find that the topic has a higher one, and drop the missing entry.
    """

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        settings: ProducerSettings,
        *,
        memory: MemoryLimit,
        clock: Clock,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._window = SendWindow(memory, settings.pending_messages_max)
        # Why the producer has ended; ``None`` until then.
        self._error: ClientError | None = None
        self.topic = str(topic)
        """The whole name of the topic or partition."""
        # This and the next are set by ``open``.
        self.name = ""
        """The producer's name, chosen by the broker if the options have none."""
        self.known_sequence_id = -1
        """The last sequence id that the topic knew of this name when the producer was opened. -1
        where there is none: the name is new, or the topic does not deduplicate."""
        self.repeated_messages = 0
        """How many of the messages sent the topic had already and did not store again."""
        self.last_position: tuple[int, int] | None = None
        """``(ledger_id, entry_id)`` of the last entry that has its receipt; ``None`` where there is
        no such entry, or the topic had its messages already."""
        self._part = TopicProducer(
            channels,
            topic,
            settings,
            window=self._window,
            clock=clock,
            # A batch has one callback for all its messages, so that its failure is reported here
            # too: the first report counts.
            on_failure=lambda error, _: self._fail(error),
            on_end=self._fail,
        )

    async def open(self) -> None:
        """Have a broker accept the producer; for ``Client.entry_producer``."""
        await self._part.open()
        # Neither changes when the channel attaches again: the broker is told the name.
        channel = self._part.channel
        self.name, self.known_sequence_id = channel.name, channel.last_sequence_id

    @property
    def message_bytes_max(self) -> int:
        """How many bytes an entry may have, before compression."""
        return self._part.channel.max_message_bytes

    async def send(
        self, payloads: Sequence[bytes], attributes: Sequence[bytes], first_sequence_id: int
    ) -> None:
        """Send one entry, which leaves at the loop's next turn. Waits first while as many messages
        are pending as may be.

        One message is stored without a batch around it, several as one batch, with consecutive
        sequence ids from ``first_sequence_id`` on. ``attributes`` come from ``encode_attributes``,
        one for each payload. A null message has an empty payload and attributes that say so.

        Raises ``MessageTooLarge``, or the error that ended the producer: that of an earlier entry,
        ``Closed``, or the ``BrokerRefused`` for which no broker takes anything more.
        """
        if self._error is None and self._window.is_full:
            await self._wait_for_room()
        # After the wait: the producer may have ended meanwhile.
        if self._error is not None:
            raise self._error
        first: MessageAttributes | None = None
        if attributes[0]:
            # For the metadata of the entry: all attributes of a single message, the key of a batch.
            first = decode_attributes(attributes[0])
        messages = len(payloads)
        # One callback for the whole entry, in the place of its first message: an entry is stored or
        # fails as a whole.
        batch = Batch(
            first,
            list(payloads),
            list(attributes),
            callbacks=[(0, partial(self._settled, messages))],
            payload_bytes=sum(map(len, payloads)) + sum(map(len, attributes)),
        )
        batch.sequence_ids = list(range(first_sequence_id, first_sequence_id + messages))
        # Nothing is awaited from the check to here, so that entries keep the order of the calls.
        self._part.submit_batch(batch)

    async def _wait_for_room(self) -> None:
        """Return when half of the window is free, or the producer has ended."""
        free: asyncio.Future[None] = self._loop.create_future()

        def wake(_: ClientError | None = None) -> None:
            if not free.done():
                free.set_result(None)

        # Half of the window, or each receipt would wake the program for a single entry. Both calls
        # wake alike: ``send`` looks at ``_error`` itself.
        waiting = WindowWaiter(wake, wake, wants_half=True)
        self._window.enqueue(waiting)
        try:
            await free
        finally:
            # Does nothing for a caller that was woken. One that was cancelled must not keep those
            # behind it waiting.
            self._window.withdraw(waiting)

    async def flush(self) -> None:
        """Wait until everything sent before is stored. Raises the error that ended the producer."""
        if self._error is None:
            await self._part.flush()
        # One that is waited for may be the one that fails.
        if self._error is not None:
            raise self._error

    def _settled(
        self, messages: int, message_id: MessageId | None, error: ClientError | None
    ) -> None:
        if error is not None:
            self._fail(error)
        elif message_id is not None:
            # For what a topic has already, brokers answer with the id -1:-1.
            is_stored = message_id.ledger_id >= 0
            self.last_position = message_id.position if is_stored else None
            self.repeated_messages += 0 if is_stored else messages

    def _fail(self, error: ClientError) -> None:
        """End the producer: anything that is sent, or sent again, would be stored without the entry
        that failed."""
        if self._error is None:
            self._error = error
            # The broker must know, or it refuses the next producer of this name as busy. In this
            # order: ``end`` gives the connection up, over which ``leave`` tells the broker.
            self._part.channel.leave()
            self._part.channel.end(error)
            self._window.end(error)

    async def close(self) -> None:
        """Wait up to ``close_timeout_s`` for the receipts of what was sent, then leave the broker.

        Entries that ``flush`` did not wait for may not be stored. Closing twice is harmless.
        """
        await self._part.close()
