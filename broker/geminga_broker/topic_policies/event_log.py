"""One namespace's ``__change_events``, followed from its beginning: what each topic says now.

It is read over a connection, as every broker of the cluster reads it, whichever serves it. A reader
of a compacted topic never hears of a removal that a compaction dropped while it was away: so the
topic is read from its beginning again after each new attachment, and once in a while. What was
read before counts until all is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from random import Random

from geminga import EARLIEST, Client, ClientError, Message, Reader
from geminga_broker.errors import ServiceNotReady
from geminga_broker.schemas.errors import InvalidSchema, SchemaNotFound
from geminga_broker.topic_policies.events import EventSchema, decode_event, events_topic, own_schema
from geminga_protocol.errors import WireError
from geminga_protocol.pulsar.topics.topic_names import NamespaceName, TopicName
from geminga_protocol.records.cluster.topic_policies import TopicPolicies
from geminga_runtime.backoff import Backoff
from geminga_runtime.errors import GemingaError
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

READ_AT_ONCE = 1000
# How long a run of messages may take to gather while all is read.
GATHER_S = 0.01
# A removal that was missed, however that came, is known after so long.
READ_ANEW_S = 3600.0
# Who asks for a topic, or changes its policies, waits so long for what is stored to be read.
WAIT_S = 10.0
# What does not come for so long was compacted away before it was sent: all is read again.
STALL_S = 1.0
RETRY_FIRST_S = 0.1
RETRY_LIMIT_S = 5.0

Positions = Mapping[str, tuple[int, int]]
"""An entry of each topic: the events of a namespace may stand in partitions."""

SchemaOf = Callable[[bytes], Awaitable[EventSchema]]
"""A version of the topic's schema, as messages name it. Raises ``SchemaNotFound``,
``InvalidSchema``, and what reading it raises."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a topic says, and the schema that it was written with."""

    policies: TopicPolicies
    written_with: EventSchema


