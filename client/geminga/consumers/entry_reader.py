"""Reads the stored entries of one topic between two positions, without opening them.

Its users make messages or rows of a table out of the entries. The reader keeps to the range, loses
no entry when connections break, and bounds the bytes that it fetches ahead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga._channels.pending.acks import Position
from geminga._channels.registry import Channels
from geminga.consumers.incoming.entries import BATCH_MESSAGES_MAX
from geminga.errors import ClientError
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import EARLIEST, LogPosition, to_proto
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import CommandMessage, MessageIdData, MessageMetadata
from geminga_protocol.pulsar.messages.integers import signed, unsigned
from geminga_protocol.pulsar.messages.payload import open_payload, parse_broker_entry
from geminga_protocol.pulsar.topics.topic_names import TopicName

log = logging.getLogger(__name__)

# So many messages may come before anything is known of their size: a hundred of the largest kind (5
# MiB by default) are half a gigabyte, which OVERSHOOT cuts short.
FIRST_PERMITS = 100
# Permits that were granted for small messages may be used by large ones. A reader that holds so
# many times the bytes that it wanted leaves the broker, and grants fewer when it attaches again.
OVERSHOOT = 4
# When no entry came for so long, the broker is asked where the topic ends now: the entries that the
# reader waits for may have been trimmed since.
STALL_S = 1.0


@dataclass(slots=True)  # not frozen, which takes 0.3 us more for each
class RawEntry:
    """One stored entry: a message, a batch, or a chunk of a message.

    - ``ledger_id``, ``entry_id``: its place in the log.
    - ``payload``: the bytes that the broker sent of it.
    - ``body_start``: where the body begins in ``payload``; it is still compressed and encrypted.
    - ``metadata``: what its producer says of it (``MessageMetadata``, PulsarApi.proto); ``None``
      where it cannot be read.
    - ``error``: why it cannot be read, else ``None``.
    """

    ledger_id: int
    entry_id: int
    payload: bytes
    body_start: int
    metadata: MessageMetadata | None
    error: str | None = None

    @property
    def position(self) -> LogPosition:
        """Its place in the log: the beginning of a range that it is the first of."""
        return LogPosition(self.ledger_id, self.entry_id)

    @property
    def next_position(self) -> LogPosition:
        """The place behind it, where reading goes on."""
        return LogPosition(self.ledger_id, self.entry_id + 1)

    @property
    def message_count(self) -> int:
        """How many messages it has, by its metadata; at least 1."""
        count = 1 if self.metadata is None else self.metadata.num_messages_in_batch
        return min(max(count, 1), BATCH_MESSAGES_MAX)

    @property
    def last_index(self) -> int | None:
        """The index of its last message: how many messages the topic had before that (PIP-70).

        ``None`` unless the broker counts messages and shows the index to clients.
        """
        with suppress(WireError):
            noted = parse_broker_entry(self.payload, 0, len(self.payload))
            if noted is not None and noted.HasField("index"):
                return noted.index
        return None


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How much a reader fetches ahead, and how long a read waits."""

    messages: int
    bytes: int
    timeout_s: float

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.timeout_s <= 0:
            raise ValueError(
                "read_ahead_messages, read_ahead_bytes and timeout_s must be more than 0"
            )


