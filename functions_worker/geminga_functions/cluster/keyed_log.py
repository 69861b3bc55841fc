"""A compacted topic of records, followed from its beginning: the newest record of each key.

Every worker follows the topics of functions and of assignments so; the leader alone writes them, by
an exclusive producer.

A compaction drops a key whose newest message is empty, and a reader that has not come so far never
hears that the key was removed; one that ends while a reader reads is enough. So what is removed is
first marked as removed, which a compaction keeps, and dropped by an empty message an hour later: by
then every reader has read the mark, or has lost its connection and reads all from the beginning.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from geminga import EARLIEST, AccessMode, Client, ClientError, Message, Producer, Reader
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
# A leader that is paused is fenced by the next one, which does not wait for it.
LEADERS_ACCESS = AccessMode.EXCLUSIVE_WITH_FENCING


class KeyedLog(Service, Generic[KeyT, RecordT]):
    """The records of ``topic``, up to date as long as it is open; opening reads all of them.

    ``parse_key`` and ``decode`` raise ``InvalidName`` and ``DecodeError`` for what is no record: it
    is left out, and logged. ``on_change`` is called after every change.
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
        self.records: Mapping[KeyT, RecordT] = {}
        # What is marked as removed, and when that was published, in milliseconds of the wall clock.
        self.removed: Mapping[KeyT, int] = {}
        self.position: tuple[int, int] = (-1, -1)
        self._client = client
        self._parse_key = parse_key
        self._decode = decode
        self._listeners: list[Callable[[], None]] = []
        self._has_moved = asyncio.Event()
        # How many times it was begun, and finished, to read the topic from the beginning.
        self._readings_begun = 0
        self._readings_done = 0
        self._is_stale = False

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after every change from now on."""
        self._listeners.append(on_change)

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self.spawn_lasting(self._follow, name=f"reader of {self.topic}")
        while self.position == (-1, -1):
            await self._has_moved.wait()

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_from_the_beginning()
            except ClientError as error:
                # The broker of the topic failed, or handed it on, in the midst of a question.
                extra = {"topic": self.topic, "reason": str(error)}
                log.warning("a topic cannot be read and is read anew", extra=extra)
                await asyncio.sleep(READ_ANEW_S)

    async def _read_from_the_beginning(self) -> None:
        """Read all, then on and on. What was read before counts until all is read again.

        It ends when the topic has to be read from the beginning again, because something may be
        missing after a new attachment, or because a new leader wants to be sure.
        """
        self._readings_begun += 1
        self._is_stale = False
        reading = self._client.reader(self.topic, EARLIEST, read_compacted=True)
        async with reading as reader:
            attachments = reader.attachments
            records, removed = dict[KeyT, RecordT](), dict[KeyT, int]()
            position = await self._read_to_end(reader, records, removed)
            if reader.attachments != attachments:
                return
            self.records, self.removed = records, removed
            self._readings_done = self._readings_begun
            self._moved(position)
            while reader.attachments == attachments and not self._is_stale:
                messages = await reader.read_many(READ_AT_ONCE)
                for message in messages:
                    self._apply(records, removed, message)
                if messages:
                    self._moved(messages[-1].id.position)

    async def _read_to_end(
        self,
        reader: Reader[bytes],
        records: dict[KeyT, RecordT],
        removed: dict[KeyT, int],
    ) -> tuple[int, int]:
        # The last message may be one that a compaction has dropped: it counts as read, too.
        (last,) = (await reader.last_message_ids()).values()
        position = max((0, -1), last.position)
        while await reader.has_message_available():
            for message in await reader.read_many(READ_AT_ONCE):
                self._apply(records, removed, message)
                position = max(position, message.id.position)
        return position

    def _apply(
        self,
        records: dict[KeyT, RecordT],
        removed: dict[KeyT, int],
        message: Message[bytes],
    ) -> None:
        try:
            key = self._parse_key(message.key or "")
            removed.pop(key, None)
            if message.is_null or not message.data:
                records.pop(key, None)
            elif REMOVED_PROPERTY in message.properties:
                records.pop(key, None)
                removed[key] = message.publish_time_ms
            else:
                records[key] = self._decode(key, message)
        except (InvalidName, DecodeError) as error:
            extra = {"topic": self.topic, "id": str(message.id), "reason": str(error)}
            log.error("a record cannot be read and is left out", extra=extra)  # noqa: TRY400

    def _moved(self, position: tuple[int, int]) -> None:
        self.position = max(self.position, position)
        self._has_moved.set()
        self._has_moved = asyncio.Event()
        for listener in self._listeners:
            listener()

    async def reach(self, position: tuple[int, int]) -> None:
        """Return when everything up to ``position`` has been read."""
        while self.position < position:
            await self._has_moved.wait()

    async def _read_again(self, writer: LogWriter) -> None:
        """Return when the topic has been read from the beginning once more. Raises as ``writer``.

        The message wakes the reader: it may have read all that was there before the flag was set,
        and would wait for the next record, however late that comes.
        """
        wanted = self._readings_begun + 1
        self._is_stale = True
        await writer.mark()
        while self._readings_done < wanted:
            await self._has_moved.wait()

    async def writer(self, stack: AsyncExitStack, timeout_s: float) -> LogWriter:
        """Take the topic for this leader alone, until ``stack`` is closed, and read what others
        have written. A producer that is not there in time is closed. Raises ``ClientError`` and
        ``TimeoutError``."""
        async with asyncio.timeout(timeout_s):
            producer = await stack.enter_async_context(
                self._client.producer(self.topic, access_mode=LEADERS_ACCESS, batching=None)
            )
            writer = LogWriter(producer)
            # Whatever an earlier leader wrote stands before this message. A worker that was paused
            # may have missed removals, and a leader must not bring back what was removed.
            await writer.mark()
            await self._read_again(writer)
        return writer


class LogWriter:
    """What a leader writes records with. Each method returns once the record is stored, and raises
    ``ClientError``: ``ProducerFenced`` where another worker leads."""

    def __init__(self, producer: Producer[bytes]) -> None:
        self._producer = producer

    async def put(
        self, key: object, payload: bytes, properties: Mapping[str, str] | None = None
    ) -> tuple[int, int]:
        """Publish the record of a key; returns its position."""
        stored = await self._producer.send(payload, key=str(key), properties=properties)
        return stored.position

    async def remove(self, key: object) -> tuple[int, int]:
        """Mark a key as removed."""
        return await self.put(key, REMOVED, {REMOVED_PROPERTY: "true"})

    async def drop(self, key: object) -> tuple[int, int]:
        """Let nothing remain of a key that has been removed: by an empty payload, as upstream does
        at once."""
        return await self.put(key, b"")

    async def mark(self) -> tuple[int, int]:
        """Publish a message that changes nothing; returns its position."""
        return await self.drop(MARK_KEY)


# No function has this name; an empty payload removes what is not there.
MARK_KEY = "-/-/-:0"