class EventLog(Service):
    """The policies of a namespace's topics, up to date as long as it is open.

    ``on_changed`` is called with the keys of which something else holds; ``on_missing`` when the
    topic is not there.
    """

    def __init__(
        self,
        client: Client,
        namespace: NamespaceName,
        schema_of: SchemaOf,
        random: Random,
        *,
        on_changed: Callable[[Collection[str]], None],
        on_missing: Callable[[], None],
    ) -> None:
        super().__init__()
        self.said: Mapping[str, Said] = {}
        """By the messages' keys."""
        self._topic = events_topic(namespace)
        self._client = client
        self._schema_of = schema_of
        self._schemas: dict[bytes | None, EventSchema] = {}
        self._on_changed = on_changed
        self._on_missing = on_missing
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S, random)
        # While all is read that there was at first, and it goes on to be.
        self._reader: Reader[bytes] | None = None
        self._attachments = 0
        self._reached: dict[str, tuple[int, int]] = {}
        self._tailing: asyncio.Timeout | None = None
        self._is_read = asyncio.Event()
        self._has_moved = asyncio.Event()

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn_lasting(self._follow, name=f"reader of {self._topic}")

    # Waiting

    async def read(self) -> None:
        """Return once all has been read. Raises ``ServiceNotReady`` where that takes too long."""
        if not self._is_read.is_set():
            async with _patience(self._topic):
                await self._is_read.wait()

    async def catch_up(self) -> None:
        """Return when everything is read that is stored now. Raises ``ServiceNotReady`` where that
        takes too long."""
        async with _patience(self._topic):
            while not await self._has_caught_up():
                pass

    async def _has_caught_up(self) -> bool:
        reader = self._reader
        if reader is None:
            await self._has_moved.wait()
            return False
        if reader.attachments != self._attachments:
            return await self._read_again()
        try:
            last = {name: each.position for name, each in (await reader.last_message_ids()).items()}
        except ClientError:  # it has lost its broker, or was closed meanwhile
            return await self._read_again()
        while self._reader is reader and not self._has(last):
            try:
                async with asyncio.timeout(STALL_S):
                    await self._has_moved.wait()
            except TimeoutError:
                return await self._read_again()
        return self._reader is reader

    def _has(self, last: Positions) -> bool:
        return all(self._reached.get(name, (-1, -1)) >= last[name] for name in last)

    async def _read_again(self) -> bool:
        """Have all read from the beginning, and wait for it; it may be under way."""
        # Others may have asked for it already, in this turn of the loop too.
        if self._tailing is not None and not self._tailing.expired():
            self._tailing.reschedule(0.0)
            self._tailing = None
        await self._has_moved.wait()
        return False

    def _moved(self) -> None:
        self._has_moved.set()
        self._has_moved = asyncio.Event()

    # Reading

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_from_the_beginning()
            except GemingaError as error:
                delay_s = self._backoff.next_s()
                extra = {"topic": str(self._topic), "why": str(error), "retry_in_s": delay_s}
                log.info("policies of topics cannot be read", extra=extra)
                self._on_missing()
                await asyncio.sleep(delay_s)
            finally:
                self._reader = None

    async def _read_from_the_beginning(self) -> None:
        reading = self._client.reader(
            str(self._topic), EARLIEST, read_compacted=True, create_topic=False
        )
        async with reading as reader:
            self._attachments = reader.attachments
            self._schemas.clear()  # numbers begin again where the topic was made anew
            said, reached = await self._read_to_end(reader)
            if reader.attachments != self._attachments:
                return
            self._backoff.reset()
            self._replace(said)
            self._reader, self._reached = reader, reached
            self._is_read.set()
            self._moved()
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_ANEW_S) as tailing:
                    self._tailing = tailing
                    try:
                        while reader.attachments == self._attachments:
                            message = await reader.read()
                            key = await self._take(said, message)
                            reached[message.topic] = message.id.position
                            if key is not None:
                                self._on_changed([key])
                            self._moved()
                    finally:
                        self._tailing = None  # while the reader is closed, nothing is to be ended

    async def _read_to_end(
        self, reader: Reader[bytes]
    ) -> tuple[dict[str, Said], dict[str, tuple[int, int]]]:
        said = dict[str, Said]()
        # The last message may be one that a compaction has dropped: it counts as read, too.
        last = await reader.last_message_ids()
        reached = {name: each.position for name, each in last.items()}
        while await reader.has_message_available():
            for message in await reader.read_many(READ_AT_ONCE, GATHER_S):
                await self._take(said, message)
                reached[message.topic] = max(reached[message.topic], message.id.position)
        return said, reached

    def _replace(self, said: Mapping[str, Said]) -> None:
        former, self.said = self.said, said
        changed = [
            key
            for key in {**former, **said}
            if key not in former or key not in said or former[key].policies != said[key].policies
        ]
        if changed:
            self._on_changed(changed)

    async def _take(self, said: dict[str, Said], message: Message[bytes]) -> str | None:
        """Note what a message says; the key, if something may have changed."""
        key = message.key
        if key is None:
            return None
        if message.is_null or not message.data:
            return None if said.pop(key, None) is None else key
        try:
            written_with = await self._schema(message.schema_version)
            policies = decode_event(written_with.type, message.data)
        except (WireError, SchemaNotFound, InvalidSchema) as error:
            extra = {"topic": str(self._topic), "id": str(message.id), "why": str(error)}
            log.error("policies cannot be read and are left out", extra=extra)  # noqa: TRY400
            return None
        if policies is None:
            return None
        said[key] = Said(policies, written_with)
        return key

    async def _schema(self, version: bytes | None) -> EventSchema:
        if version is None:
            return own_schema()
        found = self._schemas.get(version)
        if found is None:
            found = self._schemas[version] = await self._schema_of(version)
        return found


@asynccontextmanager
async def _patience(topic: TopicName) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except TimeoutError:
        raise ServiceNotReady(
            f"{topic}, which has the policies of topics, was not read in {WAIT_S:g} s"
        ) from None