# Places in the log that it knows, each an entry ``(ledger_id, entry_id)``:
#
#    start       _taken          _newest                      _last           _end
#   ───┴───────────┴────────────────┴───────────────────────────┴───────────────┴──▶ log
#       returned   │  in _queue     │  to come                  │  nothing is there
#
# ``_taken`` and ``_newest`` only go forward, but for a new attachment: it drops the queue and sets
# ``_newest`` back to ``_taken``. ``_end`` is the first place that does not belong to the range.
# ``_last`` is known only where the topic ends before ``_end``. Once the last entry of the range has
# come, or one behind it, ``_is_complete`` is true, and it stays true until the reader is closed.
class EntryReader(AsyncClosable):
    """Reads the stored entries of a range of one topic. Made by ``Client.entries``; closed by
    ``close``, by ``async with``, or by the client:

        async with client.entries("orders") as reader:
            while entries := await reader.read():
                ...

    ``read`` returns each entry of the range once, in the order of the log, also when connections
    break. Ids may have gaps (markers of transactions, entries that were deleted): a gap is no loss.
    """

    def __init__(
        self,
        channels: Channels,
        topic: TopicName,
        start: LogPosition,
        end: LogPosition | None,
        read_ahead: ReadAhead,
    ) -> None:
        self.first_position: LogPosition | None = None
        """The first entry at or behind ``start`` that the topic has, once it has come; it may lie
        behind ``end``. If it is in another ledger than ``start``, entries between the two may have
        been trimmed."""
        options = ConsumerChannelOptions(
            receiver_queue_size=min(FIRST_PERMITS, read_ahead.messages)
        )
        subscription = f"reader-{channels.random_name()}"  # as upstream's, seen in statistics
        self._channel = ConsumerChannel(channels, topic, subscription, options, is_durable=False)
        self._channel.start = self._start_message_id
        self._channel.on_entry = self._arrived
        self._channel.on_reset = self._forget_queue
        # A read that waits then finds the error by ``check_open``.
        self._channel.on_end = lambda _: self._wake.set()
        self._read_ahead = read_ahead
        self._permits_max = options.receiver_queue_size
        # ``None`` until the broker has said where the topic ends, if the range has no end.
        self._end = end
        # The last entry that was returned, or lies before the start: all up to it is left out.
        self._taken: Position = (-1, -1)
        if start.ledger_id >= 0:
            self._taken = start.ledger_id, start.entry_id - 1
        # The last entry that came into the queue, whether it is still there or not.
        self._newest = self._taken
        # The last entry that the topic has, if it lies before the end: there is none to wait for
        # behind it.
        self._last: Position | None = None
        # Has everything before the end come?
        self._is_complete = False
        self._queue: deque[RawEntry] = deque()
        self._queued_bytes = 0
        # Set when an entry has come, when all have, and when the channel has ended.
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Have a broker accept the reader; for ``Client.entries``. Raises ``ClientError``."""
        # No entry may come before the end is known, and with it whether the entry belongs to the
        # range.
        self._channel.pause()
        await self._channel.open()
        try:
            await self._find_end()
            if not self._is_complete:
                self._channel.resume()
        except BaseException:
            await self.close()
            raise

    async def read(
        self, max_messages: int = 10_000, max_bytes: int = 8 * 1024 * 1024
    ) -> list[RawEntry]:
        """Return the next entries, waiting for the first; an empty list means the end of the range.

        They are those that have come, with up to ``max_messages`` messages and ``max_bytes`` bytes
        of payloads together, but at least one entry, however large it is. Raises ``TimeoutError``
        when nothing came for ``timeout_s``, ``Closed``, or the ``ClientError`` that ended the
        reader.
        """
        if not self._queue:
            await self._wait()
        entries: list[RawEntry] = []
        messages = payload_bytes = 0
        while self._queue:
            entry = self._queue[0]
            payload_bytes += len(entry.payload)
            count = entry.message_count
            # The first one is taken whatever its size: a limit below it would stop the reader.
            if entries and (messages + count > max_messages or payload_bytes > max_bytes):
                break
            messages += count
            self._queued_bytes -= len(entry.payload)
            entries.append(self._queue.popleft())
        if entries:
            # From here on a new attachment begins behind these entries.
            self._taken = entries[-1].position.entry
            self._channel.return_permits(messages)
            # Else the broker would count all of it as the backlog of this reader. Nothing depends
            # on it: the subscription is not durable, and a new attachment names its place itself.
            self._channel.acknowledge_up_to(self._taken)
        return entries

    async def _wait(self) -> None:
        """Return when there is an entry, or all have been returned."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._read_ahead.timeout_s
        while not self._queue and not self._is_complete:
            # Before the deadline is looked at: the error says more than the timeout.
            self._channel.check_open()
            if loop.time() >= deadline_s:
                raise TimeoutError(
                    f"no entry of {self._channel.topic} behind {self._taken} came within "
                    f"{self._read_ahead.timeout_s:g} s; the range ends before {self._end}"
                )
            # Between this and the wait nothing else runs, so that no wake-up is lost.
            self._wake.clear()
            try:
                async with asyncio.timeout_at(min(deadline_s, loop.time() + STALL_S)):
                    await self._wake.wait()
            except TimeoutError:
                # Without a broker only the deadline ends the wait.
                with suppress(TimeoutError, ClientError):
                    async with asyncio.timeout_at(deadline_s):
                        await self._find_end()

    async def _find_end(self) -> None:
        """Ask the broker whether the topic ends before the end of the range."""
        answer = await self._channel.last_message_id()
        last = signed(answer.last_message_id.ledgerId), signed(answer.last_message_id.entryId)
        if last[1] < 0:
            last = (-1, -1)  # the topic has no entry: there is none to wait for
        # Fixed once: entries that are published later are not part of the range.
        if self._end is None:
            self._end = LogPosition(last[0], last[1] + 1)
        if last < self._end.entry:
            self._last = last
        # The last wanted entry may have come before its place was known.
        self._check_complete(self._newest)

    def _check_complete(self, position: Position) -> None:
        """Note that everything has come, if no entry behind this one belongs to the range."""
        if self._end is None or self._is_complete:
            return
        ledger_id, entry_id, batch_index = self._end
        # An end within a batch leaves the beginning of that entry in the range.
        last_wanted = entry_id if batch_index > 0 else entry_id - 1
        is_last = self._last is not None and position >= self._last
        # Paused for good: permits that come back from here on are not granted. Entries that were
        # granted may still come, and are not kept.
        if is_last or position >= (ledger_id, last_wanted):
            self._is_complete = True
            self._channel.pause()
            self._wake.set()

    # ---- what the channel asks and delivers

    def _start_message_id(self) -> MessageIdData:
        """The entry behind which a broker begins, whether it still exists or not."""
        if self._taken < (0,):
            return to_proto(EARLIEST)
        ledger_id, entry_id = self._taken
        return MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))

    def _arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        # A copy: the entry waits in the queue, and a view of the read buffer would keep all that
        # came with it in memory.
        payload = buffer[start:end]
        message_id = command.message_id
        ledger_id, entry_id = signed(message_id.ledgerId), signed(message_id.entryId)
        try:
            metadata, body_start = open_payload(payload, 0, len(payload))
        except WireError as error:
            # The reader returns it, too: its user decides what to do about it.
            entry = RawEntry(ledger_id, entry_id, payload, 0, None, str(error))
        else:
            entry = RawEntry(ledger_id, entry_id, payload, body_start, metadata)
        position = entry.position.entry
        if self._is_complete or position <= self._newest:
            # It had come before the connection broke, and was read before the next one was made.
            self._channel.return_permits(entry.message_count)
            return
        if self.first_position is None:
            self.first_position = entry.position
        # Before the entry is put aside: one behind the end is not wanted, but shows that all wanted
        # ones have come.
        self._check_complete(position)
        range_end = self._end
        if (
            range_end is None
            or position < range_end.entry
            or (position == range_end.entry and range_end.batch_index > 0)
        ):
            self._newest = position
            self._queue.append(entry)
            self._queued_bytes += len(entry.payload)
            self._limit_permits(entry)
            self._wake.set()

    def _limit_permits(self, entry: RawEntry) -> None:
        """Fetch so far ahead as is wanted, judging the size of messages by this entry's."""
        ahead = self._read_ahead
        message_bytes = max(1, len(entry.payload) // entry.message_count)
        permits_max = min(ahead.messages, max(1, ahead.bytes // message_bytes))
        # Down at once, but up step by step: one small message says little about those behind it.
        permits_max = min(permits_max, 2 * self._permits_max)
        # Sizes vary a little from entry to entry, which is not worth a command to the broker.
        if permits_max == 2 * self._permits_max or permits_max <= self._permits_max // 2:
            self._permits_max = permits_max
            self._channel.limit_permits(permits_max)
        # A single entry may be larger than the bound: leaving would only bring it again.
        if self._queued_bytes > OVERSHOOT * ahead.bytes and len(self._queue) > 1:
            log.info("more bytes than asked for", extra={"reader": self._channel.title})
            # Attached anew, it gets fewer permits; what is dropped from the queue comes again.
            self._channel.leave()

    def _forget_queue(self) -> int:
        """Drop what was not read: the broker sends it again, to the next attachment. Says how many
        messages that were."""
        if self._is_complete:
            return 0  # everything is here: what is sent again is not needed
        messages = sum(entry.message_count for entry in self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        # Or entries that were dropped here would be taken for repetitions when they come again.
        self._newest = self._taken
        return messages

    # ---- life

    async def close(self) -> None:
        """Leave the broker. Closing twice is harmless."""
        self._queue.clear()
        self._is_complete = False  # a read then raises ``Closed``, and does not report the end
        await self._channel.close()
