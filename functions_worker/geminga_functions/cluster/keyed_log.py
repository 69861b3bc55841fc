"""A compacted topic of records, followed from its beginning: the newest record of each key.

Every worker follows the topics of functions and of assignments in this way. Only the leader writes
them, with an exclusive producer.

Removing a key takes two steps. A compaction drops a key whose newest message is empty; a reader
that has not read that far yet, perhaps because the compaction ended while it read, never learns
that the key was removed. So the leader first publishes a mark, which is not empty and survives
compactions, and an empty message an hour later. By then every reader has read the mark, or has lost
its connection and reads the topic from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from geminga import EARLIEST, AccessMode, Client, ClientError, Message, Producer
from geminga_functions.errors import InvalidName
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")
RecordT = TypeVar("RecordT")

READ_AT_ONCE = 1000
READ_ANEW_S = 0.5
REMOVED_PROPERTY = "removed"
# Not empty, so that a compaction keeps it.
REMOVED = b"removed"
REMOVED_KEPT_S = 3600.0
# No function has this name: to drop this key changes nothing, and only leaves a message behind.
MARK_KEY = "-/-/-:0"
# A leader that is paused is fenced by the next one, which does not wait for it.
LEADERS_ACCESS = AccessMode.EXCLUSIVE_WITH_FENCING


# The messages of one key, and what a reader makes of them:
#
#   record ... record' ... mark ("removed") ...... an hour or more ...... empty
#   newest record counts   removed, and known to be                      forgotten
class KeyedLog(Service, Generic[KeyT, RecordT]):
    """The records of ``topic``, kept up to date while it is open; opening it reads all of them.

    ``parse_key`` raises ``InvalidName``, and ``decode`` raises ``DecodeError``, for a message that
    is no record; the log skips it and logs an error.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        parse_key: Callable[[str], KeyT],
        decode: Callable[[KeyT, Message[bytes]], RecordT],
    ) -> None:
        super().__init__()
        self.topic = topic
        # Each reading of the whole topic replaces it, and what follows changes it in place: a user
        # must not keep it over a wait.
        self.records: Mapping[KeyT, RecordT] = {}
        # When each key that is marked as removed was marked, in milliseconds of the wall clock.
        self.removed: Mapping[KeyT, int] = {}
        # (ledger id, entry id) up to which the topic has been read.
        self.position: tuple[int, int] = (-1, -1)
        self._client = client
        self._parse_key = parse_key
        self._decode = decode
        # Called after every change; users add themselves.
        self.listeners: list[Callable[[], None]] = []
        self._has_moved = asyncio.Event()
        # How many reads of the whole topic have begun, and the number of the last one that ended.
        self._readings_begun = 0
        self._readings_done = 0
        # Set to make the reader start again from the beginning.
        self._is_stale = False

    async def _open(self, stack: AsyncExitStack) -> None:  # noqa: ARG002 - nothing stays open
        self.spawn_lasting(self._follow, name=f"reader of {self.topic}")
        # However long that takes: the task logs what fails, and tries it again.
        while self.position == (-1, -1):
            await self._has_moved.wait()

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_from_the_beginning()
            except ClientError as error:
                # The broker of the topic failed, or gave the topic to another, during a request.
                extra = {"topic": self.topic, "reason": str(error)}
                log.warning("a topic cannot be read and is read anew", extra=extra)
                await asyncio.sleep(READ_ANEW_S)

    async def _read_from_the_beginning(self) -> None:
        """Read the whole topic, then follow it. The former records stay visible until it is read.

        Returns when the topic has to be read from the beginning again: after a reconnection, during
        which a compaction may have dropped a mark, or because a new leader asked for it.
        """
        self._readings_begun += 1
        self._is_stale = False
        reading = self._client.reader(self.topic, EARLIEST, read_compacted=True)
        async with reading as reader:
            # How often the reader was attached to a broker: another number means that the
            # connection was lost in between.
            attachments = reader.attachments
            records, removed = dict[KeyT, RecordT](), dict[KeyT, int]()
            # A compaction may have dropped the last message: it counts as read, too.
            (last,) = (await reader.last_message_ids()).values()
            position = max((0, -1), last.position)
            while await reader.has_message_available():
                for message in await reader.read_many(READ_AT_ONCE):
                    self._apply(records, removed, message)
                    position = max(position, message.id.position)
            # The connection was lost while reading: a compaction may have dropped marks that were
            # not read.
            if reader.attachments != attachments:
                return
            # Both before the listeners are called, which compare one with the other (``Cleanup``).
            self.records, self.removed = records, removed
            self._readings_done = self._readings_begun
            self._moved(position)
            while reader.attachments == attachments and not self._is_stale:
                messages = await reader.read_many(READ_AT_ONCE)
                for message in messages:
                    self._apply(records, removed, message)
                if messages:
                    self._moved(messages[-1].id.position)

    def _apply(
        self,
        records: dict[KeyT, RecordT],
        removed: dict[KeyT, int],
        message: Message[bytes],
    ) -> None:
        try:
            key = self._parse_key(message.key or "")
            # Whatever comes after a mark replaces it: a function that is created again, or the
            # empty message that ends the removal.
            removed.pop(key, None)
            if message.is_null or not message.data:
                records.pop(key, None)
            elif REMOVED_PROPERTY in message.properties:
                records.pop(key, None)
                removed[key] = message.publish_time_ms
            else:
                records[key] = self._decode(key, message)
        # One record that cannot be read must not keep all others from being read.
        except (InvalidName, DecodeError) as error:
            extra = {"topic": self.topic, "id": str(message.id), "reason": str(error)}
            log.error("a record cannot be read and is left out", extra=extra)  # noqa: TRY400

    def _moved(self, position: tuple[int, int]) -> None:
        # It never goes back, even where the topic is read anew from its beginning.
        self.position = max(self.position, position)
        self._has_moved.set()
        self._has_moved = asyncio.Event()
        for listener in self.listeners:
            listener()

    async def reach(self, position: tuple[int, int]) -> None:
        """Return once everything up to ``position`` has been read."""
        # Positions are compared as pairs: a ledger that follows another in a topic has a higher id.
        while self.position < position:
            await self._has_moved.wait()

    async def writer(self, stack: AsyncExitStack, timeout_s: float) -> LogWriter:
        """Take the topic for this leader alone, and read everything that others have written.

        The producer is open until ``stack`` closes. Raises ``ClientError``, or ``TimeoutError``
        after ``timeout_s`` seconds; the producer is closed then.
        """
        async with asyncio.timeout(timeout_s):
            producer = await stack.enter_async_context(
                self._client.producer(self.topic, access_mode=LEADERS_ACCESS, batching=None)
            )
            writer = LogWriter(producer)
            # Everything that an earlier leader wrote stands before this message.
            await writer.drop(MARK_KEY)
            # A worker that was paused may have missed marks of removals, and a leader must not
            # bring back what was removed: so it reads the whole topic once more.
            wanted = self._readings_begun + 1
            self._is_stale = True
            # This message wakes the reader. It may have read everything before the flag was set,
            # and would then wait for the next record, however late that comes.
            await writer.drop(MARK_KEY)
            while self._readings_done < wanted:
                await self._has_moved.wait()
        return writer


@dataclass(frozen=True, slots=True)
class LogWriter:
    """Writes records for a leader.

    Each method returns once the record is stored. It raises ``ProducerFenced`` if another worker
    leads, and other kinds of ``ClientError`` if the record could not be stored.
    """

    producer: Producer[bytes]

    async def put(
        self, key: object, payload: bytes, properties: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """Publish the record of a key; returns its position."""
        stored = await self.producer.send(payload, key=str(key), properties=properties)
        return stored.position

    async def remove(self, key: object) -> tuple[int, int]:
        """Mark a key as removed."""
        return await self.put(key, REMOVED, {REMOVED_PROPERTY: "true"})

    async def drop(self, key: object) -> tuple[int, int]:
        """Publish an empty payload: the next compaction erases the key.

        Upstream does so at once, without a mark before it.
        """
        return await self.put(key, b"")
