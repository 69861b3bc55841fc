"""One namespace's ``__change_events``, followed from its beginning: the newest event of each key.

It is read over a connection, as every broker of the cluster reads it, whichever serves it. A
removal (a message without a value) may be compacted away while a reader is not attached, and such a
reader never sees it: so the topic is read from its beginning again after each new attachment, and
once in a while. What was read before holds until all is read again.
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

# Messages taken from the reader at once, and how long it may collect so many. A log of some
# thousand events is so read in a few rounds; 10 ms bound what is lost when fewer come.
READ_AT_ONCE = 1000
GATHER_S = 0.01
# All is read again so often: a removal that was missed for a reason not foreseen here ends then.
READ_ANEW_S = 3600.0
# How long loading a topic, or changing its policies, waits for what is stored to be read. Less than
# the 25 s after which the client's command is given up (``SessionContext``), so that the client
# gets this reason.
WAIT_S = 10.0
# A message that is stored and does not come for so long was compacted away before it was sent: all
# is read again.
STALL_S = 1.0
RETRY_FIRST_S = 0.1
RETRY_LIMIT_S = 5.0

# A version of the topic's schema, as messages name it. Raises ``SchemaNotFound``,
# ``InvalidSchema``, and what reading it raises.
SchemaOf = Callable[[bytes], Awaitable[EventSchema]]


@dataclass(frozen=True, slots=True)
class PolicyEvent:
    """The policies of a topic as its newest event has them, and the schema of that event."""

    policies: TopicPolicies
    schema: EventSchema


# What the task ``_follow`` does, for as long as the log is open:
#
#     attach ─▶ read to the end ─▶ publish all at once ─▶ tail: one message after the other
#       ▲             │                                    │  attached anew, an hour over,
#       │ after a     │ attached anew                      │  or a caller that waits in vain
#       └──pause──────┴────────────────────────────────────┘
#
# ``events`` is replaced only behind "read to the end": readers never see a half-read log.
class EventLog(Service):
    """The policies of a namespace's topics, up to date as long as it is open.

    ``on_changed`` is called with the keys whose policies changed; ``on_missing`` when the topic
    cannot be read, which may be as it was deleted.
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
        # The newest event of each key (``events.key_of``). Removed keys are not in it. The task of
        # ``_follow`` alone changes it, message by message while it tails.
        self.events: Mapping[str, PolicyEvent] = {}
        self._topic = events_topic(namespace)
        self._client = client
        self._schema_of = schema_of
        # By version, as messages name it.
        self._schemas: dict[bytes, EventSchema] = {}
        self._on_changed = on_changed
        self._on_missing = on_missing
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_LIMIT_S, random)
        # Set while the log is up to date: all that was stored is read, and what comes is, too. None
        # also tells the callers of ``catch_up`` that reading began anew.
        self._reader: Reader[bytes] | None = None
        # How often the reader had been attached when reading from the beginning began. Another
        # number means that removals may have been missed.
        self._attachments = 0
        # The last position read of each partition: the events may stand in a partitioned topic.
        # Belongs to ``_reader``: positions of another reading are not compared with it.
        self._reached: dict[str, tuple[int, int]] = {}
        # Ends the present reading of new messages, so that all is read again.
        self._tailing: asyncio.Timeout | None = None
        # Set for good when all has been read for the first time.
        self._is_read = asyncio.Event()
        # Set, and replaced by a new one, at every step of reading. An ``Event`` that is only set
        # would wake the next caller at once, for a step that is over.
        self._has_moved = asyncio.Event()

    async def _open(self, stack: AsyncExitStack) -> None:
        del stack
        self.spawn_lasting(self._follow, name=f"reader of {self._topic}")

    # Waiting

    async def read(self) -> None:
        """Return once all has been read once. Raises ``ServiceNotReady`` after ``WAIT_S``."""
        if not self._is_read.is_set():
            async with _deadline(self._topic):
                await self._is_read.wait()

    async def catch_up(self) -> None:
        """Return when everything is read that is stored now. Raises ``ServiceNotReady`` after
        ``WAIT_S``."""
        async with _deadline(self._topic):
            # Each attempt asks anew what is stored. The deadline bounds them all.
            while not await self._has_caught_up():
                pass

    async def _has_caught_up(self) -> bool:
        """One attempt to catch up; False where reading began anew meanwhile."""
        reader = self._reader
        if reader is None:
            await self._has_moved.wait()
            return False
        if reader.attachments != self._attachments:
            return await self._read_again()
        try:
            # What is stored at this moment, of each partition. What is stored later is of no
            # interest to the caller: it wants to see the changes that were confirmed before it
            # came.
            last = {name: each.position for name, each in (await reader.last_message_ids()).items()}
        except ClientError:  # it has lost its broker, or was closed meanwhile
            return await self._read_again()
        while self._reader is reader and any(
            self._reached.get(name, (-1, -1)) < position for name, position in last.items()
        ):
            try:
                async with asyncio.timeout(STALL_S):
                    await self._has_moved.wait()
            except TimeoutError:
                return await self._read_again()
        return self._reader is reader

    async def _read_again(self) -> bool:
        """Have all read from the beginning, and wait for the next step of it; returns False."""
        # It may have been asked for already, in this same turn of the loop, too. The tail ends by
        # its own timeout, which is moved to now: the task is not cancelled, and goes on with
        # reading from the beginning.
        if self._tailing is not None and not self._tailing.expired():
            self._tailing.reschedule(0.0)
            self._tailing = None
        await self._has_moved.wait()
        return False

    def _moved(self) -> None:
        # Wakes all that wait now; those that come later wait for the next step.
        self._has_moved.set()
        self._has_moved = asyncio.Event()

    # Reading

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_from_beginning()
            except GemingaError as error:
                delay_s = self._backoff.next_s()
                extra = {"topic": str(self._topic), "why": str(error), "retry_in_s": delay_s}
                log.info("topic policies not read", extra=extra)
                # The nodes are read again then: where the topic is gone, the store closes this log.
                # Called on every failure, as the client cannot tell a topic that was deleted from
                # one that moves.
                self._on_missing()
                await asyncio.sleep(delay_s)
            finally:
                # Callers of ``catch_up`` wait until all is read again; those of ``known`` still get
                # what was read before.
                self._reader = None

    async def _read_from_beginning(self) -> None:
        """Read all that is stored, then new messages, until all has to be read again."""
        reading = self._client.reader(
            str(self._topic), EARLIEST, read_compacted=True, create_topic=False
        )
        async with reading as reader:
            self._attachments = reader.attachments
            self._schemas.clear()  # version numbers begin again where the topic was created anew
            # Into tables of its own, as this may take long.
            events, reached = await self._read_to_end(reader)
            if reader.attachments != self._attachments:
                return
            self._backoff.reset()
            # No await from here to ``_moved``: followers and those that wait see the same state.
            former, self.events = self.events, events
            changed = [
                key
                for key in {**former, **events}
                if key not in former
                or key not in events
                or former[key].policies != events[key].policies
            ]
            if changed:
                self._on_changed(changed)
            self._reader, self._reached = reader, reached
            self._is_read.set()
            self._moved()
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_ANEW_S) as tailing:
                    self._tailing = tailing
                    try:
                        # A new attachment may have missed removals: then all is read again. The
                        # message that reveals it is taken all the same; reading anew repeats it.
                        while reader.attachments == self._attachments:
                            message = await reader.read()
                            key = await self._take(events, message)
                            # After the event is in ``events``: callers of ``catch_up`` look there
                            # as soon as the position is reached.
                            reached[message.topic] = message.id.position
                            if key is not None:
                                self._on_changed([key])
                            self._moved()
                    finally:
                        # Only the closing of the reader is left, and a timeout cannot be
                        # rescheduled after its block.
                        self._tailing = None

    async def _read_to_end(
        self, reader: Reader[bytes]
    ) -> tuple[dict[str, PolicyEvent], dict[str, tuple[int, int]]]:
        """The newest event of each key, and the last position of each partition."""
        events = dict[str, PolicyEvent]()
        # The last message may be one that compaction has dropped, so that no message of its
        # position ever comes: it counts as read. Asked before reading begins: what is stored
        # afterwards comes as messages.
        last = await reader.last_message_ids()
        reached = {name: each.position for name, each in last.items()}
        while await reader.has_message_available():
            for message in await reader.read_many(READ_AT_ONCE, GATHER_S):
                await self._take(events, message)
                reached[message.topic] = max(reached[message.topic], message.id.position)
        return events, reached

    async def _take(self, events: dict[str, PolicyEvent], message: Message[bytes]) -> str | None:
        """Apply a message to ``events``; returns its key if something may have changed.

        An event that cannot be read is left out, and logged: topics are served all the same.
        """
        key = message.key
        if key is None:
            return None
        # A removal: of a topic that was deleted, or whose policies were. A reader of the compacted
        # topic gets it only if it was stored since the last compaction.
        if message.is_null or not message.data:
            return None if events.pop(key, None) is None else key
        try:
            version = message.schema_version
            if version is None:
                schema = own_schema()
            # Versions never change, but the registry must be asked for each only once.
            elif version in self._schemas:
                schema = self._schemas[version]
            else:
                schema = self._schemas[version] = await self._schema_of(version)
            policies = decode_event(schema.type, message.data)
        # The former event of the key stays in force: policies that cannot be read are no reason to
        # drop those that could.
        except (WireError, SchemaNotFound, InvalidSchema) as error:
            extra = {"topic": str(self._topic), "id": str(message.id), "why": str(error)}
            log.error("topic policies not readable, left out", extra=extra)  # noqa: TRY400
            return None
        if policies is None:
            return None
        events[key] = PolicyEvent(policies, schema)
        return key


@asynccontextmanager
async def _deadline(topic: TopicName) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(WAIT_S):
            yield
    except TimeoutError:
        raise ServiceNotReady(
            f"{topic}, which has the policies of topics, was not read in {WAIT_S:g} s"
        ) from None
