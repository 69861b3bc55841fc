"""A compacted topic of records, followed from its beginning: the newest record of each key.

Every worker follows the topics of functions and of assignments so; the leader alone writes them, by
an exclusive producer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError

from geminga import EARLIEST, AccessMode, Client, Message, Producer, Reader
from geminga_functions.errors import InvalidName
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")
RecordT = TypeVar("RecordT")

READ_AT_ONCE = 1000
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
        self.position: tuple[int, int] = (-1, -1)
        self._client = client
        self._parse_key = parse_key
        self._decode = decode
        self._listeners: list[Callable[[], None]] = []
        self._has_moved = asyncio.Event()

    def listen(self, on_change: Callable[[], None]) -> None:
        """Call ``on_change`` after every change from now on."""
        self._listeners.append(on_change)

    async def _open_parts(self) -> None:
        await super()._open_parts()
        self.spawn_lasting(self._follow, name=f"reader of {self.topic}")
        while self.position == (-1, -1):
            await self._has_moved.wait()

    async def _follow(self) -> None:
        """Read from the beginning, then on and on. What was read before counts until all is read
        again: compaction may have dropped the removals meanwhile."""
        reading = self._client.reader(self.topic, EARLIEST, read_compacted=True)
        async with reading as reader:
            records: dict[KeyT, RecordT] = {}
            position = await self._read_to_end(reader, records)
            self.records = records
            self._moved(position)
            while True:
                messages = await reader.read_many(READ_AT_ONCE)
                for message in messages:
                    self._apply(records, message)
                if messages:
                    self._moved(messages[-1].id.position)

    async def _read_to_end(
        self, reader: Reader[bytes], records: dict[KeyT, RecordT]
    ) -> tuple[int, int]:
        position = (0, -1)
        while await reader.has_message_available():
            for message in await reader.read_many(READ_AT_ONCE):
                self._apply(records, message)
                position = message.id.position
        return position

    def _apply(self, records: dict[KeyT, RecordT], message: Message[bytes]) -> None:
        try:
            key = self._parse_key(message.key or "")
            if message.is_null or not message.data:
                records.pop(key, None)
            else:
                records[key] = self._decode(key, message)
        except (InvalidName, DecodeError) as error:
            extra = {"topic": self.topic, "id": str(message.id), "reason": str(error)}
            log.error("a record cannot be read and is left out", extra=extra)  # noqa: TRY400

    def _moved(self, position: tuple[int, int]) -> None:
        self.position = position
        self._has_moved.set()
        self._has_moved = asyncio.Event()
        for listener in self._listeners:
            listener()

    async def reach(self, position: tuple[int, int]) -> None:
        """Return when everything up to ``position`` has been read."""
        while self.position < position:
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
            # Whatever an earlier leader wrote stands before this message.
            await self.reach(await writer.mark())
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
        """Remove the record of a key, as upstream does: by an empty payload."""
        return await self.put(key, b"")

    async def mark(self) -> tuple[int, int]:
        """Publish a message that changes nothing; returns its position."""
        return await self.put(MARK_KEY, b"")


# No function has this name; an empty payload removes what is not there.
MARK_KEY = "-/-/-:0"
