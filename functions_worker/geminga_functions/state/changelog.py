"""The state of a function, kept in topics: ``StateStore`` of instances, and what REST reads.

Lanes are topics in the namespace of the workers' own topics. A lane is made by the first change,
has one writer, and is followed by all others. What counts is what all lanes together say
(``table``). Opening reads all lanes to their ends.

An instance writes the lane of its number; but with EFFECTIVELY_ONCE the lanes of the input
partitions that it consumes. These move with the partition: to claim it is to take its lane, which
ends the writer before it, and then to read what that one has committed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import geminga
from geminga_functions.errors import StateChanged, StateDamaged
from geminga_functions.names import FunctionName
from geminga_functions.state.changes import Changes
from geminga_functions.state.lanes import (
    PARTITION_PREFIX,
    REST_LANE,
    LaneWriter,
    lane_of_partition,
    lane_prefix,
    lanes_of,
)
from geminga_functions.state.table import COMMIT, MARK, MARK_RECORD, Commit, StateTable
from geminga_runtime.service import Service

log = logging.getLogger(__name__)

READ_AT_ONCE = 1000
# How soon an instance follows a lane that is new: of another instance that changes state for the
# first time, or of REST.
REFRESH_S = 1.0


@dataclass(slots=True)
class Following:
    """A lane that is read: by ``task`` on and on, None where it has no writer but this one."""

    reader: geminga.Reader[bytes]
    task: asyncio.Task[object] | None = None


class ChangelogState(Service):
    """The state of ``function`` as the writer of ``lane`` sees it.

    Reading and applying take no time, and may be done in any thread. What other lanes change is
    seen a moment later. ``is_alone`` says that no other instance of the function should be there:
    whichever still is stores nothing more once this is open.
    """

    def __init__(
        self,
        client: geminga.Client,
        namespace: str,
        function: FunctionName,
        lane: str,
        *,
        is_alone: bool = False,
    ) -> None:
        super().__init__()
        self._client = client
        self._namespace = namespace
        self._function = function
        self._lane = lane
        self._is_alone = is_alone
        self._table = StateTable()
        # Records of the own lane that are applied, and not yet stored.
        self._uncommitted: dict[str, bytes] = {}
        # Guards the table, and what is not stored yet.
        self._lock = threading.Lock()
        self._writers: dict[str, LaneWriter] = {}
        self._followed: dict[str, Following] = {}
        # Lanes that this state has made: they hold nothing of others, as long as it writes them.
        self._made: set[str] = set()
        # Lanes are opened, read to their ends, and given up by one task at a time.
        self._moving = asyncio.Lock()
        # Most functions have no state: what they have none of is not asked for.
        self._is_used = False

    # --- StateStore

    def counter(self, key: str) -> int:
        """As ``StateView.counter``."""
        self._is_used = True
        with self._lock:
            return self._table.counter(key)

    def has_counter(self, key: str) -> bool:
        """As ``StateView.has_counter``."""
        with self._lock:
            return self._table.has_counter(key)

    def get(self, key: str) -> bytes | None:
        """As ``StateView.get``."""
        self._is_used = True
        with self._lock:
            return self._table.get(key)

    def version(self, key: str) -> int:
        """The version of a value, 0 if it never had one."""
        with self._lock:
            return self._table.version(key)

    def apply(self, changes: Changes) -> None:
        """As ``State.apply``; stored by ``commit``."""
        with self._lock:
            records = self._table.records_of(self._lane, changes)
            self._apply(self._lane, records)
            self._uncommitted |= records

    async def commit(self) -> None:
        """As ``StateStore.commit``: all changes or none of them are there after a crash. Raises
        ``ProducerFenced`` where another instance has taken the lane."""
        with self._lock:
            records, self._uncommitted = self._uncommitted, {}
            if records and self._lane != REST_LANE:
                records = self._table.counted(self._lane, records)
        if records:
            await (await self._writer(self._lane)).write(records)

    async def claim(self, partition: str) -> Commit | None:
        """As ``StateStore.claim``."""
        lane = lane_of_partition(partition)
        async with self._moving:
            lanes = await lanes_of(self._client, self._namespace, self._function)
            behind = self._followed.keys() - self._writers.keys()
            if lane in lanes and lane not in self._writers:
                # From now on the earlier owner commits nothing more, and what it did is read.
                await self._open_writer(lane)
            await self._follow_new(lanes)
            await asyncio.gather(*[self._catch_up(each) for each in sorted(behind)])
        return self._table.commits.get(lane)

    async def commit_inputs(self, partition: str, changes: Changes, commit: Commit) -> None:
        """As ``StateStore.commit_inputs``."""
        lane = lane_of_partition(partition)
        with self._lock:
            records = self._table.records_of(lane, changes)
            records = self._table.counted(lane, {**records, COMMIT: commit.encode()})
        try:
            await (await self._writer(lane)).write(records)
        except geminga.ProducerFenced:
            await self._release_partitions()
            raise
        with self._lock:
            self._apply(lane, records)

    async def _release_partitions(self) -> None:
        """Follow all lanes of partitions, as lanes of others."""
        async with self._moving:
            lanes = [lane for lane in self._writers if lane.startswith(PARTITION_PREFIX)]
            await asyncio.gather(*[self._writers.pop(lane).close() for lane in lanes])
            self._made.difference_update(lanes)
            await asyncio.gather(
                *[self._catch_up(each) for each in lanes if each in self._followed]
            )

    # --- lanes

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._close_lanes)
        async with self._moving:
            lanes = await lanes_of(self._client, self._namespace, self._function)
            for lane in sorted(lanes):
                # From now on earlier writers store nothing more, and what they stored is read.
                if lane == self._lane or (self._is_alone and lane.startswith(PARTITION_PREFIX)):
                    await self._open_writer(lane)
            await self._follow_new(lanes)
        self.spawn_every(REFRESH_S, self._refresh_if_used, name="lanes of state")

    async def _close_lanes(self) -> None:
        closing = [each.close() for each in self._writers.values()]
        closing += [each.reader.close() for each in self._followed.values()]
        await asyncio.gather(*closing)

    async def _refresh_if_used(self) -> None:
        if self._is_used:
            async with self._moving:
                await self._follow_new(
                    await lanes_of(self._client, self._namespace, self._function)
                )

    async def _follow_new(self, lanes: Mapping[str, str]) -> None:
        """Follow the lanes that came since they were looked for last; read these to their ends."""
        new = sorted(lanes.keys() - self._followed.keys() - self._made)
        for lane in new:
            reader = await self._client.reader(lanes[lane], geminga.EARLIEST, read_compacted=True)
            self._followed[lane] = Following(reader)
        await asyncio.gather(*[self._catch_up(lane) for lane in new])

    async def _catch_up(self, lane: str) -> None:
        """Read a lane to its end; what comes later is read on and on, if others write it."""
        following = self._followed[lane]
        if following.task is not None:
            following.task.cancel()
            await asyncio.wait([following.task])
            following.task = None
        # Applied at once at the end: in the midst a counter would have been what it once was.
        records = await self._read_to_end(lane, following.reader)
        with self._lock:
            self._apply(lane, records)
            self._table.check(lane)
        if lane not in self._writers or lane == REST_LANE:
            work = self._read_on(lane, following.reader)
            following.task = self.spawn(work, name=f"state lane {lane}")

    async def _read_to_end(self, lane: str, reader: geminga.Reader[bytes]) -> dict[str, bytes]:
        records: dict[str, bytes] = {}
        while await reader.has_message_available():
            records |= self._records(lane, await reader.read_many(READ_AT_ONCE))
        return records

    async def _read_on(self, lane: str, reader: geminga.Reader[bytes]) -> None:
        while True:
            messages = [await reader.read()]
            messages += await reader.read_many(READ_AT_ONCE - 1, 0)
            with self._lock:
                self._apply(lane, self._records(lane, messages))
                self._table.check(lane)

    def _records(self, lane: str, messages: Sequence[geminga.Message[bytes]]) -> dict[str, bytes]:
        """The newest record of each key. Raises ``StateDamaged``."""
        records: dict[str, bytes] = {}
        for message in messages:
            if message.key is None:
                raise StateDamaged(lane, "", f"message {message.id} has no key")
            records[message.key] = message.data
        return records

    def _apply(self, lane: str, records: Mapping[str, bytes]) -> None:
        for key, record in records.items():
            self._table.apply(lane, key, record)

    async def _writer(self, lane: str) -> LaneWriter:
        """The writer of a lane: without one, the lane was not there when lanes were looked for.

        Raises ``StateChanged`` where it has something nevertheless, which an earlier writer that
        was slow has stored, or REST at the same moment.
        """
        if lane not in self._writers:
            async with self._moving:
                await self._open_writer(lane)
                if lane != REST_LANE:
                    topic = self._topic(lane)
                    reading = self._client.reader(topic, geminga.EARLIEST, read_compacted=True)
                    async with reading as reader:
                        if (await self._read_to_end(lane, reader)).keys() - {MARK}:
                            raise StateChanged(topic)
                    self._made.add(lane)
        return self._writers[lane]

    async def _open_writer(self, lane: str) -> None:
        writer = await LaneWriter.open(self._client, lane, self._topic(lane))
        self._writers[lane] = writer
        if lane != REST_LANE:
            # Whatever an earlier writer had under way stands before this, or is refused.
            await writer.write({MARK: MARK_RECORD})

    def _topic(self, lane: str) -> str:
        return lane_prefix(self._namespace, self._function) + lane
