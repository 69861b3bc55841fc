"""The state of one instance, kept in topics: ``StateStore`` of instances, and what REST reads.

Lanes are topics in the namespace of the workers' own topics. A lane is made by the first change.
An instance writes the lane of its number, by a producer that fences the one before it. REST writes
the lane ``rest``. Opening reads all lanes to their ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

import geminga
from geminga_functions.errors import StateChanged, StateDamaged, StateTooLarge
from geminga_functions.names import SLUG_CHARACTERS_MAX, FunctionName, digest_of, slug_of
from geminga_functions.state.changes import Changes
from geminga_functions.state.table import StateTable
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

REST_LANE = "rest"
READ_AT_ONCE = 1000
# How soon an instance follows a lane that is new: of another instance that changes state for the
# first time, or of REST.
REFRESH_S = 1.0


def lane_prefix(namespace: str, function: FunctionName) -> str:
    """What the names of all lanes of a function begin with."""
    path = str(function)
    slug = slug_of(path)[:SLUG_CHARACTERS_MAX].strip("-")
    return f"persistent://{namespace}/state-{slug}-{digest_of(path)}-"


async def lanes_of(
    client: geminga.Client, namespace: str, function: FunctionName
) -> dict[str, str]:
    """The lanes of a function that there are, and their topics. Raises ``ClientError``."""
    prefix = lane_prefix(namespace, function)
    topics = await client.topics(namespace)
    return {topic.removeprefix(prefix): topic for topic in topics if topic.startswith(prefix)}


class ChangelogState(Service):
    """The state of ``function`` as the writer of ``lane`` sees it.

    Reading and changing take no time, and may be called from any thread: changes wait for
    ``commit``. What other lanes change is seen a moment later.
    """

    def __init__(
        self, client: geminga.Client, namespace: str, function: FunctionName, lane: str
    ) -> None:
        super().__init__()
        self._client = client
        self._namespace = namespace
        self._function = function
        self._lane = lane
        self._table = StateTable()
        # Records that are applied, and not yet stored.
        self._uncommitted: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._producer: geminga.EntryProducer | None = None
        self._sequence_id = 0
        self._followed: set[str] = set()
        self._stack: AsyncExitStack | None = None
        # Most functions have no state: what they have none of is not asked for.
        self._is_used = False

    # --- StateStore

    def counter(self, key: str) -> int:
        """As ``StateView.counter``."""
        self._is_used = True
        with self._lock:
            return self._table.counter(key)

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self._is_used = True
        with self._lock:
            return self._table.get(key)

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        with self._lock:
            return self._table.version(key)

    def has_counter(self, key: str) -> bool:
        """As ``StateView.has_counter``."""
        with self._lock:
            return self._table.has_counter(key)

    def apply(self, changes: Changes) -> None:
        """As ``State.apply``; stored by ``commit``."""
        with self._lock:
            records = self._table.records_of(self._lane, changes)
            for key, record in records.items():
                self._table.apply(self._lane, key, record)
            self._uncommitted |= records

    async def commit(self) -> None:
        """Store all changes since the last commit together: all or none of them is there after a
        crash. Raises ``StateTooLarge``, and ``ClientError``: ``ProducerFenced`` where another
        instance has taken the lane."""
        with self._lock:
            changes, self._uncommitted = self._uncommitted, {}
        if not changes:
            return
        if self._producer is None:
            self._producer = await self._open_lane()
            await self._check_new_lane()
        keys, payloads = list(changes), list(changes.values())
        attributes = geminga.encode_attributes(len(changes), keys=keys)
        size = sum(map(len, payloads)) + sum(map(len, attributes))
        if size > self._producer.message_bytes_max:
            raise StateTooLarge(size, self._producer.message_bytes_max)
        # One entry, so that a commit is stored as a whole.
        await self._producer.send(payloads, attributes, self._sequence_id)
        self._sequence_id += len(changes)
        await self._producer.flush()

    # --- lanes

    async def _open(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        lanes = await lanes_of(self._client, self._namespace, self._function)
        if self._lane in lanes:
            # From now on an earlier writer stores nothing more, and what it stored is read.
            self._producer = await self._open_lane()
        await self._follow_new(lanes)
        self.spawn_every(REFRESH_S, self._refresh_if_used, name="lanes of state")

    async def _refresh_if_used(self) -> None:
        if self._is_used:
            await self.refresh()

    async def refresh(self) -> None:
        """Follow the lanes that came since they were looked for last. Raises ``ClientError``."""
        await self._follow_new(await lanes_of(self._client, self._namespace, self._function))

    async def _follow_new(self, lanes: Mapping[str, str]) -> None:
        new = {lane: topic for lane, topic in lanes.items() if lane not in self._followed}
        self._followed.update(new)
        ends = [self._follow(lane, topic) for lane, topic in sorted(new.items())]
        await asyncio.gather(*ends)

    async def _follow(self, lane: str, topic: str) -> None:
        """Read a lane to its end; what comes later is read on and on."""
        assert self._stack is not None
        reader = await self._stack.enter_async_context(
            self._client.reader(topic, geminga.EARLIEST, read_compacted=True)
        )
        while await reader.has_message_available():
            self._take_in(lane, await reader.read_many(READ_AT_ONCE))
        if lane != self._lane:
            self.spawn(self._read_on(lane, reader), name=f"state lane {lane}")

    async def _read_on(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        while True:
            self._take_in(lane, await reader.read_many(READ_AT_ONCE))

    def _take_in(self, lane: str, messages: Sequence[geminga.Message[bytes]]) -> None:
        for message in messages:
            if message.key is None:
                raise StateDamaged(lane, "", f"message {message.id} has no key")
            with self._lock:
                self._table.apply(lane, message.key, message.data)

    async def _check_new_lane(self) -> None:
        """The lane was not there when this state was opened. Whatever is in it now was stored by an
        earlier writer that was slow, or by REST at the same moment."""
        if self._lane != REST_LANE:
            self._followed.add(self._lane)
            topic = lane_prefix(self._namespace, self._function) + self._lane
            async with self._client.reader(topic, geminga.EARLIEST) as reader:
                if await reader.has_message_available():
                    raise StateChanged(topic)

    async def _open_lane(self) -> geminga.EntryProducer:
        assert self._stack is not None
        mode = "shared" if self._lane == REST_LANE else "exclusive_with_fencing"
        producer = await self._stack.enter_async_context(
            self._client.entry_producer(
                lane_prefix(self._namespace, self._function) + self._lane,
                access_mode=geminga.AccessMode[mode.upper()],
                send_timeout_s=None,
            )
        )
        self._sequence_id = producer.known_sequence_id + 1
        return producer
