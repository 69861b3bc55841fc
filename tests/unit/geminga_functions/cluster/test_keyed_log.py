"""A new leader reads the log anew even where its own mark has been read before it asks for that."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from geminga_functions.cluster.keyed_log import KeyedLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    import geminga

TOPIC = "persistent://public/functions/log"


@dataclass
class FakeTopic:
    """A client, a producer and readers of one topic. A message counts as stored only once a reader
    has read all there is and waits for the next one."""

    messages: list[Any] = field(default_factory=list)
    readings: int = 0
    grew: asyncio.Event = field(default_factory=asyncio.Event)
    all_read: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def reader(self, *_: object, **__: object) -> AsyncGenerator[FakeReader]:
        self.readings += 1
        yield FakeReader(self)

    @asynccontextmanager
    async def producer(self, *_: object, **__: object) -> AsyncGenerator[FakeTopic]:
        yield self

    async def send(
        self, data: bytes, *, key: str, properties: Mapping[str, str] | None
    ) -> SimpleNamespace:
        id_ = SimpleNamespace(position=(1, len(self.messages)))
        message = SimpleNamespace(
            id=id_, key=key, data=data, is_null=False, properties=properties or {}
        )
        self.messages.append(message)
        self.all_read.clear()
        self.grew.set()
        await self.all_read.wait()
        return id_


@dataclass
class FakeReader:
    """Reads a ``FakeTopic`` from its beginning, and never loses its connection."""

    topic: FakeTopic
    read: int = 0
    attachments: int = 1

    async def last_message_ids(self) -> dict[str, SimpleNamespace]:
        return {TOPIC: SimpleNamespace(position=(1, len(self.topic.messages) - 1))}

    async def has_message_available(self) -> bool:
        return self.read < len(self.topic.messages)

    async def read_many(self, _: int) -> list[Any]:
        while self.read == len(self.topic.messages):
            self.topic.all_read.set()
            self.topic.grew.clear()
            await self.topic.grew.wait()
        found = self.topic.messages[self.read :]
        self.read += len(found)
        return found


async def test_a_leader_whose_mark_is_read_at_once_reads_the_log_anew() -> None:
    topic = FakeTopic()
    log = KeyedLog(
        cast("geminga.Client", topic), TOPIC, lambda key: key, lambda _, message: message.data
    )
    async with log, AsyncExitStack() as stack:
        writer = await log.writer(stack, 5.0)
        assert topic.readings == 2
        await writer.put("a/b/c", b"record")
        await log.reach((1, 2))
        assert log.records["a/b/c"] == b"record"
