"""Reads the stored entries of one topic between two positions, without opening them.

What is made of the entries (messages, rows of a table) is the business of those who read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from geminga._channels.channel import Channels
from geminga._channels.consumer_channel import ConsumerChannel, ConsumerChannelOptions
from geminga._channels.pending.acks import Position
from geminga.consumers.incoming.entries import BATCH_MESSAGES_MAX
from geminga.errors import ClientError
from geminga.lifecycle import AsyncClosable
from geminga.message_ids import EARLIEST, LogPosition, to_proto
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.api_pb2 import CommandMessage, MessageIdData, MessageMetadata
from geminga_protocol.pulsar.integers import signed, unsigned
from geminga_protocol.pulsar.payload import open_payload, parse_broker_entry
from geminga_protocol.pulsar.topic_names import TopicName

log = logging.getLogger(__name__)

# Messages that may come before anything is known of their size: a hundred of the largest kind
# (5 MiB by default) are half a gigabyte, which OVERSHOOT cuts short.
FIRST_PERMITS = 100
# Sizes differ: what was granted for small messages may be used by large ones. A reader that holds
# so many times the bytes that it wanted leaves the broker, and asks for fewer when it comes back.
OVERSHOOT = 4
# When nothing came for so long, the broker is asked where the topic ends now: what the reader waits
# for may have been trimmed meanwhile.
STALL_S = 1.0


@dataclass(slots=True)  # not frozen, which takes 0.3 us more for each
class RawEntry:
    """One stored entry (``ledger_id``, ``entry_id``): a message, a batch, or a chunk of one.

    ``payload`` is what the broker sent of it; from ``body_start`` on it is the body, still
    compressed and encrypted. ``metadata`` is ``None`` where it cannot be read, for ``error``.
    """

    ledger_id: int
    entry_id: int
    payload: bytes
    body_start: int
    metadata: MessageMetadata | None
    error: str | None = None

    @property
    def position(self) -> LogPosition:
        """Where it stands."""
        return LogPosition(self.ledger_id, self.entry_id)

    @property
    def next_position(self) -> LogPosition:
        """Where reading goes on behind it."""
        return LogPosition(self.ledger_id, self.entry_id + 1)

    @property
    def message_count(self) -> int:
        """How many messages it says that it has."""
        count = 1 if self.metadata is None else self.metadata.num_messages_in_batch
        return min(max(count, 1), BATCH_MESSAGES_MAX)

    @property
    def last_index(self) -> int | None:
        """The index of its last message: how many the topic had before (PIP-70).

        ``None`` unless the broker counts messages and shows it to clients.
        """
        with suppress(WireError):
            noted = parse_broker_entry(self.payload, 0, len(self.payload))
            if noted is not None and noted.HasField("index"):
                return noted.index
        return None


@dataclass(frozen=True, slots=True)
class ReadAhead:
    """How much a reader has brokers send before it is asked for, and how long it waits for it."""

    messages: int
    bytes: int
    timeout_s: float

    def __post_init__(self) -> None:
        if self.messages < 1 or self.bytes < 1 or self.timeout_s <= 0:
            raise ValueError("read_ahead_messages, read_ahead_bytes and timeout_s are more than 0")


class EntryReader(AsyncClosable):
    """Made by ``Client.entries``; closed by ``close``, by ``async with``, or by the client.

    Each entry between the positions is handed out once, in the order of the log, also when
    connections break. Ids may have gaps (markers of transactions, entries that were deleted):
    a gap is no loss.
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
        """The first entry at or behind ``start`` that the topic has, once it came; it may lie
        behind ``end``. In another ledger than ``start`` it tells that entries may have been
        trimmed."""
        options = ConsumerChannelOptions(
            receiver_queue_size=min(FIRST_PERMITS, read_ahead.messages)
        )
        subscription = f"reader-{channels.random_name()}"  # as upstream's, seen in statistics
        self._channel = ConsumerChannel(channels, topic, subscription, options, is_durable=False)
        self._channel.start = self._start_message_id
        self._channel.on_entry = self._arrived
        self._channel.on_reset = self._forget_queue
        self._channel.on_end = lambda _: self._wake.set()
        self._read_ahead = read_ahead
        self._permits_max = options.receiver_queue_size
        self._end = end
        # What was handed out, or lies before the start: all up to here is left out.
        self._taken: Position = (-1, -1)
        if start.ledger_id >= 0:
            self._taken = start.ledger_id, start.entry_id - 1
        # The last entry in the queue, or that was taken from it.
        self._newest = self._taken
        # The last entry that the topic has, where it lies before the end: no more is waited for.
        self._last: Position | None = None
        # Is everything before the end in the queue, or taken?
        self._is_complete = False
        self._queue: deque[RawEntry] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()

    async def open(self) -> None:
        """Have a broker accept it, and tell where the topic ends. Raises ``ClientError``."""
        self._channel.pause()  # no entry comes before it is known whether it belongs to the range
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
        """The next entries, waited for; an empty list only at the end.

        There are as many as have come, up to so many messages and bytes of payloads, but at least
        one, however large it is. Raises ``TimeoutError`` when nothing came for ``timeout_s``,
        ``Closed``, or the ``ClientError`` that ended the reader.
        """
        if not self._queue:
            await self._wait()
        entries: list[RawEntry] = []
        messages = payload_bytes = 0
        while self._queue:
            entry = self._queue[0]
            payload_bytes += len(entry.payload)
            count = entry.message_count
            if entries and (messages + count > max_messages or payload_bytes > max_bytes):
                break
            messages += count
            self._queued_bytes -= len(entry.payload)
            entries.append(self._queue.popleft())
        if entries:
            self._taken = entries[-1].position.entry
            self._channel.return_permits(messages)
            # A broker keeps what a reader that is not durable has not acknowledged in its backlog.
            self._channel.acknowledge_up_to(self._taken)
        return entries

    async def _wait(self) -> None:
        """Until there is an entry, or none comes any more."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._read_ahead.timeout_s
        while not self._queue and not self._is_complete:
            self._channel.check_open()
            if loop.time() >= deadline_s:
                raise TimeoutError(
                    f"no entry of {self._channel.topic} behind {self._taken} came within "
                    f"{self._read_ahead.timeout_s:g} s; the range ends before {self._end}"
                )
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
        """Learn from the broker whether the topic ends before the end of the range."""
        answer = await self._channel.last_message_id()
        last = signed(answer.last_message_id.ledgerId), signed(answer.last_message_id.entryId)
        if last[1] < 0:
            last = (-1, -1)  # the topic has no entry, so that nothing is waited for
        if self._end is None:
            self._end = LogPosition(last[0], last[1] + 1)
        if last < self._end.entry:
            self._last = last
        self._check_complete(self._newest)

    def _check_complete(self, position: Position) -> None:
        """Does nothing behind this entry, which came, belong to the range?"""
        if self._end is None or self._is_complete:
            return
        ledger_id, entry_id, batch_index = self._end
        # Of the entry that the end lies in the midst of, the beginning belongs to the range.
        last_wanted = entry_id if batch_index > 0 else entry_id - 1
        is_last = self._last is not None and position >= self._last
        if is_last or position >= (ledger_id, last_wanted):
            self._is_complete = True
            self._channel.pause()
            self._wake.set()

    # ---- what the channel asks and tells

    def _start_message_id(self) -> MessageIdData:
        """A broker begins behind the entry that it is told, whether there is such an entry."""
        if self._taken < (0,):
            return to_proto(EARLIEST)
        ledger_id, entry_id = self._taken
        return MessageIdData(ledgerId=unsigned(ledger_id), entryId=unsigned(entry_id))

    def _arrived(self, command: CommandMessage, buffer: bytes, start: int, end: int) -> None:
        entry = _raw_entry(command, buffer[start:end])
        position = entry.position.entry
        if self._is_complete or position <= self._newest:
            # It came before the connection broke, and was taken while the next one was made.
            self._channel.return_permits(entry.message_count)
            return
        if self.first_position is None:
            self.first_position = entry.position
        self._check_complete(position)
        if self._end is None or position < self._end.entry or self._holds_end(position):
            self._newest = position
            self._queue.append(entry)
            self._queued_bytes += len(entry.payload)
            self._limit_permits(entry)
            self._wake.set()

    def _holds_end(self, position: Position) -> bool:
        return self._end is not None and self._end.batch_index > 0 and position == self._end.entry

    def _limit_permits(self, entry: RawEntry) -> None:
        """Have as much sent ahead as is wanted, if all messages were as large as this entry's."""
        ahead = self._read_ahead
        message_bytes = max(1, len(entry.payload) // entry.message_count)
        permits_max = min(ahead.messages, max(1, ahead.bytes // message_bytes))
        # Down at once, but up step by step: one small message tells little about those behind it.
        permits_max = min(permits_max, 2 * self._permits_max)
        # Sizes vary a little from entry to entry, which is not worth a command.
        if permits_max == 2 * self._permits_max or permits_max <= self._permits_max // 2:
            self._permits_max = permits_max
            self._channel.limit_permits(permits_max)
        if self._queued_bytes > OVERSHOOT * ahead.bytes and len(self._queue) > 1:
            log.info("more bytes than asked for", extra={"reader": self._channel.title})
            self._channel.leave()

    def _forget_queue(self) -> int:
        """The broker sends what was not taken once more, unless everything is here already."""
        if self._is_complete:
            return 0
        messages = sum(entry.message_count for entry in self._queue)
        self._queue.clear()
        self._queued_bytes = 0
        self._newest = self._taken
        return messages

    # ---- life

    async def close(self) -> None:
        """Leave the broker. Closing twice is harmless."""
        self._queue.clear()
        self._is_complete = False  # reading raises that it is closed
        await self._channel.close()


def _raw_entry(command: CommandMessage, payload: bytes) -> RawEntry:
    message_id = command.message_id
    ledger_id, entry_id = signed(message_id.ledgerId), signed(message_id.entryId)
    try:
        metadata, body_start = open_payload(payload, 0, len(payload))
    except WireError as error:
        return RawEntry(ledger_id, entry_id, payload, 0, None, str(error))
    return RawEntry(ledger_id, entry_id, payload, body_start, metadata)
